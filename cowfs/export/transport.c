/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>

#include "base/broker.h"
#include "base/kernel.h"
#include "base/msg.h"
#include "export/transport_private.h"
#include "export/ublk_control.h"
#include "export/ublk_disk.h"
#include "export/uring.h"

/* Older kernels have ublk, too. This one has DEL_DEV_ASYNC: DEL_DEV waits for users of the disk. */
#define UBLK_MIN_MAJOR 6
#define UBLK_MIN_MINOR 9
/* Older ones take over, too, but some crash then. */
#define UBLK_REPLACE_MAJOR 7
#define UBLK_REPLACE_MINOR 1
/* FUSE_NOTIFY_RESEND */
#define FUSE_REPLACE_MAJOR 6
#define FUSE_REPLACE_MINOR 9

/* busybox's modprobe and that of kmod both have -q. */
void transport_load(enum transport_kind wanted)
{
	static const char *const paths[] = { "/sbin/modprobe", "/usr/sbin/modprobe",
					     "/bin/modprobe" };
	pid_t pid;

	if (wanted != TRANSPORT_UBLK || access(UBLK_CONTROL_PATH, F_OK) == 0)
		return;
	pid = fork();
	if (pid == 0) {
		for (size_t i = 0; i < ARRAY_SIZE(paths); i++)
			execl(paths[i], "modprobe", "-q", "ublk_drv", NULL);
		_exit(1);
	}
	while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
}

/* 0: ublk may be tried. */
static int check_ublk(char *why, size_t n)
{
	if (!kernel_is(UBLK_MIN_MAJOR, UBLK_MIN_MINOR)) {
		snprintf(why, n, "ublk needs Linux %d.%d", UBLK_MIN_MAJOR, UBLK_MIN_MINOR);
		return -ENOSYS;
	}
	if (!broker_on()) {
		snprintf(why, n, "ublk needs a broker");
		return -ENOTSUP;
	}
	return uring_check(why, n);
}

static int start_ublk(struct transport **ret, const struct transport_params *p, char *why, size_t n)
{
	int e = check_ublk(why, n);

	return e < 0 ? e : transport_ublk.start(ret, p, why, n);
}

int transport_start(struct transport **ret, const struct transport_params *p, char *why, size_t n)
{
	char ublk_why[sizeof((*ret)->reason)] = "the default";
	int e;

	if (p->wanted == TRANSPORT_UBLK && start_ublk(ret, p, ublk_why, sizeof(ublk_why)) == 0) {
		snprintf((*ret)->reason, sizeof((*ret)->reason), "asked for");
		return 0;
	}
	if (p->wanted == TRANSPORT_UBLK)
		msg(MSG_WARN, "transport=ublk is not possible, FUSE is used: %s", ublk_why);
	else if (p->wanted == TRANSPORT_FUSE)
		snprintf(ublk_why, sizeof(ublk_why), "asked for");
	e = transport_fuse_loop.start(ret, p, why, n);
	if (*ret)
		memcpy((*ret)->reason, ublk_why, sizeof(ublk_why));
	return e;
}

bool transport_replaces(enum transport_kind wanted, const char **why)
{
	if (!kernel_is(FUSE_REPLACE_MAJOR, FUSE_REPLACE_MINOR))
		*why = "replacing a worker needs Linux 6.9";
	else if (wanted == TRANSPORT_UBLK && !kernel_is(UBLK_REPLACE_MAJOR, UBLK_REPLACE_MINOR))
		*why = "with ublk, replacing a worker needs Linux 7.1";
	else
		return true;
	return false;
}

void transport_keep(const struct transport *t, struct transport_kept *ret, int fd[TRANSPORT_FDS])
{
	ret->kind = t->ops->kind;
	t->ops->keep(t, ret, fd);
	memcpy(ret->reason, t->reason, sizeof(ret->reason));
}

int transport_take_over(struct transport **ret, const struct transport_params *p,
			const int fd[TRANSPORT_FDS], char *why, size_t n)
{
	const struct transport_ops *ops = p->kept->kind == TRANSPORT_UBLK ? &transport_ublk
									  : &transport_fuse_loop;
	int e = ops->take_over(ret, p, fd, why, n);

	if (e == 0)
		memcpy((*ret)->reason, p->kept->reason, sizeof((*ret)->reason));
	return e;
}

int transport_end_open(struct ublk_control **ret)
{
	return ublk_control_open(ret);
}

void transport_end(struct ublk_control *c, uint32_t end, const char *label)
{
	if (ublk_is_of(c, end - 1, label))
		ublk_control_stop_later(c, end - 1);
}

bool transport_ended(struct ublk_control *c)
{
	return ublk_control_stopped(c);
}

const char *transport_name(const struct transport *t)
{
	return t->ops->name;
}

const char *transport_reason(const struct transport *t)
{
	return t->reason;
}

const struct transport_disk *transport_disk(const struct transport *t)
{
	return &t->disk;
}

int transport_abort_fd(const struct transport *t)
{
	return t->ops->abort_fd(t);
}

bool transport_loops(struct transport *t, uint64_t cpu_ns)
{
	return t->ops->loops && t->ops->loops(t, cpu_ns);
}

int transport_in_use(const struct transport *t)
{
	return t->ops->in_use(t);
}

int transport_detach(struct transport *t)
{
	return t->ops->detach(t);
}

void transport_stop(struct transport *t)
{
	if (t)
		t->ops->stop(t);
}

/* ---- a disk whose processes were killed ---- */

bool transport_left_find(const char *label, char *path, size_t n)
{
	return ublk_left_find(label, path, n);
}

bool transport_left(const char *path)
{
	return fuse_loop_left(path) || ublk_left(path);
}

dev_t transport_left_end(const char *path, const char *label)
{
	return ublk_left(path) ? ublk_left_end(path, label) : 0;
}

int transport_left_label(int fd, const char *label)
{
	return fuse_loop_left_label(fd, label);
}

int transport_left_check(int fd, const char *label)
{
	return fuse_loop_left_check(fd, label);
}

int transport_left_detach(const char *path, const char *label, bool later)
{
	return ublk_left(path) ? ublk_left_detach(path, label)
			       : fuse_loop_left_detach(path, label, later);
}
