/* SPDX-License-Identifier: MIT */
/*
 * Names of files that the kernel has in its caches, because the file system of the new state is
 * mounted and in use. They save the look at all directories. The mounted file system has gone on
 * since; a name counts only if its directory has not changed since then, by its change time.
 */
#ifndef COWFS_FILES_EXT_LIVE_H
#define COWFS_FILES_EXT_LIVE_H

#include "files/ext_names.h"

struct ext_live {
	int dir_fd;	 /* a directory of the mount */
	uint64_t time_s; /* of the new state */
	int64_t clock_s; /* ext_live_clock() from before it */
};

/* Seconds between the clock of the files and one that is never set. */
int64_t ext_live_clock(void);

/*
 * A name of the inode, with gen its generation number: 1, with its directory in *ret_dir and the
 * directories above learnt by x; 0: none found. Needs CAP_DAC_READ_SEARCH. -ENOMEM.
 */
int ext_live_name(const struct ext_live *l, struct ext_names *x, uint32_t ino, uint32_t gen,
		  uint32_t *ret_dir, char ret_name[EXT2_NAME_LEN + 1]) MUST_CHECK;

#endif
