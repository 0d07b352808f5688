/* SPDX-License-Identifier: MIT */
/*
 * The cgroups that a process lives in, v1 and v2. The daemon must not share a memory limit with the
 * programs that write to its volume, nor end with the cgroup of whoever started it.
 */
#ifndef COWFS_DAEMON_CGROUP_H
#define COWFS_DAEMON_CGROUP_H

#include <limits.h>

#include "base/util.h"

struct cgroup_limit {
	uint64_t bytes;	     /* 0: none below the memory of the machine */
	char path[PATH_MAX]; /* of the cgroup that sets it, below its hierarchy's mount */
};

/*
 * Moves the calling process, which must have one thread, to the root of the hierarchies by which
 * processes are killed (v2, systemd's of v1), and of v1's memory hierarchy if memory is limited
 * there. Best effort: cgroup_limit tells what is left. proc_dirfd: /proc.
 */
void cgroup_leave(int proc_dirfd);

/* The tightest limit of memory that the calling process lives under, as far as it can be seen. */
void cgroup_limit(int proc_dirfd, struct cgroup_limit *ret);

#endif
