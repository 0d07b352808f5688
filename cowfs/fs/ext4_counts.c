// SPDX-License-Identifier: MIT
/*
 * What the superblock of an ext file system repeats of the rest: the numbers of free blocks and
 * inodes, and whether the orphan file has an entry. The kernel writes them there at a freeze and at
 * an unmount.
 */
#include <errno.h>

#include "base/bytes.h"
#include "base/crc32c.h"
#include "fs/ext4.h"

/* of ext2_fs.h, since e2fsprogs 1.47 */
#define ORPHAN_BLOCK_MAGIC 0x0b10ca04u
#define ORPHAN_TAIL_BYTES 8
#define ORPHAN_FILE_AT 0x280 /* s_orphan_file_inum */
#define ORPHAN_FILE_MAX_BLOCKS 65536
#define ORPHAN_READ_BYTES (256 * KIB) /* at once: a card may take 2 ms for each read */

static int sum_groups(struct ext4_image *e, struct fsimage_facts *f)
{
	ext2_filsys fs = e->fs;
	uint64_t clusters = 0;

	for (dgrp_t nr = 0; nr < fs->group_desc_count; nr++) {
		int err = ext4_desc_load(e, nr);

		if (err)
			return err;
		clusters += ext2fs_bg_free_blocks_count(fs, nr);
		f->free_inodes += ext2fs_bg_free_inodes_count(fs, nr);
	}
	f->free_blocks = clusters << fs->cluster_ratio_bits;
	return f->free_blocks <= ext2fs_blocks_count(fs->super) &&
			       f->free_inodes <= fs->super->s_inodes_count
		       ? 0
		       : -EUCLEAN;
}

/* Each block: numbers of inodes, 0 for a free place, and a tail with a magic number and a checksum. */
static int orphan_blocks(struct ext4_image *e, blk64_t block, uint64_t n, uint8_t *buf,
			 bool *ret_any)
{
	size_t entries = e->fs->blocksize - ORPHAN_TAIL_BYTES;
	int err = ext4_result(e, io_channel_read_blk64(e->fs->io, block, (int)n, buf));

	for (uint64_t i = 0; i < n && !err && !*ret_any; i++, buf += e->fs->blocksize) {
		err = le_at(buf, entries, 4) == ORPHAN_BLOCK_MAGIC ? 0 : -EUCLEAN;
		*ret_any = !err && !bytes_all_zero(buf, entries);
	}
	return err;
}

static int look_for_orphans(struct ext4_image *e, bool *ret_any)
{
	ext2_filsys fs = e->fs;
	_cleanup_free_ uint8_t *buf = malloc(ORPHAN_READ_BYTES);
	uint32_t ino = (uint32_t)le_at((const uint8_t *)fs->super, ORPHAN_FILE_AT, 4);
	struct ext2_inode inode;
	uint64_t blocks, n = 0;
	blk64_t first = 0; /* n blocks from here on are to be read */
	int err;

	if (!buf)
		return -ENOMEM;
	err = ext4_own_file(e, ino, &inode);
	if (err)
		return err;
	blocks = EXT2_I_SIZE(&inode) / fs->blocksize;
	if (blocks > ORPHAN_FILE_MAX_BLOCKS)
		return -EUCLEAN;
	for (uint64_t i = 0; i < blocks && !*ret_any && !err; i++) {
		blk64_t phys = 0;

		err = ext4_result(e, ext2fs_bmap2(fs, ino, &inode, NULL, 0, i, NULL, &phys));
		if (!err && !phys)
			err = -EUCLEAN;
		if (!err && n && (phys != first + n || n == ORPHAN_READ_BYTES / fs->blocksize)) {
			err = orphan_blocks(e, first, n, buf, ret_any);
			n = 0;
		}
		first = n ? first : phys;
		n++;
	}
	return err || *ret_any || !n ? err : orphan_blocks(e, first, n, buf, ret_any);
}

int ext4_counts(struct ext4_image *e, struct fsimage_facts *f)
{
	int err = sum_groups(e, f);

	if (!err && e->fs->super->s_feature_ro_compat & EXT4_RO_COMPAT_ORPHAN_PRESENT)
		err = look_for_orphans(e, &f->orphans);
	return err;
}

/* As ext4_freeze and ext4_update_super of the kernel do, except for times and counters. */
