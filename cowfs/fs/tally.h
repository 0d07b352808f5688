/* SPDX-License-Identifier: MIT */
/* Counts of single blocks, and their sums over a range. Zero-initialise; tally_clear frees. */
#ifndef COWFS_FS_TALLY_H
#define COWFS_FS_TALLY_H

#include "base/util.h"

enum tally_kind {
	TALLY_ABSORBED, /* rewritten while in RAM */
	TALLY_LATER,	/* rewritten after a commit */
	TALLY_NEW,	/* the part of TALLY_ABSORBED that came after another tally */
	TALLY_KINDS
};

struct tally_blk {
	uint64_t blk, count[TALLY_KINDS];
};

struct tally {
	struct tally_blk *b;
	size_t n, cap;
	struct tally_sum {
		uint64_t of[TALLY_KINDS];
	} * before; /* of the first i blocks, n + 1 of them; tally_finish */
};

/* Adds a block; blocks in any order, each once. tally_finish sets TALLY_NEW. -ENOMEM. */
int tally_add(struct tally *t, uint64_t blk, uint64_t absorbed, uint64_t later) MUST_CHECK;
/*
 * Sorts, and computes the sums. since: a finished tally, for TALLY_NEW; NULL: TALLY_NEW is 0.
 * -ENOMEM.
 */
int tally_finish(struct tally *t, const struct tally *since) MUST_CHECK;
/*
 * Adds counts times bytes of those blocks in [start_bytes, end_bytes) to ret. t is finished or
 * empty.
 */
void tally_covered_bytes(const struct tally *t, uint64_t start_bytes, uint64_t end_bytes,
			 uint64_t ret[TALLY_KINDS]);
void tally_clear(struct tally *t);

#endif
