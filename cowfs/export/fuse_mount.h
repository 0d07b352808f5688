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
/*
 * Opens the file `name` in the root of a mount for reading and writing, with direct I/O. Who serves the mount may have been taken
 * over: no link of his is followed. -ELOOP: it is one; -ESTALE: it is no regular file of this mount. Nothing else opens what is
 * below such a mount.
 */
int fuse_mount_open_file(int mount_fd, const char *name) MUST_CHECK;
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
