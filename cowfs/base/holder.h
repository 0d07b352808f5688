/* SPDX-License-Identifier: MIT */
/*
 * Finds the process that keeps a block device or its file system in use where its mount is not
 * visible.
 */
#ifndef COWFS_BASE_HOLDER_H
#define COWFS_BASE_HOLDER_H

#include <sys/types.h>

#include "base/util.h"

/*
 * Names ("comm[pid]") a process, other than this one and its parent, that has one of these: the
 * device open, a file or folder of its file system, or a mount of it in its mount namespace. dev:
 * the number of the block device; files of btrfs have other numbers, so the search does not find
 * them. Takes 0.3 s of processor time at most, and sends no request to a file system. False: not found.
 */
bool holder_find(int proc_dirfd, dev_t dev, char *name, size_t size_bytes);

/* One more process that is not meant. */
void holder_ignore(int pid);

#endif
