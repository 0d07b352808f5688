/* SPDX-License-Identifier: MIT */
/* A toy card whose log the test changes. Behind cmocka.h. */
#ifndef COWFS_TESTS_LOG_TOY_H
#define COWFS_TESTS_LOG_TOY_H

#include "test.h"
#include "log/codec.h"
#include "gens.h"

static _Alignas(COW_BLK_BYTES) uint8_t view[TOY_BLKS * COW_BLK_BYTES];

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
