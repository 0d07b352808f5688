/* SPDX-License-Identifier: MIT */
/*
 * The spare process: a copy of the daemon from before it opened anything, which becomes the next
 * worker when the present one dies. The parent cannot make one itself: it has neither the system
 * calls nor the capabilities. It ends with its parent.
 */
#ifndef COWFS_DAEMON_SPARE_H
#define COWFS_DAEMON_SPARE_H

#include <sys/types.h>

#include "base/util.h"

struct spare {
	pid_t pid;
	int sock_fd;
};

/* A link between the parent, pair[0], and a worker, whose end waits at most 1 s for an answer. */
int spare_link(int pair[2]) MUST_CHECK;
/*
 * Forks the spare, which calls prepare and keeps only the n descriptors in keep. Returns 0 in this
 * process. Returns 1 in each worker that spare_ask makes later: *ret_fd is its end of the link to
 * this process, which must be a subreaper: it is the worker's parent.
 */
int spare_start(struct spare *ret, const int *keep, unsigned n, void (*prepare)(void *ctx),
		void *ctx, int *ret_fd) MUST_CHECK;
/* Returns this process's end of the link to a new worker. -EPIPE: the spare is dead; -ETIMEDOUT. */
int spare_ask(const struct spare *s) MUST_CHECK;

#endif
