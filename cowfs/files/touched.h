/* SPDX-License-Identifier: MIT */
/*
 * Where two states of a file system can differ: a list that is complete, and that a comparison of the
 * mounted states needs not go beyond. Made from the blocks that changed, without a look at the names of
 * the older state.
 */
#ifndef COWFS_FILES_TOUCHED_H
#define COWFS_FILES_TOUCHED_H

#include "fs/owners.h"

struct touched {
	/* ascending by path; paths of the new state, "a/b" */
	struct owners w;
	size_t *by_ino; /* their indexes, ascending by inode; NULL: inode numbers mean nothing */
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
/* Adds a path by hand, and then makes the list usable. -ENOMEM. */
int touched_add(struct touched *t, const char *path) MUST_CHECK;
void touched_sort(struct touched *t);
void touched_clear(struct touched *t);

/* The index of the first path from path on, in the order of the list; t->w.n: there is none. */
size_t touched_at(const struct touched *t, const char *path);
/* Is path on the list, or something below it? */
bool touched_within(const struct touched *t, const char *path);
/* enum owner_differs of path itself, 0: it is not on the list */
unsigned touched_path(const struct touched *t, const char *path);
/* A name of the inode, or NULL */
const struct owner *touched_ino(const struct touched *t, uint64_t ino);

/* An extent of a file, in bytes. Set fd. */
struct touched_place {
	int fd;
	uint64_t off, end, at; /* at: on the device */
	bool known, zeros;
};

/*
 * Where the part of two files from off on ends that lies on the same blocks in both, of which none changed;
 * off: it is to be read. Both are files of views of one device.
 */
uint64_t touched_same_until(struct touched_place *a, struct touched_place *b, uint64_t off,
			    const struct extents *changed);

#endif
