/* SPDX-License-Identifier: MIT */
/*
 * Makes files of one mounted file system equal to those of another one of the same kind: content
 * with its holes, owner, mode, times, xattrs (ACLs, capabilities), inode flags, project id, hard
 * links among the copied files, device nodes, and folders with all that is in them.
 *
 * First a list of what differs is made (copy.c), then the target becomes what the list says (apply.c), and nothing
 * else is looked at. What only goes is removed first.
 *
 * Other users may own the folders of the target and change them meanwhile. All look-ups start at
 * descriptors, never follow a symbolic link and never enter another mount. A new file is made in a
 * folder of root with mode 0700 beside its place, and renamed when it is complete. No existing
 * inode is written to, except the owner, mode, times and xattrs of folders, if nobody can have put
 * another folder there. What is not on the list, in its place, is not deleted or replaced.
 */
#ifndef COWFS_FILES_COPY_H
#define COWFS_FILES_COPY_H

#include "files/walk.h"

enum copy_act {
	COPY_CREATE,  /* nothing is there */
	COPY_REPLACE, /* a new inode takes the place of another one */
	COPY_UPDATE,  /* a folder gets other metadata, or (trusted) a file is changed in place */
	COPY_REMOVE,
	COPY_SAME, /* a folder on the way, or a file with several names, which others may be links to */
};

struct copy_options {
	/* Nobody else changes the target: it is changed in place. */
	bool trusted;
	/*
	 * NULL, or the inodes that differed between both sides at one time. What changes after that is not looked for.
	 * copy_planned adds some.
	 */
	struct touched *touched;
	/*
	 * Both sides are an overlay (docs/BOOT.md, "A root that is an image"). upper_fd: the folder
	 * of the upper layer that from_fd shows; -1: it has none.
	 */
	bool overlay;
	int upper_fd;
	/* May be NULL. Not 0 (set by a signal handler): stop. The file under way is left as it
	 * was. */
	const volatile sig_atomic_t *stop;
	/* path cannot be, or was not, made equal. May be NULL. */
	void (*problem)(void *ctx, const char *path, int error, const char *what);
	void *ctx;
};

struct copy_report {
	uint64_t created, replaced, updated, removed, same, problems;
	uint64_t bytes; /* trusted: content that will be written, without holes */
	bool refused;	/* a file has what no copy can have */
};

struct copy;

/* The roots of both file systems, directories opened for reading; they stay the caller's. -ENOMEM. */
int copy_new(struct copy **ret, int from_fd, int to_fd, const struct copy_options *opt) MUST_CHECK;
void copy_free(struct copy *c);

/*
 * Puts on the list what differs. path: below both roots, "a/b" without "." and "..", or "" for the root itself.
 * Folders on the way to it that the target lacks are made, with their metadata and nothing else in them. A problem
 * with one file does not stop the others: the first one is returned. At once: -EINTR stopped, -ENOMEM. -ENOENT (no
 * problem is reported): path exists on neither side.
 */
int copy_plan(struct copy *c, const char *path) MUST_CHECK;
/*
 * Ends the list: all paths are on it. *ret: what copy_apply would do. Looks again for names of files that are made and have
 * further ones, which are hard links of nothing that is touched. -ENOMEM, -EINTR; opt.trusted: errors of copy_plan.
 */
int copy_planned(struct copy *c, struct copy_report *ret) MUST_CHECK;
/* The list, ascending by path. to: device and inode of what is there, and its type; ino 0: nothing. */
struct copy_to {
	dev_t dev;
	uint64_t ino;
	mode_t type;
};
void copy_each(const struct copy *c,
	       void (*each)(void *ctx, enum copy_act act, const char *path,
			    const struct copy_to *to),
	       void *ctx);
/* Calls each for files on the list that are replaced or removed and that have more names than the list has. */
int copy_other_names(struct copy *c, void (*each)(void *ctx, const char *path, uint64_t others),
		     void *ctx) MUST_CHECK;
/*
 * Does what the list says, once. The first problem is returned at the end; at once -EINTR, -ENOSPC, -EDQUOT, -EROFS,
 * -ENOMEM. Each file is then as before or as it should be. -EOPNOTSUPP: nothing was changed, because of report.refused. *ret: what was done.
 * Trusted, and with room for all that comes: large files that go keep their blocks until copy_free, so that nothing is written there if
 * the file system is synced before.
 */
int copy_apply(struct copy *c, struct copy_report *ret) MUST_CHECK;

#endif
