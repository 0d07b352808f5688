/* SPDX-License-Identifier: MIT */
/*
 * Restricts what a process of the daemon may ask of the kernel: its capabilities and its system
 * calls. The tables and the reason of each entry are in confine.c.
 */
#ifndef COWFS_DAEMON_CONFINE_H
#define COWFS_DAEMON_CONFINE_H

#include <sys/types.h>

#include "base/util.h"

enum confine_role {
	CONFINE_START,	/* the worker while it opens the card and creates its devices */
	CONFINE_NEXT,	/* one that takes over, until it serves: it creates and opens no devices */
	CONFINE_WORKER, /* the worker while it serves; narrower, applied after the others */
	CONFINE_PARENT,
	CONFINE_BROKER, /* daemon/broker_serve.h */
	CONFINE_ROLES
};

/*
 * Permanently gives up all capabilities that the role does not need (bounding set, no new
 * privileges). Workers need none. Affects only the
 * calling thread and the threads that it starts afterwards. -errno: some or all capabilities
 * remain.
 */
int confine_capabilities(enum confine_role role) MUST_CHECK;

/*
 * Allows only the system calls of the role, in all threads of the process. May be called again for
 * a narrower role. A refused call fails with EPERM and is logged by the kernel. With
 * COWFS_SECCOMP=kill in the environment it ends the process (for tests). Allocates. -errno: no
 * filter is in force. -ENOTSUP: not in this build (sanitizers).
 */
int confine_calls(enum confine_role role) MUST_CHECK;

/* Becomes another user for good; the capabilities stay until confine_capabilities. -errno: it is still
 * the user that it was, perhaps without its groups. */
int confine_user(uid_t uid, gid_t gid) MUST_CHECK;
/* Gets an empty root directory, out of which no path leads. Descriptors of folders elsewhere still do,
 * so the process must have none. Needs CAP_SYS_ADMIN and CAP_SYS_CHROOT. */
int confine_files(void) MUST_CHECK;

/* The capabilities that the role keeps, as in CapEff of /proc/PID/status. For tests. */
uint64_t confine_capability_mask(enum confine_role role);

#endif
