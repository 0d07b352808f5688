/* SPDX-License-Identifier: MIT */
/* Who keeps a block device or its file system in use where its mount cannot be seen. */
#ifndef COWFS_BASE_HOLDER_H
#define COWFS_BASE_HOLDER_H

#include <sys/types.h>

#include "base/util.h"

/*
 * Names ("comm[pid]") a process other than this one and its parent that has the device open, a file
 * or folder of its file system, or a mount of it in its mount namespace. dev: of the block device;
 * files of btrfs have other numbers and are not found. Takes 0.3 s at most, and asks no file
 * system. False: not found.
 */
bool holder_find(int proc_dirfd, dev_t dev, char *name, size_t size_bytes);

#endif
