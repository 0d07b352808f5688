/* SPDX-License-Identifier: MIT */
/*
 * How a view becomes a disk of the kernel: the view is a FUSE file, and a loop device uses that file.
 */
#ifndef COWFS_EXPORT_TRANSPORT_H
#define COWFS_EXPORT_TRANSPORT_H

#include <sys/types.h>

#include "export/fuse.h"
#include "export/loop.h"
#include "export/throttle.h"
#include "export/view.h"

struct transport;

/* For a process that takes over, in memory that outlives this one. */
struct transport_kept {
	struct fuse_kept fuse;
	struct loop_kept loop;
};

struct transport_params {
	int kernel_fd; /* from transport_open; not closed */
	/* the transport's from then on. With a broker: of transport_prepare. With transport_take_over: the
	 * one of the process that has died. */
	int abort_fd;
	struct view *view;
	struct throttle *throttle; /* NULL: no throttle. Started here, stopped by transport_stop. */
	const char *label; /* "cowfs:root": identifies the owner of the disk; cut at 63 bytes */
	struct loop_limits limits;
	bool temporary;		     /* requests fail at once while the card is away */
	struct transport_kept *kept; /* NULL: it is not taken over later */
};

/* Does the kernel have what a volume needs? 0, or -errno with a sentence in why. Keeps nothing open. */
int transport_check(char *why, size_t n) MUST_CHECK;
/*
 * Opens the connection to the kernel. Call it before the process forks: while the parent also holds
 * it, I/O waits when the worker dies instead of failing. A descriptor, or -errno.
 */
int transport_open(void) MUST_CHECK;
/* Before there is a second thread: its descriptor will have a high number. */
void transport_make_room(int kernel_fd);
/* Before a worker with a broker gives up its privileges: what transport_start needs. The mount is for the
 * broker. */
int transport_prepare(int kernel_fd, int *ret_mount_fd, int *ret_abort_fd) MUST_CHECK;
/* On return the disk answers. On failure -errno, with a sentence in why. Call transport_stop in
 * both cases, unless *ret is NULL. */
int transport_start(struct transport **ret, const struct transport_params *p, char *why,
		    size_t n) MUST_CHECK;
/* For a process that takes over: fills in p->kept of the start. */
void transport_keep(const struct transport *t, struct transport_kept *ret);
/* Serves the disk of a process that has died, whose descriptor this is; opens no block device. After a failure the process
 * ends. */
int transport_take_over(struct transport **ret, const struct transport_params *p, int disk_fd,
			char *why, size_t n) MUST_CHECK;
/* The disk to mount. Its descriptor is replaced after a failed transport_detach. */
const struct loop_dev *transport_disk(const struct transport *t);
/* A descriptor, owned by t, or -1 if the kernel has none. Writing "1" to it ends all I/O with
 * errors at once, even if another process holds the connection. For the parent process. */
int transport_abort_fd(const struct transport *t);
/* Has a thread spent cpu_ns of processor time in one request, since the first call that met it in
 * there? One thread calls it. */
bool transport_loops(struct transport *t, uint64_t cpu_ns);
/* Is the disk mounted, swapped on or otherwise claimed? 1, 0, -errno. */
int transport_in_use(const struct transport *t);
/* Removes the disk; returns 0 also if it is already gone. -EBUSY: the disk is in use and stays. A
 * plain open is reported after 5 s. */
int transport_detach(struct transport *t) MUST_CHECK;
/* Joins the serving threads and frees t. Blocks while anything holds the disk. NULL allowed. */
void transport_stop(struct transport *t);

/* ---- a disk whose processes were killed: a loop device whose FUSE connection is gone ---- */

/* Does a left-over disk exist at this path? */
bool transport_left(const char *path);
/* fd is open on the disk. 0: it has this label. -ESRCH: it belongs to something else. Reads
 * nothing. */
int transport_left_label(int fd, const char *label) MUST_CHECK;
/* Like transport_left_label, but 0 also requires that a read of the disk fails. -ESRCH also if it
 * answers. Waits for that read. */
int transport_left_check(int fd, const char *label) MUST_CHECK;
/* Removes the disk if transport_left_check returns 0. -EBUSY: in use; the disk stays. later: it
 * disappears with its last user. */
int transport_left_detach(const char *path, const char *label, bool later) MUST_CHECK;

#endif
