/* SPDX-License-Identifier: MIT */
/* Which processes have one of many files open? */
#ifndef COWFS_CLI_OPEN_FILES_H
#define COWFS_CLI_OPEN_FILES_H

#include <sys/types.h>

#include "base/util.h"

struct open_file {
	dev_t dev;
	uint64_t ino;
	const char *path; /* caller-owned */
};

/*
 * Sorts the list. Calls each for every process and file of it that the process has open, is in, or
 * runs: holder is "comm[pid]", cleaned. Descriptors only, not what a process has mapped and closed
 * again. Sends no request to a file system.
 */
void open_files_find(struct open_file *list, size_t n,
		     void (*each)(void *ctx, const struct open_file *f, const char *holder),
		     void *ctx);

#endif
