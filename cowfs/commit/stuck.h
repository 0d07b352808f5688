/* SPDX-License-Identifier: MIT */
/*
 * Finds tasks that block a freeze: asleep in a call that writes to a file of one file system, while the
 * data come from a file on another one that does not answer. For quiesce.c.
 *
 * FIFREEZE waits for such a task without a limit and cannot be cancelled, and all writers wait
 * behind it. The task can be an ordinary user's: a write(2) from a mapping of a file on a FUSE mount
 * of his own. Neither a signal nor SIGKILL ends that; aborting the FUSE connection does.
 */
#ifndef COWFS_COMMIT_STUCK_H
#define COWFS_COMMIT_STUCK_H

#include <sys/types.h>

#include "base/util.h"

#define STUCK_TASKS 256
#define STUCK_CONNS 4

struct stuck_task {
	int pid, tid;
	uint64_t mark;	   /* its system call, arguments and wake-ups: changes when it makes progress */
	uint64_t since_ns; /* unchanged since it was first seen so */
	unsigned conn[STUCK_CONNS], conns; /* FUSE connections that it waits for */
	bool reads;	   /* holds the lock of a file or folder while it reads that; a writer may wait for it */
	char name[64];	   /* "comm[pid]" */
};

struct stuck {
	int proc_dirfd;
	int fuse_dirfd; /* of fusectl: a folder for each connection; -1: there is none */
	dev_t st_dev;	/* of the files of the file system */
	dev_t sb_dev;	/* of the file system in mountinfo if it has several st_dev (btrfs); else 0 */
	unsigned n;
	struct stuck_task task[STUCK_TASKS];
	bool readers;	/* look for tasks that read as well: a freeze waits for them only if a writer does */
	bool bounce;	/* look for tasks to bounce as well (bounce.h) */
	unsigned bounced;
	char culprit[64];
};

/*
 * Scans /proc once more: tasks that have not changed keep since_ns, others are added and removed.
 * Allocates. Waits at most timeout_ns, because a process can block the readers of its files in /proc.
 * Then the result is -ETIMEDOUT, and task[0] is that process alone (since_ns 0). The scan ends when that
 * process does; until then further scans are -ETIMEDOUT at once. Other errors: no scan was possible.
 */
int stuck_look(struct stuck *s, uint64_t timeout_ns) MUST_CHECK;

/* A task that has been as it is for long enough to say that it makes no progress, rather one that writes than one that
 * reads; NULL: none. */
const struct stuck_task *stuck_for_long(const struct stuck *s);

/* Aborts the FUSE connections that such tasks wait for, those of readers only if there is no writer, and says so. How many. */
unsigned stuck_abort(const struct stuck *s);
/* Ends the process with SIGKILL, aborts every FUSE connection that only its mount namespace has, and
 * says so. */
void stuck_kill(const struct stuck *s, const struct stuck_task *t);

#endif
