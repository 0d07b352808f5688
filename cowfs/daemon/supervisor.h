/* SPDX-License-Identifier: MIT */
/*
 * The parent process is small, locked in memory, and holds the FUSE descriptor. It does nothing
 * until the worker dies. It keeps descriptors for the next worker. If it
 * has all that one needs, a dead worker is replaced: the next one takes the volume over, and I/O
 * waits meanwhile. Otherwise, or if workers die again and again, it writes to the kernel log and
 *	- reboots, if the volume is the running root (nothing else can help a root without a
 *	  disk; the card holds the last commit);
 *	- otherwise closes the FUSE descriptor (I/O then fails instead of hanging), and exits with the worker's status.
 */
#ifndef COWFS_DAEMON_SUPERVISOR_H
#define COWFS_DAEMON_SUPERVISOR_H

#include "daemon/link.h"

struct supervisor_opts {
	/*
	 * From the command line: the volume will become the root of this system. Takes effect only
	 * if the process was started from an initramfs, and only after supervisor_serving.
	 */
	bool running_root;
	/* The parent leaves the cgroup of the unit, or it would be killed with the worker. Otherwise, after
	 * supervisor_serving, its descriptors 0 to 2 are /dev/null. */
	bool foreground;
	bool replace;	/* a worker that dies is replaced, */
	bool halt;	/* and halted after deaths in a row; otherwise that is the end */
	int proc_dirfd; /* with replace or foreground: /proc; later workers have it, too */
	char *argv0;	/* main's argv[0], for the mark */
	int kmsg_fd;	/* destination of alarms; -1: /dev/kmsg, or stderr if there is none */
};

/* After this time without a sign of life a worker is killed, if it would be replaced. Tests change
 * it. */
uint64_t supervisor_stuck_ns(void);

/*
 * Calls transport_open and forks. Returns 0 in the child, which is the worker and hardens itself, and
 * again in each later worker. The parent does not return: it ends with the worker's exit status, or
 * 128 + the signal that killed the worker. Call it before there are threads. Errors are those of
 * transport_open, -EAGAIN, ...; they return in the only process that exists then.
 */
int supervisor_start(const struct supervisor_opts *o, struct supervisor_link *ret) MUST_CHECK;

#endif
