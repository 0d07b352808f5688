/* SPDX-License-Identifier: MIT */
/* The mount of a block device, as this process sees it, or pid 1. */
#ifndef COWFS_FS_FIND_MOUNT_H
#define COWFS_FS_FIND_MOUNT_H

#include <sys/types.h>

#include "base/util.h"

struct mount_search {
	int proc_dirfd; /* descriptor of /proc, kept from start: all lookups begin here */
	dev_t dev;	/* st_dev of the file system = rdev of the device */
	bool open;	/* the caller needs an open descriptor, not only the line */
	char *where;	/* NULL, or gets the mount point */
	size_t where_bytes;
	int mount_fd, failed;
	bool readonly;
	char type[32];
};

/* 1: found, 0: not found, -errno: no look was possible, or the mount was found and not opened */
int find_mount_search(struct mount_search *s) MUST_CHECK;

/*
 * Is a file system of this device mounted where this process (or pid 1) can see it? Copies the
 * mount point if where != NULL. 1, 0 or -errno. A worker asks the broker.
 */
int find_mount(int proc_dirfd, dev_t dev, char *where, size_t size_bytes,
	       bool *ret_readonly /* may be NULL */);

/* Opens the same mount for reading; it stays busy until the descriptor is closed. -ENOENT: none. */
int find_mount_open(int proc_dirfd, dev_t dev) MUST_CHECK;

#endif
