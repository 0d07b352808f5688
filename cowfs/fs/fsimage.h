/* SPDX-License-Identifier: MIT */
/*
 * Private to fs/: an image whose metadata this process reads. Asked by reader.h, for which this
 * process may be one without privileges.
 */
#ifndef COWFS_FS_FSIMAGE_H
#define COWFS_FS_FSIMAGE_H

#include "fs/fsinfo.h"

struct fsimage_range {
	uint64_t first, count; /* blocks of the file system, not units */
};

/* The internal journal as its inode and its jbd2 superblock describe it. */
struct fsimage_journal {
	uint32_t ino;
	uint32_t log_blocks;	  /* s_maxlen: the superblock is logical block 0 */
	uint32_t sequence, start; /* s_start 0: the log is empty */
	uint64_t sb_block;	  /* file-system block of its superblock */
	uint64_t size_bytes;
};

#define FSIMAGE_GDT_MARKS 64

/* One of ASK_BTRFS, ...: no ext, but an image of that kind, cut into groups of GROUP_UNITS units of
 * 4 KiB; nothing else is known of it. */
enum { FSIMAGE_ASK_GDT = 1, FSIMAGE_ASK_JOURNAL = 2, ASK_BTRFS = 4, ASK_XFS = 8 };

#define GROUP_UNITS (8 * COW_BLK_BYTES)

struct fsimage_facts {
	uint64_t blocks;
	/* blocks per cluster */
	uint32_t block_shift, first_data_block, blocks_per_group, cluster_shift;
	/* FSIMAGE_ASK_GDT: CRC32C of the descriptor blocks, at most 64 KiB, and where these are.
	 * -EUCLEAN: no CRC. */
	int gdt_err;
	uint32_t gdt_crc, gdt_blocks;
	uint64_t gdt_block[FSIMAGE_GDT_MARKS];
	/* FSIMAGE_ASK_JOURNAL. -ENOENT: no internal journal; -EUCLEAN: damaged inode or journal
	 * superblock. */
	int journal_err;
	struct fsimage_journal journal;
};

struct fsimage {
	struct ext4_image *ext;
	struct btrfs_space *btrfs;
	struct xfs_space *xfs;
	uint64_t blocks;
	uint32_t groups, bitmap_bytes;
};

/* Errors as of ext4_open (ext4.h), btrfs_space_open, xfs_space_open. */
int fsimage_open(struct fsimage *im, const struct blk_reader *r, unsigned ask,
		 struct fsimage_facts *f) MUST_CHECK;
void fsimage_close(struct fsimage *im); /* one that was never opened, too */
/* The block bitmap of group nr into bitmap_bytes. -EUCLEAN: not to be believed. */
int fsimage_group(struct fsimage *im, uint64_t nr, uint8_t *bits) MUST_CHECK;
/* As reader_log. */
int fsimage_log(struct fsimage *im, const struct fsimage_journal *j, struct fsimage_range **ret,
		size_t *ret_n) MUST_CHECK;

#endif
