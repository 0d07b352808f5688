/* SPDX-License-Identifier: MIT */
/*
 * Private to fs/: what cowfs asks about the metadata of an image. The answers come from a process without privileges if there is one
 * (fsproc.h), else from this one. In the first case -EOWNERDEAD means that the process died of the
 * image, or took too long; what it answers is checked, and calls of the blk_reader are made here.
 */
#ifndef COWFS_FS_READER_H
#define COWFS_FS_READER_H

#include "fs/fsinfo.h"

struct reader_range {
	uint64_t first, count; /* blocks of the file system, not units */
};

/* The internal journal as its inode and its jbd2 superblock describe it. */
struct reader_journal {
	uint32_t ino;
	uint32_t log_blocks;	  /* s_maxlen: the superblock is logical block 0 */
	uint32_t sequence, start; /* s_start 0: the log is empty */
	uint64_t sb_block;	  /* file-system block of its superblock */
	uint64_t size_bytes;
};

#define READER_GDT_MARKS 64

/* One of ASK_BTRFS, ...: no ext, but an image of that kind, cut into groups of GROUP_UNITS units of
 * 4 KiB; nothing else is known of it. */
enum { READER_ASK_GDT = 1, READER_ASK_JOURNAL = 2, ASK_BTRFS = 4, ASK_XFS = 8 };

#define GROUP_UNITS (8 * COW_BLK_BYTES)

struct reader_facts {
	uint64_t blocks;
	/* blocks per cluster */
	uint32_t block_shift, first_data_block, blocks_per_group, cluster_shift;
	/* READER_ASK_GDT: CRC32C of the descriptor blocks, at most 64 KiB, and where these are.
	 * -EUCLEAN: no CRC. */
	int gdt_err;
	uint32_t gdt_crc, gdt_blocks;
	uint64_t gdt_block[READER_GDT_MARKS];
	/* READER_ASK_JOURNAL. -ENOENT: no internal journal; -EUCLEAN: damaged inode or journal
	 * superblock. */
	int journal_err;
	struct reader_journal journal;
};

struct reader;

/* How long one of them waits for its process in all, with a 600th of it for each question. 60 s;
 * tests are less patient. */
extern uint64_t reader_patience_ns;

/* Errors as of ext4_open (ext4.h), btrfs_space_open, xfs_space_open. r is copied. */
int reader_open(struct reader **ret, const struct blk_reader *r, unsigned ask,
		struct reader_facts *facts) MUST_CHECK;
void reader_close(struct reader *x); /* NULL allowed */
/* After a journal was found: its blocks but that of its superblock, ascending; NULL if it cannot be
 * told. The caller frees *ret. -EUCLEAN: it cannot be a journal. */
int reader_log(struct reader *x, struct reader_range **ret, size_t *ret_n) MUST_CHECK;
/* The block bitmap of group nr into a block's bytes. -EUCLEAN: not to be believed. */
int reader_group(struct reader *x, uint32_t nr, uint8_t *bits) MUST_CHECK;

/* The other side: answers on a socket until it is closed. */
void reader_serve(int fd);

#endif
