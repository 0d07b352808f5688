/* SPDX-License-Identifier: MIT */
/*
 * They sleep uninterruptibly in I/O that this process serves. Each is made by a thread that has no
 * descriptor of /dev/fuse (thread_call_alone). If all processes are killed at once, the kernel then ends the
 * FUSE connection, and with it this I/O.
 */
#include "fs/quiesce_call.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <linux/fs.h>

#include "base/thread.h"
#include "fs/flush.h"

static int call_freeze(int fd)
{
	return ioctl(fd, FIFREEZE, 0);
}

static int call_thaw(int fd)
{
	return ioctl(fd, FITHAW, 0);
}

static int call_checkpoint(int fd)
{
	uint32_t flags = 0;

	return ioctl(fd, EXT4_IOC_CHECKPOINT, &flags);
}

static int call_touch(int fd)
{
	struct timespec times[2] = { { .tv_nsec = UTIME_OMIT } };
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -1;
	times[1] = st.st_mtim;
	return futimens(fd, times);
}

static int call_create(int fs_fd)
{
	return fsconfig(fs_fd, FSCONFIG_CMD_CREATE, NULL, NULL, 0);
}

int quiesce_call(enum quiesce_call call, int fd, int disk_fd)
{
	static const struct {
		const char *name;
		int (*make)(int fd);
	} calls[QUIESCE_CALLS] = { [QUIESCE_FREEZE] = { "cowfs-freeze", call_freeze },
				   [QUIESCE_THAW] = { "cowfs-thaw", call_thaw },
				   [QUIESCE_FLUSH] = { "cowfs-sync", flush_disk },
				   [QUIESCE_SYNCFS] = { "cowfs-sync", syncfs },
				   [QUIESCE_FSYNC] = { "cowfs-sync", fsync },
				   [QUIESCE_CREATE] = { "cowfs-sync", call_create },
				   [QUIESCE_CHECKPOINT] = { "cowfs-sync", call_checkpoint },
				   [QUIESCE_TOUCH] = { "cowfs-sync", call_touch } };
	char source[32];

	snprintf(source, sizeof(source), "/proc/self/fd/%d", disk_fd);
	if (call == QUIESCE_CREATE && fsconfig(fd, FSCONFIG_SET_STRING, "source", source, 0) < 0)
		return -errno;
	return thread_call_alone(calls[call].name, fd, calls[call].make);
}
