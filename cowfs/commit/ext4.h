/* SPDX-License-Identifier: MIT */
/* Private to commit/: an ext2/3/4 image opened read-only through libext2fs. */
#ifndef COWFS_COMMIT_EXT4_H
#define COWFS_COMMIT_EXT4_H

#include <ext2fs/ext2fs.h>

#include "commit/fsinfo.h"

struct ext4_image {
	ext2_filsys fs;
	struct blk_reader r;
	uint8_t *bounce;
	int err; /* the reader's, until ext4_result takes it */
	bool *desc_loaded;
};

/* The internal journal as its inode and its jbd2 superblock describe it. */
struct ext4_journal {
	uint32_t ino;
	uint32_t log_blocks;	  /* s_maxlen: the superblock is logical block 0 */
	uint32_t sequence, start; /* s_start 0: the log is empty */
	uint64_t sb_block;	  /* file-system block of its superblock */
	uint64_t size_bytes;
};

/*
 * Reads the superblock only. -EUCLEAN: damaged superblock (checksum or geometry); -EOPNOTSUPP:
 * features that this libext2fs does not know; or the reader's error. r is copied.
 */
int ext4_open(struct ext4_image **ret, const struct blk_reader *r) MUST_CHECK;
void ext4_close(struct ext4_image *e); /* NULL allowed */

/* 0 or -errno for what a call of the library returned; the reader's own error goes first. Anything
 * else but memory is -EUCLEAN. */
int ext4_result(struct ext4_image *e, errcode_t rc) MUST_CHECK;

/* Makes the descriptor of group usable for the library; -EUCLEAN: its checksum is wrong. */
int ext4_desc_load(struct ext4_image *e, dgrp_t group) MUST_CHECK;

/* -ENOENT: no internal journal; -EUCLEAN: damaged inode or journal superblock. */
int ext4_journal(struct ext4_image *e, struct ext4_journal *ret) MUST_CHECK;

/* CRC32C of the group descriptor blocks, at most 64 KiB of them; each() gets the number of each. */
int ext4_gdt_crc(struct ext4_image *e, uint32_t *ret, void (*each)(void *ctx, uint64_t block), void *ctx) MUST_CHECK;

/* fsinfo.c: fsinfo_probe without what needs more than the superblock (ext: the journal). */
int fsinfo_probe_super(const struct blk_reader *r, struct fsinfo *ret) MUST_CHECK;

#endif
