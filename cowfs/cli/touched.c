/* SPDX-License-Identifier: MIT */
/* Which inodes differ between two views of a volume. */
#include <errno.h>

#include "cli/top.h"
#include "fs/fs_ops.h"

static int find_inodes(const struct view_mount *older, const struct view_mount *now,
		       const struct extents *runs, struct touched *ret)
{
	bool xfs = fs_ops_named(now->fs_type)->owners == OWNERS_XFS;
	struct owners w;
	int e = xfs ? owners_xfs(&w, older->dir_fd, now->dir_fd, now->time_s)
		    : owners_btrfs(&w, older->dir_fd, &older->btrfs, now->dir_fd, &now->btrfs);

	/* addresses of a btrfs are none of its disk */
	return e < 0 ? -EOPNOTSUPP : touched_of(ret, &w, xfs ? runs : NULL, xfs);
}

int touched_find(const struct view_mount *older, const struct view_mount *now,
		 const struct extents *runs, bool names, const struct diff_progress *progress,
		 struct touched *ret)
{
	enum fs_owners how = fs_ops_named(now->fs_type)->owners;
	/* what a replay of the view has written is not in its blocks */
	bool by_blocks = runs && !older->replays && !now->replays;
	int e;

	if (how == OWNERS_XFS || (how == OWNERS_BTRFS && runs))
		return find_inodes(older, now, by_blocks ? runs : NULL, ret);
	if (how != OWNERS_EXT || !by_blocks)
		return -EOPNOTSUPP;
	e = touched_find_ext(ret, older->disk_fd, now->disk, runs, names, progress);
	if (e == 0) {
		view_mount_scattered(older);
		view_mount_scattered(now);
	}
	return e;
}

/* A commit in between has files that the blocks do not name. */
bool touched_between(struct client *c, const struct view_mount *older, const struct view_mount *now,
		     struct sample *s, struct touched *ret)
{
	struct failure err;
	bool again;

	*ret = (struct touched){ 0 };
	return !older->replays && !now->replays && top_runs(c, s, &again, &err) == 0 && !again &&
	       older->generation == now->generation && s->generation_seq == now->generation &&
	       touched_find(older, now, &s->runs, false, NULL, ret) == 0;
}
