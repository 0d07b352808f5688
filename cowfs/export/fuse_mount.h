/* SPDX-License-Identifier: MIT */
/* A FUSE file system that is attached to no tree, and the switch that aborts it. Needs no
 * libfuse. */
#ifndef COWFS_EXPORT_FUSE_MOUNT_H
#define COWFS_EXPORT_FUSE_MOUNT_H

#include <pthread.h>
#include <semaphore.h>

#include "base/util.h"

/* fuse_fd: an open /dev/fuse. The file system lives as long as the returned descriptor, or as long
 * as a descriptor of a file in it. */
int fuse_mount_create(int fuse_fd, int *ret_mount_fd) MUST_CHECK;
/* Opens the file `name` in the root of a mount with direct I/O. */
int fuse_mount_open_file(int mount_fd, const char *name, int flags) MUST_CHECK;
/* Returns a descriptor of the abort switch of the mount's connection, or -errno. Sends no request.
 * Writing "1" to the descriptor aborts the connection. */
int fuse_mount_open_abort(int mount_fd) MUST_CHECK;

/*
 * Bounds the time of calls that wait for a FUSE file system: aborts the connection after timeout_s,
 * so that they fail. abort_fd: the switch; must stay open until the guard is stopped.
 */
struct fuse_guard {
	sem_t done;
	pthread_t thread;
	int abort_fd;
	unsigned timeout_s;
	bool fired;
};
int fuse_guard_start(struct fuse_guard *g, int abort_fd, unsigned timeout_s) MUST_CHECK;
bool fuse_guard_stop(struct fuse_guard *g); /* did it abort the connection? */

#endif
