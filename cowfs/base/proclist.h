/* SPDX-License-Identifier: MIT */
/*
 * Reads /proc: directories whose entries are numbers (processes, tasks, descriptors), and whether a
 * process is dying.
 */
#ifndef COWFS_BASE_PROCLIST_H
#define COWFS_BASE_PROCLIST_H

#include <dirent.h>

#include "base/util.h"

/* NULL: errno has the reason. The caller closes it with closedir(). */
DIR *proclist_open(int dirfd, const char *name);
/* The next number, or -1 at the end. */
int proclist_next(DIR *dir);

/* Is test true of the working directory, the root, the program or a descriptor of a process? It gets their names. */
bool proclist_any_file(int proc_dirfd, int pid,
		       bool (*test)(void *ctx, int dirfd, const char *name), void *ctx);
/* "name[pid]", clean. False: the process has ended. */
bool proclist_name(int proc_dirfd, int pid, char *ret, size_t size_bytes);

/*
 * status_fd: of /proc/PID/status. Was the process killed, or has its first thread ended? A thread
 * in an uninterruptible sleep keeps such a process and its descriptors.
 */
bool proclist_is_dying(int status_fd);
/* Is it stopped, by a signal or a tracer? */
bool proclist_is_stopped(int status_fd);

#endif
