/* SPDX-License-Identifier: MIT */
/* Read-ahead of the base: fewer requests, the right bytes, never those of another epoch. */
#include "test.h"
#include "sim/sim.h"
#include "export/readahead.h"

enum { BLKS = 4099, READERS = 4, READS = 20000 };

static struct card *card;
static struct readahead *ahead;

/* each block contains its number and how often it was written */
static void put(uint64_t blk, uint64_t version)
{
	uint64_t block[COW_BLK_BYTES / 8];

	for (size_t i = 0; i < ARRAY_SIZE(block); i++)
		block[i] = blk << 20 | version << 10 | i;
	assert_int_equal(sim_poke(card, blk_to_bytes(blk), block, sizeof(block)), 0);
}

static bool is(const uint64_t *block, uint64_t blk, uint64_t version)
{
	for (size_t i = 0; i < COW_BLK_BYTES / 8; i++)
		if (block[i] != (blk << 20 | version << 10 | i))
			return false;
	return true;
}

static int setup(void **state)
{
	const struct sim_params p = { .size_bytes = blk_to_bytes(BLKS) };

	if (sim_new(&card, &p) < 0 || readahead_new(&ahead, card, 0) < 0)
		return -1;
	for (uint64_t i = 0; i < BLKS; i++)
		put(i, 0);
	return 0;
}

static int teardown(void **state)
{
	readahead_free(ahead);
	card_close(card);
	return 0;
}

static void check(uint64_t epoch, uint64_t blk, uint64_t blks, uint64_t version)
{
	_cleanup_free_ uint64_t *buf = io_alloc(blk_to_bytes(blks));

	assert_non_null(buf);
	assert_int_equal(readahead_read(ahead, epoch, blk, blks, buf), 0);
	for (uint64_t i = 0; i < blks; i++)
		assert_true(is(buf + i * COW_BLK_BYTES / 8, blk + i, version));
}

static uint64_t calls(void)
{
	return card->account.read_calls;
}

TEST(streams_take_few_requests, setup, teardown)
{
	for (uint64_t i = 0; i < 480; i += 2) { /* two of them, every second block */
		check(1, i, 1, 0);
		check(1, 2000 + i, 1, 0);
	}
	assert_in_range(calls(), 60, 80);
}

TEST(the_end_of_the_card, setup, teardown)
{
	for (uint64_t i = BLKS - 100; i < BLKS; i++)
		check(1, i, 1, 0);
	assert_in_range(calls(), 1, 15);
	check(1, BLKS - 3, 3, 0);
}

TEST(random_reads_bring_nothing_along, setup, teardown)
{
	uint64_t x;

	rnd_begin(0);
	for (unsigned i = 0; i < 32; i++) {
		x = rnd_next(&rnd_state);
		check(1, i * 128 + x % 32, 1, 0);
	}
	assert_int_equal(card->account.read_bytes, 32 * COW_BLK_BYTES);
}

/* Steps that jump over the window: it shrinks until it is useless. */
TEST(what_is_not_used_is_not_read, setup, teardown)
{
	for (uint64_t i = 0; i < 100; i++)
		check(1, i * 30, 1, 0);
	assert_in_range(card->account.read_bytes / COW_BLK_BYTES, 100, 160);
}

TEST(an_epoch_ends_all_windows, setup, teardown)
{
	for (uint64_t epoch = 1; epoch < 20; epoch++) {
		for (uint64_t i = 0; i < 64; i++)
			put(i, epoch);
		for (uint64_t i = 0; i < 62; i++)
			check(epoch, i, 1 + i % 3, epoch);
	}
}

TEST(an_error_ahead_is_no_error, setup, teardown)
{
	uint64_t block[COW_BLK_BYTES / 8] __attribute__((aligned(4096)));

	check(1, 10, 1, 0);
	sim_fail_at(card, SIM_READ, 1, -EIO, false); /* that of the window */
	check(1, 11, 1, 0);
	check(1, 12, 1, 0);
	sim_fail_at(card, SIM_READ, 1, -EIO, true);
	assert_int_equal(readahead_read(ahead, 1, 900, 1, block), -EIO);
	assert_int_equal(readahead_read(ahead, 1, 901, 1, block), -EIO);
	sim_fail_at(card, 0, 0, 0, false);
	check(1, 900, 2, 0);
}

static void *reader(void *arg)
{
	uint64_t x, state = (uintptr_t)arg, blk = 0, bad = 0;
	_cleanup_free_ uint64_t *buf = io_alloc(4 * COW_BLK_BYTES);

	for (unsigned i = 0; i < READS; i++) {
		uint64_t blks;

		x = rnd_next(&state);
		blk = x % 16 ? blk + x / 16 % 4 : x / 16 % BLKS; /* streams that meet */
		blk = min_u64(blk, BLKS - 4);
		blks = 1 + x / 1024 % 4;
		bad += readahead_read(ahead, x / 4096 % 2, blk, blks, buf) < 0;
		for (uint64_t k = 0; k < blks; k++)
			bad += !is(buf + k * COW_BLK_BYTES / 8, blk + k, 0);
	}
	return (void *)(uintptr_t)bad;
}

TEST(many_at_once, setup, teardown)
{
	pthread_t t[READERS];
	void *bad;

	for (uintptr_t i = 0; i < READERS; i++)
		assert_int_equal(pthread_create(&t[i], NULL, reader, (void *)(i * 77777)), 0);
	for (unsigned i = 0; i < READERS; i++) {
		pthread_join(t[i], &bad);
		assert_null(bad);
	}
}
