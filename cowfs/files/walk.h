/* SPDX-License-Identifier: MIT */
/*
 * Differences by file between two mounted trees, by a walk of both in step: for any file system. It
 * reads the content of a file only if its times, size or owner differ. Both must not change
 * meanwhile.
 */
#ifndef COWFS_FILES_WALK_H
#define COWFS_FILES_WALK_H

#include "files/diff.h"
#include "files/ext_diff.h"

/* Can path differ, or something below it? */
struct walk_filter {
	bool (*wanted)(void *ctx, const char *path);
	void *ctx;
};

/*
 * Descriptors of both roots. Does not enter other mounts. ids: the inode number of a file is the
 * same in both trees (not so for vfat); without it there are no renames.
 * filter: NULL for all names; with it, numbers of directories are not compared. Adds to *ret, unsorted; on
 * failure ret is to be cleared as well. 0 or -errno.
 */
int walk_diff(struct diff *ret, int old_root_fd, int new_root_fd, bool ids,
	      const struct walk_filter *filter, const struct diff_progress *progress) MUST_CHECK;

#endif
