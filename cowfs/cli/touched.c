/* SPDX-License-Identifier: MIT */
/* Which inodes differ between two views of a volume, for commands that take the list of files/copy.h. */
#include "cli/top.h"
#include "fs/fs_ops.h"

/* A commit in between has files that the blocks do not name, and so has what the replay of a view has written. */
bool touched_between(struct client *c, const struct view_mount *older, const struct view_mount *now,
		     struct sample *s, struct touched *ret)
{
	enum fs_owners how = fs_ops_named(now->fs_type)->owners;
	struct failure err;
	bool again;
	int e = 0;

	*ret = (struct touched){ 0 };
	if ((how != OWNERS_EXT && how != OWNERS_XFS) || older->unfrozen || now->unfrozen ||
	    top_runs(c, s, &again, &err) < 0 || again || older->generation != now->generation ||
	    s->generation_seq != now->generation)
		return false;
	if (how == OWNERS_XFS)
		e = touched_find_xfs(ret, older->dir_fd, now->dir_fd, now->time_s, &s->runs);
	else
		e = touched_find_ext(ret, older->disk_fd, now->disk, &s->runs, false, NULL);
	ret->changed = &s->runs;
	if (e == 0 && how == OWNERS_EXT) {
		view_mount_scattered(older);
		view_mount_scattered(now);
	}
	return true;
}
