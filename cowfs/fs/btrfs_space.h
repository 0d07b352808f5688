/* SPDX-License-Identifier: MIT */
/*
 * Private to fs/: which 4 KiB units of its device a btrfs uses, by its extent tree.
 *
 * This code supports a btrfs on one device, with CRC32C, sectors of 4 KiB, the profiles single and
 * dup, and only the features listed in btrfs_space.c. A unit is used if the extent tree of the
 * superblock's transaction or a log tree has it, in any copy. The first MiB and the 64 KiB around each copy of
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
 * - What fsync wrote since then is in the log trees, which the next mount replays. Their blocks, and the
 *   extents that files have in them, are in no extent tree, and count as used. The kernel reuses none of them
 *   before the superblock of the next transaction is written: what was written once stays pinned.
 * - So an image is right for a mount at any moment, and for what may be overwritten before the next
 *   record. It is not right for the live file system, whose next transaction may lie in what was sealed:
 *   the free blocks of a sealed image stay in RAM (volume/overlap.c).
 */
#ifndef COWFS_FS_BTRFS_SPACE_H
#define COWFS_FS_BTRFS_SPACE_H

#include "fs/fsinfo.h"

struct btrfs_space;

/*
 * Reads the superblock, the chunk tree, the path to the extent tree and the log trees. *ret_units: of the device.
 * r is copied. -EOPNOTSUPP: not supported, or damaged; -ENOMEM; or the reader's error.
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
