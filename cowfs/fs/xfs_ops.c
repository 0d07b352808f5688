// SPDX-License-Identifier: MIT
/* The entry of XFS. */
#include <errno.h>
#include <string.h>

#include "fs/fs_ops.h"
#include "fs/xfs_space.h"

static bool probe_xfs(const struct supers *s, struct fsinfo *f)
{
	const uint8_t *sb = s->head;
	uint64_t block_bytes = be_at(sb, 4, 4);

	if (memcmp(sb, "XFSB", 4) || !pow2_between(block_bytes, 512, 65536))
		return false;
	f->block_bytes = (uint32_t)block_bytes;
	f->size_bytes = size_of_blocks(be_at(sb, 8, 8), block_bytes);
	memcpy(f->uuid, sb + 32, sizeof(f->uuid));
	f->has_metadata_uuid = (be_at(sb, 100, 2) & 0xf) == 5; /* sb_versionnum */
	/* sb_features_incompat, sb_meta_uuid, sb_uuid */
	memcpy(f->metadata_uuid, sb + (be_at(sb, 216, 4) & 4 ? 248 : 32), 16);
	f->external_log = !be_at(sb, 48, 8); /* sb_logstart */
	f->realtime = be_at(sb, 16, 8);	     /* sb_rblocks */
	return true;
}

/* the free space, inodes and free list of the first group */
static bool looks_written_xfs(const uint8_t *sector, unsigned k)
{
	(void)k;
	return !memcmp(sector, "XAGF", 4) || !memcmp(sector, "XAGI", 4) ||
	       !memcmp(sector, "XAFL", 4);
}

static const char *refusal_xfs(const struct fsinfo *f)
{
	if (f->external_log)
		return "the log of its XFS is on another device, which cannot be committed together with this one. "
		       "Make an XFS with an internal log";
	if (f->realtime)
		return "its XFS has a realtime section, which cannot be committed together with the rest. "
		       "Make an XFS without one";
	return NULL;
}

static int open_xfs(void **ret, const struct blk_reader *r, unsigned ask, struct fsimage_facts *f)
{
	struct xfs_space *x;
	uint64_t units;
	int err = xfs_space_open(&x, r, &units);

	(void)ask;
	if (err)
		return err;
	*f = fsimage_windows(r, units);
	*ret = x;
	return 0;
}

static int group_xfs(void *image, uint64_t nr, uint64_t blocks, uint8_t *bits)
{
	uint64_t first, units = fsimage_window(nr, blocks, &first, bits);

	return units ? xfs_space_used(image, first, units, bits) : -EINVAL;
}

static void close_xfs(void *image)
{
	xfs_space_close(image);
}

static const struct fsimage_ops image = {
	.open = open_xfs,
	.group = group_xfs,
	.close = close_xfs,
	.reads_blks = FSIMAGE_READS_TREES_BLKS,
};

const struct fs_ops xfs_ops = {
	.names = { "xfs" },
	.probe = probe_xfs,
	.looks_written = looks_written_xfs,
	.refusal = refusal_xfs,
	.image = &image,
	.single_files = true,
	.log_hides = true,
	.crash_safe = true,
	.readonly_options = "ro,norecovery",
	.checker = "xfs_repair",
	.owners = OWNERS_XFS,
	.keeps_inode_numbers = true,
};
