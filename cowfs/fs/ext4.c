// SPDX-License-Identifier: MIT
/*
 * ext2/3/4 through libext2fs: opens an image behind a blk_reader, its descriptors and its journal.
 *
 * The cost depends on the groups in question, not on the size of the card. So the library opens the
 * superblock only. Its own lazy descriptors do not help: they lie in one static buffer of the
 * process, and after a read error there they are a NULL that the accessors follow. Instead
 * fs->group_desc is a zeroed array of the full size (address space, not memory, until touched).
 * ext4_desc_load fills it block by block; every accessor and checksum of the library then works on
 * it unchanged.
 *
 * Failures have two origins, which the library's error codes mix. Either the reader failed: the
 * error is kept in ext4_image.err and handed to the caller, and nothing is cached. Or the image
 * contradicts itself (-EUCLEAN): everything that depends on it counts as used, and an alarm is set.
 */
#include <endian.h>
#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "base/crc32c.h"
#include "base/io.h"
#include "fs/ext4.h"
#include "fs/replay.h"

#define BOUNCE_UNITS 32
#define GDT_CRC_BYTES 65536
#define MIN_GROUP_BLOCKS 256 /* of mke2fs; smaller groups only make a card slow */

/* ---- io manager ---- */

/* the library passes only a name to its open function */
static _Thread_local struct ext4_image *opening;

static errcode_t image_open(const char *name, int flags, io_channel *ret);

static errcode_t image_close(io_channel ch)
{
	ext2fs_free_mem(&ch);
	return 0;
}

static errcode_t image_set_blksize(io_channel ch, int blksize)
{
	ch->block_size = blksize;
	return 0;
}

/* count < 0: the number of bytes */
static errcode_t image_read64(io_channel ch, unsigned long long block, int count, void *data)
{
	struct ext4_image *e = ch->private_data;
	uint64_t len = count < 0 ? (uint64_t) - (int64_t)count
				 : (uint64_t)count * (unsigned)ch->block_size;
	uint64_t pos, end;
	uint8_t *dst = data;

	if (__builtin_mul_overflow(block, (uint64_t)ch->block_size, &pos) ||
	    __builtin_add_overflow(pos, len, &end) || end > blk_to_bytes(e->r.volume_blks))
		return EXT2_ET_SHORT_READ;
	while (pos < end) {
		uint64_t blk = pos >> COW_BLK_SHIFT, skip = pos & (COW_BLK_BYTES - 1);
		uint64_t blks = min_u64(BOUNCE_UNITS, ((end - 1) >> COW_BLK_SHIFT) - blk + 1);
		size_t n = (size_t)min_u64(end - pos, blk_to_bytes(blks) - skip);
		int err = e->r.read(e->r.ctx, blk, blks, e->bounce);

		if (err) {
			e->err = err;
			return EXT2_ET_SHORT_READ;
		}
		memcpy(dst, e->bounce + skip, n);
		dst += n;
		pos += n;
	}
	return 0;
}

static errcode_t image_read(io_channel ch, unsigned long block, int count, void *data)
{
	return image_read64(ch, block, count, data);
}

static errcode_t image_write64(io_channel ch, unsigned long long block, int count, const void *data)
{
	(void)ch, (void)block, (void)count, (void)data;
	return EXT2_ET_RO_FILSYS;
}

static errcode_t image_write(io_channel ch, unsigned long block, int count, const void *data)
{
	return image_write64(ch, block, count, data);
}

static errcode_t image_flush(io_channel ch)
{
	(void)ch;
	return 0;
}

static struct struct_io_manager image_manager = {
	.magic = EXT2_ET_MAGIC_IO_MANAGER,
	.name = "cowfs image",
	.open = image_open,
	.close = image_close,
	.set_blksize = image_set_blksize,
	.read_blk = image_read,
	.read_blk64 = image_read64,
	.write_blk = image_write,
	.write_blk64 = image_write64,
	.flush = image_flush,
};

static errcode_t image_open(const char *name, int flags, io_channel *ret)
{
	io_channel ch;
	errcode_t rc;

	(void)name;
	if (flags & IO_FLAG_RW)
		return EXT2_ET_RO_FILSYS;
	rc = ext2fs_get_memzero(sizeof(*ch), &ch);
	if (rc)
		return rc;
	ch->magic = EXT2_ET_MAGIC_IO_CHANNEL;
	ch->manager = &image_manager;
	ch->block_size = 1024;
	ch->refcount = 1;
	ch->private_data = opening;
	*ret = ch;
	return 0;
}

int ext4_result(struct ext4_image *e, errcode_t rc)
{
	int err = e->err;

	e->err = 0;
	if (err)
		return err;
	if (!rc)
		return 0;
	return rc == EXT2_ET_NO_MEMORY || rc == ENOMEM ? -ENOMEM : -EUCLEAN;
}

/* ---- superblock and descriptors ---- */

/* The library computes this in 32 bits. */
static bool inode_tables_ok(const ext2_filsys fs)
{
	struct ext2_super_block *sb = fs->super;
	uint64_t bytes = (uint64_t)sb->s_inodes_per_group * EXT2_INODE_SIZE(sb);

	return sb->s_inodes_per_group && sb->s_inodes_per_group <= 8 * fs->blocksize &&
	       fs->inode_blocks_per_group == (bytes + fs->blocksize - 1) / fs->blocksize &&
	       fs->inode_blocks_per_group <
		       min_u64(sb->s_blocks_per_group, ext2fs_blocks_count(fs->super)) &&
	       (uint64_t)fs->group_desc_count * sb->s_inodes_per_group == sb->s_inodes_count &&
	       EXT2_FIRST_INODE(sb) >= EXT2_GOOD_OLD_FIRST_INO &&
	       EXT2_FIRST_INODE(sb) <= sb->s_inodes_count;
}

static bool groups_ok(const ext2_filsys fs)
{
	const struct ext2_super_block *sb = fs->super;

	return sb->s_first_data_block == (sb->s_log_cluster_size == 0) &&
	       sb->s_log_groups_per_flex <= 31 && sb->s_clusters_per_group % 8 == 0 &&
	       sb->s_clusters_per_group / 8 <= fs->blocksize &&
	       (uint64_t)sb->s_clusters_per_group << fs->cluster_ratio_bits ==
		       sb->s_blocks_per_group &&
	       sb->s_blocks_per_group >= MIN_GROUP_BLOCKS;
}

/*
 * Checks what the library or the code below relies on, and versions 1.46 to 1.47 do not all check.
 */
static bool geometry_ok(const struct ext4_image *e)
{
	const ext2_filsys fs = e->fs;
	struct ext2_super_block *sb = fs->super;
	uint64_t desc_bytes = EXT2_DESC_SIZE(sb), end_bytes;

	if (__builtin_mul_overflow(ext2fs_blocks_count(sb), (uint64_t)fs->blocksize, &end_bytes))
		return false;
	/* the last unit may be cut off: no caller asks for the part of it that exists */
	if (end_bytes >= blk_to_bytes(e->r.volume_blks + 1) || !fs->group_desc_count)
		return false;
	if (desc_bytes < EXT2_MIN_DESC_SIZE || desc_bytes & (desc_bytes - 1) ||
	    desc_bytes > fs->blocksize)
		return false;
	if (ext2fs_has_feature_meta_bg(sb) && sb->s_first_meta_bg > fs->desc_blocks)
		return false;
	return sb->s_reserved_gdt_blocks <= fs->blocksize / 4 && groups_ok(fs) &&
	       inode_tables_ok(fs);
}

/*
 * The kernel mounts a file system read-write only if it knows all features. So a feature unknown
 * here may have changed the meaning of a bitmap. (MMP is not among the library's own features, but
 * changes no bitmap.)
 */
static bool features_known(const struct ext2_super_block *sb)
{
	const uint32_t incompat = EXT2_LIB_FEATURE_INCOMPAT_SUPP | EXT4_FEATURE_INCOMPAT_MMP;

	return !(sb->s_feature_incompat & ~incompat) &&
	       !(sb->s_feature_ro_compat & ~EXT2_LIB_FEATURE_RO_COMPAT_SUPP) &&
	       BYTE_ORDER == LITTLE_ENDIAN; /* descriptors are used unchanged */
}

static int image_setup(struct ext4_image *e)
{
	/* FORCE: this code, not the library, distinguishes unknown features from damage */
	const int flags = EXT2_FLAG_SUPER_ONLY | EXT2_FLAG_64BITS | EXT2_FLAG_FORCE |
			  (e->live ? EXT2_FLAG_IGNORE_CSUM_ERRORS : 0);
	errcode_t rc;
	int err;

	e->bounce = io_alloc(BOUNCE_UNITS * COW_BLK_BYTES);
	if (!e->bounce)
		return -ENOMEM;
	opening = e;
	rc = ext2fs_open2("", NULL, flags, 0, 0, &image_manager, &e->fs);
	opening = NULL;
	if (rc)
		e->fs = NULL;
	if (rc == EXT2_ET_BAD_MAGIC)
		return -EOPNOTSUPP;
	err = ext4_result(e, rc);
	if (err)
		return err;
	if (ext2fs_has_feature_journal_dev(e->fs->super) || !features_known(e->fs->super))
		return -EOPNOTSUPP;
	if (!geometry_ok(e))
		return -EUCLEAN;
	e->desc_loaded = calloc(e->fs->desc_blocks, sizeof(*e->desc_loaded));
	e->fs->group_desc = calloc(e->fs->desc_blocks, e->fs->blocksize);
	return e->desc_loaded && e->fs->group_desc ? 0 : -ENOMEM;
}

static int image_new(struct ext4_image **ret, const struct blk_reader *r, bool live)
{
	struct ext4_image *e = calloc(1, sizeof(*e));
	int err;

	if (!e)
		return -ENOMEM;
	e->r = *r;
	e->live = live;
	err = image_setup(e);
	if (err) {
		ext4_close(e);
		return err;
	}
	*ret = e;
	return 0;
}

int ext4_open(struct ext4_image **ret, const struct blk_reader *r)
{
	return image_new(ret, r, false);
}

int ext4_open_live(struct ext4_image **ret, const struct blk_reader *r)
{
	return image_new(ret, r, true);
}

void ext4_close(struct ext4_image *e)
{
	if (!e)
		return;
	if (e->fs)
		ext2fs_free(e->fs); /* frees group_desc */
	replay_close(e->replay);
	free(e->desc_loaded);
	free(e->bounce);
	free(e);
}

static uint64_t desc_block_loc(const struct ext4_image *e, uint64_t i)
{
	const ext2_filsys fs = e->fs;

	/* the library is off by one for i > 0 with 1 KiB blocks and bigalloc */
	if (!ext2fs_has_feature_meta_bg(fs->super) || i < fs->super->s_first_meta_bg)
		return SUPERBLOCK_OFFSET / fs->blocksize + 1 + i;
	return ext2fs_descriptor_block_loc2(fs, fs->super->s_first_data_block, (dgrp_t)i);
}

/*
 * Reads block i of the descriptors, and the following ones that are adjacent on the card, as far as
 * they fit into one read.
 */
static int descs_read(struct ext4_image *e, uint64_t i)
{
	ext2_filsys fs = e->fs;
	uint64_t n = 1, max = BOUNCE_UNITS * COW_BLK_BYTES / fs->blocksize;
	int err;

	while (n < max && i + n < fs->desc_blocks && !e->desc_loaded[i + n] &&
	       desc_block_loc(e, i + n) == desc_block_loc(e, i) + n)
		n++;
	err = ext4_result(e, image_read64(fs->io, desc_block_loc(e, i), (int)n,
					  (char *)fs->group_desc + i * fs->blocksize));
	for (uint64_t k = 0; k < n && !err; k++)
		e->desc_loaded[i + k] = true;
	return err;
}

int ext4_desc_load(struct ext4_image *e, dgrp_t group)
{
	ext2_filsys fs = e->fs;
	uint64_t i = group / EXT2_DESC_PER_BLOCK(fs->super);
	int err;

	if (!e->desc_loaded[i]) {
		err = descs_read(e, i);
		if (err)
			return err;
	}
	return e->live || ext2fs_group_desc_csum_verify(fs, group) ? 0 : -EUCLEAN;
}

bool ext4_tree_ok(const struct ext2_inode *inode)
{
	const struct ext3_extent_header *h = (const void *)inode->i_block;

	if (!(inode->i_flags & EXT4_EXTENTS_FL))
		return true;
	return ext2fs_le16_to_cpu(h->eh_magic) == EXT3_EXT_MAGIC &&
	       ext2fs_le16_to_cpu(h->eh_depth) <= EXT4_MAX_DEPTH;
}

int ext4_gdt_crc(struct ext4_image *e, uint32_t *ret, void (*each)(void *ctx, uint64_t block),
		 void *ctx)
{
	uint64_t n = max_u64(GDT_CRC_BYTES / e->fs->blocksize, 1);
	_cleanup_free_ void *buf = malloc(e->fs->blocksize);
	uint32_t crc = 0;

	if (!buf)
		return -ENOMEM;
	for (uint64_t i = 0; i < min_u64(n, e->fs->desc_blocks); i++) {
		int err = ext4_result(e, image_read64(e->fs->io, desc_block_loc(e, i), 1, buf));

		if (err)
			return err;
		crc = crc32c(crc, buf, e->fs->blocksize);
		each(ctx, desc_block_loc(e, i));
	}
	*ret = crc;
	return 0;
}

/* ---- journal ---- */

static bool jsb_csum_ok(uint8_t *jsb)
{
	uint32_t want = (uint32_t)be_at(jsb, JSB_CHECKSUM, 4);

	if (!(be_at(jsb, JSB_INCOMPAT, 4) & JSB_CSUM_V2_OR_V3))
		return true;
	memset(jsb + JSB_CHECKSUM, 0, sizeof(want));
	return ~crc32c(0, jsb, JSB_BYTES) == want;
}

static int jsb_parse(struct ext4_image *e, uint8_t *jsb, struct fsimage_journal *j)
{
	uint32_t type = (uint32_t)be_at(jsb, JSB_TYPE, 4);

	if (be_at(jsb, JSB_MAGIC, 4) != JBD2_MAGIC || (type != JSB_V1 && type != JSB_V2) ||
	    be_at(jsb, JSB_BLOCKSIZE, 4) != e->fs->blocksize)
		return -EUCLEAN;
	if (type == JSB_V2 && !jsb_csum_ok(jsb))
		return -EUCLEAN;
	j->log_blocks = (uint32_t)be_at(jsb, JSB_MAXLEN, 4);
	j->sequence = (uint32_t)be_at(jsb, JSB_SEQUENCE, 4);
	j->start = (uint32_t)be_at(jsb, JSB_START, 4);
	j->error = (uint32_t)be_at(jsb, JSB_ERRNO, 4);
	if (j->log_blocks < 2 || j->log_blocks > j->size_bytes / e->fs->blocksize ||
	    j->log_blocks > ext2fs_blocks_count(e->fs->super))
		return -EUCLEAN;
	return 0;
}

int ext4_own_file(struct ext4_image *e, uint32_t ino, struct ext2_inode *ret)
{
	int err;

	if (!ino || ino > e->fs->super->s_inodes_count)
		return -EUCLEAN;
	err = ext4_desc_load(e, (ino - 1) / EXT2_INODES_PER_GROUP(e->fs->super));
	if (!err)
		err = ext4_result(e, ext2fs_read_inode(e->fs, ino, ret));
	if (err)
		return err;
	return LINUX_S_ISREG(ret->i_mode) && ext4_tree_ok(ret) ? 0 : -EUCLEAN;
}

int ext4_journal(struct ext4_image *e, struct fsimage_journal *ret)
{
	ext2_filsys fs = e->fs;
	_cleanup_free_ uint8_t *jsb = malloc(fs->blocksize);
	struct fsimage_journal j = { .ino = fs->super->s_journal_inum };
	struct ext2_inode inode;
	blk64_t phys = 0;
	int err;

	if (!ext2fs_has_feature_journal(fs->super) || !j.ino)
		return -ENOENT;
	if (!jsb)
		return -ENOMEM;
	err = ext4_own_file(e, j.ino, &inode);
	if (err)
		return err;
	if (!inode.i_links_count)
		return -EUCLEAN;
	j.size_bytes = EXT2_I_SIZE(&inode);
	err = ext4_result(e, ext2fs_bmap2(fs, j.ino, &inode, NULL, 0, 0, NULL, &phys));
	if (!err && !phys)
		err = -EUCLEAN;
	if (!err)
		err = ext4_result(e, image_read64(fs->io, phys, 1, jsb));
	if (!err)
		err = jsb_parse(e, jsb, &j);
	j.sb_block = phys;
	if (!err)
		*ret = j;
	return err;
}
