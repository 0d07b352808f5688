/* SPDX-License-Identifier: MIT */
/* The plan of a commit: its rules one by one, then random queries against general conditions. */
#include "test.h"
#include "commit/plan.h"
#include "sim/profile.h"

enum { BLKS = 16384, UNIT = 1024 /* of most profiles here */ };

/* The answers of a query's callbacks, block by block. */
struct world {
	bool used[BLKS], visited[BLKS];
	unsigned asked;
	int error;
};

static struct card_costs cards[64];
static size_t n_cards;
static struct world w;
static struct extents d; /* what is written in place, or goes to the log */
static struct plan p;

static const struct card_costs *profile(const char *id)
{
	for (size_t i = 0; i < n_cards; i++)
		if (!strcmp(cards[i].id, id))
			return &cards[i];
	fail_msg("no profile %s", id);
	return NULL;
}

static bool is_visited(void *ctx, uint64_t blk, uint64_t blks)
{
	assert_true(blk + blks <= BLKS);
	for (uint64_t i = 0; i < blks; i++)
		if (w.visited[blk + i])
			return true;
	return false;
}

static int is_free(void *ctx, uint64_t blk, uint64_t blks, bool *ret)
{
	assert_true(blks > 0 && blk + blks <= BLKS);
	w.asked++;
	*ret = true;
	for (uint64_t i = 0; i < blks; i++)
		if (w.used[blk + i])
			*ret = false;
	if (w.error && w.asked == 1)
		return w.error;
	return 0;
}

struct run {
	uint64_t blk, blks;
};

static void add_all(struct extents *x, const struct run *run, size_t n)
{
	for (size_t i = 0; i < n; i++)
		assert_int_equal(extents_add(x, run[i].blk, run[i].blks), 0);
}

#define RUNS(...)                                                                                  \
	(const struct run[]){ __VA_ARGS__ }, ARRAY_SIZE(((const struct run[]){ __VA_ARGS__ }))

static void is_list(const char *what, const struct extents *x, const struct run *run, size_t n)
{
	bool same = x->n == n;

	for (size_t i = 0; i < n && same; i++)
		same = x->e[i].blk == run[i].blk && x->e[i].blks == run[i].blks;
	for (size_t i = 0; i < x->n && !same; i++)
		print_error("%s[%zu] = %llu + %llu\n", what, i, (unsigned long long)x->e[i].blk,
			    (unsigned long long)x->e[i].blks);
	if (!same)
		fail_msg("%s: %zu runs, not what is expected (%zu)", what, x->n, n);
}

static struct plan_query query(const char *id, const struct extents *direct, uint64_t log_blks)
{
	return (struct plan_query){ .profile = profile(id),
				    .volume_blks = BLKS,
				    .direct = direct,
				    .log_blks = log_blks,
				    .is_visited = is_visited,
				    .is_free = is_free };
}

static void make(const struct plan_query *q)
{
	plan_clear(&p);
	assert_int_equal(plan_make(&p, q), 0);
}

static int fresh(void **state)
{
	memset(&w, 0, sizeof(w));
	return 0;
}

static int cleared(void **state)
{
	plan_clear(&p);
	extents_clear(&d);
	return 0;
}

/* ---- whole units ---- */

TEST(test_whole, fresh, cleared)
{
	struct plan_query q = query("x-slow-4g", &d, 0);

	add_all(&d, RUNS({ UNIT + 10, 5 }, { UNIT + 500, 5 }));
	make(&q);
	is_list("runs", &p.runs, RUNS({ UNIT, UNIT }));
	is_list("direct", &p.direct, RUNS({ UNIT + 10, 5 }, { UNIT + 500, 5 }));
	assert_int_equal(p.logged.n, 0);
	assert_int_equal(p.units, 1);
	assert_int_equal(p.ns, flash_speed_ns(&q.profile->write, 4 * MIB));

	/* one block after them is in use: only the gap is written over, and the unit is merged */
	w.used[UNIT + 1000] = true;
	make(&q);
	is_list("runs", &p.runs, RUNS({ UNIT + 10, 495 }));
	assert_true(p.ns > flash_speed_ns(&q.profile->write, 4 * MIB));

	/* one between them */
	w.used[UNIT + 1000] = false;
	w.used[UNIT + 200] = true;
	make(&q);
	is_list("runs", &p.runs, RUNS({ UNIT + 10, 5 }, { UNIT + 500, 5 }));

	/* unknown use */
	w.used[UNIT + 200] = false;
	q.is_free = NULL;
	make(&q);
	is_list("runs", &p.runs, RUNS({ UNIT + 10, 5 }, { UNIT + 500, 5 }));

	/* the volume ends or begins in the unit: the rest of the unit is not part of it */
	q.is_free = is_free;
	q.volume_blks = 2 * UNIT - 1;
	make(&q);
	is_list("runs", &p.runs, RUNS({ UNIT + 10, 495 }));
	extents_clear(&d);
	add_all(&d, RUNS({ 10, 5 }, { 500, 5 }));
	q = query("x-slow-4g", &d, 0);
	q.disk_off_bytes = 8 * COW_BLK_BYTES;
	make(&q);
	is_list("runs", &p.runs, RUNS({ 10, 495 }));
}

TEST(test_disk_offset, fresh, cleared)
{
	struct plan_query q = query("x-slow-4g", &d, 0);

	/* the second unit of the volume begins 24 blocks earlier on it than without the offset */
	q.disk_off_bytes = 24 * COW_BLK_BYTES;
	add_all(&d, RUNS({ UNIT - 20, 5 }, { UNIT + 500, 5 }));
	make(&q);
	is_list("runs", &p.runs, RUNS({ UNIT - 24, UNIT }));
	assert_int_equal(p.units, 1);
}

/* ---- the log ---- */

static void all_used(void)
{
	memset(w.used, 1, sizeof(w.used));
}

TEST(test_log, fresh, cleared)
{
	struct plan_query q = query("x-slow-4g", &d, 1000);

	all_used();
	add_all(&d,
		RUNS({ 100, 40 }, { UNIT + 100, 10 }, { 2 * UNIT + 100, 40 }, { 3 * UNIT, UNIT }));
	make(&q);
	is_list("logged", &p.logged, RUNS({ 100, 40 }, { UNIT + 100, 10 }, { 2 * UNIT + 100, 40 }));
	is_list("direct", &p.direct, RUNS({ 3 * UNIT, UNIT }));
	is_list("runs", &p.runs, RUNS({ 3 * UNIT, UNIT }));
	assert_int_equal(p.units, 1);
	assert_int_equal(p.ns, 2 * plan_append_ns(q.profile, 40) + plan_append_ns(q.profile, 10) +
				       flash_speed_ns(&q.profile->write, 4 * MIB));

	/* not enough room for all of them: units that save most per block come first */
	q.log_blks = 50;
	make(&q);
	is_list("logged", &p.logged, RUNS({ 100, 40 }, { UNIT + 100, 10 }));
	assert_int_equal(p.units, 2);
	q.log_blks = 49;
	make(&q);
	is_list("logged", &p.logged, RUNS({ UNIT + 100, 10 }));
	q.log_blks = 0;
	make(&q);
	assert_int_equal(p.logged.n, 0);
	assert_int_equal(p.units, 4);
}

/* 800 of 1024 blocks: cheaper to append once than to merge, but not twice. */
TEST(test_visited, fresh, cleared)
{
	struct plan_query q = query("x-slow-4g", &d, 10000);

	all_used();
	add_all(&d, RUNS({ UNIT + 100, 800 }));
	make(&q);
	assert_int_equal(p.logged.n, 0);
	w.visited[2 * UNIT] = w.visited[UNIT - 1] = true; /* neighbours */
	make(&q);
	assert_int_equal(p.logged.n, 0);
	w.visited[2 * UNIT - 1] = true;
	make(&q);
	is_list("logged", &p.logged, RUNS({ UNIT + 100, 800 }));
	assert_int_equal(p.units, 0);
	q.is_visited = NULL;
	make(&q);
	assert_int_equal(p.logged.n, 0);
}

TEST(test_home_follows, fresh, cleared)
{
	struct plan_query q = query("x-slow-4g", &d, 10000);

	all_used();
	add_all(&d, RUNS({ 100, 10 }, { UNIT + 100, 10 }));
	w.visited[UNIT] = true;
	q.home_follows = true;
	make(&q);
	is_list("logged", &p.logged, RUNS({ UNIT + 100, 10 }));
	is_list("direct", &p.direct, RUNS({ 100, 10 }));
}

/* A long run and a few blocks far from it: the run stays. */
TEST(test_largest_run_stays, fresh, cleared)
{
	struct plan_query q = query("x-slow-4g", &d, 10000);

	all_used();
	add_all(&d, RUNS({ UNIT + 3, 1 }, { UNIT + 20, 900 }, { 2 * UNIT - 5, 2 }));
	make(&q);
	is_list("logged", &p.logged, RUNS({ UNIT + 3, 1 }, { 2 * UNIT - 5, 2 }));
	is_list("runs", &p.runs, RUNS({ UNIT + 20, 900 }));
	assert_int_equal(p.units, 1);
}

/* First the scattered blocks, then the rest of the unit, into the remaining room. */
TEST(test_in_two_steps, fresh, cleared)
{
	struct plan_query q = query("x-slow-4g", &d, 102);

	all_used();
	add_all(&d, RUNS({ UNIT + 3, 1 }, { UNIT + 200, 100 }, { 2 * UNIT - 5, 1 }));
	make(&q);
	is_list("logged", &p.logged,
		RUNS({ UNIT + 3, 1 }, { UNIT + 200, 100 }, { 2 * UNIT - 5, 1 }));
	q.log_blks = 101;
	make(&q);
	is_list("logged", &p.logged, RUNS({ UNIT + 3, 1 }, { 2 * UNIT - 5, 1 }));
	is_list("runs", &p.runs, RUNS({ UNIT + 200, 100 }));
}

/* A card with a shared log gathers what several commits write to a unit. The log of cowfs saves
 * something only where the home write follows, to a unit that it visits anyway, and at a shutdown. */
TEST(test_absorb, fresh, cleared)
{
	struct plan_query q = query("sandisk-ultra-4g", &d, 10000);

	assert_true(q.profile->absorb > 1 && q.profile->unit_bytes == 4 * MIB);
	for (uint64_t i = 0; i < 10; i++)
		assert_int_equal(extents_add(&d, UNIT + i * 100, 1), 0);
	make(&q);
	assert_int_equal(extents_blks(&p.runs), 10); /* no gap is filled, although all are free */
	all_used();
	make(&q);
	assert_int_equal(p.logged.n, 0);
	q.last = true;
	make(&q);
	assert_int_equal(extents_blks(&p.logged), 10);
	assert_int_equal(p.ns, plan_append_ns(q.profile, 10));
	q.last = false;
	q.home_follows = true;
	make(&q);
	assert_int_equal(p.logged.n, 0);
	w.visited[UNIT + 50] = true;
	make(&q);
	assert_int_equal(extents_blks(&p.logged), 10);
	w.visited[UNIT + 50] = false;
	assert_false(plan_fills(q.profile, false, 32 * MIB / COW_BLK_BYTES - 1));
	assert_true(plan_fills(q.profile, false, 32 * MIB / COW_BLK_BYTES));
	assert_true(plan_fills(q.profile, true, 0));
}

/* Two visits that become one save a whole merge, and cost the append. The second write home is no
 * cheaper than the first would have been. */
TEST(test_shared_visit, fresh, cleared)
{
	struct plan_query q = query("lexar-300x-8g", &d, 10000);
	uint64_t unit = q.profile->unit_bytes / COW_BLK_BYTES,
		 most = costs_merge_ns(q.profile, 0) / plan_append_ns(q.profile, 1);

	assert_true(q.profile->absorb == 1 && most > 50 && most + 50 < unit);
	all_used();
	q.home_follows = true;
	w.visited[2 * unit - 1] = true;
	for (unsigned more = 0; more < 2; more++) {
		assert_int_equal(extents_add(&d, unit, more ? most + 50 : most - 50), 0);
		make(&q);
		assert_int_equal(p.logged.n, !more);
		extents_clear(&d);
	}
	w.visited[2 * unit - 1] = false;
}

TEST(test_disk)
{
	const struct card_costs *c = profile("hdd-5400-laptop");
	uint64_t most = c->seek_ns / plan_append_ns(c, 1);

	assert_true(most > 10 && most < 200);
	assert_true(plan_bridges(c, 0, 10, 10 + most, 10, 1));
	assert_false(plan_bridges(c, 0, 10, 10 + most + 2, 10, 1));
	/* writes to a disk are not merged */
	assert_int_equal(costs_merge_ns(c, 0), 0);
}

/* ---- gaps ---- */

TEST(test_bridges)
{
	const struct card_costs *c = profile("x-slow-4g");

	assert_true(plan_bridges(c, 0, 100, 101, 50, 1));
	assert_false(plan_bridges(c, 0, 100, 100, 50, 1)); /* no gap */
	assert_false(plan_bridges(c, 0, 101, 100, 50, 1));
	assert_false(plan_bridges(c, 0, UNIT - 1, UNIT, 50, 1)); /* the other unit */
	assert_false(plan_bridges(c, 0, UNIT - 1, UNIT + 1, 50, 1));
	/* the same one, after it */
	assert_true(plan_bridges(c, 4096, UNIT - 1, UNIT + 1, 50, 1));
	/* a unit that is nearly full: the merge of a jump costs nothing */
	assert_false(plan_bridges(c, 0, 100, 400, UNIT - 10, 1));
	assert_true(plan_bridges(c, 0, 100, 400, 100, 1));
	/* where units may be written out of order, only the overhead counts */
	c = profile("x-flashbench-readme");
	assert_false(plan_bridges(c, 0, 100, 400, 100, 1));
}

TEST(test_error, fresh, cleared)
{
	struct plan_query q = query("x-slow-4g", &d, 0);

	add_all(&d, RUNS({ 10, 5 }, { 20, 5 }));
	w.error = -EIO;
	assert_int_equal(plan_make(&p, &q), -EIO);
	extents_clear(&d);
	make(&q); /* nothing asked, nothing planned */
	assert_int_equal(p.runs.n + p.direct.n + p.logged.n + p.units + p.ns, 0);
}

/* ---- any query ---- */

static void mark(bool *map, const struct extents *x)
{
	uint64_t end = 0, blks = 0;

	memset(map, 0, BLKS * sizeof(*map));
	for (size_t i = 0; i < x->n; i++) {
		assert_true(i == 0 || x->e[i].blk > end); /* ascending, neighbours joined */
		assert_true(x->e[i].blks > 0);
		end = x->e[i].blk + x->e[i].blks;
		assert_true(end <= BLKS);
		for (uint64_t b = x->e[i].blk; b < end; b++)
			map[b] = true;
		blks += x->e[i].blks;
	}
	assert_int_equal(blks, extents_blks(x));
}

static void check_plan(const struct plan_query *q)
{
	static bool asked[BLKS], direct[BLKS], logged[BLKS], runs[BLKS];
	uint64_t unit_bytes = q->profile->unit_bytes ? q->profile->unit_bytes : MIB, units = 0,
		 last = UINT64_MAX, n_logged = 0;
	/* units of the disk that have a block of direct, from the unit of block 0 on */
	bool in_place[BLKS * 2 + 1] = { 0 };
	uint64_t first = q->disk_off_bytes / unit_bytes;

	mark(asked, q->direct);
	mark(direct, &p.direct);
	mark(logged, &p.logged);
	mark(runs, &p.runs);
	for (uint64_t b = 0; b < BLKS; b++) {
		uint64_t u = (q->disk_off_bytes + blk_to_bytes(b)) / unit_bytes;

		if (direct[b] + logged[b] != asked[b])
			fail_msg("block %llu: asked %d, in place %d, to the log %d",
				 (unsigned long long)b, asked[b], direct[b], logged[b]);
		if (direct[b] && !runs[b])
			fail_msg("block %llu is not written", (unsigned long long)b);
		if (logged[b] && runs[b])
			fail_msg("block %llu is in the log and written over",
				 (unsigned long long)b);
		if (runs[b] && !direct[b] && (w.used[b] || !q->is_free || b >= q->volume_blks))
			fail_msg("block %llu is used, and written over", (unsigned long long)b);
		n_logged += logged[b];
		if (direct[b] && u != last) {
			last = u;
			units++;
		}
		in_place[u - first] |= direct[b];
	}
	for (uint64_t b = 0; b < BLKS; b++) {
		uint64_t u = (q->disk_off_bytes + blk_to_bytes(b)) / unit_bytes;

		if (runs[b] && !in_place[u - first])
			fail_msg("block %llu: nothing in its unit is written in place",
				 (unsigned long long)b);
		if (logged[b] && q->home_follows) {
			uint64_t from = u * unit_bytes > q->disk_off_bytes
						? (u * unit_bytes - q->disk_off_bytes) /
							  COW_BLK_BYTES
						: 0;
			uint64_t to =
				min_u64(((u + 1) * unit_bytes - q->disk_off_bytes) / COW_BLK_BYTES,
					q->volume_blks);

			if (!q->is_visited || !is_visited(NULL, from, to - from))
				fail_msg("block %llu goes to the log, and home at once",
					 (unsigned long long)b);
		}
	}
	assert_true(n_logged <= q->log_blks);
	assert_int_equal(p.units, units);
	assert_int_equal(p.ns > 0, q->direct->n > 0);
}

static void random_query(void)
{
	uint64_t density = 1 + rnd(200), longest = 1 + rnd(rnd(4) ? 20 : 3000), blk = rnd(100);

	fresh(NULL);
	while (blk < BLKS) {
		uint64_t n = min_u64(1 + rnd(longest), BLKS - blk);

		assert_int_equal(extents_add(&d, blk, n), 0);
		blk += n + 1 + rnd(density * (rnd(10) ? 1 : 50));
	}
	for (uint64_t b = 0, n, used = 1 + rnd(100); b < BLKS; b += n) {
		n = min_u64(1 + rnd(300), BLKS - b);
		memset(w.used + b, rnd(100) < used, n);
	}
	for (uint64_t i = rnd(20); i > 0; i--)
		w.visited[rnd(BLKS)] = true;
}

TEST(test_any, fresh, cleared)
{
	uint64_t moved = 0, padded = 0, stayed = 0;

	rnd_begin(1);
	for (unsigned round = 0; round < 1500; round++) {
		const struct card_costs *of = &cards[rnd(n_cards)];
		struct plan_query q;
		uint64_t ns;

		random_query();
		q = query(of->id, &d, rnd(4) ? rnd(4000) : 0);
		q.disk_off_bytes = rnd(2) ? rnd(20000) * COW_BLK_BYTES : rnd(3) * 4 * MIB;
		q.home_follows = rnd(4) == 0;
		if (rnd(8) == 0)
			q.is_free = NULL;
		if (rnd(8) == 0)
			q.is_visited = NULL;
		make(&q);
		check_plan(&q);
		moved += extents_blks(&p.logged);
		stayed += extents_blks(&p.direct);
		padded += extents_blks(&p.runs) - extents_blks(&p.direct);
		/* the log is used only where that is cheaper */
		q.log_blks = 0;
		ns = p.ns;
		make(&q);
		check_plan(&q);
		if (ns > p.ns)
			fail_msg("%s, round %u: %llu ns, and %llu without the log", of->id, round,
				 (unsigned long long)ns, (unsigned long long)p.ns);
		extents_clear(&d);
	}
	/* all ways occurred */
	assert_true(moved > 10000 && stayed > 10000 && padded > 10000);
}

TEST(test_merge, fresh)
{
	static bool want[BLKS], got[BLKS];

	rnd_begin(2);
	for (unsigned round = 0; round < 300; round++) {
		struct extents x = { 0 }, y = { 0 };
		uint64_t none = rnd(10);

		memset(want, 0, sizeof(want));
		for (uint64_t b = 0, n; b < BLKS; b += n) {
			uint64_t kind = rnd(3);

			n = min_u64(1 + rnd(40), BLKS - b);
			/* also for neighbours; sometimes one of the lists is empty */
			if (kind == 2 || kind == none)
				continue;
			assert_int_equal(extents_add(kind ? &x : &y, b, n), 0);
			memset(want + b, 1, n);
		}
		assert_int_equal(extents_merge(&x, &y), 0);
		mark(got, &x);
		assert_memory_equal(want, got, sizeof(got));
		extents_clear(&x);
		extents_clear(&y);
	}
}

static int open_profiles(void **state)
{
	struct flash_profiles *ps;
	char why[256];
	int r = flash_profiles_open(&ps, NULL, why, sizeof(why));

	if (r < 0)
		return r;
	for (size_t i = 0; i < flash_profiles_count(ps); i++)
		n_cards += flash_profile_costs(flash_profiles_at(ps, i), &cards[n_cards]) == 0;
	flash_profiles_close(ps);
	return n_cards > 20 ? 0 : -1;
}

TEST_GROUP(open_profiles, NULL)
