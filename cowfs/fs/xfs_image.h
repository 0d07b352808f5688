/* SPDX-License-Identifier: MIT */
/* What xfs_space.c and xfs_log.c share: an XFS image, its superblock checked. All on disk but the
 * items of the log is big-endian. */
#ifndef COWFS_FS_XFS_IMAGE_H
#define COWFS_FS_XFS_IMAGE_H

#include "base/bytes.h"
#include "fs/fsinfo.h"

/* the "basic block": addresses in the log and in buffers count these */
#define XFS_BB_BYTES 512u
#define XFS_MAX_BLOCK_BYTES 65536u
#define XFS_UUID_BYTES 16
#define XFS_READ_UNITS 16u

struct xfs_image {
	struct blk_reader r;
	uint64_t reads_blks; /* left */
	uint32_t block_bytes, sector_bytes;
	uint32_t ag_blocks, ags;
	uint64_t blocks;
	uint64_t log_block; /* counted from the start of the file system, as blocks is */
	uint32_t log_blocks;
	uint8_t uuid[XFS_UUID_BYTES];	   /* as mounted, and in the log */
	uint8_t meta_uuid[XFS_UUID_BYTES]; /* in all other metadata */
	uint8_t *buf;			   /* of one read: XFS_READ_UNITS */
};

/* Any bytes of the image. -EUCLEAN: outside of the volume, or too much has been read. */
int xfs_read(struct xfs_image *x, uint64_t off_bytes, size_t len_bytes, uint8_t *buf) MUST_CHECK;
/* Is the CRC32C at crc_off of these bytes right? */
bool xfs_crc_ok(const uint8_t *p, size_t len_bytes, size_t crc_off);

#endif
