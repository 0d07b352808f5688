/* SPDX-License-Identifier: MIT */
/* A FUSE file system that is attached to no tree, and the switch that ends it. Needs no libfuse. */
#ifndef COWFS_EXPORT_FUSE_MOUNT_H
#define COWFS_EXPORT_FUSE_MOUNT_H

#include "base/util.h"

/* fuse_fd: an open /dev/fuse. The file system lives as long as the descriptor that comes back, or
 * one of a file in it. */
int fuse_mount(int fuse_fd, int *ret_mount_fd) MUST_CHECK;
/* A descriptor of the abort switch of the connection of the mount; sends no request; writing "1" to
 * it ends that. Or -errno. */
int fuse_mount_open_abort(int mount_fd) MUST_CHECK;

#endif
