/* SPDX-License-Identifier: MIT */
/*
 * Transports: how a view becomes a disk of the kernel. One so far, a FUSE file with a loop device on
 * it (fuse_loop.c). No caller asks which it is.
 */
#ifndef COWFS_EXPORT_TRANSPORT_H
#define COWFS_EXPORT_TRANSPORT_H

#include <sys/types.h>

#include "export/gate.h"
#include "export/view.h"

struct transport;

/* What to mount. */
struct transport_disk {
	int fd; /* open; another one after a failed transport_detach */
	dev_t rdev;
	char path[32]; /* "/dev/loop7" */
};

struct transport_params {
	int kernel_fd; /* of transport_open; not closed */
	struct view *view;
	struct gate
		*gate; /* NULL: writes are not throttled. Started here, stopped by transport_stop */
	const char *label; /* "cowfs:root": tells whose disk it is; cut at 63 bytes */
	unsigned read_ahead_kb;
	unsigned max_kb, tags; /* of its requests; 0: what the kernel allows */
	bool temporary;	       /* it goes with its last user, should this process be killed */
};

/*
 * The connection to the kernel, to be opened before the process forks: while the parent holds it,
 * too, I/O waits for a worker that died instead of failing. A descriptor, or -errno: -ENOENT,
 * -ENODEV, -ENXIO the kernel has nothing for a transport.
 */
int transport_open(void) MUST_CHECK;
/* On return the disk answers. -errno, with a sentence in why; transport_stop in both cases, unless
 * *ret is NULL. */
int transport_start(struct transport **ret, const struct transport_params *p, char *why,
		    size_t n) MUST_CHECK;
const struct transport_disk *transport_disk(const struct transport *t);
/* A descriptor, t's own, or -1 if the kernel does not give one: "1" written to it ends all I/O with
 * errors at once, whoever still holds the connection. For the parent process. */
int transport_abort_fd(const struct transport *t);
/* Is the disk mounted, swapped on or otherwise claimed? 1, 0, -errno. */
int transport_in_use(const struct transport *t);
/* Takes the disk away; 0 also if it is gone. -EBUSY while it is in use, and then it stays (held by a
 * plain open: said after 5 s). */
int transport_detach(struct transport *t) MUST_CHECK;
/* Joins the serving threads and frees. Waits as long as something holds the disk. NULL allowed. */
void transport_stop(struct transport *t);

/* ---- a disk whose processes were killed ---- */

/* Is there still one at this path? */
bool transport_left(const char *path);
/* fd is open on it. 0: it has this label. -ESRCH: it belongs to something else. Reads nothing. */
int transport_left_label(int fd, const char *label) MUST_CHECK;
/* The same, and a read of it fails; -ESRCH also if it lives. Waits for that read. */
int transport_left_check(int fd, const char *label) MUST_CHECK;
/* Takes it away if transport_left_check says 0. -EBUSY: in use, and then it stays; later: it goes
 * with its last user. */
int transport_left_detach(const char *path, const char *label, bool later) MUST_CHECK;

#endif
