/* SPDX-License-Identifier: MIT */
/* A simulated card and the content of its blocks. */
#ifndef COWFS_TESTS_SIM_CARD_H
#define COWFS_TESTS_SIM_CARD_H

#include "sim/sim.h"
#include "test.h"

#define BLKS 64
#define SECTOR 512

static _Alignas(COW_BLK_BYTES) uint8_t buf[BLKS * COW_BLK_BYTES];

static inline struct card *new_card(void)
{
	struct sim_params p = { .size_bytes = BLKS * COW_BLK_BYTES };
	struct card *c;

	assert_int_equal(sim_new(&c, &p), 0);
	assert_int_equal(card_set_writable(c, true), 0);
	return c;
}

/* Writes a block filled with `value`; it is the same everywhere, so that a sector shows which write
 * it comes from. */
static inline int put(struct card *c, uint64_t blk, uint8_t value)
{
	memset(buf, value, COW_BLK_BYTES);
	return card_write(c, blk_to_bytes(blk), buf, COW_BLK_BYTES);
}

enum { MIXED = -1, RUBBISH = -2 };

/* The value of a uniform block; MIXED: uniform sectors; RUBBISH: neither. */
static inline int value_of(const uint8_t *blk)
{
	bool mixed = false;

	for (size_t s = 0; s < COW_BLK_BYTES; s += SECTOR) {
		for (size_t i = 1; i < SECTOR; i++)
			if (blk[s + i] != blk[s])
				return RUBBISH;
		mixed |= blk[s] != blk[0];
	}
	return mixed ? MIXED : blk[0];
}

static inline int seen(struct card *c, uint64_t blk) /* by a read */
{
	assert_int_equal(card_read(c, blk_to_bytes(blk), buf, COW_BLK_BYTES), 0);
	return value_of(buf);
}

static inline int durable(struct card *c, uint64_t blk)
{
	assert_int_equal(sim_peek(c, blk_to_bytes(blk), buf, COW_BLK_BYTES), 0);
	return value_of(buf);
}

/* ---- cuts ---- */

static inline enum sim_fate fixed_fate(void *arg, size_t i)
{
	return *(enum sim_fate *)arg;
}

#endif
