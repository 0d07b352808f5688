/* SPDX-License-Identifier: MIT */
/* The merged view against an array of bytes: all alignments, seals, releases, failed commits. */
#include "test.h"
#include <dlfcn.h>
#include <semaphore.h>
#include <sys/uio.h>

#include "base/bytes.h"
#include "base/crc32c.h"
#include "sim/sim.h"
#include "export/pin.h"
#include "export/view.h"
#include "log/index_build.h"
#include "view_model.h"

/* Replaces the C library's function: no memory for a page of a map. */
static bool no_pages;

int fallocate(int fd, int mode, off_t off, off_t len)
{
	int (*real)(int, int, off_t, off_t) = (int (*)(int, int, off_t, off_t))dlsym(RTLD_NEXT,
										     "fallocate64");

	if (!mode && no_pages) {
		errno = ENOSPC;
		return -1;
	}
	return real(fd, mode, off, len);
}

/* ---- operations on view and model alike ---- */

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
		f->active_map[b] = (uint8_t)st;
	}
}

/* ---- a commit made by the test: some blocks home, some to the log ---- */

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

static bool is_kept(void *ctx, bool newest, uint64_t blk, uint64_t max_blks, uint64_t *ret_blks)
{
	(void)newest;
	*ret_blks = 1;
	return ((struct fixture *)ctx)->kept_map[blk];
}

/* Some blocks of the newest sealed generation, or of all below the active one, are not committed, and stay. In the
 * first case those of older ones that are not committed are dropped: a model of that would have to know that nothing
 * reads them. */
static void do_release_keeping(struct fixture *f)
{
	struct log_index *ix = log_index_ref(f->index);
	const unsigned one_of = rnd(4) ? 3 : BLKS; /* or hardly any */
	const bool all = rnd(2);
	const uint8_t *from = all ? f->below_map : f->top_map;

	if (f->ring_pos + BLKS > RING_BLKS) {
		log_index_unref(ix);
		do_release(f);
		return;
	}
	for (uint64_t b = 0; b < BLKS; b++) {
		if (from[b] && !rnd(one_of)) {
			f->kept_map[b] = from[b];
		} else if (f->below_map[b]) {
			ix = commit_block(f, ix, b);
			memcpy(f->committed + blk_to_bytes(b), f->sealed + blk_to_bytes(b),
			       COW_BLK_BYTES);
		}
	}
	memset(f->below_map, 0, BLKS);
	view_release_keeping(f->v, ix, all, is_kept, f);
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

TEST(everything_against_the_model)
{
	struct fixture f;

	setup(&f, 64 * MIB);
	for (unsigned round = 0; round < 120; round++) {
		for (unsigned i = 0; i < 25; i++)
			random_op(&f);
		check_all(&f);
		if (!f.is_sealed)
			do_seal(&f);
		else if (rnd(3))
			(rnd(2) ? do_release : do_release_keeping)(&f);
		else
			do_fail(&f);
		if (rnd(6) == 0 && !f.is_sealed)
			checkpoint(&f);
		check_all(&f);
	}
	teardown(&f);
}

TEST(ranges_and_counters)
{
	struct fixture f;
	struct view_counters c;
	struct view *v = NULL;
	char b[16] = { 0 };

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

TEST(holes_take_no_ram)
{
	struct fixture f;

	setup(&f, 64 * MIB);
	do_write(&f, 0, 600 * page_bytes());
	assert_int_equal(used_pages(&f), 600);
	do_punch(&f, 0, BYTES);
	assert_int_equal(used_pages(&f), 0);
	do_punch(&f, 100, 50);
	do_punch(&f, COW_BLK_BYTES - 1, 2);
	assert_int_equal(used_pages(&f), 0);
	do_write(&f, COW_BLK_BYTES + 5, 1);
	assert_int_equal(used_pages(&f), 1);
	check_all(&f);
	do_seal(&f);
	do_punch(&f, COW_BLK_BYTES, 100); /* part of a zero block: a hole */
	assert_int_equal(f.active_map[1], BLK_HOLE);
	check_all(&f);
	teardown(&f);
}

TEST(errors_from_below_change_nothing)
{
	struct fixture f;
	uint8_t byte = 0;

	setup(&f, 64 * MIB);
	sim_fail_at(f.card, SIM_READ, 1, -EIO, true);
	assert_int_equal(view_read(f.v, 5, &byte, 1), -EIO);
	assert_int_equal(view_write(f.v, 5, &byte, 1), -EIO);
	assert_int_equal(view_punch(f.v, 5, 1), -EIO);
	assert_int_equal(used_pages(&f), 0);
	do_write(&f, COW_BLK_BYTES, COW_BLK_BYTES); /* a whole block needs no read */
	check_live(&f, COW_BLK_BYTES, COW_BLK_BYTES);
	/* nothing of a write whose tail cannot be filled */
	rnd_fill(f.buf, COW_BLK_BYTES * 2);
	assert_int_equal(view_write(f.v, 0, f.buf, COW_BLK_BYTES * 2 + 10), -EIO);
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

TEST(full_store_fails_cleanly)
{
	struct fixture f;
	uint64_t used;

	setup(&f, 100 * page_bytes());
	do_write(&f, 0, 90 * page_bytes());
	do_punch(&f, 290 * page_bytes(), 5 * page_bytes());
	used = used_pages(&f);
	assert_int_equal(view_write(f.v, 280 * page_bytes(), f.committed, 50 * page_bytes()),
			 -ENOSPC);
	assert_int_equal(used_pages(&f), used); /* nothing leaks */
	check_all(&f);
	do_write(&f, 300 * page_bytes(), 10 * page_bytes());
	assert_int_equal(view_write(f.v, 600 * page_bytes() + 1, f.committed, 7), -ENOSPC);
	assert_int_equal(view_write(f.v, 290 * page_bytes() + 1, f.committed, 7), -ENOSPC);
	do_write(&f, 77, 80 * page_bytes()); /* present blocks can be overwritten */
	check_all(&f);
	do_punch(&f, 0, 20 * page_bytes());
	do_write(&f, 600 * page_bytes() + 1, 7);
	check_all(&f);
	teardown(&f);
}

TEST(failed_layers_without_room)
{
	struct fixture f;

	setup(&f, 100 * page_bytes());
	do_write(&f, 0, 40 * page_bytes());
	do_seal(&f);
	do_fail(&f);
	do_write(&f, 10 * page_bytes(), 10 * page_bytes());
	do_write(&f, 100 * page_bytes(), 40 * page_bytes());
	do_seal(&f);
	do_write(&f, 200 * page_bytes(), 10 * page_bytes());
	assert_int_equal(used_pages(&f), 100);
	do_fail(&f); /* the blocks that the upper layer covers make enough room */
	assert_int_equal(used_pages(&f), 90);
	check_all(&f);

	do_write(&f, 300 * page_bytes(), 10 * page_bytes());
	do_seal(&f);
	assert_int_equal(view_fail(f.v), -ENOSPC); /* now nothing can make room */
	f.is_sealed = false;
	check_all(&f);
	assert_int_equal(used_pages(&f), 100);
	do_seal(&f); /* a third layer under a new one */
	check_all(&f);
	assert_int_equal(view_fail(f.v), -ENOSPC);
	f.is_sealed = false;
	check_all(&f);
	do_punch(&f, 0, 80 * page_bytes()); /* covers much of the oldest */
	do_seal(&f);
	do_fail(&f); /* all four are one layer again */
	check_all(&f);
	do_seal(&f);
	do_release(&f);
	check_all(&f);
	assert_int_equal(used_pages(&f), 0);
	teardown(&f);
}

/* What an upper layer covers splits the run of holes below, which needs a page. */
TEST(failed_layers_without_memory)
{
	struct fixture f;

	setup(&f, 64 * MIB);
	do_punch(&f, 0, BYTES);
	do_seal(&f);
	do_fail(&f);
	do_write(&f, 100 * COW_BLK_BYTES, 10 * COW_BLK_BYTES);
	do_seal(&f);
	no_pages = true;
	assert_int_equal(view_fail(f.v), -ENOMEM);
	no_pages = false;
	f.is_sealed = false;
	check_live(&f, 0, BYTES); /* the sums count what is covered */
	do_seal(&f);
	do_fail(&f);
	check_all(&f);
	do_seal(&f);
	do_release(&f);
	check_all(&f);
	teardown(&f);
}

TEST(seal_without_memory_changes_nothing)
{
	struct rlimit old, tight;
	struct fixture f;

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

TEST(release_without_seal_keeps_ram)
{
	struct fixture f;

	setup(&f, 64 * MIB);
	do_write(&f, 0, 10000);
	do_seal(&f);
	do_fail(&f);
	view_release(f.v, log_index_empty());
	check_all(&f);
	teardown(&f);
}

enum { ACROSS_BYTES = 256 * KIB, ACROSS_AT = 2 * MIB - ACROSS_BYTES / 2, ACROSS_SEALS = 200 };

struct across {
	struct view *v;
	_Atomic bool ended;
};

static void *write_across(void *arg)
{
	static uint8_t buf[ACROSS_BYTES];
	struct across *a = arg;

	for (uint8_t n = 1; !a->ended; n++) {
		memset(buf, n, sizeof(buf));
		assert_int_equal(view_write(a->v, ACROSS_AT, buf, sizeof(buf)), 0);
	}
	return NULL;
}

/* However the write is cut into pieces, the sealed image has all of it or nothing. */
TEST(a_seal_does_not_cut_a_write)
{
	static uint8_t sealed[ACROSS_BYTES];
	struct across a = { 0 };
	unsigned torn = 0;
	struct fixture f;
	pthread_t writer;

	setup(&f, 64 * MIB);
	a.v = f.v;
	memset(sealed, 0, sizeof(sealed));
	assert_int_equal(view_write(f.v, ACROSS_AT, sealed, sizeof(sealed)), 0);
	assert_int_equal(pthread_create(&writer, NULL, write_across, &a), 0);
	for (unsigned i = 0; i < ACROSS_SEALS; i++) {
		assert_int_equal(view_seal(f.v), 0);
		assert_int_equal(view_read_sealed(f.v, ACROSS_AT / COW_BLK_BYTES,
						  ACROSS_BYTES / COW_BLK_BYTES, sealed),
				 0);
		torn += memcmp(sealed, sealed + 1, sizeof(sealed) - 1) != 0;
		assert_int_equal(view_fail(f.v), 0);
	}
	a.ended = true;
	assert_int_equal(pthread_join(writer, NULL), 0);
	assert_int_equal(torn, 0);
	teardown(&f);
}
