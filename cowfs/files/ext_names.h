/* SPDX-License-Identifier: MIT */
/* Private to files/: paths in one state of an ext2/3/4, and names of inodes. */
#ifndef COWFS_FILES_EXT_NAMES_H
#define COWFS_FILES_EXT_NAMES_H

#include "base/array.h"
#include "files/ext_side.h"

struct ext_entry {
	uint32_t dir, ino;
	uint64_t text; /* offset in the pool */
};

struct ext_entries {
	struct ext_entry *e;
	size_t n, cap;
};

/* Names of one state: those of directories, by inode number. Zero-initialise. */
struct ext_names {
	struct ext_side *s;
	struct ext_entry *dir; /* a hash table by ino; ino 0: free */
	size_t dirs, dir_cap;
	uint8_t *listed; /* a bit for each inode: the directories in it are in the table */
	struct text_pool pool;
};

int ext_names_init(struct ext_names *ret, struct ext_side *s) MUST_CHECK;
void ext_names_clear(struct ext_names *x);

static inline const char *ext_names_text(const struct ext_names *x, const struct ext_entry *e)
{
	return x->pool.text + e->text;
}

/* Appends an entry, with a copy of its name in the pool. -ENOMEM. */
int ext_names_keep(struct ext_names *x, struct ext_entries *list,
		   const struct ext_name *n) MUST_CHECK;
/*
 * The path of an entry, "a/b". e is not in x. The caller frees *ret. Reads the directories above, so
 * texts of x may move. -EUCLEAN: it does not lead to the root. -ENAMETOOLONG: PATH_MAX.
 */
int ext_names_path(struct ext_names *x, const struct ext_entry *e, char **ret) MUST_CHECK;
/* Is the name of the directory known, without a look at the blocks? */
bool ext_names_knows(const struct ext_names *x, uint32_t ino);
/* The name of a directory, from elsewhere. -ENOMEM. */
int ext_names_learn(struct ext_names *x, const struct ext_name *n) MUST_CHECK;
/* The name of a directory that is not the root. */
int ext_names_dir(struct ext_names *x, uint32_t ino, struct ext_entry *ret) MUST_CHECK;
/*
 * Calls each for the names of all directories from the root down, until it returns a value other
 * than 0; returns that. progress may be NULL.
 */
int ext_names_scan(struct ext_names *x, ext_each_name *each, void *ctx,
		   void (*progress)(void *ctx, uint64_t done_dirs), void *progress_ctx) MUST_CHECK;

#endif
