/* SPDX-License-Identifier: MIT */
/*
 * The guard: a superblock that every kernel mounts read-only or not at all, and that the tools of its
 * file system refuse to write to. docs/FORMAT.md ("The guard") says when it is on the card, and what
 * it is for each kind: a bit that no program knows in the mask of features that forbid writing.
 *
 * A read-only mount would still replay the journal and remove orphans. So the guard hides the journal
 * of ext and the log tree of btrfs, and forbids a mount of xfs to replay its log. Only one sector
 * changes, and its checksum stays or becomes right. It has everything that is needed to take the
 * guard away.
 *
 * blk is the block of the volume with the first superblock: block 0, for btrfs block 16. The kind of
 * a superblock is that of its magic number.
 */
#ifndef COWFS_FS_GUARD_H
#define COWFS_FS_GUARD_H

#include "fs/fsinfo.h"

/* the blocks of a volume that may have it */
#define GUARD_BLKS                                                                                 \
	{                                                                                          \
		0, 16                                                                              \
	}

/* Which block has the superblock of the file system that is there? For the kinds without a guard it is
 * any. The guard makes no difference. */
int guard_find(const struct blk_reader *r, uint64_t *ret_blk) MUST_CHECK;
/* The same for a superblock that takes the guard. */
uint64_t guard_blk(const uint8_t blk[COW_BLK_BYTES]);

/* Is there a superblock that can be guarded, and is not? */
bool guard_fits(const uint8_t blk[COW_BLK_BYTES]);
/* owner: any number, to recognise it */
void guard_put(uint8_t blk[COW_BLK_BYTES], uint32_t owner);
/* Looks at the one sector only. ret_owner may be NULL. */
bool guard_is(const uint8_t blk[COW_BLK_BYTES], uint32_t *ret_owner);
/*
 * Where do kernels write, though the superblock, here without the guard, has it? xfs: in its log, which a
 * mount with "ro" clears in front of the newest record, for 2 MiB. false: nowhere.
 */
bool guard_leaves_open(const uint8_t super[COW_BLK_BYTES], uint64_t *ret_blk, uint64_t *ret_blks);
/* For a block there: was a part of it cleared, so that it may be again? */
bool guard_may_clear(const uint8_t content[COW_BLK_BYTES]);
/* Takes the guard away, if there is one. */
void guard_take(uint8_t blk[COW_BLK_BYTES]);
/* The same in the blocks that may have it, of what was read of a volume. */
void guard_take_all(uint64_t first_blk, uint64_t blks, uint8_t *buf);

/* A block in fewer bytes: its zeroes are left out. Returns their number; 0: more than room. */
size_t guard_pack(const uint8_t blk[COW_BLK_BYTES], uint8_t *to, size_t room);
/* false: it is not the result of guard_pack */
bool guard_unpack(const uint8_t *from, size_t bytes, uint8_t blk[COW_BLK_BYTES]);

#endif
