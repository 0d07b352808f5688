// SPDX-License-Identifier: MIT
/*
 * The entry of NILFS2: a file system that is a log itself, with a superblock at byte 1024 and a
 * second one in the last 4 KiB of the device.
 *
 * Linux writes both superblocks at each read-write mount (s_mtime, s_mnt_count, s_state) and at a
 * freeze or a thaw (s_state), and it writes one of them in turn from time to time (s_last_cno). A
 * read-only mount after an unclean unmount writes, too, unless the option norecovery is set. After
 * a crash NILFS2 rolls forward from the last checkpoint, so any image is valid. This code does not
 * know which segments are free: all changes go through the log.
 */
#include <linux/nilfs2_ondisk.h>
#include <string.h>

#include "fs/fs_ops.h"

#define SB_GET(sb, field)                                                                          \
	le_at(sb, offsetof(struct nilfs_super_block, field),                                       \
	      sizeof(((struct nilfs_super_block *)0)->field))

static bool is_super(const uint8_t *sb)
{
	uint64_t bytes = SB_GET(sb, s_bytes);

	return SB_GET(sb, s_magic) == NILFS_SUPER_MAGIC &&
	       SB_GET(sb, s_rev_level) == NILFS_CURRENT_REV &&
	       bytes > offsetof(struct nilfs_super_block, s_uuid) &&
	       bytes <= sizeof(struct nilfs_super_block) && SB_GET(sb, s_log_block_size) <= 6 &&
	       SB_GET(sb, s_dev_size) >= 2 * COW_BLK_BYTES &&
	       SB_GET(sb, s_blocks_per_segment) >= NILFS_SEG_MIN_BLOCKS;
}

static size_t units_nilfs2(const struct supers *s, uint64_t units[FS_UNITS])
{
	uint64_t size_bytes = SB_GET(s->head + NILFS_SB_OFFSET_BYTES, s_dev_size);

	units[0] = NILFS_SB_OFFSET_BYTES >> COW_BLK_SHIFT;
	units[1] = NILFS_SB2_OFFSET_BYTES(size_bytes) >> COW_BLK_SHIFT;
	return 2;
}

static bool probe_nilfs2(const struct supers *s, struct fsinfo *f)
{
	const uint8_t *sb = s->head + NILFS_SB_OFFSET_BYTES;
	uint64_t fat_bytes = fat_reserved_bytes(s);

	/* mkfs.nilfs2 keeps a boot sector; but in the table of a FAT, files decide the content */
	if (!is_super(sb) ||
	    (fat_bytes && fat_bytes < NILFS_SB_OFFSET_BYTES + sizeof(struct nilfs_super_block)))
		return false;
	f->block_bytes = 1024u << SB_GET(sb, s_log_block_size);
	/*
	 * nothing lies behind the last whole unit, and the kernel finds the second superblock by
	 * the size of the device, so a volume must not be rounded up
	 */
	f->size_bytes = SB_GET(sb, s_dev_size) & ~(uint64_t)(COW_BLK_BYTES - 1);
	memcpy(f->uuid, sb + offsetof(struct nilfs_super_block, s_uuid), sizeof(f->uuid));
	return true;
}

static void fields_nilfs2(const struct supers *s, struct fs_fingerprint *fp)
{
	const uint8_t *sb = s->head + NILFS_SB_OFFSET_BYTES;

	fp->mtime = (uint32_t)SB_GET(sb, s_mtime);
	fp->wtime = (uint32_t)SB_GET(sb, s_wtime);
	fp->mnt_count = (uint16_t)SB_GET(sb, s_mnt_count);
	fp->state = (uint16_t)SB_GET(sb, s_state);
	memcpy(fp->uuid, sb + offsetof(struct nilfs_super_block, s_uuid), sizeof(fp->uuid));
}

/* the second superblock, which is not in struct supers */
static bool looks_written_nilfs2(const uint8_t *sector, unsigned k)
{
	return k == 0 && is_super(sector);
}

const struct fs_ops nilfs2_ops = {
	.names = { "nilfs2" },
	.probe = probe_nilfs2,
	.units = units_nilfs2,
	.fields = fields_nilfs2,
	.looks_written = looks_written_nilfs2,
	.crash_safe = true,
	.tells_mounts = true,
	.readonly_options = "ro,norecovery",
	.owners = OWNERS_TREE,
	.keeps_inode_numbers = true,
};
