/* SPDX-License-Identifier: MIT */
/*
 * Shared by xfs_space.c and xfs_log.c: an XFS image with a checked superblock. Everything on disk
 * is big-endian, except checksums and the items of the log.
 */
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
	uint64_t log_block; /* counted from the start of the file system, like blocks */
	uint32_t log_blocks;
	uint8_t uuid[XFS_UUID_BYTES];	   /* as mounted, and in the log */
	uint8_t meta_uuid[XFS_UUID_BYTES]; /* in all other metadata */
	uint8_t *buf;			   /* for one read: XFS_READ_UNITS */
};

/* Reads any bytes of the image. -EUCLEAN: outside the volume, or too many reads. */
int xfs_read(struct xfs_image *x, uint64_t off_bytes, size_t len_bytes, uint8_t *buf) MUST_CHECK;
/* Is the CRC32C at crc_off of these bytes correct? */
bool xfs_crc_ok(const uint8_t *p, size_t len_bytes, size_t crc_off);

#endif
