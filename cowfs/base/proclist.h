/* SPDX-License-Identifier: MIT */
/* Directories of /proc whose entries are numbers: processes, tasks, descriptors. */
#ifndef COWFS_BASE_PROCLIST_H
#define COWFS_BASE_PROCLIST_H

#include <dirent.h>

#include "base/util.h"

/* NULL: errno tells why. closedir() it. */
DIR *proclist_open(int dirfd, const char *name);
/* The next number, or -1: there is none any more. */
int proclist_next(DIR *dir);

#endif
