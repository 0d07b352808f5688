/* SPDX-License-Identifier: MIT */
/*
 * Differences by file between two mounted trees, by a walk of both in step: for any file system. It
 * reads the content of a file only if its times, size or owner differ. Both must not change
 * meanwhile.
 */
#ifndef COWFS_FILES_WALK_H
#define COWFS_FILES_WALK_H

#include "files/diff.h"
#include "files/touched.h"

/*
 * Descriptors of both roots. Does not enter other mounts. ids: the inode number of a file is the
 * same in both trees (not so for vfat); without it there are no renames.
 * touched: NULL, or where both can differ: then only touched directories are listed. Without inode
 * numbers in it numbers of directories are not compared, and those on the way are listed, too. Adds to
 * *ret, unsorted; on failure ret is to be cleared as well. 0 or -errno.
 */
int walk_diff(struct diff *ret, int old_root_fd, int new_root_fd, bool ids,
	      const struct touched *touched, const struct diff_progress *progress) MUST_CHECK;

#endif
