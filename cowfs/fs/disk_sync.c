/* SPDX-License-Identifier: MIT */
/*
 * Calls on the disk that need privileges. A sync sleeps uninterruptibly in I/O that this process, or its worker, serves. So it is
 * made by a thread that has no descriptor of /dev/fuse (thread_call_alone): if all processes are killed at
 * once, the kernel then ends the FUSE connection, and with it this I/O.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/kernel.h"
#include "base/mounts.h"
#include "base/thread.h"
#include "fs/find_mount.h"
#include "fs/flush.h"
#include "fs/fs_ops.h"
#include "fs/quiesce.h"

/* Before Linux 6.17 the kernel does not find a btrfs by its disk: only its mount can be synced. *ret_done is false for other kinds. */
static int sync_btrfs(int proc_dirfd, int sys_dirfd, dev_t dev, bool *ret_done)
{
	int fd, r;

	*ret_done = !kernel_is(6, 17) && mounts_in_btrfs(sys_dirfd, dev);
	if (!*ret_done)
		return 0;
	fd = find_mount_open(proc_dirfd, dev);
	if (fd < 0)
		return fd;
	r = thread_call_alone("cowfs-sync", fd, syncfs);
	close(fd);
	return r;
}

int disk_sync(int proc_dirfd, int sys_dirfd, dev_t dev, int loop_fd, enum disk_sync how)
{
	bool done = false;
	int r = how == SYNC_FLUSH ? sync_btrfs(proc_dirfd, sys_dirfd, dev, &done) : 0;

	return done ? r
		    : thread_call_alone("cowfs-sync", loop_fd,
					how == SYNC_FLUSH ? flush_disk : fsync);
}

/* Does anything hold the device exclusively, as a mount and a checker do? A claim of another program
 * fails while this looks, so it looks seldom. */
bool disk_claimed(int proc_dirfd, int sys_dirfd, dev_t dev, int loop_fd, bool *ret_mounted)
{
	_cleanup_close_ int fd = -1;
	char name[32];

	*ret_mounted = mounts_in_kernel(sys_dirfd, dev);
	snprintf(name, sizeof(name), "self/fd/%d", loop_fd);
	fd = openat(proc_dirfd, name, O_RDONLY | O_EXCL | O_CLOEXEC);
	return fd < 0 && errno == EBUSY;
}
