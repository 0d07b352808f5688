/* SPDX-License-Identifier: MIT */
/*
 * A seal at the instant at which the image is whole (struct fs_instant).
 *
 * 	call -> the driver writes everything, then the block that says so
 * 	-> that write arrives here and is not answered -> seal -> answer -> the call ends
 *
 * btrfs: the write is that of the superblock. The next transaction is under way (overlap.c). The image
 * stays whole until an fsync writes a superblock with a log tree. So if there is nothing to write, the
 * seal looks at the superblock instead.
 *
 * ext, xfs: any moment will do. A mount replays the journal, and so does the map (xfs_space.h), or the commit (replayed.c).
 */
#include <errno.h>

#include "base/io.h"
#include "fs/fs_ops.h"
#include "volume/private.h"

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
	uint64_t blk = v->instant.watch.off_bytes / COW_BLK_BYTES;
	int r;

	if (!v->instant.now)
		return 0;
	r = unit ? view_read_live(v->view, blk, 1, unit) : -ENOMEM;
	return r < 0 ? r : v->instant.watch.is(unit) ? 0 : -EAGAIN;
}

bool instant_overlaps(const struct volume *v)
{
	const struct fs_instant *at = fs_ops(v->instant.kind)->instant;

	return at && at->overlaps && (v->instant.serving || at->any);
}
