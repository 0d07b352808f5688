/* SPDX-License-Identifier: MIT */
/*
 * How often blocks were written again since the attach, for `cowctl top`: a table of fixed size,
 * made once.
 *
 * A write to a block that is in the active generation already is absorbed: the card never sees it.
 * A write to a block that this table knows from an earlier generation is not: it goes to the card
 * once more. The sum of the first is exact. Of single blocks the table tells no more than there
 * were: what it cannot give to a block it counts as untracked.
 *
 * 	absorbed = sum of the blocks' `absorbed` + untracked + discarded	(until a counter of a block stops at UINT32_MAX)
 *
 * Any thread; a lock of its own, under which nothing else is taken, for moments.
 */
#ifndef COWFS_RAM_REWRITES_H
#define COWFS_RAM_REWRITES_H

#include "base/util.h"

enum { REWRITES_MAX_CALL_BLKS = 512 };

struct rewrites;

struct rewrites_totals {
	uint64_t absorbed;  /* (block, write) pairs, of all blocks */
	uint64_t untracked; /* of them: of no block that the table knows */
	/* of them: of blocks that were discarded afterwards, and are known anew if written again */
	uint64_t discarded;
	uint32_t max_blks; /* so many blocks it can know at a time */
};

/* Up to max_bytes, all of it in memory when this returns; at least one block is known. -ENOMEM. */
int rewrites_new(struct rewrites **ret, size_t max_bytes) MUST_CHECK;
void rewrites_free(struct rewrites *w); /* NULL allowed */

/* A write to whole blocks or parts of them was done, at most REWRITES_MAX_CALL_BLKS. Bit i of
 * was_data: block blk + i was in the active generation before, as data. Allocates nothing. NULL:
 * not counted. */
void rewrites_count(struct rewrites *w, uint64_t blk, uint64_t blks, const uint64_t *was_data);
/* Blocks were discarded: whoever gets them next is somebody else. */
void rewrites_forget(struct rewrites *w, uint64_t blk, uint64_t blks);

/* The table in parts: the blocks with rewrites, in no order. A moving target. */
enum { REWRITES_PART_BLKS = 400 };
struct rewrites_part {
	struct rewrites_totals totals;
	uint32_t next; /* where the next part begins; 0: this is the last one */
	uint32_t n;
	struct {
		/* later: first writes in a generation after the one that made it known */
		uint32_t blk, absorbed, later;
	} e[REWRITES_PART_BLKS];
};
/* w NULL: an empty one */
void rewrites_take_part(struct rewrites *w, uint32_t first, struct rewrites_part *ret);

#endif
