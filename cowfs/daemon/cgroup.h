/* SPDX-License-Identifier: MIT */
/*
 * The cgroups of a process, v1 and v2. The daemon must not share a memory limit with the programs
 * that write to its volume. It must not end with the cgroup of the process that started it.
 */
#ifndef COWFS_DAEMON_CGROUP_H
#define COWFS_DAEMON_CGROUP_H

#include <limits.h>

#include "base/util.h"

struct cgroup_limit {
	uint64_t bytes; /* 0: no limit below the memory of the machine */
	/* cgroup that sets the limit, relative to the mount of its hierarchy */
	char path[PATH_MAX];
};

/*
 * Moves the calling process to the root of the hierarchies by which processes are killed (v2,
 * systemd's of v1), and of v1's memory hierarchy if memory is limited there. The process must have
 * one thread. Best effort: cgroup_limit reports the remaining limit. proc_dirfd: /proc.
 */
void cgroup_leave(int proc_dirfd);

/* The tightest visible memory limit that applies to the calling process. */
void cgroup_limit(int proc_dirfd, struct cgroup_limit *ret);

#endif
