/* SPDX-License-Identifier: MIT */
#ifndef COWFS_BASE_BACKING_H
#define COWFS_BASE_BACKING_H

#include <sys/types.h>

#include "base/util.h"

/* Is rdev a loop device on a file of this name, in the root of a file system? sys_dirfd: of /sys; -1: by its path. */
bool backing_is(int sys_dirfd, dev_t rdev, const char *name);

/*
 * Does the device lie on this disk: is it one, a partition of one, made of one (slaves: a mapping, a RAID), or a loop device on a
 * file that is on one? Only sysfs and the mounts are asked: no device is opened and no file looked up, which might not answer.
 */
bool backing_lies_on(dev_t rdev, dev_t disk);

#endif
