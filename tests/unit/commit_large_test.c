// SPDX-License-Identifier: MIT
/* Commits of a larger volume whose content is a function of the block. */
#include "test.h"
#include "log/index_build.h"
#include "toy.h"

/* ---- a larger volume whose content is a function of the block ---- */

static uint64_t compared; /* blocks read of the committed image */

enum { BIG_BLKS = 12288 };

struct big {
	struct toy t;	     /* cards and log */
	uint64_t first, end; /* dirty */
	uint64_t same_first; /* from here on the sealed image equals the committed one */
	uint64_t comb_first; /* from here on every other block is free */
};

static bool big_next(void *ctx, uint64_t *blk, uint64_t max_blks, uint64_t *ret_blks,
		     enum blk_state *ret_state)
{
	const struct big *g = ctx;

	*blk = max_u64(*blk, g->first);
	if (*blk >= g->end)
		return false;
	*ret_blks = min_u64(max_blks, g->end - *blk);
	*ret_state = BLK_DATA;
	return true;
}

static void big_fill(uint64_t blk, uint64_t blks, bool old, uint64_t *word)
{
	for (uint64_t i = 0; i < blks * COW_BLK_BYTES / 8; i++)
		word[i] = ((blk + i * 8 / COW_BLK_BYTES) * 2 + old + 1) * 0x9e3779b97f4a7c15u;
}

static int big_sealed(void *ctx, uint64_t blk, uint64_t blks, void *buf)
{
	const struct big *g = ctx;

	for (uint64_t i = 0; i < blks; i++)
		big_fill(blk + i, 1, blk + i >= g->same_first,
			 (uint64_t *)((uint8_t *)buf + blk_to_bytes(i)));
	return 0;
}

static int big_committed(void *ctx, uint64_t blk, uint64_t blks, void *buf)
{
	compared += blks;
	big_fill(blk, blks, true, buf);
	return 0;
}

static int big_run(void *ctx, uint64_t blk, uint64_t max_blks, enum blk_use *ret,
		   uint64_t *ret_blks)
{
	const struct big *g = ctx;

	*ret_blks = 1;
	*ret = blk >= g->comb_first && blk % 2 ? USE_FREE : USE_USED;
	return 0;
}

static struct commit_source big_new(struct big *g, uint64_t log_bytes)
{
	struct sim_params p = { .size_bytes = blk_to_bytes(BIG_BLKS) + log_bytes + 2 * MIB,
				.erase_block_bytes = 64 * KIB };
	struct log_super s;
	uint64_t missing;

	*g = (struct big){ .same_first = BIG_BLKS, .comb_first = BIG_BLKS };
	assert_int_equal(sim_new(&g->t.card, &p), 0);
	g->t.base = g->t.card;
	assert_int_equal(
		super_plan(g->t.base, g->t.card, blk_to_bytes(BIG_BLKS), log_bytes, &s, &missing),
		0);
	assert_int_equal(card_set_writable(g->t.card, true), 0);
	assert_int_equal(super_write(g->t.card, &s), 0);
	assert_int_equal(card_set_writable(g->t.card, false), 0);
	assert_int_equal(log_open(&g->t.log, g->t.base, g->t.card, &s, 0, NULL, &g->t.rep), 0);
	g->t.index = log_index_of(g->t.log);
	compared = 0;
	return (struct commit_source){ .ctx = g,
				       .volume_blks = BIG_BLKS,
				       .next = big_next,
				       .read_sealed = big_sealed,
				       .read_committed = big_committed,
				       .run_sealed = big_run,
				       .run_committed = big_run };
}

static int big_commit(struct big *g, const struct commit_source *src, struct commit_report *bill)
{
	const struct commit_options opt = { .cause = CAUSE_MANUAL };
	struct log_index *ix = NULL;
	int r = commit_run(g->t.log, g->t.base, src, &opt, toy_publish, &g->t, bill, &ix);

	if (ix)
		toy_publish(&g->t, ix);
	return r;
}

/* Content that keeps differing is compared by samples; where something is equal again, everything
 * is compared. */
TEST(test_samples)
{
	struct commit_report bill;
	struct commit_source src;
	struct big g;

	src = big_new(&g, 64 * MIB);
	g.end = 10240;
	assert_int_equal(big_commit(&g, &src, &bill), 0);
	assert_int_equal(bill.logged, 10240);
	assert_in_range(compared, 4096, 4096 + (10240 - 4096) / 16 + 256);
	/* several descriptor blocks */
	toy_close(&g.t);
	assert_int_equal(toy_open(&g.t, 0), 0);
	assert_int_equal(g.t.rep.live_blks, 10240);
	compared = 0;
	g.end = BIG_BLKS;
	g.same_first = 8192;
	assert_int_equal(big_commit(&g, &src, &bill), 0);
	assert_in_range(bill.skipped_same, BIG_BLKS - 8192 - 16 * 256, BIG_BLKS - 8192);
	assert_int_equal(bill.logged, BIG_BLKS - bill.skipped_same);
	assert_true(compared < BIG_BLKS);
	toy_free(&g.t);
}

/* The count of differing blocks is kept from one commit to the next: samples from the first block
 * on, until one is equal. */
TEST(test_samples_go_on)
{
	uint64_t differed = 0;
	const struct commit_options opt = { .cause = CAUSE_MANUAL, .differed = &differed };
	struct commit_report bill;
	struct commit_source src;
	struct log_index *ix;
	struct big g;

	src = big_new(&g, 96 * MIB);
	g.end = 8192;
	for (int i = 0; i < 3; i++) {
		g.same_first = i < 2 ? BIG_BLKS : 0;
		compared = 0;
		ix = NULL;
		assert_int_equal(
			commit_run(g.t.log, g.t.base, &src, &opt, toy_publish, &g.t, &bill, &ix),
			0);
		assert_non_null(ix);
		toy_publish(&g.t, ix);
		assert_int_equal(bill.logged + bill.skipped_same, 8192);
		if (i == 1)
			assert_in_range(compared, 1, 8192 / 16 + 256);
		if (i < 2)
			assert_true(differed > 4096 && bill.skipped_same == 0);
		else /* the first sample finds it */
			assert_true(!differed && bill.skipped_same >= 8192 - 16 * 256);
	}
	toy_free(&g.t);
}

/* Small commits: their number makes the log long. */
TEST(test_many_records)
{
	struct commit_report bill;
	struct commit_source src;
	uint64_t blks;
	struct big g;
	int n = 0;

	src = big_new(&g, 64 * MIB);
	for (; !commit_checkpoint_due(g.t.log, NULL); n++) {
		g.end = g.first + 1;
		assert_int_equal(big_commit(&g, &src, &bill), 0);
		assert_true(n < 1000);
	}
	assert_in_range(n, 150, 250);
	assert_int_equal(commit_checkpoint(g.t.log, g.t.base,
					   &(struct commit_options){ .cause = CAUSE_MANUAL },
					   toy_publish, &g.t, RECORD_TAIL, &blks),
			 0);
	assert_int_equal(blks, 1);
	assert_false(commit_checkpoint_due(g.t.log, NULL));
	toy_free(&g.t);
}

/* Single free blocks: the spill needs more descriptors than the blocks alone, and finds room for
 * them. */
TEST(test_scattered_spill)
{
	struct commit_report bill;
	struct commit_source src;
	struct log_index *ix;
	uint8_t *was = io_alloc(COW_BLK_BYTES), *is = io_alloc(COW_BLK_BYTES);
	struct big g;

	src = big_new(&g, 384 * KIB);
	g.end = 1400;
	g.comb_first = 4096;
	assert_int_equal(big_commit(&g, &src, &bill), 0);
	assert_int_equal(bill.logged, 1400);
	assert_in_range(bill.spilled, 1300, 1400);
	ix = g.t.index;
	for (uint64_t b = 0; b < 1400; b++) {
		assert_int_equal(log_index_read(ix, b, 1, is), 0);
		assert_int_equal(big_sealed(&g, b, 1, was), 0);
		assert_memory_equal(was, is, COW_BLK_BYTES);
	}
	/* neither ring nor comb */
	g.end = 4096;
	g.comb_first = BIG_BLKS - 64;
	assert_int_equal(big_commit(&g, &src, &bill), -EFBIG);
	assert_true(bill.need_blks > bill.room_blks);
	/* enough free blocks, but no room for this number of extents */
	g.comb_first = 4096;
	g.end = 4090;
	assert_int_equal(big_commit(&g, &src, &bill), -EFBIG);
	free(was);
	free(is);
	toy_free(&g.t);
}
