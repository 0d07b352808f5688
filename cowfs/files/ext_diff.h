/* SPDX-License-Identifier: MIT */
/*
 * Differences by file between two states of an ext2/3/4, from the blocks that may differ. The work
 * depends on the change, with one exception: the name of a file whose inode changed and whose name
 * did not is found by a look at all directories (not at their files).
 */
#ifndef COWFS_FILES_EXT_DIFF_H
#define COWFS_FILES_EXT_DIFF_H

#include "files/diff.h"
#include "fs/extents.h"
#include "fs/fsinfo.h"

struct diff_progress {
	/* phase is a word; total 0: not known. May be NULL. */
	void (*show)(void *ctx, const char *phase, uint64_t done_bytes, uint64_t total_bytes);
	void *ctx;
};

struct ext_live;
struct ext_live_source;

/*
 * live: the mounted file system, or NULL (ext_live.h). changed: every unit of 4 KiB in which both
 * states may differ, ascending, except units that no file uses in the new state. Adds to *ret,
 * unsorted; on failure ret is to be cleared as well.
 * -EOPNOTSUPP: not ext2/3/4, features that libext2fs does not know, a journal to replay, or both
 * states are not of one layout. -EUCLEAN: damaged; -ENOMEM, or a reader's error.
 */
int ext_diff(struct diff *ret, const struct blk_reader *old_state,
	     const struct blk_reader *new_state, const struct extents *changed,
	     const struct ext_live_source *live, const struct diff_progress *progress) MUST_CHECK;
/*
 * The same in a boxed child (base/boxed.h), for two descriptors of devices. live: a whole mount, of
 * which the caller asks the names. -EOWNERDEAD: boxed_error.
 */
int ext_diff_boxed(struct diff *ret, int old_fd, int new_fd, const struct extents *changed,
		   struct ext_live *live, const struct diff_progress *progress) MUST_CHECK;

#endif
