// SPDX-License-Identifier: MIT
/* A card that is away, and comes back: card/card.c on the simulated card. */
#include "test.h"
#include <time.h>

#include "sim_card.h"

/* Every call gives this error, and none reaches the device. */
static void all_fail(struct card *c, int error)
{
	struct card_counters k;
	uint64_t ops = sim_ops(c);

	assert_int_equal(card_read(c, 0, buf, COW_BLK_BYTES), error);
	if (c->writable) {
		assert_int_equal(put(c, 0, 1), error);
		assert_int_equal(card_discard(c, 0, COW_BLK_BYTES), error);
	}
	assert_int_equal(card_flush(c), error);
	assert_int_equal(card_counters(c, &k), error);
	assert_int_equal(card_enter(c), error);
	assert_int_equal(c->inside, 0);
	assert_int_equal(sim_ops(c), ops);
}

TEST(test_away_and_given_up)
{
	struct card *c = new_card();
	uint64_t since;

	assert_false(card_look(c));
	sim_unplug(c);
	assert_false(card_is_away(c)); /* nobody has used it */
	assert_true(card_look(c));
	since = c->away_ns;
	all_fail(c, -ENOMEDIUM);
	card_give_up(c);
	all_fail(c, -EIO);
	assert_true(card_look(c));
	assert_int_equal(c->away_ns, since);
	assert_int_equal(card_set_writable(c, false), 0);
	assert_false(c->writable);
	assert_int_equal(card_set_writable(c, true), -EIO);
	sim_replug(c, false); /* nobody has said that it is the card */
	all_fail(c, -EIO);
	card_examine(c, true);
	card_back(c);
	assert_false(card_look(c));
	assert_int_equal(card_set_writable(c, true), 0);
	assert_int_equal(put(c, 0, 1), 0);
	sim_unplug(c); /* once more: it is waited for as the first time */
	assert_true(card_look(c));
	all_fail(c, -ENOMEDIUM);
	card_close(c);
}

/* Each kind of call finds out, and an error of a device that is there is none. */
TEST(test_who_finds_out)
{
	for (unsigned kind = 0; kind < 6; kind++)
		for (unsigned gone = 0; gone < 2; gone++) {
			struct card *c = new_card();
			struct card_counters k;
			int r;

			if (gone)
				sim_unplug(c);
			else
				sim_fail_at(c, SIM_READ | SIM_WRITE | SIM_FLUSH, 1, -EREMOTEIO,
					    true);
			switch (kind) {
			case 0:
				r = card_read(c, 0, buf, COW_BLK_BYTES);
				break;
			case 1:
				r = put(c, 0, 1);
				break;
			case 2:
				r = card_flush(c);
				break;
			case 3:
				r = gone ? card_discard(c, 0, COW_BLK_BYTES) : -EIO;
				break;
			case 4:
				r = gone ? card_counters(c, &k) : -EIO;
				break;
			default: /* card/async.c */
				assert_int_equal(card_enter(c), 0);
				assert_int_equal(c->inside, 1);
				r = card_leave(c, -EILSEQ);
			}
			assert_int_equal(r, gone ? -ENOMEDIUM : -EIO);
			assert_int_equal(card_is_away(c), gone);
			assert_int_equal(c->inside, 0);
			card_close(c);
		}
}

/* Errors that no device has made ask nobody. */
TEST(test_errors_of_callers)
{
	static const int errors[] = { -EAGAIN, -EINVAL, -EOPNOTSUPP, -ENOTSUP, -ENOMEM };
	struct card *c = new_card();

	sim_unplug(c);
	for (size_t i = 0; i < ARRAY_SIZE(errors); i++) {
		assert_int_equal(card_enter(c), 0);
		assert_int_equal(card_leave(c, errors[i]), errors[i]);
	}
	assert_int_equal(card_enter(c), 0);
	assert_int_equal(card_leave(c, 3), 3);
	assert_false(card_is_away(c));
	card_close(c);
}

/* A device that fails requests for a while before it is gone. */
static unsigned asked, gone_at;
static bool well;

static bool is_gone_soon(struct card *c)
{
	return asked >= gone_at;
}

static bool answers(struct card *c)
{
	asked++;
	return well;
}

TEST(test_soon_gone)
{
	struct card *c = new_card();
	struct card_ops ops = *c->ops;
	uint64_t then;

	ops.gone = is_gone_soon;
	ops.answers = answers;
	c->ops = &ops;
	c->retries = true;
	well = true, asked = 0, gone_at = 99;
	assert_int_equal(card_read(c, 0, buf, COW_BLK_BYTES), 0);
	assert_int_equal(asked, 0); /* what works costs no other read */
	sim_fail_at(c, SIM_READ, 1, -EIO, true);

	/* a bad block */
	assert_int_equal(card_read(c, 0, buf, COW_BLK_BYTES), -EIO);
	assert_int_equal(asked, 1);
	/* it stays: once in ten seconds that is worth a wait */
	well = false, asked = 0;
	then = now_ns();
	assert_int_equal(card_read(c, 0, buf, COW_BLK_BYTES), -EIO);
	assert_int_equal(asked, 7);
	assert_true(now_ns() - then > 1200000000u);
	assert_int_equal(card_read(c, 0, buf, COW_BLK_BYTES), -EIO);
	assert_int_equal(asked, 7);
	assert_false(card_is_away(c));
	/* whose thread serves others does not wait for it */
	asked = 0, c->waited_ns = 0;
	assert_int_equal(card_enter(c), 0);
	assert_int_equal(card_leave(c, -ENODEV), -EIO);
	assert_int_equal(asked, 0);
	/* it goes */
	asked = 0, gone_at = 3, c->waited_ns = 0;
	assert_int_equal(card_read(c, 0, buf, COW_BLK_BYTES), -ENOMEDIUM);
	assert_int_equal(asked, 3);
	assert_true(card_is_away(c));
	card_close(c);
}

/* The end of a command: its card is no daemon's, so no read has waited. */
TEST(test_lost)
{
	struct card *c = new_card();
	struct card_ops ops = *c->ops;

	ops.gone = is_gone_soon;
	ops.answers = answers;
	c->ops = &ops;
	well = true, asked = 0, gone_at = 99;
	assert_false(card_lost(c, 0));
	assert_int_equal(asked, 0);
	assert_false(card_lost(c, -EIO)); /* a bad block */
	assert_int_equal(asked, 1);
	well = false, asked = 0;
	assert_false(card_lost(c, -EIO));
	assert_int_equal(asked, 7);
	asked = 0, gone_at = 3;
	assert_true(card_lost(c, -EUCLEAN)); /* what another process made of it */
	assert_int_equal(asked, 3);
	assert_true(card_lost(c, 0)); /* a read that failed was no error of the command */
	card_close(c);
}

static void *read_it(void *arg)
{
	_cleanup_free_ uint8_t *own = io_alloc(COW_BLK_BYTES);

	return (void *)(intptr_t)card_read(arg, 0, own, COW_BLK_BYTES);
}

static intptr_t read_elsewhere(struct card *c)
{
	pthread_t t;
	void *ret;

	assert_int_equal(pthread_create(&t, NULL, read_it, c), 0);
	assert_int_equal(pthread_join(t, &ret), 0);
	return (intptr_t)ret;
}

TEST(test_examiner_is_alone)
{
	struct card *c = new_card();

	assert_int_equal(put(c, 0, 7), 0);
	sim_unplug(c);
	assert_true(card_look(c));
	for (unsigned i = 0; i < 2; i++) {
		card_examine(c, true);
		sim_replug(c, false);
		assert_int_equal(seen(c, 0), 7);
		assert_int_equal(read_elsewhere(c), -ENOMEDIUM);
		if (i)
			break;
		/* refused */
		sim_unplug(c);
		card_examine(c, false);
		assert_int_equal(card_read(c, 0, buf, COW_BLK_BYTES), -ENOMEDIUM);
	}
	card_back(c);
	assert_int_equal(read_elsewhere(c), 0);
	assert_int_equal(put(c, 0, 1), -EROFS); /* it was opened anew */
	card_close(c);
}

static _Atomic bool examined;

static void *examine(void *c)
{
	card_examine(c, true);
	examined = true;
	return NULL;
}

/* Who puts another device in place waits for calls that are in the old one. */
TEST(test_examiner_waits)
{
	struct card *c = new_card();
	pthread_t t;

	assert_int_equal(card_enter(c), 0);
	sim_unplug(c);
	assert_true(card_look(c));
	assert_int_equal(pthread_create(&t, NULL, examine, c), 0);
	nanosleep(&(struct timespec){ .tv_nsec = 30000000 }, NULL);
	assert_false(examined);
	assert_int_equal(card_leave(c, -EIO), -ENOMEDIUM);
	assert_int_equal(pthread_join(t, NULL), 0);
	assert_true(examined);
	card_close(c);
}
