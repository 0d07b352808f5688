// SPDX-License-Identifier: MIT
/* A card goes away while its log is written, and it or another one comes back: log_recheck and log_lost_writes. */
#include "test.h"
#include "toy.h"

enum { BEGINNINGS = 15 };

/* One of some histories, in the session that wrote it; or one that has written nothing yet, behind a clean end, or
 * none. */
static void begin(struct toy *t, unsigned i)
{
	static const enum toy_story stories[] = { TOY_LIVE, TOY_CHAIN, TOY_RETIRED, TOY_LAG,
						  TOY_CUT_CHECKPOINT };

	toy_tell(t, stories[i / 3], NULL, NULL);
	if (i % 3 == 0)
		return;
	if (i % 3 == 1)
		assert_int_equal(toy_checkpoint(t, RECORD_TAIL, RECORD_CLEAN), 0);
	toy_close(t);
	assert_int_equal(toy_open(t, 0), 0);
}

/* A commit, whose n-th request finds no card. false: it has none. */
static bool fails(struct toy *t, uint64_t n, unsigned blk, uint16_t content)
{
	int r;

	toy_write(t, blk, content);
	sim_unplug_at(t->card, n);
	r = toy_commit(t);
	sim_unplug_at(t->card, 0);
	assert_int_equal(r, card_is_away(t->card) ? -ENOMEDIUM : 0);
	return r < 0;
}

static void examine(struct toy *t, bool lost)
{
	card_examine(t->card, true);
	sim_replug(t->card, lost);
}

TEST(test_the_same_card)
{
	unsigned failed = 0;

	for (unsigned i = 0; i < 2 * BEGINNINGS; i++)
		for (uint64_t n = 1;; n++) {
			struct toy t;
			uint64_t seq;

			begin(&t, i / 2);
			sim_seed(t.card, n);
			if (!fails(&t, n, 5, 2000)) {
				toy_free(&t);
				break;
			}
			failed++;
			examine(&t, i % 2);
			assert_int_equal(log_recheck(t.log), 0);
			assert_int_equal(log_lost_writes(t.log), 0);
			card_back(t.card);
			assert_int_equal(toy_commit(&t), 0);
			seq = log_newest(t.log)->seq;
			sim_power_cycle(t.card, NULL, NULL);
			toy_close(&t);
			assert_int_equal(toy_open(&t, 0), 0);
			assert_int_equal(log_newest(t.log)->seq, seq);
			toy_free(&t);
		}
	assert_true(failed > 200);
}

/* ---- another copy ---- */

/* Into the slot. */
static void put_card(struct card *to, struct card *from)
{
	uint8_t blk[COW_BLK_BYTES];

	for (uint64_t off = 0; off < to->geo.size_bytes; off += sizeof(blk)) {
		assert_int_equal(sim_peek(from, off, blk, sizeof(blk)), 0);
		assert_int_equal(sim_poke(to, off, blk, sizeof(blk)), 0);
	}
}

/* Refuses what is in the slot, without a write. Then the card itself comes. */
static void refuses(struct toy *t, struct toy *other)
{
	struct toy own;

	toy_clone(&own, t);
	put_card(t->card, other->card);
	if (t->base != t->card)
		put_card(t->base, other->base);
	assert_int_equal(log_recheck(t->log), -ESTALE);
	sim_unplug(t->card);
	card_examine(t->card, false);
	assert_int_equal(toy_commit(t), -ENOMEDIUM);
	examine(t, false);
	put_card(t->card, own.card);
	if (t->base != t->card)
		put_card(t->base, own.base);
	assert_int_equal(log_recheck(t->log), 0);
	assert_int_equal(log_lost_writes(t->log), 0);
	card_back(t->card);
	assert_int_equal(toy_commit(t), 0);
	toy_free(&own);
	toy_free(other);
	toy_free(t);
}

/* An older copy is refused; and one to which another machine has committed once, so that its record may have the
 * number of the one that has failed here. */
TEST(test_another_copy)
{
	unsigned failed = 0;

	for (unsigned i = 0; i < 2 * BEGINNINGS; i++)
		for (uint64_t n = 1;; n++) {
			bool newer = i % 2;
			struct toy t, other;

			begin(&t, i / 2);
			toy_clone(&other, &t);
			if (!newer) {
				toy_write(&t, 6, 1999);
				assert_int_equal(toy_commit(&t), 0);
			}
			if (!fails(&t, n, 5, 2000)) {
				toy_free(&other);
				toy_free(&t);
				break;
			}
			failed++;
			examine(&t, true);
			if (newer) {
				assert_int_equal(toy_open(&other, 0), 0);
				toy_write(&other, 4, 3000);
				assert_int_equal(toy_commit(&other), 0);
			}
			refuses(&t, &other);
		}
	assert_true(failed > 200);
}
