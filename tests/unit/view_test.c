/* SPDX-License-Identifier: MIT */
/* The merged view against an array of bytes: all alignments, seals, releases, failed commits. */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/uio.h>

#include <cmocka.h>

#include "base/bytes.h"
#include "base/crc32c.h"
#include "base/io.h"
#include "sim/sim.h"
#include "export/pin.h"
#include "export/view.h"
#include "log/index_build.h"
#include "rnd.h"

enum {
	BLKS = 2503,
	BYTES = BLKS * COW_BLK_BYTES,
	RING_OFF = 2560 * COW_BLK_BYTES, /* a region of the same card plays the log's ring */
	RING_BLKS = 4096,
};

struct fixture {
	struct card *card;
	struct ram_store *store;
	struct view *v;
	struct log_index *index; /* the one published; the view has the reference */
	uint64_t ring_pos;
	uint8_t *live, *sealed, *committed, *buf; /* images */
	struct rewrites *rewrites;
	uint64_t rewritten;		 /* blocks of do_write that were DATA already */
	uint8_t *active_map, *below_map; /* enum blk_state of each block */
	bool is_sealed;
};

static void home_write(struct fixture *f, uint64_t blk, uint64_t blks, const void *buf)
{
	assert_int_equal(card_set_writable(f->card, true), 0);
	assert_int_equal(card_write(f->card, blk_to_bytes(blk), buf, blk_to_bytes(blks)), 0);
	assert_int_equal(card_flush(f->card), 0);
	assert_int_equal(card_set_writable(f->card, false), 0);
}

static void setup(struct fixture *f, uint64_t limit_bytes)
{
	const struct sim_params params = { .size_bytes = RING_OFF + RING_BLKS * COW_BLK_BYTES };

	*f = (struct fixture){ 0 };
	rnd_state = 0x9e3779b97f4a7c15;
	f->live = io_alloc(BYTES);
	f->sealed = io_alloc(BYTES);
	f->committed = io_alloc(BYTES);
	f->buf = io_alloc(BYTES);
	f->active_map = calloc(1, BLKS);
	f->below_map = calloc(1, BLKS);
	assert_int_equal(sim_new(&f->card, &params), 0);
	rnd_fill(f->committed, BYTES);
	memcpy(f->live, f->committed, BYTES);
	home_write(f, 0, BLKS, f->committed);
	assert_int_equal(ram_store_open(&f->store, limit_bytes), 0);
	f->index = log_index_empty();
	assert_int_equal(view_new(&f->v, f->store, f->card, BLKS, f->index), 0);
	assert_int_equal(rewrites_new(&f->rewrites, 64 * KIB), 0);
	view_set_rewrites(f->v, f->rewrites);
	log_index_unref(f->index);
	assert_int_equal(view_volume_blks(f->v), BLKS);
}

static uint64_t used_blks(const struct fixture *f)
{
	struct ram_usage u;

	ram_store_usage(f->store, &u);
	return u.used_bytes / COW_BLK_BYTES;
}

static void teardown(struct fixture *f)
{
	view_free(f->v);
	rewrites_free(f->rewrites);
	assert_int_equal(used_blks(f), 0);
	ram_store_close(f->store);
	card_close(f->card);
	free(f->live);
	free(f->sealed);
	free(f->committed);
	free(f->buf);
	free(f->active_map);
	free(f->below_map);
}

/* ---- operations on view and model alike ---- */

static void do_write(struct fixture *f, uint64_t off, size_t len)
{
	rnd_fill(f->live + off, len);
	assert_int_equal(view_write(f->v, off, f->live + off, len), 0);
	for (uint64_t b = off / COW_BLK_BYTES; len && b <= (off + len - 1) / COW_BLK_BYTES; b++) {
		f->rewritten += f->active_map[b] == BLK_DATA;
		f->active_map[b] = BLK_DATA;
	}
}

/* A partial punch may make a hole or data, but its block is present. */
static void do_punch(struct fixture *f, uint64_t off, uint64_t len)
{
	memset(f->live + off, 0, len);
	assert_int_equal(view_punch(f->v, off, len), 0);
	for (uint64_t b = off / COW_BLK_BYTES; len && b <= (off + len - 1) / COW_BLK_BYTES; b++) {
		uint64_t pos = b;
		uint64_t n;
		enum blk_state st;

		assert_true(view_next_live(f->v, &pos, 1, &n, &st));
		assert_int_equal(pos, b);
		if (blk_to_bytes(b) >= off && blk_to_bytes(b + 1) <= off + len)
			assert_int_equal(st, BLK_HOLE);
		else
			f->rewritten += f->active_map[b] == BLK_DATA; /* zeroes into a part of it */
		f->active_map[b] = (uint8_t)st;
	}
}

static void check_live(struct fixture *f, uint64_t off, size_t len)
{
	assert_int_equal(view_read(f->v, off, f->buf, len), 0);
	assert_memory_equal(f->buf, f->live + off, len);
}

/* Runs as the view tells them are those of the two maps, upper over lower. */
static void check_runs(struct fixture *f, const uint8_t *upper, const uint8_t *lower,
		       bool (*next)(struct view *v, uint64_t *blk, uint64_t max_blks,
				    uint64_t *ret_blks, enum blk_state *ret_state))
{
	uint64_t blk = 0, seen_to = 0, n, max = 1 + rnd(300);
	enum blk_state st;

	for (;;) {
		bool found = next(f->v, &blk, max, &n, &st);

		if (!found)
			blk = BLKS;
		for (; seen_to < blk; seen_to++)
			assert_false((upper && upper[seen_to]) || lower[seen_to]);
		if (!found)
			return;
		assert_in_range(n, 1, max);
		for (; seen_to < blk + n; seen_to++)
			assert_int_equal(st,
					 upper && upper[seen_to] ? upper[seen_to] : lower[seen_to]);
		blk += n;
	}
}

static void count_states(const uint8_t *map, struct generation_stats *ret)
{
	*ret = (struct generation_stats){ 0 };
	for (uint64_t b = 0; b < BLKS; b++) {
		ret->data_blks += map[b] == BLK_DATA;
		ret->hole_blks += map[b] == BLK_HOLE;
	}
}

static void check_all(struct fixture *f)
{
	struct generation_stats active, below, want;

	check_live(f, 0, BYTES);
	assert_int_equal(view_read_live(f->v, 0, BLKS, f->buf), 0);
	assert_memory_equal(f->buf, f->live, BYTES);
	assert_int_equal(view_read_committed(f->v, 0, BLKS, f->buf), 0);
	assert_memory_equal(f->buf, f->committed, BYTES);
	check_runs(f, f->active_map, f->below_map, view_next_live);
	view_dirty(f->v, &active, &below);
	count_states(f->active_map, &want);
	assert_memory_equal(&active, &want, sizeof(want));
	if (!f->is_sealed) { /* one failed layer at most: sums are exact */
		count_states(f->below_map, &want);
		assert_memory_equal(&below, &want, sizeof(want));
		assert_int_equal(view_read_sealed(f->v, 0, 1, f->buf), -EINVAL);
		return;
	}
	assert_int_equal(view_read_sealed(f->v, 0, BLKS, f->buf), 0);
	assert_memory_equal(f->buf, f->sealed, BYTES);
	check_runs(f, NULL, f->below_map, view_next_sealed);
}

static void do_seal(struct fixture *f)
{
	assert_int_equal(view_seal(f->v), 0);
	assert_int_equal(view_seal(f->v), -EBUSY);
	for (uint64_t b = 0; b < BLKS; b++)
		if (f->active_map[b])
			f->below_map[b] = f->active_map[b];
	memset(f->active_map, 0, BLKS);
	memcpy(f->sealed, f->live, BYTES);
	f->is_sealed = true;
}

static void do_fail(struct fixture *f)
{
	assert_int_equal(view_fail(f->v), 0);
	assert_int_equal(view_fail(f->v), -EINVAL);
	f->is_sealed = false;
}

/* ---- a commit as the test does it: some blocks home, some to the log ---- */

static void checkpoint(struct fixture *f)
{
	struct log_index *empty = log_index_empty();

	home_write(f, 0, BLKS, f->committed);
	view_set_index(f->v, empty);
	f->index = empty;
	f->ring_pos = 0;
}

static struct log_index *commit_block(struct fixture *f, struct log_index *ix, uint64_t blk)
{
	uint32_t crc = crc32c_back(f->sealed + blk_to_bytes(blk), COW_BLK_BYTES);
	struct index_entry e = { .kind = INDEX_HOME, .blk = blk, .blks = 1 };
	struct log_index *next;

	if (bytes_all_zero(f->sealed + blk_to_bytes(blk), COW_BLK_BYTES)) {
		e.kind = INDEX_ZERO;
	} else if (rnd(2)) {
		e.kind = INDEX_DATA;
		e.lblk = f->ring_pos++;
		e.crc = &crc;
		home_write(f, RING_OFF / COW_BLK_BYTES + e.lblk, 1, f->sealed + blk_to_bytes(blk));
	} else {
		home_write(f, blk, 1, f->sealed + blk_to_bytes(blk));
	}
	assert_int_equal(log_index_overlay(&next, ix, &e, 1, f->card, f->card, RING_OFF), 0);
	log_index_unref(ix);
	return next;
}

static void do_release(struct fixture *f)
{
	struct log_index *ix;

	if (f->ring_pos + BLKS > RING_BLKS)
		checkpoint(f);
	ix = log_index_ref(f->index);
	for (uint64_t b = 0; b < BLKS; b++)
		if (f->below_map[b])
			ix = commit_block(f, ix, b);
	memcpy(f->committed, f->sealed, BYTES);
	memset(f->below_map, 0, BLKS);
	view_release(f->v, ix);
	f->index = ix;
	f->is_sealed = false;
}

/* ---- tests ---- */

static void random_range(uint64_t *off, uint64_t *len)
{
	static const uint64_t units[] = { 1, 512, COW_BLK_BYTES };
	uint64_t unit = units[rnd(3)], max = rnd(40) ? 300 * KIB : BYTES;

	*off = rnd(BYTES / unit + 1) * unit;
	*len = rnd(min_u64(BYTES - *off, rnd(3) ? 3 * unit + 5000 : max) / unit + 1) * unit;
}

static void random_op(struct fixture *f)
{
	uint64_t off, len;

	random_range(&off, &len);
	switch (rnd(5)) {
	case 0:
	case 1:
		do_write(f, off, len);
		break;
	case 2:
		do_punch(f, off, len);
		break;
	default:
		check_live(f, off, len);
	}
}

static void check_rewrites(struct fixture *f)
{
	struct rewrites_part part;

	rewrites_take_part(f->rewrites, 0, &part);
	assert_true(f->rewritten > 1000 && part.totals.discarded > 0);
	assert_int_equal(part.totals.absorbed, f->rewritten);
}

static void everything_against_the_model(void **state)
{
	struct fixture f;

	(void)state;
	setup(&f, 64 * MIB);
	for (unsigned round = 0; round < 60; round++) {
		for (unsigned i = 0; i < 25; i++)
			random_op(&f);
		check_all(&f);
		if (!f.is_sealed)
			do_seal(&f);
		else if (rnd(3))
			do_release(&f);
		else
			do_fail(&f);
		if (rnd(6) == 0 && !f.is_sealed)
			checkpoint(&f);
		check_all(&f);
	}
	check_rewrites(&f);
	teardown(&f);
}

static void ranges_and_counters(void **state)
{
	struct fixture f;
	struct view_counters c;
	struct view *v = NULL;
	char b[16] = { 0 };

	(void)state;
	setup(&f, MIB);
	assert_int_equal(view_new(&v, f.store, f.card, 0, f.index), -EINVAL);
	assert_int_equal(view_new(&v, f.store, f.card, UINT64_MAX, f.index), -EINVAL);
	assert_null(v);
	assert_int_equal(view_read(f.v, BYTES, b, 0), 0);
	assert_int_equal(view_read(f.v, BYTES - 1, b, 2), -EINVAL);
	assert_int_equal(view_write(f.v, UINT64_MAX, b, 2), -EINVAL);
	assert_int_equal(view_write(f.v, BYTES - 1, b, 1), 0);
	assert_int_equal(view_punch(f.v, 1, BYTES), -EINVAL);
	assert_int_equal(view_punch(f.v, 0, 100), 0);
	assert_int_equal(view_read_committed(f.v, BLKS, 1, f.buf), -EINVAL);
	view_counters(f.v, &c);
	assert_int_equal(c.read_calls, 2);
	assert_int_equal(c.read_bytes, 0);
	assert_int_equal(c.read_errors, 1);
	assert_int_equal(c.write_calls, 2);
	assert_int_equal(c.written_bytes, 1);
	assert_int_equal(c.punch_calls, 2);
	assert_int_equal(c.punched_bytes, 100);
	assert_int_equal(c.write_errors, 2);
	teardown(&f);
}

static void holes_take_no_ram(void **state)
{
	struct fixture f;

	(void)state;
	setup(&f, 64 * MIB);
	do_write(&f, 0, 1000 * COW_BLK_BYTES);
	assert_int_equal(used_blks(&f), 1000);
	do_punch(&f, 0, BYTES);
	assert_int_equal(used_blks(&f), 0);
	do_punch(&f, 100, 50);
	do_punch(&f, COW_BLK_BYTES - 1, 2);
	assert_int_equal(used_blks(&f), 0);
	do_write(&f, COW_BLK_BYTES + 5, 1);
	assert_int_equal(used_blks(&f), 1);
	check_all(&f);
	do_seal(&f);
	do_punch(&f, COW_BLK_BYTES, 100); /* part of what is zero then: a hole */
	assert_int_equal(f.active_map[1], BLK_HOLE);
	check_all(&f);
	teardown(&f);
}

static void errors_from_below_change_nothing(void **state)
{
	struct fixture f;
	uint8_t byte = 0;

	(void)state;
	setup(&f, 64 * MIB);
	sim_fail_at(f.card, SIM_READ, 1, -EIO, true);
	assert_int_equal(view_read(f.v, 5, &byte, 1), -EIO);
	assert_int_equal(view_write(f.v, 5, &byte, 1), -EIO);
	assert_int_equal(view_punch(f.v, 5, 1), -EIO);
	assert_int_equal(used_blks(&f), 0);
	do_write(&f, COW_BLK_BYTES, COW_BLK_BYTES); /* a whole block asks nobody */
	check_live(&f, COW_BLK_BYTES, COW_BLK_BYTES);
	/* the whole blocks before the tail that cannot be filled are written, the tail is not */
	rnd_fill(f.live, COW_BLK_BYTES * 2);
	assert_int_equal(view_write(f.v, 0, f.live, COW_BLK_BYTES * 2 + 10), -EIO);
	f.active_map[0] = f.active_map[1] = BLK_DATA;
	sim_fail_at(f.card, 0, 0, 0, false);
	check_all(&f);

	/* a rotten block in the log */
	do_write(&f, 0, 20 * COW_BLK_BYTES);
	do_seal(&f);
	do_release(&f);
	for (uint64_t b = 0; b < f.ring_pos; b++)
		assert_int_equal(sim_poke(f.card, RING_OFF + blk_to_bytes(b) + 77, &byte, 1), 0);
	assert_true(f.ring_pos > 0);
	assert_int_equal(view_read(f.v, 0, f.buf, 20 * COW_BLK_BYTES), -EBADMSG);
	teardown(&f);
}

static void full_store_fails_cleanly(void **state)
{
	struct fixture f;
	uint64_t used;

	(void)state;
	setup(&f, 100 * COW_BLK_BYTES);
	do_write(&f, 0, 90 * COW_BLK_BYTES);
	do_punch(&f, 500 * COW_BLK_BYTES, 5 * COW_BLK_BYTES);
	used = used_blks(&f);
	assert_int_equal(view_write(f.v, 490 * COW_BLK_BYTES, f.committed, 50 * COW_BLK_BYTES),
			 -ENOSPC);
	assert_int_equal(used_blks(&f), used); /* nothing leaks */
	check_all(&f);
	do_write(&f, 300 * COW_BLK_BYTES, 10 * COW_BLK_BYTES);
	assert_int_equal(view_write(f.v, 1000 * COW_BLK_BYTES + 1, f.committed, 7), -ENOSPC);
	assert_int_equal(view_write(f.v, 500 * COW_BLK_BYTES + 1, f.committed, 7), -ENOSPC);
	do_write(&f, 77, 80 * COW_BLK_BYTES); /* what is there can be overwritten */
	check_all(&f);
	do_punch(&f, 0, 20 * COW_BLK_BYTES);
	do_write(&f, 1000 * COW_BLK_BYTES + 1, 7);
	check_all(&f);
	teardown(&f);
}

static void failed_layers_without_room(void **state)
{
	struct fixture f;

	(void)state;
	setup(&f, 100 * COW_BLK_BYTES);
	do_write(&f, 0, 40 * COW_BLK_BYTES);
	do_seal(&f);
	do_fail(&f);
	do_write(&f, 10 * COW_BLK_BYTES, 10 * COW_BLK_BYTES);
	do_write(&f, 100 * COW_BLK_BYTES, 40 * COW_BLK_BYTES);
	do_seal(&f);
	do_write(&f, 200 * COW_BLK_BYTES, 10 * COW_BLK_BYTES);
	assert_int_equal(used_blks(&f), 100);
	do_fail(&f); /* what upper covers makes room enough */
	assert_int_equal(used_blks(&f), 90);
	check_all(&f);

	do_write(&f, 300 * COW_BLK_BYTES, 10 * COW_BLK_BYTES);
	do_seal(&f);
	assert_int_equal(view_fail(f.v), -ENOSPC); /* now nothing can make room */
	f.is_sealed = false;
	check_all(&f);
	assert_int_equal(used_blks(&f), 100);
	do_seal(&f); /* a third layer under a new one */
	check_all(&f);
	assert_int_equal(view_fail(f.v), -ENOSPC);
	f.is_sealed = false;
	check_all(&f);
	do_punch(&f, 0, 80 * COW_BLK_BYTES); /* covers much of the oldest */
	do_seal(&f);
	do_fail(&f); /* all four are one again */
	check_all(&f);
	do_seal(&f);
	do_release(&f);
	check_all(&f);
	assert_int_equal(used_blks(&f), 0);
	teardown(&f);
}

static void seal_without_memory_changes_nothing(void **state)
{
	struct rlimit old, tight;
	struct fixture f;

	(void)state;
	setup(&f, 64 * MIB);
	do_write(&f, 10, 5000);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	tight = (struct rlimit){ .rlim_cur = 0, .rlim_max = old.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
	assert_int_equal(view_seal(f.v), -EMFILE);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
	check_all(&f);
	do_seal(&f);
	check_all(&f);
	teardown(&f);
}

static void release_without_seal_keeps_ram(void **state)
{
	struct fixture f;

	(void)state;
	setup(&f, 64 * MIB);
	do_write(&f, 0, 10000);
	do_seal(&f);
	do_fail(&f);
	view_release(f.v, log_index_empty());
	check_all(&f);
	teardown(&f);
}

/* ---- a reader that sleeps between its look-up and its copying ---- */

/* A card in front of the card, whose reads wait: so a request holds its pin as long as we like. */
struct gate {
	struct card card;
	struct card *inner;
	sem_t arrived, go;
};

static int gate_read(struct card *c, uint64_t off_bytes, void *buf, size_t len_bytes)
{
	struct gate *g = (struct gate *)c;

	sem_post(&g->arrived);
	sem_wait(&g->go);
	return card_read(g->inner, off_bytes, buf, len_bytes);
}

struct slow_reader {
	struct view *v;
	uint8_t *buf;
	int r;
};

static void *read_three_blocks(void *arg)
{
	struct slow_reader *s = arg;

	s->r = view_read(s->v, 0, s->buf, 3 * COW_BLK_BYTES);
	return NULL;
}

struct releaser {
	struct view *v;
	struct log_index *index;
	_Atomic bool done;
};

static void *release(void *arg)
{
	struct releaser *r = arg;

	view_release(r->v, r->index);
	r->done = true;
	return NULL;
}

static void pinned_generation_is_not_freed(void **state)
{
	static const struct card_ops ops = { .read = gate_read };
	struct gate gate = { .card.ops = &ops };
	struct slow_reader reader;
	struct releaser rel = { 0 };
	pthread_t reading, releasing;
	struct fixture f;

	(void)state;
	setup(&f, 64 * MIB);
	view_free(f.v);
	gate.card.geo = f.card->geo;
	gate.inner = f.card;
	sem_init(&gate.arrived, 0, 0);
	sem_init(&gate.go, 0, 0);
	f.index = log_index_empty();
	assert_int_equal(view_new(&f.v, f.store, &gate.card, BLKS, f.index), 0);
	log_index_unref(f.index);

	/* blocks 0 and 2 from the base, 1 from RAM */
	do_write(&f, COW_BLK_BYTES, COW_BLK_BYTES);
	reader = (struct slow_reader){ .v = f.v, .buf = io_alloc(3 * COW_BLK_BYTES), .r = 1 };
	assert_int_equal(pthread_create(&reading, NULL, read_three_blocks, &reader), 0);
	sem_wait(&gate.arrived);

	do_seal(&f);
	memcpy(f.buf, f.live + COW_BLK_BYTES, COW_BLK_BYTES);
	memset(f.live + COW_BLK_BYTES, 0x11,
	       COW_BLK_BYTES); /* something newer than what it pinned */
	assert_int_equal(view_write(f.v, COW_BLK_BYTES, f.live + COW_BLK_BYTES, COW_BLK_BYTES), 0);
	rel.v = f.v;
	rel.index = log_index_empty();
	assert_int_equal(pthread_create(&releasing, NULL, release, &rel), 0);
	usleep(50000);
	assert_false(rel.done);
	assert_int_equal(used_blks(&f), 2);
	/* a request that comes later neither waits nor is waited for */
	assert_int_equal(view_read(f.v, COW_BLK_BYTES, f.buf + COW_BLK_BYTES, COW_BLK_BYTES), 0);
	assert_memory_equal(f.buf + COW_BLK_BYTES, f.live + COW_BLK_BYTES, COW_BLK_BYTES);
	assert_false(rel.done);

	sem_post(&gate.go);
	sem_wait(&gate.arrived); /* block 2: it is through with the sealed block, and still pins */
	usleep(20000);
	assert_false(rel.done);
	sem_post(&gate.go);
	pthread_join(reading, NULL);
	pthread_join(releasing, NULL);
	assert_int_equal(reader.r, 0);
	assert_memory_equal(reader.buf, f.committed, COW_BLK_BYTES);
	assert_memory_equal(reader.buf + COW_BLK_BYTES, f.buf, COW_BLK_BYTES);
	assert_memory_equal(reader.buf + 2 * COW_BLK_BYTES, f.committed + 2 * COW_BLK_BYTES,
			    COW_BLK_BYTES);
	assert_int_equal(used_blks(&f), 1);
	free(reader.buf);
	teardown(&f);
}

/* Stands in front of the C library's: threads that ask for it stop before they copy from the store.
 */
static _Thread_local struct gate *my_gate;

ssize_t pread(int fd, void *buf, size_t len, off_t off)
{
	const struct iovec iov = { .iov_base = buf, .iov_len = len };

	if (my_gate) {
		sem_post(&my_gate->arrived);
		sem_wait(&my_gate->go);
	}
	return preadv(fd, &iov, 1, off);
}

struct gated {
	struct gate gate;
	struct view *v;
	uint8_t *buf;
	_Atomic bool done;
	int r;
};

static void *read_gated(void *arg)
{
	struct gated *g = arg;

	my_gate = &g->gate;
	g->r = view_read(g->v, 0, g->buf, COW_BLK_BYTES);
	g->done = true;
	return NULL;
}

static void *fail_gated(void *arg)
{
	struct gated *g = arg;

	my_gate = &g->gate;
	g->r = view_fail(g->v);
	g->done = true;
	return NULL;
}

static void merged_layer_outlives_its_readers(void **state)
{
	struct gated reader = { 0 }, failer = { 0 };
	pthread_t reading, failing;
	struct fixture f;

	(void)state;
	setup(&f, 64 * MIB);
	do_write(&f, 0, COW_BLK_BYTES);
	do_seal(&f);
	do_fail(&f);
	do_write(&f, 10 * COW_BLK_BYTES, COW_BLK_BYTES);
	do_seal(&f);
	sem_init(&reader.gate.arrived, 0, 0);
	sem_init(&reader.gate.go, 0, 0);
	sem_init(&failer.gate.arrived, 0, 0);
	sem_init(&failer.gate.go, 0, 0);
	reader.v = failer.v = f.v;
	reader.buf = io_alloc(COW_BLK_BYTES);

	/* the merge is about to copy block 0 up, the reader has found it in the lower layer */
	assert_int_equal(pthread_create(&failing, NULL, fail_gated, &failer), 0);
	sem_wait(&failer.gate.arrived);
	assert_int_equal(pthread_create(&reading, NULL, read_gated, &reader), 0);
	sem_wait(&reader.gate.arrived);
	sem_post(&failer.gate.go);
	usleep(50000);
	assert_false(failer.done);
	assert_int_equal(used_blks(&f), 3);
	sem_post(&reader.gate.go);
	pthread_join(reading, NULL);
	pthread_join(failing, NULL);
	f.is_sealed = false;
	assert_int_equal(reader.r, 0);
	assert_int_equal(failer.r, 0);
	assert_memory_equal(reader.buf, f.live, COW_BLK_BYTES);
	assert_int_equal(used_blks(&f), 2);
	check_all(&f);
	free(reader.buf);
	teardown(&f);
}

/* One pin after the other, each entered before the last is left: the count never falls to 0. */
struct relay {
	struct pins *pins;
	_Atomic bool stop, running;
};

static void *hand_over(void *arg)
{
	struct relay *r = arg;
	struct pin pin = pins_enter(r->pins), next;

	r->running = true;
	while (!r->stop) {
		next = pins_enter(r->pins);
		pins_leave(pin);
		pin = next;
	}
	pins_leave(pin);
	return NULL;
}

static void new_pins_do_not_delay_the_wait(void **state)
{
	struct pins *pins = aligned_alloc(alignof(struct pins), sizeof(*pins));
	struct relay r = { .pins = pins };
	pthread_t t;

	(void)state;
	memset(pins, 0, sizeof(*pins));
	pins_synchronize(pins);
	assert_int_equal(pthread_create(&t, NULL, hand_over, &r), 0);
	while (!r.running)
		usleep(100);
	alarm(60);
	for (unsigned i = 0; i < 200; i++)
		pins_synchronize(pins);
	alarm(0);
	r.stop = true;
	pthread_join(t, NULL);
	for (unsigned i = 0; i < PIN_SLOTS; i++)
		assert_true(!pins->slot[i].held[0] && !pins->slot[i].held[1]);
	free(pins);
}

static void *synchronize(void *arg)
{
	struct relay *r = arg;

	pins_synchronize(r->pins);
	r->stop = true;
	return NULL;
}

/* A reader may load the phase, sleep, and enter when it is no longer the current one. */
static void late_pins_are_waited_for(void **state)
{
	struct pins *pins = aligned_alloc(alignof(struct pins), sizeof(*pins));

	(void)state;
	memset(pins, 0, sizeof(*pins));
	for (unsigned phase = 0; phase < 2; phase++) {
		struct relay r = { .pins = pins };
		struct pin pin = pins_enter(pins);
		pthread_t t;

		pins->phase ^= phase;
		assert_int_equal(pthread_create(&t, NULL, synchronize, &r), 0);
		usleep(30000);
		assert_false(r.stop);
		pins_leave(pin);
		pthread_join(t, NULL);
	}
	free(pins);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(everything_against_the_model),
		cmocka_unit_test(ranges_and_counters),
		cmocka_unit_test(holes_take_no_ram),
		cmocka_unit_test(errors_from_below_change_nothing),
		cmocka_unit_test(full_store_fails_cleanly),
		cmocka_unit_test(failed_layers_without_room),
		cmocka_unit_test(seal_without_memory_changes_nothing),
		cmocka_unit_test(release_without_seal_keeps_ram),
		cmocka_unit_test(pinned_generation_is_not_freed),
		cmocka_unit_test(merged_layer_outlives_its_readers),
		cmocka_unit_test(new_pins_do_not_delay_the_wait),
		cmocka_unit_test(late_pins_are_waited_for),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
