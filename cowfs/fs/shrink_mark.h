/* SPDX-License-Identifier: MIT */
/*
 * The mark that a shrink leaves in the superblock of the ext file system at home while it is in
 * progress. No file can hold that superblock, so the mark binds the shrink's log to this device and
 * to this moment (docs/FORMAT.md, "Shrink").
 *
 * Two tags of 16 bytes lie at the end of s_reserved, in the second sector of the superblock. Each
 * is the start of a SHA-512 over the ring uuid and the first sector of a superblock: of the old
 * one, and of the new one. A mount or e2fsck changes that first sector. After that neither tag
 * matches, whatever uuid an attacker tries.
 */
#ifndef COWFS_FS_SHRINK_MARK_H
#define COWFS_FS_SHRINK_MARK_H

#include "fs/fsinfo.h"

#define SHRINK_MARK_BYTES 16u

enum shrink_mark {
	SHRINK_MARK_NONE,  /* no ext superblock, or a superblock without tags */
	SHRINK_MARK_MATCH, /* the mark confirms the ring with this uuid */
	SHRINK_MARK_STALE, /* tags of another ring, or the superblock was changed afterwards */
};

struct shrink_marks {
	uint8_t of_old[SHRINK_MARK_BYTES], of_new[SHRINK_MARK_BYTES];
};

/* All these functions take block 0 of the volume. */
enum shrink_mark shrink_mark_look(const uint8_t blk0[COW_BLK_BYTES], const uint8_t ring_uuid[16]);
bool shrink_mark_is_ext(const uint8_t blk0[COW_BLK_BYTES]);
/* Makes the tag of this superblock. */
void shrink_mark_make(const uint8_t blk0[COW_BLK_BYTES], const uint8_t ring_uuid[16],
		      uint8_t ret[SHRINK_MARK_BYTES]);
struct shrink_marks shrink_mark_get(const uint8_t blk0[COW_BLK_BYTES]);
/* Writes the tags and corrects the superblock's checksum, if it has one. Changes one sector. */
void shrink_mark_put(uint8_t blk0[COW_BLK_BYTES], const struct shrink_marks *t);

/*
 * The end of the file system at home if its first superblock cannot be read, from its first backup.
 * 0: there is no backup. Backups for other block sizes may be remains of an earlier file system, or
 * lie in a file: the smallest end counts, so that they hide no log. A read error is an error.
 */
int shrink_mark_backup_end(const struct blk_reader *r, uint64_t *ret_bytes) MUST_CHECK;

/*
 * Does libblkid find anything on the device (a file system, LUKS, LVM, RAID, swap, a partition
 * table)? -errno
 */
int shrink_mark_signature(const struct blk_reader *r, bool *ret) MUST_CHECK;
/* Is the device a member of md or DRBD, as libblkid sees it? -errno */
int shrink_mark_member(const struct blk_reader *r, bool *ret) MUST_CHECK;

#endif
