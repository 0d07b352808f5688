/* SPDX-License-Identifier: MIT */
/*
 * Private to fs/: an ext2/3/4 image opened read-only through libext2fs. reader.h has the questions
 * that cowfs asks about it.
 */
#ifndef COWFS_FS_EXT4_H
#define COWFS_FS_EXT4_H

#include <ext2fs/ext2fs.h>

#include "fs/fsimage.h"

/* of ext2_fs.h, since e2fsprogs 1.47 */
#define EXT4_COMPAT_ORPHAN_FILE 0x1000u
#define EXT4_RO_COMPAT_ORPHAN_PRESENT 0x10000u

/* of the superblock in unit 0 */
#define EXT_SB 1024
#define SB_GET(sb, field)                                                                          \
	le_at(sb, offsetof(struct ext2_super_block, field),                                        \
	      sizeof(((struct ext2_super_block *)0)->field))

#define SB_SET(sb, field, value)                                                                   \
	le_set(sb, offsetof(struct ext2_super_block, field),                                       \
	       sizeof(((struct ext2_super_block *)0)->field), value)

/* the superblock of a journal, of jbd2: big-endian, 1 KiB; its header is not installed */
enum {
	JSB_MAGIC = 0,
	JSB_TYPE = 4,
	JSB_BLOCKSIZE = 12,
	JSB_MAXLEN = 16,
	JSB_FIRST = 20,
	JSB_SEQUENCE = 24,
	JSB_START = 28,
	JSB_ERRNO = 32,
	JSB_COMPAT = 36,
	JSB_INCOMPAT = 40,
	JSB_RO_COMPAT = 44,
	JSB_UUID = 48,
	JSB_CSUM_TYPE = 80,
	JSB_CHECKSUM = 252,
	JSB_BYTES = 1024
};
enum { JSB_V1 = 3, JSB_V2 = 4, JSB_CSUM_V2_OR_V3 = 24 };
#define JBD2_MAGIC 0xc03b3998u

struct replay;

struct ext4_image {
	ext2_filsys fs;
	struct blk_reader r;
	uint8_t *bounce;
	int err; /* the reader's error, until ext4_result takes it */
	bool live;
	struct replay *replay; /* of its own, through which r reads; NULL: none */
	bool *desc_loaded;
};

#define EXT4_MAX_DEPTH 5 /* of an extent tree; the kernel's limit */

/*
 * The only place in cowfs that opens a file system through libext2fs. Reads the superblock only,
 * and rejects every value that would lead the library outside its own memory. -EUCLEAN: damaged
 * superblock (checksum or geometry); -EOPNOTSUPP: not ext2/3/4, or features that this libext2fs
 * does not know; or the reader's error. r is copied.
 */
int ext4_open(struct ext4_image **ret, const struct blk_reader *r) MUST_CHECK;
/*
 * The same for an image that changes during the read (a mounted one): checks no checksum, here and
 * later.
 */
int ext4_open_live(struct ext4_image **ret, const struct blk_reader *r) MUST_CHECK;
void ext4_close(struct ext4_image *e); /* NULL allowed */

/*
 * Converts the return value of a library call to 0 or -errno. The reader's own error has priority.
 * All errors except lack of memory become -EUCLEAN.
 */
int ext4_result(struct ext4_image *e, errcode_t rc) MUST_CHECK;

/* Makes the descriptor of group usable for the library; -EUCLEAN: its checksum is wrong. */
int ext4_desc_load(struct ext4_image *e, dgrp_t group) MUST_CHECK;

/* Reads the inode of a file of the file system itself. -EUCLEAN: it cannot be one. */
int ext4_own_file(struct ext4_image *e, uint32_t ino, struct ext2_inode *ret) MUST_CHECK;

/* Is the root of the inode's extent tree one that the library may walk? True without extents. */
bool ext4_tree_ok(const struct ext2_inode *inode);

/* ext4_group.c: as ext4_log_ranges, in the order of the journal. */
int ext4_log_places(struct ext4_image *e, const struct fsimage_journal *j,
		    struct fsimage_range **ret, size_t *ret_n) MUST_CHECK;
/* ext4_group.c: reader_log for j of ext4_journal. */
int ext4_log_ranges(struct ext4_image *e, const struct fsimage_journal *j,
		    struct fsimage_range **ret, size_t *ret_n) MUST_CHECK;

/*
 * ext4_group.c: copies the block bitmap of a group, one bit per cluster, into blocksize bytes.
 * Computes BLOCK_UNINIT groups. -EUCLEAN: a checksum is wrong, or the bitmap does not cover the
 * group's own tables.
 */
int ext4_group_bits(struct ext4_image *e, dgrp_t group, uint8_t *ret) MUST_CHECK;

/* The block bitmap of one group at a time. Zero-initialise. */
struct ext4_used {
	dgrp_t nr;
	bool loaded, bad;
	uint8_t *bits;
};
/* Is this block in use? True if its bitmap is damaged, and for a block of no group. -ENOMEM; errors
 * of the reader. */
int ext4_is_used(struct ext4_image *e, struct ext4_used *m, uint64_t block, bool *ret) MUST_CHECK;
void ext4_used_clear(struct ext4_used *m);

/* -ENOENT: no internal journal; -EUCLEAN: damaged inode or journal superblock. */
int ext4_journal(struct ext4_image *e, struct fsimage_journal *ret) MUST_CHECK;

/* ext4_counts.c: fills the fields of FSIMAGE_ASK_COUNTS. -EUCLEAN; errors of the reader. */
int ext4_counts(struct ext4_image *e, struct fsimage_facts *f) MUST_CHECK;

/*
 * replay.c: sets in unit 0 that no recovery is needed, and unless f->counts_err what else a freeze
 * and an unmount write there. f: of FSIMAGE_ASK_COUNTS.
 */
void ext4_settle(const struct fsimage_facts *f, uint8_t *unit);

/* CRC32C of the group descriptor blocks, at most 64 KiB; each() gets the number of each block. */
int ext4_gdt_crc(struct ext4_image *e, uint32_t *ret, void (*each)(void *ctx, uint64_t block),
		 void *ctx) MUST_CHECK;

#endif
