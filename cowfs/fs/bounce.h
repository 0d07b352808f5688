/* SPDX-License-Identifier: MIT */
/*
 * Finds tasks that sleep inside a writing call on one file system, and bounces them. For quiesce.c.
 */
#ifndef COWFS_FS_BOUNCE_H
#define COWFS_FS_BOUNCE_H

#include <sys/types.h>

#include "base/util.h"

/*
 * st_dev: of the files of the file system. Sends SIGSTOP to each such process. Sends SIGCONT when
 * the sleeping task has stopped, at the latest after 200 ms. Returns the number of tasks; copies
 * "comm[pid]" of the first one to culprit if culprit is still empty. Allocates; looks up nothing
 * outside proc_dirfd; touches no file data. Calls come_to for each process before it looks at the
 * process, which may hang; false: skips the process. come_to may be NULL.
 */
unsigned bounce_writers(int proc_dirfd, dev_t st_dev, bool (*come_to)(void *ctx, int pid),
			void *ctx, char *culprit, size_t size_bytes);

#endif
