/* SPDX-License-Identifier: MIT */
/* The calls that make mounts; constants are the kernel's. */
#include_next <sys/mount.h>
#ifndef COWFS_MUSL_SYS_MOUNT_H
#define COWFS_MUSL_SYS_MOUNT_H

#include <linux/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

static inline int fsopen(const char *type, unsigned flags)
{
	return (int)syscall(SYS_fsopen, type, flags);
}

static inline int fsconfig(int fd, unsigned command, const char *key, const void *value, int aux)
{
	return (int)syscall(SYS_fsconfig, fd, command, key, value, aux);
}

static inline int fsmount(int fd, unsigned flags, unsigned attributes)
{
	return (int)syscall(SYS_fsmount, fd, flags, attributes);
}

static inline int fspick(int dirfd, const char *path, unsigned flags)
{
	return (int)syscall(SYS_fspick, dirfd, path, flags);
}

static inline int move_mount(int from, const char *from_path, int to, const char *to_path,
			     unsigned flags)
{
	return (int)syscall(SYS_move_mount, from, from_path, to, to_path, flags);
}

#endif
