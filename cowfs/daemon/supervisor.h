/* SPDX-License-Identifier: MIT */
/*
 * The parent process: small, locked in memory, holds the FUSE descriptor and does nothing, until
 * the worker dies or leaves a file system frozen. Then it tells the kernel log and
 *	- reboots, if the volume is the running root (nothing else can help a root without a disk;
 *	  the card holds the last commit);
 *	- otherwise lets go of the FUSE descriptor (I/O then fails instead of hanging), thaws what
 *	  the worker had frozen, and exits with the worker's status.
 */
#ifndef COWFS_DAEMON_SUPERVISOR_H
#define COWFS_DAEMON_SUPERVISOR_H

#include "base/util.h"
#include "daemon/harden.h"

struct supervisor_opts {
	/* From the command line: the volume is going to be the root of this system. Takes effect
	 * only if the process was started from an initramfs, and only after supervisor_serving. */
	bool running_root;
	bool mark;	     /* '@' also when not started from an initramfs */
	bool leave_cgroup;   /* the parent does, or it would be killed with the worker's */
	bool detach_stdio;   /* after supervisor_serving the parent's 0 to 2 are /dev/null */
	char *argv0;	     /* main's argv[0], for the mark */
	int kmsg_fd;	     /* where alarms go; -1: /dev/kmsg, or stderr if there is none */
	uint64_t deadman_ns; /* 0: 10 s */
};

/* What the worker gets; all descriptors are its own. */
struct supervisor_link {
	int sock_fd;   /* to the parent */
	int kernel_fd; /* of transport_open */
	int kmsg_fd;   /* for msg_to_kmsg; -1: none */
	/* Set it to transport_abort_fd before supervisor_serving (which duplicates it): a worker
	 * that is killed while it syncs or freezes its own volume cannot die without it. Else
	 * -1. */
	int abort_fd;
	bool from_ram; /* started from an initramfs */
};

/*
 * Calls transport_open and forks. Returns 0 in the child, which is the worker and hardens itself; the
 * parent does not return: it ends with the worker's exit status, or 128 + the signal that killed
 * it. Call it before there are threads. Errors (in the one process that there is then): those of
 * transport_open, -EAGAIN, ...
 */
int supervisor_start(const struct supervisor_opts *o, struct supervisor_link *ret) MUST_CHECK;

/* From now on the volume is in use: a death before it is a failed start, no alarm and no reboot. */
int supervisor_serving(struct supervisor_link *l) MUST_CHECK;
/* The callback `frozen` of quiesce.h; link is a struct supervisor_link. Returns when the parent has
 * acted, at the latest after a second: after mount_fd -1 it holds no descriptor of the mount. */
void supervisor_frozen(void *link, int mount_fd);

#endif
