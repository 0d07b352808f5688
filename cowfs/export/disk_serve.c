// SPDX-License-Identifier: MIT
#include "export/disk_serve.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/backing.h"
#include "base/io.h"
#include "export/fuse_mount.h"

/* How long root waits for what a worker answers */
#define OPEN_S 10u
#define DETACH_S 60u

int disk_serve_take(struct disk_serve *d, int loop_fd, int dev_dirfd, int sys_dirfd)
{
	struct loop_dev *l = &d->loop;
	struct stat st;
	char path[64];

	if (fstat(loop_fd, &st) < 0)
		return -errno;
	if (!S_ISBLK(st.st_mode) || !backing_is(sys_dirfd, st.st_rdev, d->label))
		return -ESTALE;
	*l = (struct loop_dev){ .rdev = st.st_rdev, .number = minor(st.st_rdev) };
	memcpy(l->found, d->found, sizeof(l->found));
	snprintf(l->path, sizeof(l->path), "/dev/loop%u", l->number);
	l->fd = fcntl(loop_fd, F_DUPFD_CLOEXEC, 3);
	l->dev_dirfd = fcntl(dev_dirfd, F_DUPFD_CLOEXEC, 3);
	snprintf(path, sizeof(path), "dev/block/%u:%u/queue", major(l->rdev), minor(l->rdev));
	l->queue_dirfd = openat(sys_dirfd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	d->have_loop = l->fd >= 0 && l->dev_dirfd >= 0;
	return d->have_loop ? 0 : -errno;
}

static int open_file(struct disk_serve *d)
{
	if (d->mount_fd < 0 || d->file_fd >= 0)
		return -EALREADY;
	d->file_fd = fuse_mount_open_file(d->mount_fd, d->label);
	close(steal_fd(&d->mount_fd));
	return d->file_fd < 0 ? d->file_fd : 0;
}

/* The worker keeps what it needs to know. */
static void tell(const struct disk_serve *d, struct broker_message *m, int ret_fd[BROKER_FDS])
{
	struct loop_kept kept;

	loop_keep(&d->loop, &kept);
	m->bytes = sizeof(kept);
	memcpy(m->data, &kept, sizeof(kept));
	ret_fd[0] = fcntl(d->loop.fd, F_DUPFD_CLOEXEC, 3);
}

static int attach(struct disk_serve *d, struct broker_message *m, int ret_fd[BROKER_FDS])
{
	const struct loop_limits limits = { .read_ahead_kb = (unsigned)m->n[0],
					    .max_kb = (unsigned)m->n[1],
					    .tags = (unsigned)m->n[2] };
	int r;

	if (d->file_fd < 0 || d->have_loop)
		return -EALREADY;
	r = loop_attach(&d->loop, d->file_fd, &limits, d->label, false, d->note, d->abort_fd);
	close(steal_fd(&d->file_fd));
	if (r < 0)
		return r;
	d->have_loop = true;
	memcpy(d->found, d->loop.found, sizeof(d->loop.found));
	tell(d, m, ret_fd);
	return 0;
}

static void close_fuse(struct disk_serve *d)
{
	cleanup_closep(&d->mount_fd);
	cleanup_closep(&d->file_fd);
}

static int detach(struct disk_serve *d, struct broker_message *m, int ret_fd[BROKER_FDS])
{
	int r;

	(void)m;
	close_fuse(d);
	if (!d->have_loop)
		return 0;
	r = loop_detach(&d->loop);
	d->have_loop = r < 0;
	if (r < 0)
		ret_fd[0] = fcntl(d->loop.fd, F_DUPFD_CLOEXEC, 3);
	return r;
}

static int act(struct disk_serve *d, struct broker_message *m, int ret_fd[BROKER_FDS])
{
	int r;

	switch (m->op) {
	case BROKER_FILE:
		r = open_file(d);
		break;
	case BROKER_ATTACH:
		r = attach(d, m, ret_fd);
		break;
	case BROKER_DETACH:
		r = detach(d, m, ret_fd);
		break;
	default:
		r = d->have_loop ? loop_in_use(&d->loop) : 0;
		break;
	}
	return r;
}

void disk_serve(struct disk_serve *d, struct broker_message *m, int ret_fd[BROKER_FDS])
{
	/* the first read of an attach takes as long as a card */
	const unsigned limit_s = m->op == BROKER_FILE	  ? OPEN_S
				 : m->op == BROKER_DETACH ? DETACH_S
							  : 0;
	struct fuse_guard guard;
	int r = 0;

	if (limit_s && d->abort_fd >= 0)
		r = fuse_guard_start(&guard, d->abort_fd, limit_s);
	if (r == 0) {
		r = act(d, m, ret_fd);
		if (limit_s && d->abort_fd >= 0)
			(void)fuse_guard_stop(&guard);
	}
	m->result = r;
}

void disk_serve_close(struct disk_serve *d)
{
	close_fuse(d);
	if (d->have_loop)
		close(steal_fd(&d->loop.fd));
	d->have_loop = false;
}
