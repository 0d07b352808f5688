/* SPDX-License-Identifier: MIT */
/*
 * The guard: a superblock of ext2, ext3 or ext4 that every kernel mounts read-only by itself (or
 * refuses: as type ext3, or with options of the hidden journal), and that every tool of e2fsprogs refuses to write to. docs/FORMAT.md ("The guard") says when it is on
 * the card.
 *
 * It is the feature "read-only", for kernels, and an unknown feature of ro_compat, for the tools. A
 * read-only mount would still replay the journal and remove orphans, so the guard hides both. Only
 * the sector with the feature masks changes: four bytes of it make up for the others, so that the
 * superblock's checksum in the next sector stays right. The fields for that are those of snapshots,
 * which no kernel has. A guarded sector has everything that is needed to take the guard away.
 *
 * All functions take block 0 of the volume.
 */
#ifndef COWFS_FS_GUARD_H
#define COWFS_FS_GUARD_H

#include "base/util.h"

/* Is there a superblock that can be guarded, and is not? */
bool guard_fits(const uint8_t blk0[COW_BLK_BYTES]);
/* owner: any number, to recognise it */
void guard_put(uint8_t blk0[COW_BLK_BYTES], uint32_t owner);
/* Looks at the one sector only. ret_owner may be NULL. */
bool guard_is(const uint8_t blk0[COW_BLK_BYTES], uint32_t *ret_owner);
/* Takes the guard away, if there is one. */
void guard_take(uint8_t blk0[COW_BLK_BYTES]);

/* A block in fewer bytes: its zeroes are left out. Returns their number; 0: more than room. */
size_t guard_pack(const uint8_t blk0[COW_BLK_BYTES], uint8_t *to, size_t room);
/* false: it is not the result of guard_pack */
bool guard_unpack(const uint8_t *from, size_t bytes, uint8_t blk0[COW_BLK_BYTES]);

#endif
