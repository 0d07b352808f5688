/* SPDX-License-Identifier: MIT */
#include "export/transport.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <linux/loop.h>

#include "base/broker.h"
#include "base/backing.h"
#include "base/io.h"
#include "base/msg.h"
#include "export/fuse.h"
#include "export/fuse_mount.h"

struct transport {
	struct fuse_export *fuse;
	struct loop_dev loop;
	bool have_loop;
	bool temporary;
};

/* Opening loads the module if the node is there. All other errors are left to the start. */
static int missing(const char *path)
{
	_cleanup_close_ int fd = open(path, O_RDWR | O_CLOEXEC);

	return fd < 0 && (errno == ENOENT || errno == ENODEV || errno == ENXIO) ? -errno : 0;
}

int transport_check(char *why, size_t n)
{
	int e = missing("/dev/fuse");

	if (e < 0)
		return msg_why(why, n, e, "the kernel has no FUSE (/dev/fuse): run modprobe fuse");
	e = missing("/dev/loop-control");
	if (e < 0)
		return msg_why(why, n, e,
			       "the kernel has no loop devices (/dev/loop-control): run modprobe "
			       "loop");
	return 0;
}

int transport_open(void)
{
	int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

static int ask_loop(struct transport *t, const struct transport_params *p, char *why, size_t n)
{
	struct broker_message m = { .op = BROKER_ATTACH,
				    .n = { p->limits.read_ahead_kb, p->limits.max_kb,
					   p->limits.tags } };
	struct loop_kept kept;
	int fd[BROKER_FDS], e = broker_ask(BROKER_MAIN, &m, fd);

	if (e == 0 && m.bytes != sizeof(kept))
		e = -EPROTO;
	if (e < 0)
		return msg_why(why, n, e, "no loop device: %s", strerrordesc_np(-e));
	memcpy(&kept, m.data, sizeof(kept));
	loop_take_over(&t->loop, &kept, fd[0]);
	t->have_loop = true;
	return 0;
}

static int start_loop(struct transport *t, int file_fd, const struct transport_params *p, char *why,
		      size_t n)
{
	int e;

	if (broker_on())
		return ask_loop(t, p, why, n);
	e = loop_attach(&t->loop, file_fd, &p->limits, p->label, true, NULL, p->abort_fd);
	if (e < 0)
		return msg_why(why, n, e, "no loop device: %s", strerrordesc_np(-e));
	t->have_loop = true;
	return 0;
}

int transport_start(struct transport **ret, const struct transport_params *p, char *why, size_t n)
{
	struct transport *t = calloc(1, sizeof(*t));
	_cleanup_close_ int file_fd = -1;
	int e;

	*ret = NULL;
	if (!t)
		return msg_why(why, n, -ENOMEM, "no memory");
	t->loop.fd = -1;
	t->temporary = p->temporary;
	*ret = t;
	e = fuse_export_start(&t->fuse, p->view, p->kernel_fd, p->abort_fd, p->label,
			      p->kept ? &p->kept->fuse : NULL, &file_fd);
	if (e == 0)
		fuse_export_refuse(t->fuse, p->temporary); /* nobody looks for its card */
	if (e == 0 && p->throttle)
		e = fuse_export_set_throttle(t->fuse, p->throttle);
	if (e == -ETIMEDOUT)
		return msg_why(
			why, n, e,
			"cannot export the volume: FUSE accepted no reply for 10 s. Look in the "
			"kernel log for a refused system call (audit: type=1326)");
	if (e == -EPROTONOSUPPORT)
		return msg_why(why, n, e, "FUSE of this kernel has no asynchronous direct I/O");
	if (e == -ENOSYS)
		return msg_why(
			why, n, e,
			"the kernel refuses fsopen(2): a filter of system calls around cowfs, "
			"such as that of a container, must allow it");
	if (e < 0)
		return msg_why(why, n, e, "cannot export the volume through FUSE: %s",
			       strerrordesc_np(-e));
	return start_loop(t, file_fd, p, why, n);
}

int transport_abort_fd(const struct transport *t)
{
	return fuse_export_abort_fd(t->fuse);
}

bool transport_loops(struct transport *t, uint64_t cpu_ns)
{
	return fuse_export_loops(t->fuse, cpu_ns);
}

const struct loop_dev *transport_disk(const struct transport *t)
{
	return &t->loop;
}

int transport_in_use(const struct transport *t)
{
	return broker_on() ? broker_call(BROKER_LOOK, BROKER_IN_USE, 0, 0) : loop_in_use(&t->loop);
}

/* The broker waits until nothing has the device open, this process included. */
static int ask_detach(struct loop_dev *l)
{
	struct broker_message m = { .op = BROKER_DETACH };
	int fd[BROKER_FDS], e;

	cleanup_closep(&l->fd);
	e = broker_ask(BROKER_MAIN, &m, fd);
	if (e < 0 && e != -EPIPE)
		l->fd = fd[0];
	return e;
}

int transport_detach(struct transport *t)
{
	int e = t->have_loop ? transport_in_use(t) : 0;

	if (e > 0)
		return -EBUSY;
	/* the kernel waits for requests of the device, also of one that looks at it only */
	if (t->fuse)
		fuse_export_refuse(t->fuse, true);
	if (broker_on())
		e = ask_detach(&t->loop); /* or what a start that failed has left */
	else
		e = t->have_loop ? loop_detach(&t->loop) : 0;
	if (e < 0 && t->fuse)
		fuse_export_refuse(t->fuse, t->temporary);
	if (e == 0)
		t->have_loop = false;
	return e;
}

void transport_stop(struct transport *t)
{
	if (t && t->fuse)
		fuse_export_stop(t->fuse);
	free(t);
}

void transport_keep(const struct transport *t, struct transport_kept *ret)
{
	loop_keep(&t->loop, &ret->loop);
}

int transport_take_over(struct transport **ret, const struct transport_params *p, int disk_fd,
			char *why, size_t n)
{
	struct transport *t = calloc(1, sizeof(*t));
	int e;

	if (!t)
		return msg_why(why, n, -ENOMEM, "no memory");
	loop_take_over(&t->loop, &p->kept->loop, disk_fd);
	t->have_loop = true;
	*ret = t;
	e = fuse_export_take_over(&t->fuse, p->view, p->kernel_fd, p->abort_fd, &p->kept->fuse,
				  p->throttle);
	return e < 0 ? msg_why(why, n, e, "cannot take the FUSE connection over: %s",
			       strerrordesc_np(-e))
		     : 0;
}

/* ---- a loop device whose FUSE connection is gone ---- */

bool transport_left(const char *path)
{
	char sysfs[64];

	if (strncmp(path, "/dev/loop", 9) || strspn(path + 9, "0123456789") != strlen(path + 9) ||
	    !path[9])
		return false;
	snprintf(sysfs, sizeof(sysfs), "/sys/block/%.20s/loop", path + strlen("/dev/"));
	return access(sysfs, F_OK) == 0;
}

int transport_left_label(int fd, const char *label)
{
	struct loop_info64 info;
	struct stat st;

	/* Linux before 5.16 asks FUSE for the file's attributes first, once it was written. Without
	 * a connection there is no label, but its file has a name. */
	if (ioctl(fd, LOOP_GET_STATUS64, &info) < 0)
		return errno == ENOTCONN && fstat(fd, &st) == 0 && backing_is(-1, st.st_rdev, label)
			       ? 0
			       : -errno;
	return strncmp((const char *)info.lo_file_name, label, LO_NAME_SIZE - 1) ? -ESRCH : 0;
}

int transport_left_check(int fd, const char *label)
{
	_cleanup_free_ void *buf = io_alloc(COW_BLK_BYTES);
	int r = buf ? transport_left_label(fd, label) : -ENOMEM;

	return r == 0 && pread(fd, buf, COW_BLK_BYTES, 0) >= 0 ? -ESRCH : r;
}

int transport_left_detach(const char *path, const char *label, bool later)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC), excl_fd = -1;
	/* check first: another device with this number may be in use */
	int r = fd < 0 ? -errno : transport_left_check(fd, label);

	if (r == 0 && !later) {
		excl_fd = open(path, O_RDONLY | O_EXCL | O_DIRECT | O_CLOEXEC);
		r = excl_fd < 0 ? -errno : 0;
	}
	return r == 0 && ioctl(fd, LOOP_CLR_FD) < 0 ? -errno : r;
}
