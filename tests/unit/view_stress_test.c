/* SPDX-License-Identifier: MIT */
/*
 * The view under threads: writers of shared blocks, readers, and a commit thread that seals, writes
 * the sealed blocks home, releases, or fails.
 *
 * The volume is made of units of 512 bytes. A unit belongs to one writer. Only this writer changes
 * it, and so knows its content: 64 words of (unit + 1, version), or zero. Neighbouring units belong
 * to different writers, so blocks are shared and nearly every write there is a partial one.
 * Versions only grow, so readers can detect a lost or resurrected write, even if they overtake
 * others.
 *
 * Reads of the card, and reads and writes of the store, sleep now and then. That stretches the
 * windows between look-up and copy and between look-up and mark, far enough that a missing lock or
 * pin is found within a second (COWFS_STRESS_MS: run time, COWFS_STRESS_SEED: first seed).
 */
#include "test.h"
#include <sched.h>
#include <sys/uio.h>

#include "sim/sim.h"
#include "export/view.h"
#include "race.h"

enum {
	UNIT_BYTES = 512,
	UNIT_WORDS = UNIT_BYTES / 8,
	WRITERS = 4,
	READERS = 2,
	/*
	 * each writer's own large range, which shares only the blocks at its ends; then one that is
	 * never written; then the shared one, which lies across the point where the table of block
	 * locks (16 MiB) begins again, and a piece of a long request ends
	 */
	WIDE_UNITS = 5117,
	TABLE_END = 16 * 2048,
	SHARED_FIRST = TABLE_END - 512,
	SHARED_UNITS = 1024,
	UNITS = SHARED_FIRST + SHARED_UNITS,
	BLKS = UNITS / 8,
	MAX_READ_UNITS = 600,
};

struct stress {
	struct card card; /* in front of the simulated one */
	struct card *sim;
	struct ram_store *store;
	struct view *v;
	struct race race;
	uint64_t seed;
	uint8_t owner[UNITS];	 /* writer, or WRITERS: none */
	uint32_t version[UNITS]; /* 0: zero. Each writer's own units only */
	_Atomic uint64_t writes, punches, reads, seals, releases, fails, kept;
};

struct worker {
	struct stress *s;
	pthread_t thread;
	unsigned me;
	uint64_t rnd;
	uint32_t next_version;
	uint32_t seen[UNITS];
	uint64_t *buf;
};

static void complain(struct stress *s, const char *what, uint64_t unit, uint64_t got, uint64_t want)
{
	race_fail(&s->race, "%s: unit %llu, word %#llx, expected %#llx", what,
		  (unsigned long long)unit, (unsigned long long)got, (unsigned long long)want);
}

static void complain_error(struct stress *s, const char *what, int r)
{
	complain(s, what, 0, (uint64_t)-r, 0);
}

static uint64_t word_of(uint64_t unit, uint32_t version)
{
	return version ? (unit + 1) << 32 | version : 0;
}

/* ---- the slow card, and the slow store: these replace functions of the C library ---- */

static void dawdle(unsigned one_in)
{
	static _Thread_local uint64_t x;

	if (!x)
		x = 88172645463325252u ^ (uintptr_t)&x;
	if (rnd_of(&x, one_in) == 0)
		usleep((useconds_t)rnd_of(&x, 300));
	else if (rnd_of(&x, one_in) < 2)
		sched_yield();
}

static int slow_read(struct card *c, uint64_t off_bytes, void *buf, size_t len_bytes)
{
	dawdle(8);
	return card_read(((struct stress *)c)->sim, off_bytes, buf, len_bytes);
}

ssize_t pread(int fd, void *buf, size_t len, off_t off)
{
	const struct iovec iov = { .iov_base = buf, .iov_len = len };

	dawdle(100);
	return preadv(fd, &iov, 1, off);
}

ssize_t pwrite(int fd, const void *buf, size_t len, off_t off)
{
	const struct iovec iov = { .iov_base = (void *)buf, .iov_len = len };

	dawdle(100);
	return pwritev(fd, &iov, 1, off);
}

/* ---- writers ---- */

static void check_own(struct worker *w, uint64_t unit, uint64_t units)
{
	struct stress *s = w->s;
	/* begin and end also inside units */
	size_t skip = rnd_of(&w->rnd, 2) * rnd_of(&w->rnd, UNIT_BYTES / 8) * 8;
	int r = view_read(s->v, unit * UNIT_BYTES + skip, (char *)w->buf + skip,
			  units * UNIT_BYTES - skip);

	if (r < 0)
		complain_error(s, "read of own units", r);
	for (uint64_t i = skip / 8; !s->race.failed && i < units * UNIT_WORDS; i++) {
		uint64_t u = unit + i / UNIT_WORDS, want = word_of(u, s->version[u]);

		if (w->buf[i] != want)
			complain(s, "own write lost", u, w->buf[i], want);
	}
	s->reads++;
}

static void write_versions(struct worker *w, uint64_t unit, uint64_t units)
{
	struct stress *s = w->s;
	int r;

	for (uint64_t u = 0; u < units; u++)
		for (unsigned i = 0; i < UNIT_WORDS; i++)
			w->buf[u * UNIT_WORDS + i] = word_of(unit + u, s->version[unit + u]);
	r = view_write(s->v, unit * UNIT_BYTES, w->buf, units * UNIT_BYTES);
	if (r < 0)
		complain_error(s, "write", r);
	s->writes++;
}

static void write_own(struct worker *w, uint64_t unit, uint64_t units)
{
	for (uint64_t u = 0; u < units; u++)
		w->s->version[unit + u] = w->next_version;
	w->next_version++;
	write_versions(w, unit, units);
}

static void punch_own(struct worker *w, uint64_t unit, uint64_t units)
{
	struct stress *s = w->s;
	int r = view_punch(s->v, unit * UNIT_BYTES, units * UNIT_BYTES);

	memset(&s->version[unit], 0, units * sizeof(s->version[0]));
	if (r < 0)
		complain_error(s, "punch", r);
	s->punches++;
}

/* a range of own units: mostly among the shared blocks, otherwise in the large one */
static uint64_t pick_own(struct worker *w, uint64_t max_units, uint64_t *ret_units)
{
	struct stress *s = w->s;
	uint64_t unit, units = 1, max = 1 + rnd_of(&w->rnd, max_units);

	if (rnd_of(&w->rnd, 4) == 0) {
		const uint64_t at[] = { 0, rnd_of(&w->rnd, WIDE_UNITS - max), WIDE_UNITS - max };

		*ret_units = max;
		return w->me * WIDE_UNITS + at[rnd_of(&w->rnd, 3)];
	}
	do
		unit = rnd_of(&w->rnd, 8) ? SHARED_FIRST + rnd_of(&w->rnd, SHARED_UNITS)
					  : TABLE_END - 12 + rnd_of(&w->rnd, 60);
	while (s->owner[unit] != w->me);
	while (unit + units < UNITS && s->owner[unit + units] == w->me && units < max)
		units++;
	*ret_units = units;
	return unit;
}

static void *writer(void *arg)
{
	struct worker *w = arg;
	struct stress *s = w->s;

	while (!s->race.stop) {
		uint64_t units, unit = pick_own(w, rnd_of(&w->rnd, 5) ? 8 : MAX_READ_UNITS, &units);

		switch (rnd_of(&w->rnd, 200) ? rnd_of(&w->rnd, 10) : 10) {
		case 0:
		case 1:
			punch_own(w, unit, units);
			break;
		case 2:
		case 3:
			check_own(w, unit, units);
			break;
		case 4: /* the same once more: the card may have it by now */
			write_versions(w, unit, units);
			break;
		case 10: /* longer than a piece */
			(rnd_of(&w->rnd, 2) ? punch_own : write_own)(w, w->me * WIDE_UNITS,
								     WIDE_UNITS);
			break;
		default:
			write_own(w, unit, units);
			if (rnd_of(&w->rnd, 2))
				check_own(w, unit, units);
		}
	}
	return NULL;
}

/* ---- readers: every word belongs to its unit, and is no older than an earlier result ---- */

static void check_unit(struct worker *w, uint64_t unit, const uint64_t *words)
{
	uint32_t oldest = UINT32_MAX;

	for (unsigned i = 0; i < UNIT_WORDS; i++) {
		if (!words[i])
			return;
		if (words[i] >> 32 != unit + 1 || w->s->owner[unit] == WRITERS)
			complain(w->s, "foreign data", unit, words[i], word_of(unit, 1));
		if ((uint32_t)words[i] < oldest)
			oldest = (uint32_t)words[i];
	}
	if (oldest < w->seen[unit])
		complain(w->s, "older than before", unit, oldest, w->seen[unit]);
	w->seen[unit] = oldest;
}

static void *reader(void *arg)
{
	struct worker *w = arg;
	struct stress *s = w->s;

	while (!s->race.stop) {
		uint64_t units = 1 + rnd_of(&w->rnd, rnd_of(&w->rnd, 4) ? 20 : MAX_READ_UNITS),
			 unit;
		int r;

		if (rnd_of(&w->rnd, 3))
			unit = SHARED_FIRST - 10 + rnd_of(&w->rnd, SHARED_UNITS - units + 10);
		else
			unit = rnd_of(&w->rnd, UNITS - units);
		r = view_read(s->v, unit * UNIT_BYTES, w->buf, units * UNIT_BYTES);
		if (r < 0)
			complain_error(s, "read", r);
		for (uint64_t u = 0; u < units && !s->race.failed; u++)
			check_unit(w, unit + u, w->buf + u * UNIT_WORDS);
		s->reads++;
	}
	return NULL;
}

/* ---- the commit thread ---- */

static int copy_home(struct stress *s, uint8_t *buf, uint8_t *again)
{
	uint64_t blk = 0, blks;
	enum blk_state state;
	int r = card_set_writable(s->sim, true);

	for (; r == 0 && view_next_sealed(s->v, &blk, 64, &blks, &state); blk += blks) {
		r = view_read_sealed(s->v, blk, blks, buf);
		if (r == 0)
			r = card_write(s->sim, blk_to_bytes(blk), buf, blk_to_bytes(blks));
		if (r == 0)
			r = view_read_sealed(s->v, blk, blks, again);
		if (r == 0 && memcmp(buf, again, blk_to_bytes(blks)) != 0)
			complain(s, "sealed image changed", blk * 8, 0, 0);
	}
	if (r == 0)
		r = card_flush(s->sim);
	if (r == 0)
		r = card_set_writable(s->sim, false);
	return r;
}

static bool is_kept(void *ctx, bool newest, uint64_t blk, uint64_t max_blks, uint64_t *ret_blks)
{
	(void)newest;
	*ret_blks = 1;
	return blk % 7 == 0;
}

enum result { RELEASE, KEEP, FAIL };

static void commit_once(struct stress *s, uint8_t *buf, enum result result)
{
	int r = view_seal(s->v);

	s->seals++;
	if (r == 0 && result == FAIL) {
		s->fails++;
		r = view_fail(s->v);
	} else if (r == 0) {
		struct log_index *ix = log_index_empty();

		s->releases++;
		r = copy_home(s, buf, buf + 64 * COW_BLK_BYTES);
		if (result == RELEASE)
			view_release(s->v, ix);
		else
			view_release_keeping(s->v, ix, s->seals % 2, is_kept, NULL);
		s->kept += view_kept_blks(s->v);
	}
	if (r < 0)
		complain_error(s, "commit", r);
}

static void *committer(void *arg)
{
	struct worker *w = arg;
	struct stress *s = w->s;

	while (!s->race.stop) {
		usleep((useconds_t)rnd_of(&w->rnd, 1500));
		commit_once(s, (uint8_t *)w->buf, (enum result)rnd_of(&w->rnd, 3));
		if (rnd_of(&w->rnd, 10) == 0)
			view_set_index(s->v, log_index_empty());
	}
	return NULL;
}

/* ---- all together ---- */

static uint64_t from_env(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text ? strtoull(text, NULL, 0) : otherwise;
}

static void assign_owners(struct stress *s)
{
	uint64_t x = s->seed;

	memset(s->owner, WRITERS, sizeof(s->owner));
	for (unsigned w = 0; w < WRITERS; w++)
		memset(s->owner + w * WIDE_UNITS, (int)w, WIDE_UNITS);
	for (uint64_t u = SHARED_FIRST; u < UNITS;) {
		/* mostly 1 KiB, some longer than a block */
		uint64_t units = rnd_of(&x, 8) ? 2 : 1 + rnd_of(&x, 30);
		uint8_t who = (uint8_t)rnd_of(&x, WRITERS);

		for (; units && u < UNITS; units--)
			s->owner[u++] = who;
	}
	memset(s->owner + TABLE_END - 12, 0, 21);
}

static void check_end(struct stress *s, struct worker *w)
{
	uint8_t *block = io_alloc(COW_BLK_BYTES);
	struct generation_stats active, below;

	commit_once(s, (uint8_t *)w->buf, RELEASE);
	assert_false(s->race.failed);
	view_dirty(s->v, &active, &below);
	assert_int_equal(active.data_blks + active.hole_blks + below.data_blks + below.hole_blks,
			 0);
	assert_int_equal(ram_store_used_bytes(s->store), 0);
	for (uint64_t b = 0; b < BLKS; b++) {
		assert_int_equal(sim_peek(s->sim, blk_to_bytes(b), block, COW_BLK_BYTES), 0);
		for (uint64_t i = 0; i < COW_BLK_BYTES / 8; i++) {
			uint64_t u = b * 8 + i / UNIT_WORDS, word = ((uint64_t *)block)[i];

			if (word != word_of(u, s->version[u]))
				complain(s, "not on the card", u, word, word_of(u, s->version[u]));
		}
	}
	free(block);
	assert_false(s->race.failed);
}

TEST(everybody_at_once)
{
	static const struct card_ops ops = { .read = slow_read };
	const struct sim_params params = { .size_bytes = BLKS * COW_BLK_BYTES };
	void *(*const start[])(
		void *) = { writer, writer, writer, writer, reader, reader, committer };
	const uint64_t end_ns = now_ns() + from_env("COWFS_STRESS_MS", 3000) * 1000000;
	struct worker *w = calloc(ARRAY_SIZE(start), sizeof(*w));
	struct stress *s = calloc(1, sizeof(*s));
	struct log_index *ix = log_index_empty();

	_Static_assert(ARRAY_SIZE(start) == WRITERS + READERS + 1, "one function for each worker");
	s->seed = from_env("COWFS_STRESS_SEED", 0x2545f4914f6cdd1d);
	assert_int_equal(sim_new(&s->sim, &params), 0);
	s->card.ops = &ops;
	s->card.geo = s->sim->geo;
	assign_owners(s);
	assert_int_equal(ram_store_open(&s->store, 256 * MIB), 0);
	assert_int_equal(view_new(&s->v, s->store, &s->card, BLKS, ix), 0);
	log_index_unref(ix);

	for (unsigned i = 0; i < ARRAY_SIZE(start); i++) {
		w[i].s = s;
		w[i].me = i;
		w[i].rnd = s->seed + i;
		w[i].next_version = 1;
		w[i].buf = io_alloc(WIDE_UNITS * UNIT_BYTES);
		assert_int_equal(pthread_create(&w[i].thread, NULL, start[i], &w[i]), 0);
	}
	while ((now_ns() < end_ns || !s->releases || !s->fails || !s->kept) && !s->race.stop)
		usleep(10000);
	s->race.stop = true;
	for (unsigned i = 0; i < ARRAY_SIZE(start); i++)
		pthread_join(w[i].thread, NULL);
	print_message(
		"%llu writes, %llu punches, %llu reads, %llu seals, %llu releases, %llu fails, "
		"%llu blocks kept\n",
		(unsigned long long)s->writes, (unsigned long long)s->punches,
		(unsigned long long)s->reads, (unsigned long long)s->seals,
		(unsigned long long)s->releases, (unsigned long long)s->fails,
		(unsigned long long)s->kept);
	assert_false(s->race.failed);
	check_end(s, w);

	view_free(s->v);
	ram_store_close(s->store);
	card_close(s->sim);
	for (unsigned i = 0; i < ARRAY_SIZE(start); i++)
		free(w[i].buf);
	free(w);
	free(s);
}
