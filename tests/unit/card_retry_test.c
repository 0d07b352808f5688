// SPDX-License-Identifier: MIT
/* A device that is there and fails now and then: card/card.c tries again, on the simulated card. */
#include "test.h"
#include "sim_card.h"

static struct card *new_flaky(void)
{
	struct card *c = new_card();

	c->retries = true;
	for (uint64_t i = 0; i < BLKS; i++)
		assert_int_equal(put(c, i, (uint8_t)i), 0);
	assert_int_equal(card_flush(c), 0);
	return c;
}

static void counted(const struct card *c, uint64_t retried)
{
	assert_int_equal(c->account.retried, retried);
}

static int read_all(struct card *c)
{
	memset(buf, 0xee, blk_to_bytes(BLKS));
	return card_read(c, 0, buf, blk_to_bytes(BLKS));
}

TEST(test_read)
{
	struct card *c = new_flaky();
	uint64_t calls = c->account.read_calls, since_ns;

	assert_int_equal(read_all(c), 0);
	counted(c, 0);
	sim_fail_at(c, SIM_READ, 1, -EIO, false);
	assert_int_equal(read_all(c), 0);
	counted(c, 1);
	assert_int_equal(c->account.read_calls, calls + 1 + 1 + BLKS); /* block by block */
	for (uint64_t i = 0; i < BLKS; i++)
		assert_int_equal(value_of(buf + blk_to_bytes(i)), i);
	sim_fail_at(c, SIM_READ, 1, -EIO, true); /* it stays: three more attempts */
	calls = c->account.read_calls;
	since_ns = now_ns();
	assert_int_equal(card_read(c, 0, buf, COW_BLK_BYTES), -EIO);
	assert_true(now_ns() - since_ns >= 310000000);
	assert_int_equal(c->account.read_calls, calls + 4);
	counted(c, 2);
	sim_fail_at(c, SIM_READ, 1, -EINVAL, true); /* no error of a medium */
	assert_int_equal(read_all(c), -EINVAL);
	counted(c, 2);
	c->retries = false;
	sim_fail_at(c, SIM_READ, 1, -EIO, false);
	assert_int_equal(read_all(c), -EIO);
	counted(c, 2);
	card_close(c);
}

/* Only the first write after a flush: the error may have cost those before. */
TEST(test_write)
{
	struct card *c = new_flaky();
	uint64_t bytes = c->account.written_bytes;

	memset(buf, 7, blk_to_bytes(4));
	sim_fail_at(c, SIM_WRITE, 1, -EIO, false);
	assert_int_equal(card_write(c, 0, buf, blk_to_bytes(4)), 0);
	counted(c, 1);
	assert_int_equal(c->account.written_bytes, bytes + 2 * blk_to_bytes(4));
	assert_int_equal(card_flush(c), 0);
	for (uint64_t i = 0; i < 4; i++)
		assert_int_equal(durable(c, i), 7);
	assert_int_equal(put(c, 9, 9), 0);
	sim_fail_at(c, SIM_WRITE, 1, -EIO, false);
	assert_int_equal(put(c, 10, 9), -EIO);
	counted(c, 1);
	card_close(c);
}

TEST(test_flush)
{
	struct card *c = new_flaky();
	uint64_t mark;

	assert_int_equal(put(c, 0, 1), 0);
	mark = c->writes;
	sim_fail_at(c, SIM_FLUSH, 1, -EIO, false);
	assert_int_equal(card_flush(c), -EIO);
	assert_false(card_is_durable(c, mark));
	counted(c, 0);
	card_close(c);
}

TEST(test_gone)
{
	struct card *c = new_flaky();
	uint64_t calls = c->account.read_calls;

	sim_unplug(c);
	assert_int_equal(read_all(c), -ENOMEDIUM);
	assert_int_equal(c->account.read_calls, calls + 1);
	counted(c, 0);
	card_close(c);
}
