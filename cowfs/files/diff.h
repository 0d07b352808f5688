/* SPDX-License-Identifier: MIT */
/*
 * Differences between two states of a file system, "old" and "new", file by file. How they are found
 * depends on the file system: touched.h, walk.h. What they have found is put together here.
 *
 * Access and change times, the numbers of links and of blocks are not compared. A directory has no
 * content; its modification time counts only if no name in it changed.
 */
#ifndef COWFS_FILES_DIFF_H
#define COWFS_FILES_DIFF_H

#include <sys/types.h>

#include "base/util.h"

enum diff_kind {
	DIFF_ADDED,
	DIFF_DELETED,
	DIFF_CHANGED, /* content, perhaps metadata as well */
	DIFF_META,    /* metadata only */
	DIFF_RENAMED, /* what: changed as well */
	DIFF_KINDS
};

/* What differs between the two states of a file. */
enum diff_what {
	DIFF_CONTENT = 1, /* of a regular file, a symbolic link, a device node */
	DIFF_MODE = 2,
	DIFF_OWNER = 4, /* user or group */
	DIFF_TIME = 8,	/* of the last modification */
	DIFF_XATTR = 16,
	DIFF_ACL = 32,
	DIFF_FLAGS = 64 /* of chattr(1), project id */
};
#define DIFF_LETTERS "cpotxaf" /* of these bits, in this order */

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

/* A name that exists in one state only. */
struct diff_name {
	uint64_t ino, gen; /* the same file in both states has the same; ino 0: not comparable */
	mode_t type;
	uint64_t size_bytes;
	char *path;
};

struct diff_names {
	struct diff_name *n;
	size_t count, cap;
};

/*
 * Compares the files of two names. ret_what: enum diff_what. May change *old_name, *new_name only by
 * filling in sizes. 0 or -errno, which diff_match returns.
 */
typedef int diff_compare(void *ctx, struct diff_name *old_name, struct diff_name *new_name,
			 unsigned *ret_what);

/* Takes path, also on failure. -ENOMEM. */
int diff_names_add(struct diff_names *x, struct diff_name name) MUST_CHECK;
void diff_names_clear(struct diff_names *x);

/* Adds a file that has the same name in both states. what 0: adds nothing. Takes path. -ENOMEM. */
int diff_add_changed(struct diff *d, mode_t type, unsigned what, char *path, uint64_t old_bytes,
		     uint64_t new_bytes) MUST_CHECK;
/*
 * Makes renames of names in gone and added that belong to one file, changed files of those with one
 * path and one type, and deletions and additions of the rest. A file that moved along with its
 * directory is no rename. Empties both lists, also on failure. Adds to d.
 */
int diff_match(struct diff *d, struct diff_names *gone, struct diff_names *added,
	       diff_compare *compare, void *ctx) MUST_CHECK;
/* Ascending by path. */
void diff_sort(struct diff *d);
/* Is path dir, or below it? dir "": all are. */
bool diff_is_below(const char *path, const char *dir);
/* Keeps only files with a path or a from for which keep() is true. */
void diff_filter(struct diff *d, bool (*keep)(void *ctx, const char *path), void *ctx);
void diff_clear(struct diff *d);

#endif
