/* SPDX-License-Identifier: MIT */
/*
 * The thaw of the parent, which may sleep for as long as a worker does: in a thread of its own, so
 * that the parent still sees the worker's death. Such a thread must not keep /dev/fuse open either.
 */
#ifndef COWFS_DAEMON_APART_H
#define COWFS_DAEMON_APART_H

#include <stdatomic.h>

#include "fs/quiesce_call.h"

/* Thaws in its own thread, one job at a time. */
struct thawer {
	int event_fd;
	int job_fd;   /* owned by the thread while busy */
	bool started; /* a job for the current freeze; earlier jobs do not count */
	atomic_bool busy;
	atomic_int result; /* of the last job */
};

int thawer_start(struct thawer *t) MUST_CHECK;
/* 0: thawed. -EAGAIN: no answer within wait_ns; call again. -EINVAL: it is not frozen. */
int thaw(struct thawer *t, int mount_fd, uint64_t wait_ns) MUST_CHECK;

#endif
