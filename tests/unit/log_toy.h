/* SPDX-License-Identifier: MIT */
/* A toy card whose log the test changes. Behind cmocka.h. */
#ifndef COWFS_TESTS_LOG_TOY_H
#define COWFS_TESTS_LOG_TOY_H

#include "test.h"
#include "log/codec.h"
#include "gens.h"

static _Alignas(COW_BLK_BYTES) uint8_t view[TOY_BLKS * COW_BLK_BYTES];

/* ---- steps that have to succeed ---- */

static inline void toy_begin(struct toy *t)
{
	toy_format(t, false);
	assert_int_equal(toy_open(t, 0), 0);
}

static inline void toy_commit_one(struct toy *t, unsigned blk, uint16_t content)
{
	toy_write(t, blk, content);
	assert_int_equal(toy_commit(t), 0);
}

static inline void toy_open_is(struct toy *t, enum log_state state)
{
	assert_int_equal(toy_open(t, 0), 0);
	assert_int_equal(t->rep.state, state);
}

static inline void toy_reopen(struct toy *t, enum log_state state)
{
	toy_close(t);
	toy_open_is(t, state);
}

/* ---- generations of a story ---- */

/* Changes the superblock from outside, with a right checksum. */
static inline void poke_super(struct toy *t, int copies, void (*change)(struct log_super *s))
{
	uint8_t blk[COW_BLK_BYTES] = { 0 };
	struct log_super s = *log_super(t->log);

	change(&s);
	codec_put_super(blk, &s);
	for (int i = 0; i < copies; i++)
		assert_int_equal(sim_poke(t->card, s.copy_off_bytes[i], blk, sizeof(blk)), 0);
}

#endif
