/* SPDX-License-Identifier: MIT */
/*
 * /run/cowfs/NAME of a running daemon: control (socket, 0600), status.json and pid (0644), lock
 * (0600). The daemon holds the lock for life: a second one of the same name is refused, and what a
 * dead one left is taken over. After the claim everything goes through the kept descriptors.
 */
#ifndef COWFS_WIRE_RUNDIR_H
#define COWFS_WIRE_RUNDIR_H

#include "base/util.h"

#define RUNDIR_SOCKET "control"
#define RUNDIR_STATUS "status.json"
#define RUNDIR_PID "pid"
#define RUNDIR_LOCK "lock"
#define RUNDIR_NAME_BYTES 64 /* with the terminator */
#define ROOT_NAME "root"     /* the volume that is the root of the system */

/* /run/cowfs, or COWFS_RUNDIR of the environment in tests (not when set-uid) */
const char *rundir_path(void);
/* [A-Za-z0-9._-]+, no leading dot, at most 63 */
bool rundir_name_valid(const char *name);
#define RUNDIR_NO_NAME                                                                             \
	"is no name for a volume: letters, digits, '.', '_' and '-', at most 63, no leading dot"

struct rundir {
	int parent_fd, fd, lock_fd;
	char name[RUNDIR_NAME_BYTES];
};

/* Takes the name. -EBUSY another daemon has it; -EINVAL bad name; else what the system says. */
int rundir_claim(struct rundir *ret, const char *name) MUST_CHECK;
/* Replaces a file: readers see the old or the new one. */
int rundir_publish(const struct rundir *d, const char *file, const char *text,
		   size_t len_bytes) MUST_CHECK;
/* Closes, and leaves all as it is. */
void rundir_leave(struct rundir *d);
/* Takes the files and the directory away and closes. */
void rundir_release(struct rundir *d);
#endif
