/* SPDX-License-Identifier: MIT */
/* What /proc tells of processes: directories whose entries are numbers (processes, tasks,
 * descriptors), and who is dying. */
#ifndef COWFS_BASE_PROCLIST_H
#define COWFS_BASE_PROCLIST_H

#include <dirent.h>

#include "base/util.h"

/* NULL: errno tells why. closedir() it. */
DIR *proclist_open(int dirfd, const char *name);
/* The next number, or -1: there is none any more. */
int proclist_next(DIR *dir);

/*
 * status_fd: of /proc/PID/status. Has it been killed, or has its first thread ended? A thread that
 * sleeps unkillably keeps such a process, and its descriptors.
 */
bool proclist_is_dying(int status_fd);

#endif
