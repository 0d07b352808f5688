/* SPDX-License-Identifier: MIT */
/*
 * Makes files of one mounted file system equal to those of another one of the same kind: content
 * with its holes, owner, mode, times, xattrs (ACLs, capabilities), inode flags, project id, hard
 * links among the copied files, device nodes, and folders with all that is in them.
 *
 * Other users may own the folders of the target and change them meanwhile. All look-ups start at
 * descriptors, never follow a symbolic link and never enter another mount. A new file is made in a
 * folder of root with mode 0700 beside the target, and renamed when it is complete. No existing
 * inode is written to, except the owner, mode, times and xattrs of folders, if nobody can have put
 * another folder there. What copy_plan() has not seen in its place is not deleted or replaced.
 */
#ifndef COWFS_FILES_COPY_H
#define COWFS_FILES_COPY_H

#include <signal.h>
#include <sys/stat.h>

#include "base/util.h"
#include "files/touched.h"

enum copy_act {
	COPY_CREATE,  /* nothing is there */
	COPY_REPLACE, /* a new inode takes the place of another one */
	COPY_UPDATE,  /* a folder gets other metadata, or (trusted) a file is changed in place */
	COPY_REMOVE,
};

struct copy_options {
	/* Nobody else changes the target: a file with one name is changed in place, no plan is
	 * needed. */
	bool trusted;
	/*
	 * NULL, or what differs between both sides, by inode: a file with the same number on both that is not
	 * in it is not looked at. Only for trusted.
	 */
	const struct touched *touched;
	/*
	 * Both sides are an overlay (docs/BOOT.md, "A root that is an image"). upper_fd: the folder
	 * of the upper layer that from_fd shows; -1: it has none.
	 */
	bool overlay;
	int upper_fd;
	/* May be NULL. Not 0 (set by a signal handler): stop. The file under way is left as it
	 * was. */
	const volatile sig_atomic_t *stop;
	/* For each change, before it is made or when it is planned. to: what is there, NULL:
	 * nothing. May be NULL. */
	void (*each)(void *ctx, enum copy_act act, const char *path, const struct statx *to);
	/* path was not made equal. May be NULL. */
	void (*problem)(void *ctx, const char *path, int error, const char *what);
	void *ctx;
};

struct copy_report {
	uint64_t created, replaced, updated, removed, same, problems;
	uint64_t bytes; /* content of files that are created or replaced, without holes */
};

struct copy;

/* The roots of both file systems, directories opened for reading; they stay the caller's. -ENOMEM. */
int copy_new(struct copy **ret, int from_fd, int to_fd, const struct copy_options *opt) MUST_CHECK;
void copy_free(struct copy *c);

/*
 * path: below both roots, "a/b" without "." and "..", or "" for the root itself. Folders on the way
 * to it that the target lacks are made, with their metadata and nothing else in them.
 *
 * copy_plan only finds out what copy_apply would do. A problem with one file does not stop the
 * others: the first one is returned at the end. At once: -EINTR stopped, -ENOSPC, -EDQUOT, -EROFS,
 * -ENOMEM. -ENOENT (no problem is reported): path exists on neither side. Each file is then as
 * before or as it should be. copy_plan for all paths comes first, then copy_apply for each.
 */
int copy_plan(struct copy *c, const char *path) MUST_CHECK;
int copy_apply(struct copy *c, const char *path) MUST_CHECK;
/* Of all copy_plan calls, or, once copy_apply was called, of those. */
void copy_report(const struct copy *c, struct copy_report *ret);
/* Calls each for files that the plan replaces or removes and that have more names than it does. */
void copy_other_names(const struct copy *c,
		      void (*each)(void *ctx, const char *path, uint64_t others), void *ctx);

#endif
