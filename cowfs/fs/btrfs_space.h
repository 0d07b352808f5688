/* SPDX-License-Identifier: MIT */
/*
 * Private to fs/: which 4 KiB units of its device a btrfs uses, by its extent tree.
 *
 * Known is a btrfs on one device, with CRC32C, sectors of 4 KiB, the profiles single and dup, and
 * no feature but those listed in btrfs_space.c. Used is what the extent tree of the superblock's
 * transaction has, in all copies; and whatever the chunk tree says, the first MiB and the 64 KiB
 * around each copy of the superblock. All else is free. Why that may be believed:
 *
 * - Copy on write. The kernel itself writes over what the trees of transaction N leave free, in
 *   chunks and between them, while it prepares N + 1 and the superblock still names N. So a mount
 *   of N reads none of it. That holds for extents that N freed (they are "pinned" only until N's
 *   superblock is written), for delayed references (run before the trees are written), snapshots
 *   that are half deleted, relocation (its trees have extents like others), and both kinds of space
 *   cache (so do they). It does not hold for `usebackuproot`, which reads older transactions: that
 *   is no promise of btrfs either.
 * - Except for the log tree of fsync, whose blocks are in no extent tree until it is replayed. An
 *   image that has one (log_root) is not known. A freeze commits a transaction, which ends it.
 * - An image that was not frozen is that of its last transaction: right for a mount of it, so for
 *   what may be overwritten before the next record. It is not right for the live file system, whose
 *   next transaction may lie in what was sealed: so nobody may ask what such an image, as the
 *   sealed one, leaves free. After a freeze there is no such transaction: each of its handles would
 *   hold sb_start_intwrite.
 */
#ifndef COWFS_FS_BTRFS_SPACE_H
#define COWFS_FS_BTRFS_SPACE_H

#include "fs/fsinfo.h"

struct btrfs_space;

/*
 * Reads the superblock, the chunk tree and the way to the extent tree. *ret_units: of the device. r
 * is copied. -EOPNOTSUPP: not known, not clean, or damaged; -ENOMEM; or the reader's error.
 */
int btrfs_space_open(struct btrfs_space **ret, const struct blk_reader *r,
		     uint64_t *ret_units) MUST_CHECK;
/* Sets bit i for each unit first_unit + i that is used; clears none. -EUCLEAN: not to be believed,
 * or more to read than an honest one has; or the reader's error. */
int btrfs_space_used(struct btrfs_space *x, uint64_t first_unit, uint64_t units,
		     uint8_t *bits) MUST_CHECK;
void btrfs_space_close(struct btrfs_space *x); /* NULL allowed */

#endif
