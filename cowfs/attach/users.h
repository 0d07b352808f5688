/* SPDX-License-Identifier: MIT */
/* Who keeps a mount busy: found in /proc, for the message and to tell our own commit from
 * others. */
#ifndef COWFS_ATTACH_USERS_H
#define COWFS_ATTACH_USERS_H

#include <sys/types.h>

#include "base/util.h"

struct mount_users {
	bool own;	 /* the daemon: a commit is about to freeze it */
	char other[320]; /* "bash[1234]" or "the mount on /x"; "": nobody else was found */
};

/*
 * Looks at descriptors, working directories, roots and programs of all processes, and at mounts
 * below. Not found: mapped files whose descriptor is closed, users in the kernel (loop devices,
 * swap). worker: of the daemon, 0 none; its parent counts as well. Touches no file of the mount.
 * -errno: the mount cannot be looked at.
 */
int mount_users_find(const char *dir, pid_t worker, struct mount_users *ret) MUST_CHECK;

#endif
