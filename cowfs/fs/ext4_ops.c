// SPDX-License-Identifier: MIT
/* The entry of ext2, ext3 and ext4. */
#include <errno.h>
#include <string.h>

#include "base/crc32c.h"
#include "fs/ext4_replay.h"
#include "fs/fs_ops.h"
#include "fs/replay.h"

/* the rule of libblkid: any feature that the ext3 driver did not know makes it ext4 */
static const char *ext_type(uint64_t compat, uint64_t incompat, uint64_t ro_compat)
{
	const uint64_t old_incompat = EXT2_FEATURE_INCOMPAT_FILETYPE |
				      EXT3_FEATURE_INCOMPAT_RECOVER | EXT2_FEATURE_INCOMPAT_META_BG;
	const uint64_t old_ro_compat = EXT2_FEATURE_RO_COMPAT_SPARSE_SUPER |
				       EXT2_FEATURE_RO_COMPAT_LARGE_FILE;

	if ((incompat & ~old_incompat) || (ro_compat & ~old_ro_compat))
		return "ext4";
	return compat & EXT3_FEATURE_COMPAT_HAS_JOURNAL ? "ext3" : "ext2";
}

static bool probe_ext(const struct supers *s, struct fsinfo *f)
{
	const uint8_t *sb = s->head + EXT_SB;
	uint64_t compat = SB_GET(sb, s_feature_compat);
	uint64_t incompat = SB_GET(sb, s_feature_incompat);
	uint64_t blocks = SB_GET(sb, s_blocks_count);
	uint64_t free_blocks = SB_GET(sb, s_free_blocks_count);
	uint64_t log_size = SB_GET(sb, s_log_block_size),
		 log_cluster = SB_GET(sb, s_log_cluster_size);

	if (SB_GET(sb, s_magic) != EXT2_SUPER_MAGIC || log_size > 6)
		return false;
	if (incompat & EXT3_FEATURE_INCOMPAT_JOURNAL_DEV) {
		f->kind = FS_UNKNOWN;
		strcpy(f->type, "jbd");
		return true;
	}
	if (incompat & EXT4_FEATURE_INCOMPAT_64BIT) {
		blocks |= SB_GET(sb, s_blocks_count_hi) << 32;
		free_blocks |= SB_GET(sb, s_free_blocks_hi) << 32;
	}
	strcpy(f->type, ext_type(compat, incompat, SB_GET(sb, s_feature_ro_compat)));
	f->block_bytes = 1024u << log_size;
	f->size_bytes = size_of_blocks(blocks, f->block_bytes);
	f->free_bytes = min_u64(free_blocks, blocks) * f->block_bytes;
	/* one used block makes its whole cluster used */
	if (SB_GET(sb, s_feature_ro_compat) & EXT4_FEATURE_RO_COMPAT_BIGALLOC &&
	    log_cluster > log_size)
		f->free_bytes >>= min_u64(log_cluster - log_size, 63);
	memcpy(f->uuid, sb + offsetof(struct ext2_super_block, s_uuid), sizeof(f->uuid));
	f->has_journal = compat & EXT3_FEATURE_COMPAT_HAS_JOURNAL;
	f->external_journal = f->has_journal && !SB_GET(sb, s_journal_inum);
	f->needs_recovery = incompat & EXT3_FEATURE_INCOMPAT_RECOVER;
	f->mmp = incompat & EXT4_FEATURE_INCOMPAT_MMP;
	f->inline_data = incompat & EXT4_FEATURE_INCOMPAT_INLINE_DATA;
	f->fast_commit = SB_GET(sb, s_feature_compat) & EXT4_FEATURE_COMPAT_FAST_COMMIT;
	f->error_flag = SB_GET(sb, s_state) & EXT2_ERROR_FS;
	f->clean = SB_GET(sb, s_state) & EXT2_VALID_FS;
	return true;
}

static void fields_ext(const struct supers *s, struct fs_fingerprint *fp)
{
	const uint8_t *sb = s->head + EXT_SB;

	fp->mtime = (uint32_t)SB_GET(sb, s_mtime);
	fp->wtime = (uint32_t)SB_GET(sb, s_wtime);
	fp->mnt_count = (uint16_t)SB_GET(sb, s_mnt_count);
	fp->state = (uint16_t)SB_GET(sb, s_state);
	fp->kbytes_written = SB_GET(sb, s_kbytes_written);
	/* not over s_checksum, which comes last: a CRC over data and their CRC is a constant */
	fp->sb_crc = crc32c(0, sb, offsetof(struct ext2_super_block, s_checksum));
	memcpy(fp->uuid, sb + offsetof(struct ext2_super_block, s_uuid), sizeof(fp->uuid));
}

/* of a larger block, the important content is in its first unit */
static void mark_block(struct fs_fingerprint *fp, const struct fsimage_facts *f, uint64_t block)
{
	fs_mark_unit(fp, block << f->block_shift >> COW_BLK_SHIFT);
}

static void facts_ext(const struct fsimage_facts *f, struct fs_fingerprint *fp)
{
	fp->gdt_crc = f->gdt_crc;
	for (uint32_t i = 0; i < f->gdt_blocks; i++)
		mark_block(fp, f, f->gdt_block[i]);
	if (!f->journal_err) {
		fp->journal_seq = f->journal.sequence;
		mark_block(fp, f, f->journal.sb_block);
	}
}

static const char *refusal_ext(const struct fsinfo *f)
{
	if (f->external_journal)
		return "the journal of its file system is on another device, which cannot be committed together "
		       "with this one. Use an internal journal: tune2fs -O ^has_journal, then tune2fs -j";
	/* its journal cannot be replayed in memory. One without an internal journal never gets so far */
	if (f->fast_commit)
		return "its file system has fast commits: unmount it, then tune2fs -O ^fast_commit";
	if (f->mmp)
		return "its file system has multiple-mount protection, which writes every few "
		       "seconds: run tune2fs -O ^mmp";
	return NULL;
}

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
	if (ask & FSIMAGE_ASK_COUNTS)
		f->counts_err = ext4_counts(e, f);
	if (f->counts_err && f->counts_err != -EUCLEAN)
		return f->counts_err;
	if (ask & FSIMAGE_ASK_JOURNAL)
		f->journal_err = ext4_journal(e, &f->journal);
	return f->journal_err && f->journal_err != -EUCLEAN && f->journal_err != -ENOENT
		       ? f->journal_err
		       : 0;
}

static bool is_of_image(int err)
{
	return err == -EUCLEAN || err == -EOPNOTSUPP || err == -ENOENT;
}

/* *ret: the overlay that reads the image as after the replay. */
static int replay_get(struct ext4_image *e, const uint32_t *verified, struct replay **ret)
{
	struct fsimage_facts f = { .block_shift = (uint32_t)EXT2_BLOCK_SIZE_BITS(e->fs->super),
				   .counts_err = -ENODATA };
	struct fsimage_move *list;
	size_t n;
	int err = ext4_journal(e, &f.journal);

	if (!err && f.journal.ino != EXT2_JOURNAL_INO) /* may be the file of a user */
		err = -EOPNOTSUPP;
	if (err == -ENOENT && ext2fs_has_feature_journal_needs_recovery(e->fs->super))
		err = -EOPNOTSUPP;
	if (!err)
		err = ext4_replay(e, &f.journal, verified, &list, &n);
	return err ? err : replay_new(ret, &e->r, &f, list, n);
}

/* Opens it as after the replay instead, if that can be done. *ret_err: of the facts. */
static int open_replayed(struct ext4_image **e, const uint32_t *verified, int *ret_err)
{
	struct ext4_image *after;
	struct blk_reader r;
	struct replay *y = NULL;
	int err = replay_get(*e, verified, &y);

	if (!err) {
		r = replay_reader(y);
		err = ext4_open(&after, &r);
	}
	if (err) {
		replay_close(y);
		*ret_err = err;
		return is_of_image(err) ? 0 : err;
	}
	after->replay = y;
	ext4_close(*e);
	*e = after;
	*ret_err = 0;
	return 0;
}

static int open_ext(void **ret, const struct blk_reader *r, unsigned ask, struct fsimage_facts *f)
{
	struct ext4_image *e;
	int replay_err = -ENOENT, err = ext4_open(&e, r);

	if (err)
		return err;
	if (ask & FSIMAGE_ASK_REPLAY)
		err = open_replayed(&e, ask & FSIMAGE_ASK_VERIFIED ? &f->journal.part.next : NULL,
				    &replay_err);
	if (!err)
		err = facts_of_ext(e, ask, f);
	if (!err && e->replay)
		f->journal.part = *replay_part(e->replay);
	if (err) {
		ext4_close(e);
		return err;
	}
	f->replay_err = replay_err;
	*ret = e;
	return 0;
}

static const struct fsimage_move *replay_ext(void *image, size_t *ret_n)
{
	struct ext4_image *e = image;

	return e->replay ? replay_list(e->replay, ret_n) : NULL;
}

static int group_ext(void *image, uint64_t nr, uint64_t blocks, uint8_t *bits)
{
	struct ext4_image *e = image;

	(void)blocks;
	return nr < e->fs->group_desc_count ? ext4_group_bits(e, (dgrp_t)nr, bits) : -EINVAL;
}

static int log_ext(void *image, const struct fsimage_journal *j, struct fsimage_range **ret,
		   size_t *ret_n)
{
	return ext4_log_ranges(image, j, ret, ret_n);
}

static void close_ext(void *image)
{
	ext4_close(image);
}

static const struct fsimage_ops image = {
	.open = open_ext,
	.group = group_ext,
	.log = log_ext,
	.replay = replay_ext,
	.close = close_ext,
	.alarms = true,
	.reads_blks = 64,
};

const struct fs_ops ext_ops = {
	.names = { "ext4", "ext3", "ext2", "ext4dev" },
	.probe = probe_ext,
	.fields = fields_ext,
	.facts = facts_ext,
	.refusal = refusal_ext,
	.image = &image,
	.counts_on_free = true,
	.single_files = true,
	.settle = ext4_settle,
	.can_shrink = true,
	.tells_mounts = true,
	.readonly_options = "ro,noload",
	.checker = "e2fsck -f",
	.owners = OWNERS_EXT,
	.keeps_inode_numbers = true,
};
