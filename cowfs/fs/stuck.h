/* SPDX-License-Identifier: MIT */
/*
 * Finds tasks that block a freeze: asleep in a call that writes to a file of one file system, while
 * the data come from a file on another one that does not answer. For quiesce.c.
 *
 * FIFREEZE waits for such a task without a limit and cannot be cancelled, and all writers wait
 * behind it. The task can be an ordinary user's: a write(2) from a mapping of a file on a FUSE
 * mount of his own. Neither a signal nor SIGKILL ends that; aborting the FUSE connection does.
 */
#ifndef COWFS_FS_STUCK_H
#define COWFS_FS_STUCK_H

#include <sys/types.h>

#include "base/util.h"

#define STUCK_CONNS 4

struct stuck_task {
	int pid, tid;
	/* of the process, as /proc tells it: another one may have its pid by now */
	uint64_t start;
	/* its system call, arguments and wake-ups: changes when it makes progress */
	uint64_t mark;
	uint64_t since_ns;		   /* unchanged since it was first seen so */
	uid_t uid;			   /* real */
	unsigned conn[STUCK_CONNS], conns; /* FUSE connections that its data come from or go to */
	bool more_conns;		   /* than fit */
	bool fuse;			   /* waits for FUSE, or may well */
	bool in_request;		   /* to FUSE, for certain */
	/* holds the lock of a file or folder while it reads that; a writer may wait for it */
	bool reads;
	/* a process that takes too long to look at: it may be one of these, or not */
	bool suspect;
	unsigned step; /* of its cure */
	char name[40]; /* "comm[pid]" */
};

/* All zero but for the descriptors and device numbers; freed by stuck_free. */
struct stuck {
	int proc_dirfd;
	int fuse_dirfd; /* of fusectl: a folder for each connection; -1: there is none */
	dev_t st_dev;	/* of the files of the file system */
	/* of the file system in mountinfo if it has several st_dev (btrfs); else 0 */
	dev_t sb_dev;
	struct stuck_task *task;
	size_t n, suspects; /* of them */
	/* look for tasks that read as well: a freeze waits for them only if a writer does */
	bool readers;
	bool bounce; /* look for tasks to bounce as well (bounce.h) */
	unsigned bounced;
	unsigned aborted; /* the last connection: 60 threads may wait for it */
	char culprit[64];
};

/*
 * Scans /proc once more: tasks that have not changed keep since_ns and step, others are added and
 * removed. Allocates. A process can make whoever reads its files in /proc wait, or work long. One
 * that takes more than hang_ns is left out, as a suspect; further scans leave it out until it has
 * let go. -ETIMEDOUT: there are more of them than can be left out, and *s is as it was. Other
 * errors: no scan was possible.
 */
int stuck_look(struct stuck *s, uint64_t hang_ns) MUST_CHECK;
void stuck_free(struct stuck *s);

/* A task that has been as it is for long enough to say that it makes no progress, rather one that
 * writes than one that reads, rather one that reads than a suspect, rather one that waits for FUSE
 * than another; NULL: none. */
const struct stuck_task *stuck_for_long(const struct stuck *s);

/*
 * Goes one step further with such tasks, first with those that stuck_for_long prefers, and says so:
 * aborts the FUSE connections of its own user that the task waits for; if that is not enough and
 * `kill`, ends the process; if that neither, aborts all connections of that user, at last the only
 * one that it waits for, but never one of root's for another user. Returns how many connections
 * were aborted.
 */
unsigned stuck_cure(struct stuck *s, bool kill);

#endif
