/* SPDX-License-Identifier: MIT */
/* Private to files/: what differs between two states of an inode of an ext2/3/4. */
#ifndef COWFS_FILES_EXT_COMPARE_H
#define COWFS_FILES_EXT_COMPARE_H

#include "files/diff.h"
#include "files/ext_side.h"

/* The blocks of the file system that may differ between both states. */
struct ext_changed {
	struct extents runs; /* in blocks of the file system */
	uint64_t *before;    /* for each run: number of blocks in the runs before it */
	uint8_t *claimed;    /* a bit for each block: its owner is known */
	uint64_t claimed_n;
};

/* runs: units of 4 KiB, ascending. -ENOMEM. Zero-initialise ret; ext_changed_clear frees. */
int ext_changed_init(struct ext_changed *ret, const struct extents *runs,
		     const struct ext_side *s) MUST_CHECK;
void ext_changed_clear(struct ext_changed *c);
bool ext_changed_has(const struct ext_changed *c, uint64_t block);
/* Does the range have a changed block without an owner? */
bool ext_changed_unclaimed(const struct ext_changed *c, uint64_t block, uint64_t blks);
void ext_changed_claim(struct ext_changed *c, uint64_t block, uint64_t blks);
bool ext_changed_is_claimed(const struct ext_changed *c, uint64_t index);

/* Both states, opened. */
struct ext_pair {
	struct ext_side old_side, new_side;
	struct ext_changed changed;
};

/*
 * Both inodes are in use, of the same type. The content of a directory is not compared. ret_what:
 * enum diff_what. -EUCLEAN, -ENOMEM or an error of a reader.
 */
int ext_compare(struct ext_pair *x, const struct ext_node *a, const struct ext_node *b,
		unsigned *ret_what) MUST_CHECK;

#endif
