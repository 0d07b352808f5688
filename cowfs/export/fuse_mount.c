/* SPDX-License-Identifier: MIT */
#include "export/fuse_mount.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/openat2.h>

#include "base/mounts.h"
#include "base/msg.h"
#include "base/thread.h"
#include "export/loop.h"

#define STACK_BYTES (64 * KIB)

int fuse_mount_create(int fuse_fd, int *ret_mount_fd)
{
	char fd_text[16], max_read[16];
	const char *const options[][2] = { { "source", "cowfs" },   { "fd", fd_text },
					   { "rootmode", "40000" }, { "user_id", "0" },
					   { "group_id", "0" },	    { "max_read", max_read },
					   { NULL, NULL } };
	int fd;

	snprintf(fd_text, sizeof(fd_text), "%d", fuse_fd);
	/* reads have no other limit than max_pages */
	snprintf(max_read, sizeof(max_read), "%u", LOOP_REQUEST_KB * 1024u);
	fd = mounts_new("fuse", options,
			MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC |
				MOUNT_ATTR_NOSYMFOLLOW);
	if (fd < 0)
		return fd;
	*ret_mount_fd = fd;
	return 0;
}

/* The switch is a file in a file system of its own (fusectl), named after the minor number of the connection's device. */
int fuse_mount_open_abort(int mount_fd)
{
	_cleanup_close_ int ctl_fd = mounts_new("fusectl", NULL, 0);
	struct statx st;
	char path[32];
	int fd;

	if (ctl_fd < 0)
		return ctl_fd;
	/* sends no request, because the connection may no longer answer */
	if (statx(mount_fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, 0, &st) < 0)
		return -errno;
	snprintf(path, sizeof(path), "%u/abort", st.stx_dev_minor); /* the major number is 0 */
	fd = openat(ctl_fd, path, O_WRONLY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

int fuse_mount_open_file(int mount_fd, const char *name)
{
	const struct open_how how = { .flags = O_RDWR | O_DIRECT | O_CLOEXEC,
				      .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS |
						 RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV };
	_cleanup_close_ int fd = (int)syscall(SYS_openat2, mount_fd, name, &how, sizeof(how));
	const unsigned quiet = AT_EMPTY_PATH | AT_STATX_DONT_SYNC;
	struct statx file, root;

	if (fd < 0 || statx(fd, "", quiet, STATX_TYPE, &file) < 0 ||
	    statx(mount_fd, "", quiet, 0, &root) < 0)
		return -errno;
	if (!S_ISREG(file.stx_mode) || file.stx_dev_major != root.stx_dev_major ||
	    file.stx_dev_minor != root.stx_dev_minor)
		return -ESTALE;
	return steal_fd(&fd);
}

static void *guard_thread(void *arg)
{
	struct fuse_guard *g = arg;
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += g->timeout_s;
	while (sem_clockwait(&g->done, CLOCK_MONOTONIC, &until) < 0) {
		if (errno == EINTR)
			continue;
		g->fired = true;
		if (write(g->abort_fd, "1", 1) < 0)
			msg(MSG_ERR, "cannot abort the FUSE connection: %m");
		break;
	}
	return NULL;
}

int fuse_guard_start(struct fuse_guard *g, int abort_fd, unsigned timeout_s)
{
	int r;

	*g = (struct fuse_guard){ .abort_fd = abort_fd, .timeout_s = timeout_s };
	sem_init(&g->done, 0, 0);
	r = thread_start(&g->thread, "cowfs-guard", STACK_BYTES, guard_thread, g);
	if (r < 0)
		sem_destroy(&g->done);
	return r;
}

bool fuse_guard_stop(struct fuse_guard *g)
{
	sem_post(&g->done);
	pthread_join(g->thread, NULL);
	sem_destroy(&g->done);
	return g->fired;
}
