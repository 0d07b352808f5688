// SPDX-License-Identifier: MIT
/* The simulated card: power cuts, failing operations, lies. */
#include "test.h"
#include "sim/sim.h"
#include "sim_card.h"

/* ---- cuts ---- */

/* write, write, flush, write, flush; returns the number of successful operations */
static unsigned scenario(struct card *c)
{
	unsigned good = 0;

	good += put(c, 1, 11) == 0;
	good += put(c, 2, 12) == 0;
	good += card_flush(c) == 0;
	good += put(c, 1, 21) == 0;
	good += card_flush(c) == 0;
	return good;
}

TEST(test_cut_at_every_operation)
{
	/* durable value of block 1 and 2 if the cut writes are dropped, or done */
	static const int dropped[][2] = { { 0, 0 }, { 0, 0 }, { 0, 0 }, { 11, 12 }, { 11, 12 } };
	static const int done[][2] = { { 11, 0 }, { 11, 12 }, { 11, 12 }, { 21, 12 }, { 21, 12 } };
	struct card_counters k;

	for (unsigned n = 1; n <= 5; n++)
		for (unsigned f = SIM_DONE; f <= SIM_DROPPED; f++) {
			const int *want = f == SIM_DONE ? done[n - 1] : dropped[n - 1];
			enum sim_fate fate = f;
			struct card *c = new_card();

			sim_cut_at(c, n);
			assert_int_equal(scenario(c), n - 1);
			assert_true(sim_is_dead(c));
			assert_int_equal(sim_ops(c), n);
			assert_int_equal(card_read(c, 0, buf, COW_BLK_BYTES), -EIO);
			assert_int_equal(put(c, 0, 1), -EIO);
			assert_int_equal(card_flush(c), -EIO);
			assert_int_equal(card_set_writable(c, false), -EIO);
			assert_int_equal(card_counters(c, &k), -EIO);
			sim_power_cycle(c, fixed_fate, &fate);
			assert_false(sim_is_dead(c));
			assert_int_equal(sim_pending(c), 0);
			assert_int_equal(put(c, 0, 1), -EROFS);
			assert_int_equal(seen(c, 1), want[0]);
			assert_int_equal(seen(c, 2), want[1]);
			assert_int_equal(durable(c, 1), want[0]);
			assert_int_equal(card_set_writable(c, true), 0);
			assert_int_equal(scenario(c), 5); /* disarmed */
			card_close(c);
		}
}

struct schedule {
	struct card *c;
	size_t asked;
};

/* block n gets fate n, whatever the order of issue */
static enum sim_fate fate_by_blk(void *arg, size_t i)
{
	struct schedule *s = arg;

	assert_int_equal(i, s->asked++);
	return (enum sim_fate)sim_pending_blk(s->c, i);
}

TEST(test_fates)
{
	struct card *c = new_card();
	struct schedule s = { c, 0 };

	for (uint64_t blk = 0; blk < 4; blk++)
		assert_int_equal(put(c, blk, 1), 0);
	assert_int_equal(card_flush(c), 0);
	for (uint64_t blk = 4; blk-- > 0;)
		assert_int_equal(put(c, blk, 2), 0);
	sim_seed(c, 5);
	sim_power_cycle(c, fate_by_blk, &s);
	assert_int_equal(s.asked, 4);
	assert_int_equal(seen(c, SIM_DONE), 2);
	assert_int_equal(seen(c, SIM_DROPPED), 1);
	assert_int_equal(seen(c, SIM_TORN), MIXED);
	for (size_t i = 0; i < COW_BLK_BYTES; i += SECTOR)
		assert_true(buf[i] == 1 || buf[i] == 2);
	assert_int_equal(seen(c, SIM_GARBAGE), RUBBISH);
	card_close(c);
}

/* Every sector on its own: over the seeds each is old and new next to each neighbour. */
TEST(test_torn_sectors_are_independent)
{
	enum sim_fate torn = SIM_TORN;
	unsigned seen_pairs[8] = { 0 };
	struct card *c = new_card(), *d;

	assert_int_equal(put(c, 0, 1), 0);
	for (uint64_t seed = 0; seed < 100; seed++) {
		assert_int_equal(sim_clone(&d, c), 0);
		sim_seed(d, seed);
		sim_power_cycle(d, fixed_fate, &torn);
		assert_int_equal(sim_peek(d, 0, buf, COW_BLK_BYTES), 0);
		for (unsigned i = 0; i < 8; i++)
			seen_pairs[i] |= 1u << (buf[i * SECTOR] + 2 * buf[(i + 1) % 8 * SECTOR]);
		card_close(d);
	}
	for (unsigned i = 0; i < 8; i++)
		assert_int_equal(seen_pairs[i], 15);
	card_close(c);
}

/* results of a random cut for each block of a 40-block write: counts by kind, and a digest */
struct outcome {
	unsigned old, done, torn, garbage;
	uint64_t digest;
};

static struct outcome random_cut(const struct card *from, uint64_t seed)
{
	struct outcome o = { 0 };
	struct card *c;

	assert_int_equal(sim_clone(&c, from), 0);
	sim_seed(c, seed);
	sim_power_cycle(c, NULL, NULL);
	for (uint64_t blk = 0; blk < 40; blk++) {
		int v = seen(c, blk);

		o.old += v == 1;
		o.done += v == 2;
		o.torn += v == MIXED;
		o.garbage += v == RUBBISH;
		for (size_t i = 0; i < COW_BLK_BYTES; i++)
			o.digest = o.digest * 31 + buf[i];
	}
	assert_int_equal(o.old + o.done + o.torn + o.garbage, 40);
	card_close(c);
	return o;
}

TEST(test_random_cuts)
{
	struct card *c = new_card();
	bool all_but_one = false, one_only = false, all_kinds = false, differ = false;
	struct outcome first;

	memset(buf, 1, 40 * COW_BLK_BYTES);
	assert_int_equal(card_write(c, 0, buf, 40 * COW_BLK_BYTES), 0);
	assert_int_equal(card_flush(c), 0);
	memset(buf, 2, 40 * COW_BLK_BYTES);
	assert_int_equal(card_write(c, 0, buf, 40 * COW_BLK_BYTES), 0);
	first = random_cut(c, 1);
	assert_int_equal(random_cut(c, 1).digest, first.digest);
	for (uint64_t seed = 2; seed < 400; seed++) {
		struct outcome o = random_cut(c, seed);

		all_but_one |= o.done == 39;
		one_only |= o.old == 39;
		all_kinds |= o.old && o.done && o.torn && o.garbage;
		differ |= o.digest != first.digest;
	}
	assert_true(all_but_one && one_only && all_kinds && differ);
	card_close(c);
}

/* bit v for each sector that is uniformly v, bit 7 for each that is not */
static unsigned sector_kinds(const uint8_t *blk)
{
	unsigned kinds = 0;

	for (size_t s = 0; s < COW_BLK_BYTES; s += SECTOR)
		kinds |= 1u << (memcmp(blk + s, blk + s + 1, SECTOR - 1) ? 7 : blk[s]);
	return kinds;
}

/* of two unflushed writes either may be the last, and each has its own fate */
TEST(test_two_writes_of_one_block)
{
	enum { OLD = 1, FIRST = 2, SECOND = 4, GARBAGE = 128 };
	static const unsigned wanted[] = {
		OLD,
		FIRST,
		SECOND,
		GARBAGE,
		FIRST | SECOND,
		OLD | FIRST | SECOND,
		GARBAGE | SECOND, /* in order of issue */
		GARBAGE | FIRST,  /* only in the other */
	};
	struct card *c = new_card(), *d;
	bool happened[256] = { false };

	assert_int_equal(put(c, 7, 1), 0);
	assert_int_equal(put(c, 7, 2), 0);
	for (uint64_t seed = 0; seed < 1000; seed++) {
		assert_int_equal(sim_clone(&d, c), 0);
		sim_seed(d, seed);
		sim_power_cycle(d, NULL, NULL);
		assert_int_equal(card_read(d, blk_to_bytes(7), buf, COW_BLK_BYTES), 0);
		happened[sector_kinds(buf)] = true;
		card_close(d);
	}
	for (size_t i = 0; i < ARRAY_SIZE(wanted); i++)
		assert_true(happened[wanted[i]]);
	/* by callback, in issue order: the second is the last */
	sim_power_cycle(c, fixed_fate, &(enum sim_fate){ SIM_DONE });
	assert_int_equal(seen(c, 7), 2);
	card_close(c);
}

TEST(test_power_cycle_while_alive)
{
	enum sim_fate dropped = SIM_DROPPED;
	struct card *c = new_card();

	assert_int_equal(put(c, 1, 1), 0);
	sim_cut_at(c, 5);
	sim_fail_at(c, SIM_READ | SIM_WRITE, 1, -EROFS, true);
	usleep(1000);
	sim_power_cycle(c, fixed_fate, &dropped);
	assert_true(c->account.writable_ns >= 1000000);
	assert_int_equal(seen(c, 1), 0);
	assert_int_equal(card_set_writable(c, true), 0);
	assert_int_equal(scenario(c), 5);
	card_close(c);
}

/* ---- failing operations ---- */

TEST(test_fail_once_and_forever)
{
	struct card *c = new_card();

	sim_fail_at(c, SIM_READ, 2, -ENOSPC, false);
	assert_int_equal(seen(c, 0), 0);
	assert_int_equal(put(c, 0, 5), 0); /* another kind: not counted */
	memset(buf, 0x77, COW_BLK_BYTES);
	assert_int_equal(card_read(c, 0, buf, COW_BLK_BYTES), -ENOSPC);
	assert_int_equal(value_of(buf), 0x77);
	assert_int_equal(seen(c, 0), 5); /* a failed read changes nothing */

	sim_fail_at(c, SIM_WRITE | SIM_FLUSH, 3, -EROFS, true);
	assert_int_equal(put(c, 1, 1), 0);
	assert_int_equal(card_flush(c), 0);
	assert_int_equal(put(c, 1, 2), -EROFS);
	assert_int_equal(card_flush(c), -EROFS);
	assert_int_equal(put(c, 1, 3), -EROFS);
	assert_false(sim_is_dead(c));
	sim_fail_at(c, SIM_WRITE | SIM_FLUSH, 0, 0, false);
	assert_int_equal(put(c, 1, 4), 0);
	assert_int_equal(card_flush(c), 0);
	assert_int_equal(seen(c, 1), 4);
	card_close(c);
}

/*
 * After a failed flush: each write is durable, pending or lost; all three occur, sometimes all to
 * one kind; reads show the content that a good flush would then make durable; older content is
 * undamaged.
 */
static void check_after_failure(const struct card *from, bool by_write, unsigned *kinds)
{
	struct card *c;
	int before[12];
	size_t pending;

	for (uint64_t seed = 0; seed < 100; seed++) {
		unsigned n_durable = 0, n_lost = 0;

		assert_int_equal(sim_clone(&c, from), 0);
		sim_seed(c, seed);
		sim_fail_at(c, by_write ? SIM_WRITE : SIM_FLUSH, 1, -EIO, false);
		assert_int_equal(by_write ? put(c, 10, 2) : card_flush(c), -EIO);
		pending = sim_pending(c);
		for (uint64_t blk = 0; blk < 12; blk++) {
			before[blk] = seen(c, blk);
			n_durable += durable(c, blk) == 2;
			n_lost += before[blk] == 1;
		}
		assert_int_equal(before[11], 1); /* not written since the flush */
		if (by_write && before[10] == 1)
			*kinds |= 8;
		*kinds |= (n_durable ? 1 : 0) | (pending ? 2 : 0) | (n_lost > 2 ? 4 : 0);
		*kinds |= (n_durable >= 10 ? 16 : 0) | (pending >= 10 ? 32 : 0);
		assert_int_equal(card_flush(c), 0);
		for (uint64_t blk = 0; blk < 12; blk++) {
			assert_int_equal(durable(c, blk), before[blk]);
			assert_int_equal(seen(c, blk), before[blk]);
		}
		card_close(c);
	}
}

TEST(test_failed_write_and_flush)
{
	struct card *c = new_card();
	unsigned kinds = 8;

	memset(buf, 1, 12 * COW_BLK_BYTES);
	assert_int_equal(card_write(c, 0, buf, 12 * COW_BLK_BYTES), 0);
	assert_int_equal(card_flush(c), 0);
	for (uint64_t blk = 0; blk < 10; blk++)
		assert_int_equal(put(c, blk, 2), 0);
	check_after_failure(c, false, &kinds);
	assert_int_equal(kinds, 63);
	kinds = 0;
	check_after_failure(c, true, &kinds);
	assert_int_equal(kinds, 63);
	card_close(c);
}

/* ---- lies ---- */

TEST(test_lie)
{
	enum sim_fate dropped = SIM_DROPPED;

	for (unsigned lie = 0; lie < 4; lie++) {
		struct card *c = new_card();

		sim_set_lie(c, lie);
		for (uint8_t epoch = 1; epoch <= 6; epoch++) {
			assert_int_equal(put(c, 0, epoch), 0);
			assert_int_equal(put(c, epoch, epoch), 0);
			assert_int_equal(card_flush(c), 0);
			assert_int_equal(seen(c, 0), epoch);
			assert_int_equal(durable(c, 0), epoch > lie ? epoch - (int)lie : 0);
			assert_int_equal(sim_pending(c), 2 * min_u64(lie, epoch));
		}
		assert_int_equal(put(c, 7, 7), 0);
		sim_power_cycle(c, fixed_fate, &dropped);
		for (unsigned epoch = 1; epoch <= 6; epoch++)
			assert_int_equal(seen(c, epoch), epoch + lie <= 6 ? epoch : 0);
		assert_int_equal(seen(c, 7), 0);
		/* the lie survives the cut; on an honest card one flush empties the cache */
		assert_int_equal(card_set_writable(c, true), 0);
		assert_int_equal(put(c, 8, 8), 0);
		assert_int_equal(card_flush(c), 0);
		assert_int_equal(durable(c, 8), lie ? 0 : 8);
		sim_set_lie(c, 0);
		assert_int_equal(card_flush(c), 0);
		assert_int_equal(durable(c, 8), 8);
		card_close(c);
	}
}

/* A failing operation does not affect writes that a flush has acknowledged, lie or not; the first
 * writes may be made durable. */
TEST(test_lie_and_failure)
{
	enum sim_fate dropped = SIM_DROPPED;
	struct card *c = new_card();

	sim_set_lie(c, 10);
	for (uint8_t b = 1; b <= 3; b++) {
		assert_int_equal(put(c, b, b), 0);
		assert_int_equal(card_flush(c), 0);
	}
	sim_fail_at(c, SIM_FLUSH, 1, -EIO, false);
	assert_int_equal(card_flush(c), -EIO);
	assert_int_equal(sim_pending(c), 3);
	sim_settle(c, 2);
	assert_int_equal(sim_pending(c), 1);
	assert_int_equal(durable(c, 2), 2);
	assert_int_equal(durable(c, 3), 0);
	assert_int_equal(seen(c, 3), 3);
	sim_power_cycle(c, fixed_fate, &dropped);
	assert_int_equal(seen(c, 2), 2);
	assert_int_equal(seen(c, 3), 0);
	card_close(c);
}

/* The erase block of the last write, from some offset on; writes in flight there have their own
 * fate. */
TEST(test_collateral)
{
	struct sim_params p = { .size_bytes = 64 * COW_BLK_BYTES,
				.erase_block_bytes = 16 * COW_BLK_BYTES,
				/* erase blocks: 0..11, 12..27, 28..43 */
				.disk_off_bytes = 4 * COW_BLK_BYTES };
	enum sim_fate done = SIM_DONE;

	for (unsigned from = 0; from < 2; from++) {
		struct card *c;

		assert_int_equal(sim_new(&c, &p), 0);
		assert_int_equal(card_set_writable(c, true), 0);
		for (uint8_t b = 0; b < 64; b++)
			assert_int_equal(put(c, b, (uint8_t)(b + 1)), 0);
		assert_int_equal(card_flush(c), 0);
		sim_set_collateral(c, from ? blk_to_bytes(20) : 0);
		sim_power_cycle(c, fixed_fate, &done); /* nothing is being written */
		assert_int_equal(seen(c, 14), 15);
		assert_int_equal(card_set_writable(c, true), 0);
		assert_int_equal(put(c, 40, 100), 0);
		assert_int_equal(put(c, 15, 101), 0);
		sim_power_cycle(c, fixed_fate, &done);
		for (uint8_t b = 0; b < 64; b++) {
			bool hit = b >= (from ? 20 : 12) && b < 28 && b != 15;

			assert_int_equal(seen(c, b), hit       ? RUBBISH
						     : b == 40 ? 100
						     : b == 15 ? 101
							       : b + 1);
		}
		card_close(c);
	}
}

/* ---- unplugged ---- */

TEST(test_unplug_at_every_operation)
{
	static const size_t left[] = { 1, 2, 2, 1, 1, 0 };

	for (unsigned n = 1; n <= 6; n++)
		for (unsigned keep = 0; keep < 2; keep++) {
			struct card *c = new_card();
			size_t pending;

			sim_unplug_at(c, n);
			assert_int_equal(scenario(c), n - 1);
			if (n == 6) {
				assert_false(card_look(c));
				assert_int_equal(card_read(c, 0, buf, COW_BLK_BYTES), -ENOMEDIUM);
			}
			assert_true(card_is_away(c));
			pending = sim_pending(c);
			assert_int_equal(pending, left[n - 1]);
			assert_int_equal(sim_discard(c, 0, COW_BLK_BYTES), -EIO);
			card_examine(c, true);
			assert_int_equal(put(c, 9, 1), -ENOMEDIUM);
			assert_int_equal(card_flush(c), -ENOMEDIUM);
			sim_replug(c, !keep);
			assert_int_equal(sim_pending(c), keep ? pending : 0);
			assert_int_equal(seen(c, 9), 0);
			if (keep)
				assert_int_equal(seen(c, 1), n > 3 ? 21 : 11);
			if (n > 3)
				assert_int_equal(durable(c, 2), 12);
			card_back(c);
			assert_int_equal(card_set_writable(c, true), 0);
			assert_int_equal(scenario(c), 5); /* disarmed */
			card_close(c);
		}
}

/* What was not flushed has each of its fates, and what was stays. */
TEST(test_unplug_loses)
{
	unsigned old = 0, new = 0, other = 0;

	for (uint64_t seed = 0; seed < 200; seed++) {
		struct card *c = new_card();
		int v;

		sim_seed(c, seed);
		assert_int_equal(put(c, 1, 1), 0);
		assert_int_equal(put(c, 2, 1), 0);
		assert_int_equal(card_flush(c), 0);
		assert_int_equal(put(c, 2, 2), 0);
		sim_unplug(c);
		assert_true(card_look(c));
		card_examine(c, true);
		sim_replug(c, true);
		assert_int_equal(seen(c, 1), 1);
		v = seen(c, 2);
		assert_int_equal(durable(c, 2), v);
		old += v == 1, new += v == 2, other += v < 0;
		card_close(c);
	}
	assert_true(old > 20 && new > 20 && other > 20);
}

TEST(test_power_cycle_plugs_in)
{
	struct card *c = new_card();

	sim_unplug(c);
	assert_int_equal(card_flush(c), -ENOMEDIUM);
	sim_power_cycle(c, NULL, NULL);
	assert_false(card_is_away(c));
	assert_int_equal(card_set_writable(c, true), 0);
	assert_int_equal(scenario(c), 5);
	card_close(c);
}
