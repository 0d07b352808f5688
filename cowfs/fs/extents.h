/* SPDX-License-Identifier: MIT */
/* A growing list of block runs, added in ascending order. Zero-initialise; extents_clear frees. */
#ifndef COWFS_FS_EXTENTS_H
#define COWFS_FS_EXTENTS_H

#include "base/util.h"

struct extent_run {
	uint64_t blk, blks;
};

struct extents {
	struct extent_run *e;
	size_t n, cap;
	uint64_t blks;
};

/* Zero-initialised: before the first chunk. */
struct extents_chunk {
	uint64_t blk, blks;
	size_t i;
	uint64_t pos;
};

/* blk is not before the end of the last run. Joins neighbours. -ENOMEM. */
int extents_add(struct extents *x, uint64_t blk, uint64_t blks) MUST_CHECK;
/* Next piece of at most max_blks; false at the end. */
bool extents_next_chunk(const struct extents *x, struct extents_chunk *c, uint64_t max_blks);
/* The index of the first run that ends after start_bytes. */
size_t extents_at(const struct extents *x, uint64_t start_bytes);
/* The number of bytes in [start_bytes, end_bytes) that the list covers. */
uint64_t extents_covered_bytes(const struct extents *x, uint64_t start_bytes, uint64_t end_bytes);
/* Adds the blocks that are in x and not in y to ret, which is empty. -ENOMEM. */
int extents_without(struct extents *ret, const struct extents *x,
		    const struct extents *y) MUST_CHECK;
/* Adds y, whose runs share no block with those of x. -ENOMEM: x is unchanged. */
int extents_merge(struct extents *x, const struct extents *y) MUST_CHECK;
uint64_t extents_blks(const struct extents *x);
void extents_clear(struct extents *x);

#endif
