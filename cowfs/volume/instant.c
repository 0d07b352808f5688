/* SPDX-License-Identifier: MIT */
/*
 * A seal at the instant at which the image is whole (struct fs_instant).
 *
 * 	call -> the driver writes everything, then the block that says so
 * 	-> that write arrives here and is not answered -> seal -> answer -> the call ends
 *
 * ext: the call empties the journal. Until the answer the driver begins no transaction, so the sealed
 * bitmaps are those of the live file system, as in a freeze. Unlike a freeze, the call writes no
 * superblock: its copy in the sealed image still asks for recovery, and has old numbers of free blocks.
 * Only the sealed copy is changed. The live file system must keep its own: a mount throws away the
 * journal of a superblock that does not ask for recovery.
 *
 * btrfs: the write is that of the superblock. The next transaction is under way (overlap.c). The image
 * stays whole until an fsync writes a superblock with a log tree. So if there is nothing to write, the
 * seal looks at the superblock instead.
 *
 * Mounted read-only, an ext file system has no transaction: it is whole as long as its superblock calls it
 * clean. A mount or a remount to read-write writes the superblock before anything else.
 *
 * xfs: any moment will do. Its log is replayed by the next mount, and by the map (xfs_space.h).
 */
#include <errno.h>

#include "base/io.h"
#include "fs/fs_ops.h"
#include "volume/private.h"

#define SUPER_BLK 0 /* of the file systems that have such a call */

static void seen(void *ctx)
{
	struct volume *v = ctx;
	uint64_t begin_ns = now_ns();

	v->instant.serving = true;
	v->instant.result = v->instant.seal(v);
	v->instant.serving = false;
	v->instant.held_ns = now_ns() - begin_ns;
}

void instant_prepare(struct volume *v, const struct fsinfo *live, int (*seal)(void *ctx))
{
	enum fs_kind kind = live ? live->kind : FS_UNKNOWN;
	const struct fs_instant *at = fs_ops(kind)->instant;

	v->instant = (struct instant){ .kind = kind, .seal = seal };
	if (at && !at->any)
		v->instant.watch = (struct view_watch){ .off_bytes = live->instant_bytes,
							.len_bytes = at->len_bytes,
							.is = at->is,
							.seen = seen,
							.ctx = v };
}

int instant_watch(void *ctx, enum quiesce_watch watch)
{
	struct volume *v = ctx;

	if (watch == QUIESCE_BEGIN) {
		v->instant.result = -EAGAIN;
		view_watch(v->view, &v->instant.watch);
		return 0;
	}
	view_unwatch(v->view);
	return v->instant.result;
}

int instant_now(void *ctx)
{
	struct volume *v = ctx;

	v->instant.now = true;
	seen(v);
	v->instant.now = false;
	return v->instant.result;
}

int instant_between(void *ctx)
{
	struct volume *v = ctx;
	_cleanup_free_ uint8_t *unit = v->instant.now ? io_alloc(COW_BLK_BYTES) : NULL;
	const struct fs_ops *ops = fs_ops(v->instant.kind);
	uint64_t blk = v->instant.watch.off_bytes / COW_BLK_BYTES;
	int r;

	if (!v->instant.now)
		return 0;
	r = unit ? view_read_live(v->view, ops->is_clean ? SUPER_BLK : blk, 1, unit) : -ENOMEM;
	if (r < 0)
		return r;
	return (ops->is_clean ? ops->is_clean : v->instant.watch.is)(unit) ? 0 : -EAGAIN;
}

bool instant_overlaps(const struct volume *v)
{
	const struct fs_instant *at = fs_ops(v->instant.kind)->instant;

	return at && at->overlaps && (v->instant.serving || at->any);
}

uint64_t instant_kept_blk(const struct volume *v)
{
	return fs_ops(v->instant.kind)->settle && !v->instant.now ? SUPER_BLK : VIEW_KEEP_NONE;
}

static int read_sealed(void *ctx, uint64_t blk, uint64_t blks, void *buf)
{
	return view_read_sealed(ctx, blk, blks, buf);
}

int instant_settle(struct volume *v)
{
	_cleanup_free_ uint8_t *unit = io_alloc(COW_BLK_BYTES);
	const struct blk_reader sealed = { .read = read_sealed,
					   .ctx = v->view,
					   .volume_blks = v->volume_blks };
	int r = unit ? fsinfo_settle(&sealed, v->instant.kind, unit) : -ENOMEM;

	/* damage and a reader that died are found again, and reported, when the image is classified */
	if (r == -EUCLEAN || r == -EOPNOTSUPP || r == -EOWNERDEAD)
		return 0;
	return r == 0 ? view_patch_sealed(v->view, SUPER_BLK, unit) : r;
}
