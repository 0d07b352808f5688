/* SPDX-License-Identifier: MIT */
/*
 * How often blocks were written again since the attach, for `cowctl top`. The table has a fixed
 * size and is allocated once.
 *
 * A write to a block that is already in the active generation is absorbed: the card never sees it.
 * A write to a block that this table knows from an earlier generation is not absorbed: it goes to
 * the card once more. The total of the absorbed writes is exact. For single blocks the table never
 * reports more than there were. A rewrite that it cannot attribute to a block counts as untracked.
 *
 * 	absorbed = sum of the blocks' `absorbed` + untracked + discarded
 *
 * This holds until a counter of a block stops at UINT32_MAX.
 *
 * Any thread. The table has its own lock, which is held for moments, and no other lock is taken
 * under it.
 */
#ifndef COWFS_RAM_REWRITES_H
#define COWFS_RAM_REWRITES_H

#include "base/util.h"

enum { REWRITES_MAX_CALL_BLKS = 512 };

struct rewrites;

struct rewrites_totals {
	uint64_t absorbed;  /* (block, write) pairs, of all blocks */
	uint64_t untracked; /* part of absorbed: of blocks that the table does not know */
	/* part of absorbed: of blocks that were discarded later; such a block starts at zero when
	 * written again */
	uint64_t discarded;
	uint32_t max_blks; /* maximum number of blocks known at a time */
};

/* Uses up to max_bytes, all of it in memory on return. At least one block can be known. -ENOMEM. */
int rewrites_new(struct rewrites **ret, size_t max_bytes) MUST_CHECK;
void rewrites_free(struct rewrites *w); /* NULL allowed */

/* Counts a write to whole blocks or parts of them, at most REWRITES_MAX_CALL_BLKS. Bit i of
 * was_data: block blk + i was already in the active generation, as data. Allocates nothing. w NULL:
 * not counted. */
void rewrites_count(struct rewrites *w, uint64_t blk, uint64_t blks, const uint64_t *was_data);
/* Blocks were discarded: their next owner starts at zero. */
void rewrites_forget(struct rewrites *w, uint64_t blk, uint64_t blks);

/* The table in parts: the blocks with rewrites, in no order. It changes while it is read. */
enum { REWRITES_PART_BLKS = 400 };
struct rewrites_part {
	struct rewrites_totals totals;
	uint32_t next; /* where the next part begins; 0: this is the last one */
	uint32_t n;
	struct {
		/* later: first writes in a generation after the one that added the block */
		uint32_t blk, absorbed, later;
	} e[REWRITES_PART_BLKS];
};
/* w NULL: an empty part */
void rewrites_take_part(struct rewrites *w, uint32_t first, struct rewrites_part *ret);

#endif
