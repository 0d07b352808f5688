/* SPDX-License-Identifier: MIT */
/*
 * Finds what keeps a mount busy in /proc, for messages.
 */
#ifndef COWFS_ATTACH_USERS_H
#define COWFS_ATTACH_USERS_H

#include "base/util.h"

#define MOUNT_USER_BYTES 320

/*
 * Checks descriptors, working directories, roots and programs of all processes, mounts below, overlays, loop devices and swap
 * files: "bash[1234]" or "the mount on /x". Not found: mapped files whose descriptor is closed. Accesses no file of the mount.
 */
bool mount_user_find(const char *dir, char ret[MOUNT_USER_BYTES]);
/* Only users in the kernel; also where dir is unmounted, as an overlay keeps a mount of its own. */
bool mount_kernel_user_find(const char *dir, char ret[MOUNT_USER_BYTES]);

#endif
