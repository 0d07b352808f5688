/* SPDX-License-Identifier: MIT */
#ifndef COWFS_BASE_BACKING_H
#define COWFS_BASE_BACKING_H

#include <sys/types.h>

#include "base/util.h"

/* Is rdev a loop device on a file of this name, in the root of a file system? sys_dirfd: of /sys; -1: by its path. */
bool backing_is(int sys_dirfd, dev_t rdev, const char *name);

#endif
