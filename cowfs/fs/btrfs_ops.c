// SPDX-License-Identifier: MIT
/* The entry of btrfs. */
#include <errno.h>
#include <string.h>

#include "fs/btrfs_space.h"
#include "fs/fs_ops.h"

enum { SB_CSUM = 0, SB_BYTENR = 0x30, SB_FLAGS = 0x38 };

static bool is_super(const uint8_t *sb)
{
	return !memcmp(sb + 0x40, "_BHRfS_M", 8) &&
	       le_at(sb, SB_BYTENR, 8) == blk_to_bytes(BTRFS_UNIT);
}

static bool probe_btrfs(const struct supers *s, struct fsinfo *f)
{
	const uint8_t *sb = s->at64k;

	if (!is_super(sb) || !pow2_between(le_at(sb, 0x90, 4), 512, 65536))
		return false;
	f->block_bytes = (uint32_t)le_at(sb, 0x90, 4);
	f->size_bytes = le_at(sb, 0xd1, 8); /* dev_item.total_bytes: of this device only */
	memcpy(f->uuid, sb + 0x20, sizeof(f->uuid));
	f->devices = le_at(sb, 0x88, 8);
	return true;
}

static const char *refusal_btrfs(const struct fsinfo *f)
{
	return f->devices == 1
		       ? NULL
		       : "its btrfs has several devices, and each would be committed on its own. Remove the others "
			 "with btrfs device remove";
}

static int open_btrfs(void **ret, const struct blk_reader *r, unsigned ask, struct fsimage_facts *f)
{
	struct btrfs_space *x;
	uint64_t units;
	int err = btrfs_space_open(&x, r, &units);

	if (err)
		return err;
	(void)ask;
	*f = fsimage_windows(r, units);
	*ret = x;
	return 0;
}

static int group_btrfs(void *image, uint64_t nr, uint64_t blocks, uint8_t *bits)
{
	uint64_t first, units = fsimage_window(nr, blocks, &first, bits);

	return units ? btrfs_space_used(image, first, units, bits) : -EINVAL;
}

static void close_btrfs(void *image)
{
	btrfs_space_close(image);
}

/* The driver writes them behind the first one, without order. */
static uint64_t copied_btrfs(uint64_t blk)
{
	return blk == 64 * MIB / COW_BLK_BYTES || blk == 256 * GIB / COW_BLK_BYTES ? BTRFS_UNIT : 0;
}

static bool is_copy_btrfs(const uint8_t *committed, const uint8_t *copy)
{
	return !memcmp(committed + SB_FLAGS, copy + SB_FLAGS, COW_BLK_BYTES - SB_FLAGS);
}

static const struct fsimage_ops image = {
	.open = open_btrfs,
	.group = group_btrfs,
	.close = close_btrfs,
	.reads_blks = FSIMAGE_READS_TREES_BLKS,
};

const struct fs_ops btrfs_ops = {
	.names = { "btrfs" },
	.probe = probe_btrfs,
	.first_unit = BTRFS_UNIT,
	.refusal = refusal_btrfs,
	.image = &image,
	.several_devices = true,
	.copied = copied_btrfs,
	.is_copy = is_copy_btrfs,
	.crash_safe = true,
	.reads_lost_transaction = true,
	.own_dirty_limits = true,
	.readonly_options = "ro,rescue=nologreplay",
	.checker = "btrfs check",
	.owners = OWNERS_BTRFS,
	.keeps_inode_numbers = true,
};
