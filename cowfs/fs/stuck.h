/* SPDX-License-Identifier: MIT */
/*
 * Finds tasks that block a freeze: they sleep in a call that writes to a file of one file system,
 * while their data come from a file on another file system that does not answer. For quiesce.c.
 *
 * FIFREEZE waits for such a task without a limit and cannot be cancelled, and all writers wait
 * behind it. The task can belong to an ordinary user: a write(2) from a mapping of a file on the
 * user's own FUSE mount. Neither a signal nor SIGKILL ends that; aborting the FUSE connection does.
 */
#ifndef COWFS_FS_STUCK_H
#define COWFS_FS_STUCK_H

#include <sys/types.h>

#include "base/util.h"

#define STUCK_CONNS 4

struct stuck_task {
	int pid, tid;
	/* of the process, from /proc: by now another process may have its pid */
	uint64_t start;
	/* system call, arguments and wake-ups: changes when the task makes progress */
	uint64_t mark;
	uint64_t since_ns; /* the first time that it was seen in this unchanged state */
	uid_t uid;	   /* real */
	unsigned conn[STUCK_CONNS], conns; /* FUSE connections that its data come from or go to */
	bool more_conns;		   /* more than fit */
	bool fuse;			   /* waits for FUSE, or probably does */
	bool in_request;		   /* to FUSE, for certain */
	/* holds the lock of a file or folder while it reads; a writer may wait for it */
	bool reads;
	/* a process that takes too long to examine: it may be stuck or not */
	bool suspect;
	unsigned step; /* of its cure */
	char name[40]; /* "comm[pid]" */
};

/* All zero except for the descriptors and device numbers; freed by stuck_free. */
struct stuck {
	int proc_dirfd;
	int fuse_dirfd; /* of fusectl: a folder for each connection; -1: none */
	dev_t st_dev;	/* of the files of the file system */
	/* of the file system in mountinfo if it has several st_dev (btrfs); else 0 */
	dev_t sb_dev;
	struct stuck_task *task;
	size_t n, suspects; /* of them */
	/* also look for tasks that read: a freeze waits for them only if a writer does */
	bool readers;
	bool bounce; /* also look for tasks to bounce (bounce.h) */
	unsigned bounced;
	unsigned aborted; /* the last connection: 60 threads may wait for it */
	char culprit[64];
};

/*
 * Scans /proc once more: unchanged tasks keep since_ns and step, others are added and removed.
 * Allocates. A process can make any reader of its files in /proc wait, or work for a long time. A
 * process that takes more than hang_ns is skipped, as a suspect; further scans skip it until it
 * lets go. -ETIMEDOUT: there are more such processes than can be skipped, and *s has only the
 * suspects. Other errors: no scan was possible.
 */
int stuck_look(struct stuck *s, uint64_t hang_ns) MUST_CHECK;
void stuck_free(struct stuck *s);

/*
 * A task that has been unchanged for long enough to be sure that it makes no progress. A task that
 * writes is preferred to one that reads, one that reads to a suspect, and one that waits for FUSE
 * to one that does not. NULL: none.
 */
const struct stuck_task *stuck_for_long(const struct stuck *s);

/*
 * Goes one step further with such tasks, first with those that stuck_for_long prefers, and reports
 * it. First it aborts the FUSE connections of the task's own user that the task waits for. If that
 * is not enough and `kill` is set, it ends the process. If that fails too, it aborts all
 * connections of that user, and at last the only connection that the task waits for, but never a
 * connection of root for another user. Returns the number of aborted connections.
 */
unsigned stuck_cure(struct stuck *s, bool kill);

#endif
