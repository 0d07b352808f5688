/* SPDX-License-Identifier: MIT */
/*
 * See shrink_mark.h. Why two tags: the superblock has two sectors, and a power cut may leave either
 * of them old or new. The tags are in the second sector and describe the first, so each of the four
 * mixtures is recognised.
 */
#include "fs/shrink_mark.h"

#include <blkid.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/boxed.h"
#include "base/bytes.h"
#include "base/crc32c.h"
#include "base/io.h"
#include "fs/ext4.h"
#include "fs/fsproc.h"

#define SECTOR_BYTES 512u
#define SB_TAGS (offsetof(struct ext2_super_block, s_checksum) - sizeof(struct shrink_marks))
#define LOOK_BYTES MIB /* at either end of the device */

_Static_assert(offsetof(struct ext2_super_block, s_checksum) == 0x3fc, "the superblock's layout");
_Static_assert(SB_TAGS >= offsetof(struct ext2_super_block, s_reserved) + SECTOR_BYTES / 2,
	       "room for kernels to come");

static bool is_ext(const uint8_t *sb)
{
	return SB_GET(sb, s_magic) == EXT2_SUPER_MAGIC;
}

bool shrink_mark_is_ext(const uint8_t blk0[COW_BLK_BYTES])
{
	return is_ext(blk0 + EXT_SB);
}

void shrink_mark_make(const uint8_t blk0[COW_BLK_BYTES], const uint8_t ring_uuid[16],
		      uint8_t ret[SHRINK_MARK_BYTES])
{
	uint8_t text[16 + SECTOR_BYTES], sum[EXT2FS_SHA512_LENGTH];

	memcpy(text, ring_uuid, 16);
	memcpy(text + 16, blk0 + EXT_SB, SECTOR_BYTES);
	ext2fs_sha512(text, sizeof(text), sum);
	memcpy(ret, sum, SHRINK_MARK_BYTES);
}

struct shrink_marks shrink_mark_get(const uint8_t blk0[COW_BLK_BYTES])
{
	struct shrink_marks t;

	memcpy(&t, blk0 + EXT_SB + SB_TAGS, sizeof(t));
	return t;
}

void shrink_mark_put(uint8_t blk0[COW_BLK_BYTES], const struct shrink_marks *t)
{
	uint8_t *sb = blk0 + EXT_SB;

	memcpy(sb + SB_TAGS, t, sizeof(*t));
	if (SB_GET(sb, s_feature_ro_compat) & EXT4_FEATURE_RO_COMPAT_METADATA_CSUM)
		SB_SET(sb, s_checksum,
		       ~crc32c(0, sb, offsetof(struct ext2_super_block, s_checksum)));
}

enum shrink_mark shrink_mark_look(const uint8_t blk0[COW_BLK_BYTES], const uint8_t ring_uuid[16])
{
	struct shrink_marks t = shrink_mark_get(blk0);
	uint8_t want[SHRINK_MARK_BYTES];

	if (!is_ext(blk0 + EXT_SB) || bytes_all_zero(&t, sizeof(t)))
		return SHRINK_MARK_NONE;
	shrink_mark_make(blk0, ring_uuid, want);
	return !memcmp(want, t.of_old, SHRINK_MARK_BYTES) ||
			       !memcmp(want, t.of_new, SHRINK_MARK_BYTES)
		       ? SHRINK_MARK_MATCH
		       : SHRINK_MARK_STALE;
}

/* ---- without a superblock ---- */

int shrink_mark_backup_end(const struct blk_reader *r, uint64_t *ret_bytes)
{
	_cleanup_free_ uint8_t *blk = io_alloc(COW_BLK_BYTES);

	*ret_bytes = 0;
	if (!blk)
		return -ENOMEM;
	/* the second group begins after as many blocks as a bitmap block has bits */
	for (unsigned log = 0; log <= 6; log++) {
		uint64_t block_bytes = 1024ull << log, off = (8 * block_bytes + !log) * block_bytes,
			 blocks, end;
		const uint8_t *sb = blk + off % COW_BLK_BYTES;
		int e;

		if (off / COW_BLK_BYTES >= r->volume_blks)
			break;
		e = r->read(r->ctx, off / COW_BLK_BYTES, 1, blk);
		if (e < 0)
			return e;
		if (!is_ext(sb) || SB_GET(sb, s_log_block_size) != log ||
		    SB_GET(sb, s_block_group_nr) != 1)
			continue;
		blocks = SB_GET(sb, s_blocks_count);
		if (SB_GET(sb, s_feature_incompat) & EXT4_FEATURE_INCOMPAT_64BIT)
			blocks |= SB_GET(sb, s_blocks_count_hi) << 32;
		if (!__builtin_mul_overflow(blocks, block_bytes, &end) && end &&
		    (!*ret_bytes || end < *ret_bytes))
			*ret_bytes = end;
	}
	return 0;
}

/*
 * Fills fd for libblkid, which needs a descriptor: a sparse file of the device's size that has both
 * ends of the device.
 */
static int copy_ends(const struct blk_reader *r, int fd)
{
	_cleanup_free_ void *buf = io_alloc(LOOK_BYTES);
	uint64_t n = min_u64(LOOK_BYTES / COW_BLK_BYTES, r->volume_blks),
		 at[2] = { 0, r->volume_blks - n };

	if (!buf)
		return -ENOMEM;
	if (ftruncate(fd, (off_t)blk_to_bytes(r->volume_blks)) < 0)
		return -errno;
	for (int i = 0; i < 2; i++) {
		int e = r->read(r->ctx, at[i], n, buf);

		if (e == 0)
			e = io_pwrite_full(fd, buf, blk_to_bytes(n), blk_to_bytes(at[i]));
		if (e < 0)
			return e;
	}
	return 0;
}

struct search {
	blkid_probe pr;
	char **types; /* the only superblocks that count; NULL: anything counts, also a partition table */
	bool found;
};

static int look(void *ctx, struct boxed *b)
{
	struct search *x = ctx;

	blkid_probe_enable_superblocks(x->pr, 1);
	blkid_probe_enable_partitions(x->pr, !x->types);
	if (x->types)
		blkid_probe_filter_superblocks_type(x->pr, BLKID_FLTR_ONLYIN, x->types);
	/* 0: found, 1: nothing found; with several results (-2) or an error, something is there */
	x->found = blkid_do_safeprobe(x->pr) != 1;
	if (b)
		boxed_say(b, &x->found, sizeof(x->found));
	return 0;
}

static int hear(void *ctx, const void *message, size_t bytes)
{
	((struct search *)ctx)->found = bytes && *(const uint8_t *)message;
	return 0;
}

static int find_signature(const struct blk_reader *r, char *types[], bool *ret)
{
	_cleanup_close_ int fd = memfd_create("ends", MFD_CLOEXEC);
	struct search x = { .pr = fd < 0 ? NULL : blkid_new_probe(), .types = types };
	const struct boxed_job job = {
		.work = look, .hear = hear, .ctx = &x, .fd = { fd }, .fds = 1
	};
	int e = x.pr ? copy_ends(r, fd) : -ENOMEM;

	if (e == 0 &&
	    blkid_probe_set_device(x.pr, fd, 0, (blkid_loff_t)blk_to_bytes(r->volume_blks)) < 0)
		e = -EIO;
	/* the worker of a daemon has no system calls to fork with */
	if (e == 0)
		e = fsproc_may_fork() ? boxed_run(&job) : look(&x, NULL);
	if (e == 0)
		*ret = x.found;
	blkid_free_probe(x.pr);
	return e;
}

int shrink_mark_signature(const struct blk_reader *r, bool *ret)
{
	return find_signature(r, NULL, ret);
}

int shrink_mark_member(const struct blk_reader *r, bool *ret)
{
	/* not what the RAID of a BIOS leaves on a whole disk: on a partition it means nothing */
	static char *types[] = { (char *)"linux_raid_member", (char *)"drbd", NULL };

	return find_signature(r, types, ret);
}
