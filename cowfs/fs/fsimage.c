// SPDX-License-Identifier: MIT
#include "fs/fsimage.h"

#include <errno.h>
#include <string.h>

#include "fs/btrfs_space.h"
#include "fs/ext4.h"
#include "fs/xfs_space.h"

static void note_block(void *ctx, uint64_t block)
{
	struct fsimage_facts *f = ctx;

	if (f->gdt_blocks < FSIMAGE_GDT_MARKS)
		f->gdt_block[f->gdt_blocks++] = block;
}

static int facts_of_ext(struct ext4_image *e, unsigned ask, struct fsimage_facts *f)
{
	const struct ext2_super_block *sb = e->fs->super;

	*f = (struct fsimage_facts){
		.blocks = ext2fs_blocks_count(e->fs->super),
		.block_shift = (uint32_t)EXT2_BLOCK_SIZE_BITS(sb),
		.first_data_block = sb->s_first_data_block,
		.blocks_per_group = sb->s_blocks_per_group,
		.cluster_shift = (uint32_t)e->fs->cluster_ratio_bits,
	};
	if (ask & FSIMAGE_ASK_GDT)
		f->gdt_err = ext4_gdt_crc(e, &f->gdt_crc, note_block, f);
	if (f->gdt_err && f->gdt_err != -EUCLEAN)
		return f->gdt_err;
	if (ask & FSIMAGE_ASK_JOURNAL)
		f->journal_err = ext4_journal(e, &f->journal);
	return f->journal_err && f->journal_err != -EUCLEAN && f->journal_err != -ENOENT
		       ? f->journal_err
		       : 0;
}

int fsimage_open(struct fsimage *im, const struct blk_reader *r, unsigned ask,
		 struct fsimage_facts *f)
{
	uint64_t units = 0;
	int err;

	if (ask & ASK_BTRFS)
		err = btrfs_space_open(&im->btrfs, r, &units);
	else if (ask & ASK_XFS)
		err = xfs_space_open(&im->xfs, r, &units);
	else
		err = ext4_open(&im->ext, r);
	if (!err && im->ext)
		err = facts_of_ext(im->ext, ask, f);
	else if (!err)
		*f = (struct fsimage_facts){ .blocks = min_u64(units, r->volume_blks),
					     .block_shift = COW_BLK_SHIFT,
					     .blocks_per_group = GROUP_UNITS,
					     .journal_err = -ENOENT };
	if (err)
		return err;
	im->blocks = f->blocks;
	im->bitmap_bytes = 1u << f->block_shift;
	im->groups = im->ext ? im->ext->fs->group_desc_count
			     : (uint32_t)((f->blocks + GROUP_UNITS - 1) / GROUP_UNITS);
	return 0;
}

int fsimage_group(struct fsimage *im, uint64_t nr, uint8_t *bits)
{
	uint64_t first = nr * GROUP_UNITS;

	if (nr >= im->groups)
		return -EINVAL;
	if (im->ext)
		return ext4_group_bits(im->ext, (dgrp_t)nr, bits);
	memset(bits, 0, im->bitmap_bytes);
	if (im->xfs)
		return xfs_space_used(im->xfs, first, min_u64(GROUP_UNITS, im->blocks - first),
				      bits);
	return btrfs_space_used(im->btrfs, first, min_u64(GROUP_UNITS, im->blocks - first), bits);
}

int fsimage_log(struct fsimage *im, const struct fsimage_journal *j, struct fsimage_range **ret,
		size_t *ret_n)
{
	return im->ext ? ext4_log_ranges(im->ext, j, ret, ret_n) : -EINVAL;
}

void fsimage_close(struct fsimage *im)
{
	ext4_close(im->ext);
	btrfs_space_close(im->btrfs);
	xfs_space_close(im->xfs);
}
