/* SPDX-License-Identifier: MIT */
/*
 * Finds where two states of a file system, OLD and NEW, can differ: a list of what is touched, made from the blocks
 * that changed, and a walk of both mounted trees in step, which goes where the list says, or everywhere.
 */
#ifndef COWFS_FILES_WALK_H
#define COWFS_FILES_WALK_H

#include "files/node.h"
#include "fs/owners.h"

/* ---- the list, made without a look at the names of the older state ---- */

struct touched {
	/* ascending by path; paths of the new state, "a/b" */
	struct owners w;
	bool names;	/* w has paths: nothing else is touched */
	size_t *by_ino; /* their indexes, ascending by inode; NULL: inode numbers mean nothing */
	bool unique;	/* by_ino: a number is that of one file, not of one in each subvolume */
	/* the blocks that may differ; NULL: files do not lie on blocks */
	const struct extents *changed;
};

/* phase is a word; total 0: not known. May be NULL. */
struct diff_progress {
	void (*show)(void *ctx, const char *phase, uint64_t done_bytes, uint64_t total_bytes);
	void *ctx;
};

/*
 * For ext2/3/4: disks of both states, which hold still. changed: every unit of 4 KiB in which they may
 * differ, ascending, except units that no file uses in the new state; it stays the caller's. Reads in a
 * boxed child. names false: only touched_ino is for use then, and most of the tables need not be read.
 * Errors of owners_ext_boxed.
 */
int touched_find_ext(struct touched *ret, int old_fd, const char *new_device,
		     const struct extents *changed, bool names,
		     const struct diff_progress *progress) MUST_CHECK;
/* Takes *w, inodes without names: only touched_ino is for use then. changed: as above, or NULL. -ENOMEM. */
int touched_of(struct touched *ret, const struct owners *w, const struct extents *changed,
	       bool unique) MUST_CHECK;
/* Adds a path by hand, and then makes the list usable. -ENOMEM. */
int touched_add(struct touched *t, const char *path) MUST_CHECK;
void touched_sort(struct touched *t);
/* Adds an inode, which is touched after the next touched_sort_inodes: that clears *t on failure. -ENOMEM. */
int touched_add_inode(struct touched *t, uint64_t ino) MUST_CHECK;
int touched_sort_inodes(struct touched *t) MUST_CHECK;
void touched_clear(struct touched *t);
/* A name of the inode, or NULL */
const struct owner *touched_ino(const struct touched *t, uint64_t ino);

/* The order of a walk: what lies below a directory follows it at once. */
int path_order(const char *a, const char *b);
/* Is path dir, or below it? dir "": all are. */
bool path_is_below(const char *path, const char *dir);

/* ---- the walk ---- */

enum side { OLD, NEW };

/* One name, or one directory that has two. */
struct found {
	const char *path[2]; /* NULL: not in this state */
	struct node node[2]; /* fd -1: not in this state */
	bool all;	     /* all that is below may differ */
	bool other;	     /* set by visit: the name is of two files */
};

struct walk {
	int root_fd[2];
	const struct touched *touched; /* NULL: everything */
	const struct diff_progress *progress;
	const volatile sig_atomic_t *stop; /* not 0: -EINTR; may be NULL */
	/* Untouched directories are gone into without a visit. */
	bool passes;
	/* Of each name. A directory is gone into if walk_into is called of it, or walk_wait. */
	int (*visit)(struct walk *w, struct found *f);
	/* Of a directory that was gone through in both, unless it was renamed or is untouched; names: differ. May be NULL. */
	int (*left)(struct walk *w, const char *old_path, const char *new_path, bool names);
	/* A file or folder that cannot be opened: 0 to go on. */
	int (*failed)(struct walk *w, const char *path, int e);
	/* its own */
	struct waiting *w;
	size_t n, cap;
	uint64_t seen;
};

/* Visits one name. */
int walk_name(struct walk *w, const char *old_path, const char *new_path, bool all,
	      bool *ret_other) MUST_CHECK;
/* Goes into what was found, in both states (together: it is one directory) or each by itself. */
int walk_into(struct walk *w, struct found *f, bool together) MUST_CHECK;
/* A NULL path: not in this state. same: has the same names of the same files */
int walk_wait(struct walk *w, const char *old_path, const char *new_path, bool renamed, bool all,
	      bool same) MUST_CHECK;
/* Until nothing waits. 0, -EINTR, -ENOMEM, or what visit and failed return. */
int walk_run(struct walk *w) MUST_CHECK;
/* Do both directories have the same names of the same files? */
int walk_names_differ(const struct walk *w, const char *old_dir, const char *new_dir,
		      bool *ret) MUST_CHECK;

#endif
