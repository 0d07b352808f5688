/* SPDX-License-Identifier: MIT */
/*
 * Finds the users that keep a mount busy in /proc, for messages and to distinguish our own commit
 * from other users.
 */
#ifndef COWFS_ATTACH_USERS_H
#define COWFS_ATTACH_USERS_H

#include <sys/types.h>

#include "base/util.h"

struct mount_users {
	bool own;	 /* the daemon is among them: a commit is about to freeze the mount */
	char other[320]; /* "bash[1234]" or "the mount on /x"; "": no other user was found */
};

/*
 * Checks descriptors, working directories, roots and programs of all processes, and mounts below.
 * Not found: mapped files whose descriptor is closed, users in the kernel (loop devices, swap).
 * worker: pid of the daemon's worker, 0: none; its parent and its children count as well. Accesses no file of the
 * mount. -errno: the mount cannot be examined.
 */
int mount_users_find(const char *dir, pid_t worker, struct mount_users *ret) MUST_CHECK;

#endif
