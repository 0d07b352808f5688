/* SPDX-License-Identifier: MIT */
/*
 * Private to fs/: which 4 KiB units of its device a btrfs uses, by its extent tree.
 *
 * This code supports a btrfs on one device, with CRC32C, sectors of 4 KiB, the profiles single and
 * dup, and only the features listed in btrfs_space.c. A unit is used if the extent tree of the
 * superblock's transaction has it, in any copy. The first MiB and the 64 KiB around each copy of
 * the superblock are used, too, whatever the chunk tree says. All other units are free. Why this is
 * safe:
 *
 * - Copy on write. The kernel itself overwrites what the trees of transaction N leave free, in
 *   chunks and between them, while it prepares N + 1 and the superblock still names N. So a mount
 *   of N reads none of it. This holds for extents that N freed (they are "pinned" only until N's
 *   superblock is written), for delayed references (run before the trees are written), for
 *   half-deleted snapshots, for relocation (its trees have extents like others), and for both kinds
 *   of space cache (these have extents too). It does not hold for `usebackuproot`, which reads
 *   older transactions: btrfs does not promise that either.
 * - The exception is the log tree of fsync, whose blocks are in no extent tree until it is
 *   replayed. An image that has one (log_root) is not supported. A freeze commits a transaction,
 *   which ends the log tree.
 * - An image that was not frozen is the image of its last transaction. It is right for a mount of
 *   it, and so for what may be overwritten before the next record. It is not right for the live
 *   file system, whose next transaction may lie in what was sealed. So nothing may use the free
 *   blocks of such an image as the sealed one. After a freeze there is no such transaction: each of
 *   its handles would hold sb_start_intwrite.
 */
#ifndef COWFS_FS_BTRFS_SPACE_H
#define COWFS_FS_BTRFS_SPACE_H

#include "fs/fsinfo.h"

struct btrfs_space;

/*
 * Reads the superblock, the chunk tree and the path to the extent tree. *ret_units: of the device.
 * r is copied. -EOPNOTSUPP: not supported, not clean, or damaged; -ENOMEM; or the reader's error.
 */
int btrfs_space_open(struct btrfs_space **ret, const struct blk_reader *r,
		     uint64_t *ret_units) MUST_CHECK;
/*
 * Sets bit i for each unit first_unit + i that is used; clears none. -EUCLEAN: not to be trusted,
 * or more reads than an honest image needs; or the reader's error.
 */
int btrfs_space_used(struct btrfs_space *x, uint64_t first_unit, uint64_t units,
		     uint8_t *bits) MUST_CHECK;
void btrfs_space_close(struct btrfs_space *x); /* NULL allowed */

#endif
