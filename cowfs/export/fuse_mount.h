/* SPDX-License-Identifier: MIT */
/* A FUSE file system that is attached to no tree, and the switch that aborts it. Needs no
 * libfuse. */
#ifndef COWFS_EXPORT_FUSE_MOUNT_H
#define COWFS_EXPORT_FUSE_MOUNT_H

#include "base/util.h"

/* fuse_fd: an open /dev/fuse. The file system lives as long as the returned descriptor, or as long
 * as a descriptor of a file in it. */
int fuse_mount_create(int fuse_fd, int *ret_mount_fd) MUST_CHECK;
/* Returns a descriptor of the abort switch of the mount's connection, or -errno. Sends no request.
 * Writing "1" to the descriptor aborts the connection. */
int fuse_mount_open_abort(int mount_fd) MUST_CHECK;

#endif
