/* SPDX-License-Identifier: MIT */
/* Tests of card/sim and of the wrappers in card/card: the contract of card.h, then each fault. */
#include "test.h"
#include "sim/sim.h"
#include "sim_card.h"

TEST(test_params)
{
	struct sim_params p = { .size_bytes = 10 * MIB + 5000,
				.erase_block_bytes = 3 * MIB,
				.disk_off_bytes = 512 * 63,
				.identity = "cid" };
	struct card *c;

	assert_int_equal(sim_new(&c, &p), 0);
	assert_int_equal(c->geo.size_bytes, 10 * MIB + 4096);
	assert_int_equal(c->geo.erase_block_bytes, 3 * MIB);
	assert_int_equal(c->geo.disk_off_bytes, 512 * 63);
	assert_string_equal(c->geo.identity, "cid");
	assert_false(c->writable);
	card_close(c);
	card_close(NULL);
	p = (struct sim_params){ .size_bytes = 4095 };
	assert_int_equal(sim_new(&c, &p), -EINVAL);
	p = (struct sim_params){ .size_bytes = MIB, .erase_block_bytes = 1000 };
	assert_int_equal(sim_new(&c, &p), -EINVAL);
	p = (struct sim_params){ .size_bytes = MIB };
	assert_int_equal(sim_new(&c, &p), 0);
	assert_int_equal(c->geo.erase_block_bytes, 4 * MIB);
	assert_int_equal(c->geo.eb_source, CARD_EB_GUESSED);
	assert_string_equal(c->geo.identity, "sim");
	card_close(c);
}

/* refused before the device is touched, by reads and writes alike */
TEST(test_ranges)
{
	static const struct {
		uint64_t off;
		size_t buf_off, len;
	} bad[] = {
		{ 512, 0, 4096 },
		{ 0, 512, 4096 },
		{ 0, 0, 512 },
		{ BLKS * COW_BLK_BYTES, 0, 4096 },
		{ (BLKS - 1) * COW_BLK_BYTES, 0, 8192 },
		{ UINT64_MAX - 4095, 0, 4096 },
		{ 4096, 0, SIZE_MAX - 4095 },
	};
	struct card *c = new_card();

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		assert_int_equal(card_read(c, bad[i].off, buf + bad[i].buf_off, bad[i].len),
				 -EINVAL);
		assert_int_equal(card_write(c, bad[i].off, buf + bad[i].buf_off, bad[i].len),
				 -EINVAL);
	}
	assert_int_equal(card_read(c, BLKS * COW_BLK_BYTES, buf, 0), 0);
	assert_int_equal(card_write(c, BLKS * COW_BLK_BYTES, buf, 0), 0);
	assert_int_equal(card_read(c, 0, buf, BLKS * COW_BLK_BYTES), 0);
	assert_int_equal(c->account.write_calls, 0);
	assert_int_equal(c->account.read_calls, 1);
	assert_int_equal(sim_ops(c), 0);
	card_close(c);
}

TEST(test_writable)
{
	uint64_t before = now_ns();
	struct card *c = new_card();

	usleep(2000);
	assert_int_equal(card_set_writable(c, true), 0); /* again: the clock is not reset */
	assert_int_equal(card_set_writable(c, false), 0);
	assert_true(c->account.writable_ns >= 2000000);
	assert_true(c->account.writable_ns <= now_ns() - before);
	assert_int_equal(put(c, 1, 1), -EROFS);
	assert_int_equal(c->account.write_calls, 0);
	assert_int_equal(sim_ops(c), 0);
	assert_int_equal(sim_pending(c), 0);
	card_close(c);
}

TEST(test_account_and_counters)
{
	struct card *c = new_card();
	struct card_counters k;

	memset(buf, 7, 5 * COW_BLK_BYTES);
	assert_int_equal(card_write(c, 0, buf, 5 * COW_BLK_BYTES), 0);
	assert_int_equal(put(c, 9, 1), 0);
	assert_int_equal(card_flush(c), 0);
	assert_int_equal(card_read(c, 0, buf, 2 * COW_BLK_BYTES), 0);
	assert_int_equal(c->account.write_calls, 2);
	assert_int_equal(c->account.written_bytes, 6 * COW_BLK_BYTES);
	assert_int_equal(c->account.read_calls, 1);
	assert_int_equal(c->account.read_bytes, 2 * COW_BLK_BYTES);
	assert_int_equal(c->account.flushes, 1);
	assert_int_equal(sim_ops(c), 3);
	assert_int_equal(card_counters(c, &k), 0);
	assert_int_equal(k.write_ios, 2);
	assert_int_equal(k.written_bytes, 6 * COW_BLK_BYTES);
	assert_int_equal(k.flushes, 1);
	assert_int_equal(k.discarded_bytes, 0);
	/* a foreign write shows only in the device's counters; a poke shows nowhere */
	assert_int_equal(c->ops->write(c, 0, buf, COW_BLK_BYTES), 0);
	assert_int_equal(sim_poke(c, 0, buf, COW_BLK_BYTES), 0);
	assert_int_equal(card_counters(c, &k), 0);
	assert_int_equal(k.written_bytes, 7 * COW_BLK_BYTES);
	assert_int_equal(c->account.written_bytes, 6 * COW_BLK_BYTES);
	card_close(c);
}

/* ---- copies and direct access ---- */

TEST(test_clone_is_apart)
{
	enum sim_fate done = SIM_DONE, dropped = SIM_DROPPED;
	struct card *c = new_card(), *d, *e;

	assert_int_equal(put(c, 1, 1), 0);
	assert_int_equal(card_flush(c), 0);
	assert_int_equal(put(c, 1, 2), 0);
	assert_int_equal(put(c, 40, 3), 0);
	sim_cut_at(c, 2);
	assert_int_equal(sim_clone(&d, c), 0);
	assert_int_equal(sim_clone(&e, d), 0);
	assert_true(d->writable);
	assert_int_equal(d->account.write_calls, 3);
	assert_int_equal(d->geo.size_bytes, c->geo.size_bytes);
	assert_int_equal(sim_ops(d), 4);
	assert_int_equal(sim_pending(d), 2);
	assert_int_equal(put(d, 1, 7), 0);
	assert_int_equal(card_flush(d), -EIO); /* the armed cut was copied, too */
	assert_false(sim_is_dead(c));
	sim_power_cycle(d, fixed_fate, &done);
	sim_power_cycle(e, fixed_fate, &dropped);
	assert_int_equal(seen(c, 1), 2);
	assert_int_equal(durable(c, 1), 1);
	assert_int_equal(seen(d, 1), 7);
	assert_int_equal(seen(d, 40), 3);
	assert_int_equal(seen(e, 1), 1);
	card_close(c);
	assert_int_equal(sim_poke(d, blk_to_bytes(1), "x", 1), 0);
	assert_int_equal(seen(e, 1), 1);
	card_close(d);
	assert_int_equal(seen(e, 40), 0);
	card_close(e);
}

TEST(test_peek_and_poke)
{
	struct card *c = new_card();
	char text[16];

	assert_int_equal(sim_poke(c, 2 * COW_BLK_BYTES - 4, "straddle", 8), 0);
	assert_int_equal(sim_peek(c, 2 * COW_BLK_BYTES - 4, text, 8), 0);
	assert_memory_equal(text, "straddle", 8);
	assert_int_equal(sim_peek(c, 2 * COW_BLK_BYTES - 5, text, 1), 0);
	assert_int_equal(text[0], 0);
	assert_int_equal(card_read(c, COW_BLK_BYTES, buf, 2 * COW_BLK_BYTES), 0);
	assert_memory_equal(buf + COW_BLK_BYTES - 4, "straddle", 8);
	/* under a cached write it is not visible, and the write wins at the flush */
	assert_int_equal(put(c, 2, 9), 0);
	assert_int_equal(sim_poke(c, blk_to_bytes(2), "rot", 3), 0);
	assert_int_equal(seen(c, 2), 9);
	assert_int_equal(durable(c, 2), RUBBISH);
	assert_int_equal(card_flush(c), 0);
	assert_int_equal(durable(c, 2), 9);
	assert_int_equal(sim_peek(c, BLKS * COW_BLK_BYTES - 1, text, 2), -EINVAL);
	assert_int_equal(sim_poke(c, UINT64_MAX, text, 2), -EINVAL);
	card_close(c);
}

/* ---- against a plain array, and with many threads ---- */

TEST(test_against_reference)
{
	struct card *c = new_card();
	uint8_t now[BLKS] = { 0 }, flushed[BLKS] = { 0 };

	rnd_begin(0);
	for (int round = 0; round < 20000; round++) {
		uint64_t x = rnd_next(&rnd_state), blk = x % BLKS;

		if ((x >> 58) == 0) {
			assert_int_equal(card_flush(c), 0);
			memcpy(flushed, now, sizeof(now));
		} else if ((x >> 58) == 1) {
			sim_power_cycle(c, fixed_fate, &(enum sim_fate){ SIM_DROPPED });
			assert_int_equal(card_set_writable(c, true), 0);
			memcpy(now, flushed, sizeof(now));
		} else if (x >> 63) {
			now[blk] = (uint8_t)(x >> 40);
			assert_int_equal(put(c, blk, now[blk]), 0);
		} else {
			assert_int_equal(seen(c, blk), now[blk]);
			assert_int_equal(durable(c, blk), flushed[blk]);
		}
	}
	card_close(c);
}

static void *reader(void *arg)
{
	struct card *c = arg;
	uint8_t *mine = io_alloc(COW_BLK_BYTES);

	for (unsigned i = 0; mine && i < 3000; i++)
		if (card_read(c, blk_to_bytes(i % 4), mine, COW_BLK_BYTES) || value_of(mine) < 0) {
			free(mine);
			return arg;
		}
	free(mine);
	return NULL;
}

TEST(test_readers_beside_the_writer)
{
	struct card *c = new_card();
	pthread_t t[4];
	void *failed;

	for (size_t i = 0; i < ARRAY_SIZE(t); i++)
		assert_int_equal(pthread_create(&t[i], NULL, reader, c), 0);
	for (unsigned i = 0; i < 3000; i++) {
		assert_int_equal(put(c, i % 4, (uint8_t)i), 0);
		if (i % 16 == 0)
			assert_int_equal(card_flush(c), 0);
	}
	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		assert_int_equal(pthread_join(t[i], &failed), 0);
		assert_null(failed);
	}
	assert_int_equal(c->account.read_calls, ARRAY_SIZE(t) * 3000);
	card_close(c);
}

/* Many error codes for a failed medium become one; a missing device keeps its own. */
TEST(test_error_words)
{
	static const struct {
		int device, ours;
	} words[] = { { -ENODATA, -EIO },   { -EREMOTEIO, -EIO }, { -EILSEQ, -EIO },
		      { -ETIMEDOUT, -EIO }, { -ENOLINK, -EIO },	  { -EIO, -EIO },
		      { -ENODEV, -ENODEV }, { -ENXIO, -ENXIO },	  { -ENOSPC, -ENOSPC },
		      { -ENOMEM, -ENOMEM } };
	struct sim_params p = { .size_bytes = MIB };
	uint8_t *block = io_alloc(COW_BLK_BYTES);
	struct card *c;

	assert_int_equal(sim_new(&c, &p), 0);
	assert_int_equal(card_set_writable(c, true), 0);
	memset(block, 0, COW_BLK_BYTES);
	for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
		sim_fail_at(c, SIM_READ | SIM_WRITE | SIM_FLUSH, 1, words[i].device, true);
		assert_int_equal(card_read(c, 0, block, COW_BLK_BYTES), words[i].ours);
		assert_int_equal(card_write(c, 0, block, COW_BLK_BYTES), words[i].ours);
		assert_int_equal(card_flush(c), words[i].ours);
	}
	card_close(c);
	free(block);
}

static int shown(struct card *c, uint64_t blk) /* by sim_look */
{
	assert_int_equal(sim_look(c, blk_to_bytes(blk), buf, COW_BLK_BYTES), 0);
	return value_of(buf);
}

static enum sim_fate all_dropped(void *arg, size_t i)
{
	return SIM_DROPPED;
}

TEST(test_discard_and_look)
{
	struct card *c = new_card();

	assert_int_equal(put(c, 1, 1), 0);
	assert_int_equal(put(c, 2, 2), 0);
	assert_int_equal(card_flush(c), 0);
	assert_int_equal(put(c, 2, 3), 0);
	assert_int_equal(put(c, 3, 4), 0);
	assert_int_equal(put(c, 4, 5), 0);
	assert_int_equal(shown(c, 2), 3);
	assert_int_equal(durable(c, 2), 2);
	assert_int_equal(sim_discard(c, 512, COW_BLK_BYTES), -EINVAL);
	assert_int_equal(sim_discard(c, blk_to_bytes(BLKS), COW_BLK_BYTES), -EINVAL);
	assert_int_equal(sim_discard(c, blk_to_bytes(2), 2 * COW_BLK_BYTES), 0);
	assert_int_equal(sim_pending(c), 1);
	for (int cut = 0; cut < 2; cut++) {
		assert_int_equal(seen(c, 1), 1);
		assert_int_equal(seen(c, 2), 0);
		assert_int_equal(seen(c, 3), 0);
		assert_int_equal(durable(c, 2), 0);
		assert_int_equal(seen(c, 4), cut ? 0 : 5);
		sim_power_cycle(c, all_dropped, NULL);
	}
	sim_cut_at(c, 1);
	assert_int_equal(card_set_writable(c, true), 0);
	assert_int_equal(put(c, 1, 9), -EIO);
	assert_int_equal(sim_discard(c, 0, COW_BLK_BYTES), -EIO);
	assert_int_equal(shown(c, 1), 9); /* the content that it was about to write */
	card_close(c);
}

/* card_discard, and blocks that read as something else each time until they are written. */
TEST(test_discard_noise)
{
	struct card *c = new_card();
	unsigned zeros = 0, last = 0, changes = 0;

	assert_int_equal(put(c, 2, 3), 0);
	assert_int_equal(card_flush(c), 0);
	assert_int_equal(card_set_writable(c, false), 0);
	assert_int_equal(card_discard(c, blk_to_bytes(2), COW_BLK_BYTES), -EROFS);
	assert_int_equal(seen(c, 2), 3);
	assert_int_equal(card_set_writable(c, true), 0);
	assert_int_equal(card_discard(c, blk_to_bytes(2) + 100, COW_BLK_BYTES), -EINVAL);
	assert_int_equal(card_discard(c, blk_to_bytes(BLKS), COW_BLK_BYTES), -EINVAL);
	assert_int_equal(c->account.discarded_bytes, 0);
	sim_set_noise(c, true);
	assert_int_equal(card_discard(c, blk_to_bytes(2), COW_BLK_BYTES), 0);
	assert_int_equal(c->account.discarded_bytes, COW_BLK_BYTES);
	for (unsigned i = 0; i < 60; i++) {
		unsigned now = (unsigned)shown(c, 2);

		zeros += !now;
		changes += now != last;
		last = now;
		if (i == 30)
			sim_power_cycle(c, all_dropped, NULL);
	}
	assert_in_range(zeros, 10, 55);
	assert_in_range(changes, 5, 60);
	assert_int_equal(card_set_writable(c, true), 0);
	assert_int_equal(put(c, 2, 7), 0);
	assert_int_equal(seen(c, 2), 7);
	assert_int_equal(seen(c, 2), 7);
	card_close(c);
}

/* Writes that no longer fit into the cache are durable, the oldest first. */
TEST(test_small_cache)
{
	struct card *c = new_card();

	sim_set_cache(c, 8);
	for (unsigned i = 0; i < 8; i++)
		assert_int_equal(put(c, i, (uint8_t)(i + 1)), 0);
	assert_int_equal(sim_pending(c), 8);
	assert_int_equal(put(c, 8, 9), 0);
	assert_int_equal(sim_pending(c), 4);
	assert_int_equal(durable(c, 4), 5);
	assert_int_equal(durable(c, 5), 0);
	card_close(c);
}

/* The model gets each successful operation, a clone has a model of its own, and a power cut does
 * not turn the clock back. */
TEST(test_model)
{
	struct card *c = new_card(), *clone;
	struct flash_profile p;
	struct flash_stats st, clone_st;
	struct flash_model *m;
	uint64_t before;

	assert_null(sim_model(c));
	assert_int_equal(flash_profile_get(&p, "transcend-ts8gcf266"), 0);
	assert_int_equal(flash_model_new(&m, &p, c->geo.size_bytes, 0), 0);
	sim_set_model(c, m);
	assert_ptr_equal(sim_model(c), m);
	assert_int_equal(put(c, 1, 1), 0);
	assert_int_equal(seen(c, 1), 1);
	assert_int_equal(card_flush(c), 0);
	assert_int_equal(sim_discard(c, 0, COW_BLK_BYTES), 0);
	flash_model_stats(m, &st);
	assert_int_equal(st.writes, 1);
	assert_int_equal(st.written_bytes, COW_BLK_BYTES);
	assert_int_equal(st.reads, 1);
	assert_int_equal(st.flushes, 1);
	assert_int_equal(st.discards, 1);
	assert_int_equal(st.clock_ns, flash_write_ns(&p, COW_BLK_BYTES) +
					      flash_random_read_ns(&p, COW_BLK_BYTES));
	assert_int_equal(sim_clone(&clone, c), 0);
	sim_fail_at(c, SIM_WRITE | SIM_READ | SIM_FLUSH, 1, -EIO, true);
	assert_int_equal(put(c, 1, 2), -EIO);
	assert_int_equal(card_read(c, 0, buf, COW_BLK_BYTES), -EIO);
	assert_int_equal(card_flush(c), -EIO);
	assert_int_equal(put(clone, 2, 2), 0);
	before = st.clock_ns;
	flash_model_stats(sim_model(c), &st);
	assert_int_equal(st.clock_ns, before);
	flash_model_stats(sim_model(clone), &clone_st);
	assert_int_equal(clone_st.writes, 2);
	sim_power_cycle(c, NULL, NULL);
	flash_model_stats(sim_model(c), &st);
	assert_int_equal(st.clock_ns, before);
	sim_set_model(c, NULL);
	assert_null(sim_model(c));
	card_close(c);
	card_close(clone);
}
