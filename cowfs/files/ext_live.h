/* SPDX-License-Identifier: MIT */
/*
 * Names of files that the kernel has in its caches, because the file system of the new state is
 * mounted and in use. They save the look at all directories. The mounted file system has gone on
 * since; a name counts only if its directory has not changed since then, by its change time.
 */
#ifndef COWFS_FILES_EXT_LIVE_H
#define COWFS_FILES_EXT_LIVE_H

#include "files/ext_names.h"

#define EXT_LIVE_IDS 32
#define EXT_LIVE_NAMES 60
#define EXT_LIVE_RETURNED 1024

struct ext_live {
	int dir_fd;	 /* a directory of the mount */
	uint64_t time_s; /* of the new state */
	int64_t clock_s; /* ext_live_clock() from before it */
	/* by number: directories whose names ext_live_find has returned; zero-initialise */
	uint32_t returned[EXT_LIVE_RETURNED];
};

struct ext_live_id {
	uint32_t ino, gen; /* the inode, and its generation number */
};

/*
 * Of each inode the name, if one was found, and then those of the directories above that were not
 * returned before: `of` is its index in the question. answered: the first ones, at least one.
 */
struct ext_live_names {
	uint32_t n, answered;
	struct {
		uint32_t of, dir, ino;
		char name[EXT2_NAME_LEN + 1];
	} name[EXT_LIVE_NAMES];
};

/* Who asks the kernel: a comparison in a boxed child asks its parent. */
struct ext_live_source {
	/* n: 1 to EXT_LIVE_IDS. Fills *ret, which is zeroed */
	void (*find)(void *ctx, const struct ext_live_id *id, uint32_t n,
		     struct ext_live_names *ret);
	void *ctx;
};

/* Seconds between the clock of the files and one that is never set. */
int64_t ext_live_clock(void);

/* A find, with a struct ext_live as ctx. Needs CAP_DAC_READ_SEARCH. */
void ext_live_find(void *ctx, const struct ext_live_id *id, uint32_t n, struct ext_live_names *ret);
/* Learns the names of directories. -ENOMEM. */
int ext_live_learn(struct ext_names *x, const struct ext_live_names *names) MUST_CHECK;

#endif
