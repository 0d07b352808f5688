/* SPDX-License-Identifier: MIT */
/* The RAM store and generations, against an array of states and one of bytes. */
#include <dirent.h>
#include <dlfcn.h>
#include "test.h"
#include "ram/generation.h"
#include "breaks.h"

#define LEAF_BLKS 16384u /* covered by one leaf of the map: 64 MiB */

/* Replaces the C library's function: makes the n-th plain allocation fail. */
static unsigned fail_allocation_in;

int fallocate(int fd, int mode, off_t off, off_t len)
{
	int (*real)(int, int, off_t, off_t) = (int (*)(int, int, off_t, off_t))dlsym(RTLD_NEXT,
										     "fallocate64");

	if (!mode && fail_allocation_in && !--fail_allocation_in) {
		errno = ENOSPC;
		return -1;
	}
	return real(fd, mode, off, len);
}

static struct ram_store *open_store(uint64_t limit_bytes)
{
	struct ram_store *s = NULL;

	assert_int_equal(ram_store_open(&s, limit_bytes), 0);
	return s;
}

static struct generation *new_generation(struct ram_store *s, uint64_t blks)
{
	struct generation *g = NULL;

	assert_int_equal(generation_new(&g, s, blks), 0);
	assert_int_equal(generation_volume_blks(g), blks);
	return g;
}

TEST(store_is_bounded_and_invisible)
{
	struct ram_store *s = NULL;
	struct generation *g;
	static uint8_t data[64 * COW_BLK_BYTES];
	char line[512];
	FILE *f;

	assert_int_equal(ram_store_open(&s, 0), -EINVAL);
	assert_null(s);
	s = open_store(MIB);
	assert_int_equal(ram_store_used_bytes(s), 0);
	f = fopen("/proc/self/mountinfo", "re");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		assert_null(strstr(line, "nr_inodes=64,"));
	fclose(f);

	memset(data, 0xa5, sizeof(data));
	g = new_generation(s, 1024);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(generation_write(g, i * sizeof(data), data, sizeof(data)), 0);
	assert_int_equal(ram_store_used_bytes(s), MIB);
	assert_int_equal(generation_write(g, MIB, data, COW_BLK_BYTES), -ENOSPC);
	assert_int_equal(generation_mark(g, 0, 64, BLK_DATA), 0);
	generation_drop(g, 0, 256); /* unmarked blocks are dropped */
	assert_int_equal(ram_store_used_bytes(s), sizeof(data));
	assert_int_equal(generation_punch(g, 0, 32), 0);
	assert_int_equal(ram_store_used_bytes(s), sizeof(data) / 2);
	generation_free(g);
	assert_int_equal(ram_store_used_bytes(s), 0);
	ram_store_close(s);
	ram_store_close(NULL);
}

TEST(bounds_are_checked)
{
	struct ram_store *s = open_store(MIB);
	struct generation *g = NULL;
	enum blk_state st;
	uint64_t blk = 100, n;
	char buf[8] = { 0 };

	assert_int_equal(generation_new(&g, s, 0), -EINVAL);
	assert_int_equal(generation_new(&g, s, UINT64_MAX / 2), -EINVAL);
	assert_null(g);
	g = new_generation(s, 100);
	assert_int_equal(generation_mark(g, 100, 1, BLK_DATA), -EINVAL);
	assert_int_equal(generation_mark(g, 1, UINT64_MAX, BLK_DATA), -EINVAL);
	assert_int_equal(generation_punch(g, 99, 2), -EINVAL);
	assert_int_equal(generation_read(g, 100 * COW_BLK_BYTES - 7, buf, 8), -EINVAL);
	assert_int_equal(generation_write(g, UINT64_MAX, buf, 8), -EINVAL);
	assert_int_equal(generation_read(g, 100 * COW_BLK_BYTES, buf, 0), 0);
	assert_int_equal(generation_mark(g, 100, 0, BLK_DATA), 0);
	assert_int_equal(generation_mark(g, 99, 1, BLK_DATA), 0);
	assert_int_equal(generation_run(g, 99, 50, &st), 1);
	assert_int_equal(st, BLK_DATA);
	assert_false(generation_next(g, &blk, 10, &n, &st));
	assert_int_equal(blk, 100);
	generation_free(g);
	ram_store_close(s);
}

/* A block that is data in the map but missing in the store would be committed as zeroes. */
static int check_map(bool in_store)
{
	struct ram_store *s = open_store(MIB);
	struct generation *g = new_generation(s, 100);
	uint8_t data[COW_BLK_BYTES] = { 1 };
	bool good;

	assert_int_equal(generation_write(g, 7 * COW_BLK_BYTES, data, sizeof(data)), 0);
	assert_int_equal(generation_mark(g, 7, in_store ? 1 : 2, BLK_DATA), 0);
	assert_int_equal(generation_mark(g, 9, 2, BLK_HOLE), 0);
	good = generation_check(g);
	generation_free(g);
	ram_store_close(s);
	return good ? 0 : -ENOTRECOVERABLE;
}

TEST(map_is_checked)
{
	assert_int_equal(check_map(true), 0);
	assert_breaks("M4 store", check_map(false));
}

/* Every state and run of the generation is the model's. */
static void check_model(const struct generation *g, const uint8_t *model, uint64_t blks)
{
	struct generation_stats stats, want = { 0 };
	enum blk_state st;
	uint64_t pos = 0, n, max;

	for (uint64_t b = 0; b < blks; b++) {
		want.data_blks += model[b] == BLK_DATA;
		want.hole_blks += model[b] == BLK_HOLE;
	}
	generation_stats(g, &stats);
	assert_int_equal(stats.data_blks, want.data_blks);
	assert_int_equal(stats.hole_blks, want.hole_blks);
	while (pos < blks) {
		uint64_t len = 1;

		max = rnd(8) ? blks : 1 + rnd(100);
		while (pos + len < blks && len < max && model[pos + len] == model[pos])
			len++;
		assert_int_equal(generation_run(g, pos, max, &st), len);
		assert_int_equal(st, model[pos]);
		pos += len;
	}
	for (pos = 0, max = 1 + rnd(blks);;) {
		uint64_t at = pos, len = 0;

		while (at < blks && model[at] == BLK_ABSENT)
			at++;
		while (at + len < blks && len < max && model[at + len] == model[at])
			len++;
		if (!generation_next(g, &pos, max, &n, &st)) {
			assert_int_equal(at, blks);
			break;
		}
		assert_int_equal(pos, at);
		assert_int_equal(n, len);
		assert_int_equal(st, model[at]);
		pos += n;
	}
}

TEST(map_follows_a_model)
{
	/* volumes that end at and off the borders of words and leaves */
	static const uint64_t sizes[] = {
		1, 31, 32, 33, 1000, LEAF_BLKS, LEAF_BLKS + 1, 3 * LEAF_BLKS + 77
	};
	struct ram_store *s = open_store(MIB);

	for (size_t i = 0; i < ARRAY_SIZE(sizes) * 12; i++) {
		uint64_t blks = sizes[i / 12], begin = 0, end = 0;
		struct generation *g = new_generation(s, blks);
		uint8_t *model = calloc(1, blks);

		/* each leaf begins as a run of holes; data comes later, and in most rounds never */
		for (unsigned step = 0; step < (i % 12 ? 20 : 150); step++) {
			/* often beside the last mark, or one block away, so that runs grow or do not */
			uint64_t n = 1 + rnd(min_u64(rnd(3) ? 70 : blks, blks)),
				 at[] = { rnd(blks), end + rnd(2), begin - n - rnd(2) },
				 blk = min_u64(at[rnd(3)], blks - 1);
			enum blk_state st = rnd(3) ? BLK_HOLE : BLK_ABSENT;

			n = min_u64(n, blks - blk);
			if (step > 15)
				st = (enum blk_state)rnd(3);
			if (st == BLK_HOLE && rnd(2))
				assert_int_equal(generation_punch(g, blk, n), 0);
			else
				assert_int_equal(generation_mark(g, blk, n, st), 0);
			memset(model + blk, (int)st, n);
			begin = blk;
			end = blk + n;
			if (step < 5 || step % 10 == 0 || blks < 100)
				check_model(g, model, blks);
		}
		check_model(g, model, blks);
		free(model);
		generation_free(g);
	}
	ram_store_close(s);
}

TEST(map_costs_what_is_dirty)
{
	const uint64_t blks = 1024 * GIB / COW_BLK_BYTES;
	struct ram_store *s = open_store(MIB);
	struct generation *g = new_generation(s, blks);
	uint64_t blk = 0, n, empty = generation_map_bytes(g),
		 page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
	enum blk_state st;

	assert_true(empty <= blks / LEAF_BLKS * 4 + 2 * page_bytes);
	assert_int_equal(generation_run(g, 0, blks, &st), blks);
	assert_int_equal(st, BLK_ABSENT);
	assert_int_equal(generation_run(g, blks - 5, 100, &st), 5);
	assert_false(generation_next(g, &blk, blks, &n, &st));
	assert_int_equal(generation_mark(g, 0, blks, BLK_ABSENT), 0);
	generation_drop(g, 0, blks);
	for (uint64_t b = 0; b < blks; b += LEAF_BLKS / 2)
		generation_run(g, b, 1, &st);
	assert_int_equal(generation_map_bytes(g), empty); /* a query allocates nothing */

	assert_int_equal(generation_mark(g, blks - 3, 3, BLK_DATA), 0);
	assert_int_equal(generation_mark(g, blks / 2, 2, BLK_HOLE), 0);
	assert_true(generation_map_bytes(g) <= empty + page_bytes);
	assert_true(generation_next(g, &blk, 100, &n, &st));
	assert_int_equal(blk, blks / 2);
	assert_int_equal(n, 2);
	assert_int_equal(st, BLK_HOLE);
	blk += n;
	assert_true(generation_next(g, &blk, 2, &n, &st));
	assert_int_equal(blk, blks - 3);
	assert_int_equal(n, 2);
	assert_int_equal(st, BLK_DATA);
	generation_free(g);
	ram_store_close(s);
}

/* Who reads top behind its first page, of 64 GiB, ends with a signal. */
static void forbid_top(uint64_t blks)
{
	const uint64_t top_bytes = blks / LEAF_BLKS * 4,
		       bytes = top_bytes + blks / LEAF_BLKS * 4096;
	FILE *maps = fopen("/proc/self/maps", "r");
	unsigned long from, to, found = 0;
	char line[512];

	assert_non_null(maps);
	while (fgets(line, sizeof(line), maps))
		if (sscanf(line, "%lx-%lx rw-s", &from, &to) == 2 && to - from == bytes &&
		    strstr(line, "rw-s"))
			found = from;
	fclose(maps);
	assert_int_not_equal(found, 0);
	assert_int_equal(mprotect((void *)(found + 4096), top_bytes - 4096, PROT_NONE), 0);
}

/* The rest of a large volume is not looked at. */
TEST(a_look_up_looks_where_it_is_asked)
{
	const uint64_t blks = 4096 * GIB / COW_BLK_BYTES;
	struct ram_store *s = open_store(MIB);
	struct generation *g = new_generation(s, blks);
	enum blk_state st;

	forbid_top(blks);
	assert_int_equal(generation_run(g, 0, 8, &st), 8);
	assert_int_equal(st, BLK_ABSENT);
	assert_int_equal(generation_run(g, LEAF_BLKS - 3, 8, &st), 8);
	assert_int_equal(generation_run(g, 3 * LEAF_BLKS, 4 * LEAF_BLKS + 1, &st),
			 4 * LEAF_BLKS + 1);
	assert_int_equal(generation_mark(g, 1000, 10, BLK_HOLE), 0);
	assert_int_equal(generation_run(g, 1010, 100, &st), 100);
	generation_drop(g, 0, LEAF_BLKS);
	generation_free(g);
	ram_store_close(s);
}

/* A card that is trimmed whole, by requests of a size and place as they come, and then used. */
TEST(holes_cost_what_splits_them)
{
	const uint64_t blks = 1024 * GIB / COW_BLK_BYTES, piece = 3000, used = 1000;
	struct ram_store *s = open_store(MIB);
	struct generation *g = new_generation(s, blks);
	struct generation_stats stats;
	uint64_t empty = generation_map_bytes(g), n, blk = 0,
		 page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
	enum blk_state st;

	/* from both ends, since a file system may free either way */
	for (uint64_t i = 0; i < blks / 2; i += n) {
		n = min_u64(piece, blks / 2 - i);
		assert_int_equal(generation_punch(g, i, n), 0);
		assert_int_equal(generation_punch(g, blks - i - n, n), 0);
	}
	assert_int_equal(generation_map_bytes(g), empty);
	assert_int_equal(generation_run(g, 0, blks, &st), blks);
	assert_int_equal(st, BLK_HOLE);
	assert_true(generation_check(g));
	assert_int_equal(generation_mark(g, 0, used, BLK_ABSENT), 0);
	assert_int_equal(generation_mark(g, blks - used, used, BLK_ABSENT), 0);
	assert_int_equal(generation_map_bytes(g), empty);
	assert_true(generation_next(g, &blk, blks, &n, &st));
	assert_true(blk == used && n == blks - 2 * used && st == BLK_HOLE);

	assert_int_equal(generation_mark(g, blks / 2 + used, 1, BLK_ABSENT), 0);
	assert_int_equal(generation_mark(g, blks / 2 - used, 1, BLK_DATA), 0);
	assert_true(generation_map_bytes(g) <= empty + 2 * page_bytes);
	generation_stats(g, &stats);
	assert_true(stats.data_blks == 1 && stats.hole_blks == blks - 2 * used - 2);
	assert_int_equal(generation_run(g, used, blks, &st), blks / 2 - 2 * used);
	assert_int_equal(generation_run(g, blks / 2 - used + 1, blks, &st), 2 * used - 1);
	generation_free(g);
	ram_store_close(s);
}

TEST(mark_without_memory_changes_nothing)
{
	struct ram_store *s = open_store(MIB);
	struct generation *g = new_generation(s, 4 * LEAF_BLKS);
	uint8_t *model = calloc(1, 4 * LEAF_BLKS);

	assert_int_equal(generation_mark(g, 10, 10, BLK_DATA), 0);
	memset(model + 10, BLK_DATA, 10);
	fail_allocation_in = 2;
	assert_int_equal(generation_mark(g, 0, 4 * LEAF_BLKS, BLK_DATA), -ENOMEM);
	check_model(g, model, 4 * LEAF_BLKS);
	assert_int_equal(generation_punch(g, 3 * LEAF_BLKS + 20, 100), 0);
	memset(model + 3 * LEAF_BLKS + 20, BLK_HOLE, 100);
	/* a second run, two of one, and data */
	fail_allocation_in = 1;
	assert_int_equal(generation_punch(g, 3 * LEAF_BLKS + 200, 100), -ENOMEM);
	fail_allocation_in = 1;
	assert_int_equal(generation_mark(g, 3 * LEAF_BLKS + 21, 98, BLK_ABSENT), -ENOMEM);
	fail_allocation_in = 1;
	assert_int_equal(generation_mark(g, 2 * LEAF_BLKS, 2 * LEAF_BLKS, BLK_DATA), -ENOMEM);
	check_model(g, model, 4 * LEAF_BLKS);
	fail_allocation_in = 1; /* none of these needs memory */
	assert_int_equal(generation_mark(g, 2 * LEAF_BLKS, LEAF_BLKS + 30, BLK_ABSENT), 0);
	memset(model + 2 * LEAF_BLKS, BLK_ABSENT, LEAF_BLKS + 30);
	check_model(g, model, 4 * LEAF_BLKS);
	assert_int_equal(generation_punch(g, 0, 4 * LEAF_BLKS), 0);
	fail_allocation_in = 0;
	memset(model, BLK_HOLE, 4 * LEAF_BLKS);
	check_model(g, model, 4 * LEAF_BLKS);
	free(model);
	generation_free(g);
	ram_store_close(s);
}

/* Threads mark blocks of the same words; each owns every fourth block, so that the result is
 * known. */
enum { MARKERS = 4, SHARED_BLKS = 2 * LEAF_BLKS };

struct marker {
	pthread_t thread;
	struct generation *g;
	unsigned me;
	uint8_t last[SHARED_BLKS];
};

static void *mark_own_blocks(void *arg)
{
	struct marker *m = arg;
	uint64_t x = m->me + 1;

	for (unsigned i = 0; i < 200000; i++) {
		uint64_t blk;
		enum blk_state st;

		x = x * 6364136223846793005u + 1442695040888963407u;
		/* mostly one hot word */
		blk = (x >> 33) % (i % 4 ? 32 : SHARED_BLKS) / MARKERS * MARKERS + m->me;
		st = (enum blk_state)((x >> 20) % 3);
		if (generation_mark(m->g, blk, 1, st) < 0)
			return m;
		m->last[blk] = (uint8_t)st;
		if (generation_run(m->g, blk, 1, &st) != 1 || st != m->last[blk])
			return m;
	}
	return NULL;
}

TEST(marks_of_one_word_in_parallel)
{
	struct ram_store *s = open_store(MIB);
	struct generation *g = new_generation(s, SHARED_BLKS);
	struct marker *m = calloc(MARKERS, sizeof(*m));
	uint8_t *model = calloc(1, SHARED_BLKS);

	for (unsigned i = 0; i < MARKERS; i++) {
		m[i].g = g;
		m[i].me = i;
		assert_int_equal(pthread_create(&m[i].thread, NULL, mark_own_blocks, &m[i]), 0);
	}
	for (unsigned i = 0; i < MARKERS; i++) {
		void *bad;

		pthread_join(m[i].thread, &bad);
		assert_null(bad);
		for (uint64_t b = i; b < SHARED_BLKS; b += MARKERS)
			model[b] = m[i].last[b];
	}
	check_model(g, model, SHARED_BLKS);
	free(model);
	free(m);
	generation_free(g);
	ram_store_close(s);
}

/* Threads mark parts of leaves of their own, all in the same leaf at about the same time: a run that grows and shrinks
 * while another thread makes a page of it. */
enum {
	RACERS = 4,
	RACED_LEAVES = 64,
	RACE_ROUNDS = 30,
	RACED_BLKS = LEAF_BLKS / RACERS,
	RACE_PIECE = 64
};

struct racer {
	pthread_t thread;
	pthread_barrier_t *start;
	struct generation **g;
	unsigned me;
	uint8_t *model;
};

static int race_mark(struct racer *m, struct generation *g, uint64_t blk, uint64_t blks,
		     enum blk_state st)
{
	memset(m->model + blk, (int)st, blks);
	return generation_mark(g, blk, blks, st);
}

static void *race(void *arg)
{
	struct racer *m = arg;

	for (unsigned round = 0; round < RACE_ROUNDS; round++) {
		uint64_t blk = (uint64_t)m->me * RACED_BLKS;
		int r = 0;

		pthread_barrier_wait(m->start);
		for (unsigned leaf = 0; leaf < RACED_LEAVES; leaf++, blk += LEAF_BLKS) {
			const bool page = leaf % 4; /* else a run that two threads lengthen */

			if (!page && (m->me == 0 || m->me == 3))
				continue;
			for (unsigned i = 0; i < RACED_BLKS && r == 0; i += RACE_PIECE)
				r = race_mark(m, *m->g,
					      blk + (m->me < 2 ? RACED_BLKS - RACE_PIECE - i : i),
					      RACE_PIECE, BLK_HOLE);
			if (r == 0 && m->me == 0)
				r = race_mark(m, *m->g, blk, 100 + round, BLK_ABSENT);
			if (r == 0 && m->me == 2 && page)
				r = race_mark(m, *m->g, blk + 60 * leaf, 9, BLK_DATA);
		}
		pthread_barrier_wait(m->start);
		if (r < 0)
			return m;
	}
	return NULL;
}

TEST(runs_of_one_leaf_in_parallel)
{
	struct ram_store *s = open_store(MIB);
	struct generation *g;
	struct racer m[RACERS];
	uint8_t *model = calloc(RACED_LEAVES, LEAF_BLKS);
	pthread_barrier_t start;

	assert_int_equal(pthread_barrier_init(&start, NULL, RACERS + 1), 0);
	for (unsigned i = 0; i < RACERS; i++) {
		m[i] = (struct racer){ .start = &start, .g = &g, .me = i, .model = model };
		assert_int_equal(pthread_create(&m[i].thread, NULL, race, &m[i]), 0);
	}
	for (unsigned round = 0; round < RACE_ROUNDS; round++) {
		g = new_generation(s, RACED_LEAVES * LEAF_BLKS);
		memset(model, 0, (size_t)RACED_LEAVES * LEAF_BLKS);
		pthread_barrier_wait(&start);
		pthread_barrier_wait(&start);
		check_model(g, model, RACED_LEAVES * LEAF_BLKS);
		generation_free(g);
	}
	for (unsigned i = 0; i < RACERS; i++) {
		void *bad;

		pthread_join(m[i].thread, &bad);
		assert_null(bad);
	}
	pthread_barrier_destroy(&start);
	free(model);
	ram_store_close(s);
}

/* ---- a process that takes over ---- */

#define KEPT_BLKS 200000u /* what is written lies in the first half */

static unsigned files_in(const struct ram_store *s, unsigned which)
{
	int fds[RAM_STORE_FDS], fd;
	unsigned n = 0;
	DIR *d;

	ram_store_fds(s, fds);
	fd = openat(fds[which], ".", O_RDONLY | O_DIRECTORY);
	d = fdopendir(fd);
	for (struct dirent *e; (e = readdir(d));)
		n += e->d_name[0] >= '0' && e->d_name[0] <= '9';
	closedir(d);
	return n;
}

/* Of a process that has died without closing anything. */
static struct ram_store *taken_over(const struct ram_store *of)
{
	struct ram_store *s;
	int fd[RAM_STORE_FDS];

	ram_store_fds(of, fd);
	for (unsigned i = 0; i < RAM_STORE_FDS; i++)
		fd[i] = dup(fd[i]);
	assert_int_equal(ram_store_take_over(&s, fd), 0);
	return s;
}

/* Of a process that died while it filled the page of a leaf. */
static void half_filled(const struct ram_store *s, uint64_t id, uint64_t leaf)
{
	uint8_t page[4096];
	int fds[RAM_STORE_FDS], fd;
	char name[24];

	memset(page, 0xaa, sizeof(page));
	ram_store_fds(s, fds);
	snprintf(name, sizeof(name), "%llu", (unsigned long long)id);
	fd = openat(fds[1], name, O_RDWR);
	/* behind the top, which has 4 bytes for each leaf */
	assert_int_equal(pwrite(fd, page, sizeof(page), (off_t)((1 + leaf) * sizeof(page))), 4096);
	close(fd);
}

TEST(generations_are_kept)
{
	struct ram_store *s = open_store(64 * 1024 * 1024), *t;
	struct generation *gen[3], *other, *g;
	static char buf[COW_BLK_BYTES], got[COW_BLK_BYTES];
	struct generation_stats before, after;
	struct ram_stack stack;

	for (unsigned i = 0; i < 3; i++) {
		gen[i] = new_generation(s, KEPT_BLKS);
		memset(buf, 'a' + (int)i, sizeof(buf));
		for (unsigned n = 0; n < 200; n++) {
			uint64_t blk = rnd(KEPT_BLKS / 2);

			assert_int_equal(
				generation_write(gen[i], blk_to_bytes(blk), buf, sizeof(buf)), 0);
			assert_int_equal(
				generation_mark(gen[i], blk, 1, n % 5 ? BLK_DATA : BLK_HOLE), 0);
		}
	}
	assert_int_equal(generation_punch(gen[1], KEPT_BLKS / 2 + 7, 3 * LEAF_BLKS), 0);
	half_filled(s, generation_id(gen[1]), 9);
	other = new_generation(s, KEPT_BLKS); /* of a view */
	/* a write that was killed before its mark */
	assert_int_equal(generation_write(gen[2], blk_to_bytes(77777), buf, sizeof(buf)), 0);
	assert_int_equal(generation_mark(gen[2], 77777, 1, BLK_ABSENT), 0);
	assert_int_equal(ram_store_record(s, gen, 3, true), 0);
	generation_stats(gen[1], &before);

	t = taken_over(s);
	assert_int_equal(ram_store_stack(t, &stack), 0);
	assert_int_equal(stack.n, 3);
	assert_int_equal(stack.sealed, true);
	assert_int_equal(files_in(t, 0), 3);
	assert_int_equal(files_in(t, 1), 3);
	assert_int_equal(generation_open(&g, t, KEPT_BLKS, stack.id[1]), 0);
	assert_int_equal(generation_id(g), generation_id(gen[1]));
	generation_stats(g, &after);
	assert_memory_equal(&before, &after, sizeof(before));
	assert_true(generation_check(g));
	for (uint64_t blk = 0, n; blk < KEPT_BLKS; blk += n) {
		enum blk_state a, b;

		n = generation_run(gen[1], blk, KEPT_BLKS - blk, &a);
		assert_int_equal(generation_run(g, blk, KEPT_BLKS - blk, &b), n);
		assert_int_equal(a, b);
		memset(buf, 'b', sizeof(buf));
		if (a == BLK_DATA) {
			assert_int_equal(generation_read(g, blk_to_bytes(blk), got, sizeof(got)),
					 0);
			assert_memory_equal(got, buf, sizeof(buf));
		}
	}
	assert_int_equal(generation_mark(g, 10 * LEAF_BLKS - 1, 1, BLK_DATA), 0);
	for (uint64_t blk = 9 * LEAF_BLKS; blk < 10 * LEAF_BLKS; blk++) {
		enum blk_state is;

		generation_run(g, blk, 1, &is);
		assert_int_equal(is, blk < KEPT_BLKS / 2 + 7 + 3 * LEAF_BLKS ? BLK_HOLE
				     : blk < 10 * LEAF_BLKS - 1		     ? BLK_ABSENT
									     : BLK_DATA);
	}
	assert_int_equal(generation_open(&other, t, KEPT_BLKS + LEAF_BLKS, stack.id[0]), -EPROTO);
	/* a process that failed and closed it has removed it */
	generation_free(g);
	assert_int_equal(generation_open(&g, t, KEPT_BLKS, stack.id[1]), -EPROTO);
	assert_int_equal(files_in(t, 0), 1);
	/* new ones have new names */
	assert_true(generation_id(new_generation(t, KEPT_BLKS)) > stack.id[0]);
	ram_store_close(t);
	ram_store_close(s);
}

/* A kill between the removal of the content and that of the map, or before the record. */
TEST(remains_are_removed)
{
	struct ram_store *s = open_store(64 * 1024 * 1024), *t;
	struct generation *gen[2];
	struct ram_stack stack;
	int fd[RAM_STORE_FDS];
	char name[24];

	t = taken_over(s);
	assert_int_equal(ram_store_stack(t, &stack), -EPROTO); /* nothing is recorded yet */
	ram_store_close(t);
	for (unsigned i = 0; i < 2; i++)
		gen[i] = new_generation(s, KEPT_BLKS);
	assert_int_equal(ram_store_record(s, gen, 2, true), 0);
	assert_int_equal(ram_store_record(s, gen, 1, false), 0);
	ram_store_fds(s, fd);
	snprintf(name, sizeof(name), "%llu", (unsigned long long)generation_id(gen[1]));
	assert_int_equal(unlinkat(fd[0], name, 0), 0);
	t = taken_over(s);
	assert_int_equal(ram_store_stack(t, &stack), 0);
	assert_int_equal(stack.n, 1);
	assert_int_equal(stack.sealed, false);
	assert_int_equal(stack.id[0], generation_id(gen[0]));
	assert_int_equal(files_in(t, 0), 1);
	assert_int_equal(files_in(t, 1), 1);
	ram_store_close(t);
	ram_store_close(s);
}

TEST(shared_memory_is_kept)
{
	struct ram_store *s = open_store(1024 * 1024), *t;
	uint64_t *a, *b;
	void *c;

	assert_int_equal(ram_store_share(s, "state", 4096, (void **)&a), 1);
	assert_int_equal(*a, 0);
	*a = 42;
	t = taken_over(s);
	assert_int_equal(ram_store_share(t, "state", 4096, (void **)&b), 0);
	assert_int_equal(*b, 42);
	/* of another version */
	assert_int_equal(ram_store_share(t, "state", 8192, &c), -EPROTO);
	ram_store_unshare(t, "state", b, 4096);
	assert_int_equal(ram_store_share(t, "state", 8192, &c), 1);
	ram_store_close(t);
	ram_store_close(s);
}
