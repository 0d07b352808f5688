/* SPDX-License-Identifier: MIT */
/*
 * Differences between two states of a file system, "old" and "new", file by file. How they are found
 * depends on the file system: walk.h. What was found is put together here.
 *
 * Access and change times, the numbers of links and of blocks are not compared. A directory has no
 * content; its modification time counts only if no name in it changed.
 */
#ifndef COWFS_FILES_DIFF_H
#define COWFS_FILES_DIFF_H

#include <sys/types.h>

#include "files/walk.h"

enum diff_kind {
	DIFF_ADDED,
	DIFF_DELETED,
	DIFF_CHANGED, /* content, perhaps metadata as well */
	DIFF_META,    /* metadata only */
	DIFF_RENAMED, /* what: changed as well */
	DIFF_KINDS
};

struct diff_file {
	enum diff_kind kind;
	unsigned what; /* enum diff_what; 0 if added or deleted */
	mode_t type;   /* S_IFMT bits, of the new state if there is one */
	/* both from the root, "a/b", bytes as they are; "" is the root itself */
	char *path;		       /* in the new state; of a deleted file in the old one */
	char *from;		       /* of a renamed file: in the old state; else NULL */
	uint64_t old_bytes, new_bytes; /* sizes; 0 where there is none */
};

struct diff {
	struct diff_file *f;
	size_t n, cap;
	/* names left out: no system call takes a path as long as theirs. A walk does not look
	 * below them. */
	uint64_t too_long;
};

/*
 * Compares two mounted trees, which must not change meanwhile: descriptors of both roots. Does not enter other
 * mounts. Reads the content of a file only if its times, size or owner differ. ids: the inode number of a file is the
 * same in both trees (not so for vfat); without it there are no renames.
 * touched: NULL, or where both can differ: then only touched directories are listed. Without inode
 * numbers in it numbers of directories are not compared, and those on the way are listed, too. Adds to
 * *ret, unsorted; on failure ret is to be cleared as well. 0 or -errno.
 */
int walk_diff(struct diff *ret, int old_root_fd, int new_root_fd, bool ids,
	      const struct touched *touched, const struct diff_progress *progress) MUST_CHECK;
/* Ascending by path. */
void diff_sort(struct diff *d);
/* Keeps only files with a path or a from for which keep() is true. */
void diff_filter(struct diff *d, bool (*keep)(void *ctx, const char *path), void *ctx);
void diff_clear(struct diff *d);

#endif
