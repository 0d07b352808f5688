// SPDX-License-Identifier: MIT
/* The table of rewrites against a complete count: exact while it has room, never too high, and
 * always with its sum. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "fs/tally.h"
#include "ram/rewrites.h"
#include "rnd.h"

enum { BLKS = 50000 };

struct truth {
	uint32_t absorbed[BLKS], later[BLKS];
	uint64_t all_absorbed;
};

static void one(struct rewrites *w, struct truth *t, uint32_t blk, uint64_t was_data)
{
	rewrites_count(w, blk, 1, &was_data);
	t->absorbed[blk] += was_data;
	t->all_absorbed += was_data;
}

struct found {
	struct rewrites_totals totals;
	uint64_t absorbed, blks;
	uint32_t of[BLKS], later[BLKS];
};

/* Its counts are no more than the true ones, and its sum is the true sum. */
static void look(struct rewrites *w, const struct truth *t, struct found *ret)
{
	struct rewrites_part part;
	uint32_t next = 0;

	memset(ret, 0, sizeof(*ret));
	do {
		rewrites_take_part(w, next, &part);
		for (uint32_t i = 0; i < part.n; i++, ret->blks++) {
			assert_true(part.e[i].blk < BLKS && !ret->of[part.e[i].blk] &&
				    !ret->later[part.e[i].blk]);
			assert_true(part.e[i].absorbed || part.e[i].later);
			assert_in_range(part.e[i].absorbed, 0, t->absorbed[part.e[i].blk]);
			assert_in_range(part.e[i].later, 0, t->later[part.e[i].blk]);
			ret->of[part.e[i].blk] = part.e[i].absorbed;
			ret->later[part.e[i].blk] = part.e[i].later;
			ret->absorbed += part.e[i].absorbed;
		}
		assert_true(!part.next || part.next > next);
		next = part.next;
	} while (next);
	ret->totals = part.totals;
	assert_in_range(ret->blks, 0, part.totals.max_blks);
	assert_int_equal(part.totals.absorbed, t->all_absorbed);
	assert_int_equal(part.totals.absorbed,
			 ret->absorbed + part.totals.untracked + part.totals.discarded);
}

static struct truth truth;
static struct found found;

static struct rewrites *fresh(size_t bytes)
{
	struct rewrites *w;

	memset(&truth, 0, sizeof(truth));
	rnd_state = 42;
	assert_int_equal(rewrites_new(&w, bytes), 0);
	return w;
}

/* Files that lie in runs: exact, in one call as in many. */
static void test_exact(void **state)
{
	struct rewrites *w = fresh(256 * KIB);
	uint64_t was[REWRITES_MAX_CALL_BLKS / 64];

	(void)state;
	look(w, &truth, &found);
	assert_int_equal(found.totals.max_blks, 20480);
	for (int i = 0; i < 3000; i++) {
		/* four files of 3,000 blocks far from each other */
		uint32_t n = 1 + rnd(REWRITES_MAX_CALL_BLKS), blk = rnd(4) * 12345 + rnd(3000 - n);

		for (uint32_t k = 0; k < n; k++) {
			bool again = rnd(3) > 0;

			was[k / 64] = k % 64 ? was[k / 64] : 0;
			was[k / 64] |= (uint64_t)again << k % 64;
			truth.absorbed[blk + k] += again;
			truth.all_absorbed += again;
		}
		rewrites_count(w, blk, n, was);
	}
	for (uint32_t k = 0; k < BLKS; k++)
		truth.later[k] = UINT32_MAX; /* of these test_later */
	look(w, &truth, &found);
	assert_int_equal(found.totals.untracked, 0);
	assert_memory_equal(found.of, truth.absorbed, sizeof(found.of));
	rewrites_free(w);
}

/* A block that each generation writes once is counted from its second write on. */
static void test_later(void **state)
{
	struct rewrites *w = fresh(16 * KIB);

	(void)state;
	for (int generation = 0; generation < 50; generation++)
		for (uint32_t blk = 700; blk < 900; blk++) {
			one(w, &truth, blk, 0);
			truth.later[blk] += generation > 0;
		}
	look(w, &truth, &found);
	assert_memory_equal(found.later, truth.later, sizeof(truth.later));
	assert_int_equal(found.blks, 200);
	rewrites_free(w);
}

/* Far more blocks than entries, some of them hot: sums are exact, and the hot ones stay. */
static void test_crowded(void **state)
{
	struct rewrites *w = fresh(4 * KIB); /* 320 blocks */
	uint64_t hot = 0, hot_found = 0;

	(void)state;
	for (uint32_t blk = 0; blk < BLKS; blk++)
		truth.later[blk] = UINT32_MAX;
	for (int i = 0; i < 400000; i++) {
		if (i % 4 == 0)
			one(w, &truth, 1000 + 7 * rnd(40), 1);
		else
			one(w, &truth, rnd(BLKS), rnd(2)); /* hardly any block twice soon */
		if (i % 50000 == 0)
			look(w, &truth, &found);
	}
	look(w, &truth, &found);
	for (uint32_t k = 0; k < 40; k++) {
		hot += truth.absorbed[1000 + 7 * k];
		hot_found += found.of[1000 + 7 * k];
	}
	assert_true(found.totals.untracked > 0);
	print_message(
		"40 hot blocks among 50,000, 320 places: %.1f %% of their rewrites known, %.1f %% of all\n",
		100.0 * (double)hot_found / (double)hot,
		100.0 - 100.0 * (double)found.totals.untracked / (double)found.totals.absorbed);
	assert_true(hot_found > hot * 9 / 10);
	rewrites_free(w);
}

/* A file of any size that is written once takes no entry from another block. */
static void test_stream(void **state)
{
	struct rewrites *w = fresh(KIB);

	(void)state;
	for (int i = 0; i < 100; i++)
		one(w, &truth, 77, i > 0);
	for (uint32_t blk = 100; blk < BLKS; blk++)
		one(w, &truth, blk, 0);
	look(w, &truth, &found);
	assert_int_equal(found.of[77], 99);
	assert_int_equal(found.blks, 1);
	rewrites_free(w);
}

static void test_forget(void **state)
{
	struct rewrites *w = fresh(64); /* one line */

	(void)state;
	for (uint32_t blk = 10; blk < 13; blk++)
		for (int i = 0; i < 5; i++)
			one(w, &truth, blk, i > 0);
	rewrites_forget(w, 11, 2);
	rewrites_forget(w, 0, 10);
	rewrites_forget(w, UINT64_MAX - 5, 5);
	look(w, &truth, &found);
	assert_int_equal(found.totals.discarded, 8);
	assert_int_equal(found.of[10], 4);
	assert_int_equal(found.blks, 1);
	one(w, &truth, 11, 0); /* of another block */
	look(w, &truth, &found);
	assert_int_equal(found.blks, 1);
	/* blocks beyond 32-bit numbers are in the sums */
	rewrites_count(w, (1ull << 40) - 1, 1, &(uint64_t){ 1 });
	rewrites_count(w, UINT32_MAX - 1ull, 3, &(uint64_t){ 6 });
	truth.all_absorbed += 3;
	look(w, &truth, &found);
	assert_int_equal(found.totals.untracked, 3);
	rewrites_free(w);
	rewrites_free(NULL);
	rewrites_count(NULL, 0, 1, &(uint64_t){ 1 });
	rewrites_forget(NULL, 0, 1);
}

static void *four_thousand(void *ctx)
{
	uint64_t was = UINT64_MAX;

	for (uint32_t i = 0; i < 4000; i++)
		rewrites_count(ctx, i % 100, 50, &was);
	return NULL;
}

static void test_threads(void **state)
{
	struct rewrites *w = fresh(16 * KIB);
	pthread_t thread[4];

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(thread); i++)
		assert_int_equal(pthread_create(&thread[i], NULL, four_thousand, w), 0);
	memset(truth.absorbed, 0xff, sizeof(truth.absorbed));
	for (unsigned i = 0; i < ARRAY_SIZE(thread); i++)
		pthread_join(thread[i], NULL);
	truth.all_absorbed = 4 * 4000 * 50;
	look(w, &truth, &found);
	assert_int_equal(found.totals.untracked, 0);
	rewrites_free(w);
}

/* ---- sums over ranges of bytes ---- */

static void test_tally(void **state)
{
	enum { N = 60 };

	(void)state;
	rnd_state = 7;
	for (int round = 0; round < 300; round++) {
		uint64_t count[TALLY_KINDS][N] = { 0 }, sum[TALLY_KINDS] = { 0 },
			 want[TALLY_KINDS] = { 0 }, start, end;
		struct tally then = { 0 }, now = { 0 };

		for (uint32_t i = 0; i < N; i++) {
			uint32_t blk = (i * 37) % N; /* in no order */
			uint32_t old = rnd(9), absorbed = rnd(20);

			if (rnd(3))
				continue;
			if (rnd(2))
				assert_int_equal(tally_add(&then, blk, old, 0), 0);
			else
				old = 0;
			count[TALLY_ABSORBED][blk] = absorbed;
			count[TALLY_LATER][blk] = rnd(5);
			count[TALLY_NEW][blk] = absorbed > old ? absorbed - old : 0;
			assert_int_equal(tally_add(&now, blk, absorbed, count[TALLY_LATER][blk]),
					 0);
		}
		assert_int_equal(tally_finish(&then, NULL), 0);
		assert_int_equal(tally_finish(&now, &then), 0);
		start = rnd(N * 4096);
		end = start + rnd(N * 4096 - (uint32_t)start + 1);
		if (round % 7 == 0)
			end = UINT64_MAX;
		for (uint64_t b = start; b < N * 4096ull && b < end; b++)
			for (unsigned k = 0; k < TALLY_KINDS; k++)
				want[k] += count[k][b / 4096];
		tally_covered_bytes(&now, start, end, sum);
		assert_memory_equal(sum, want, sizeof(sum));
		tally_clear(&now);
		tally_clear(&then);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_exact),	cmocka_unit_test(test_later),
		cmocka_unit_test(test_crowded), cmocka_unit_test(test_stream),
		cmocka_unit_test(test_forget),	cmocka_unit_test(test_threads),
		cmocka_unit_test(test_tally),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
