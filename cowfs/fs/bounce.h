/* SPDX-License-Identifier: MIT */
/* Finds tasks that sleep inside a writing call on one file system, bounces them. For quiesce.c. */
#ifndef COWFS_FS_BOUNCE_H
#define COWFS_FS_BOUNCE_H

#include <sys/types.h>

#include "base/util.h"

/*
 * st_dev: of the files of the file system. Each such process gets SIGSTOP and, when the sleeping
 * task has stopped (at the latest after 200 ms), SIGCONT. Returns how many tasks; copies
 * "comm[pid]" of the first one to culprit if that is still empty. Allocates; looks up nothing
 * outside proc_dirfd; touches no file data. come_to is called for each process before it is looked
 * at, which may hang; false: it is left out. May be NULL.
 */
unsigned bounce_writers(int proc_dirfd, dev_t st_dev, bool (*come_to)(void *ctx, int pid),
			void *ctx, char *culprit, size_t size_bytes);

#endif
