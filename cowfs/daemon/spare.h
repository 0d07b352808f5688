/* SPDX-License-Identifier: MIT */
/*
 * The spare process: a copy of the daemon from before it opened anything, which forks the next
 * worker when the present one dies. The parent cannot make one itself: it has neither the system
 * calls nor the capabilities. It ends with its parent.
 */
#ifndef COWFS_DAEMON_SPARE_H
#define COWFS_DAEMON_SPARE_H

#include "base/util.h"

/* Links between the parent, the first of each pair, and a worker: its own, and root's (link.h). */
int spare_link(int own[2], int root[2]) MUST_CHECK;
/*
 * Forks the spare, which calls prepare, keeps only the n descriptors in keep, and waits. Returns 0 in
 * this process, with the socket to the spare, and 1 in each worker that spare_ask makes, with its ends
 * of both links to the parent. This process must be a subreaper: it is the worker's parent.
 */
int spare_start(const int *keep, unsigned n, void (*prepare)(void *ctx), void *ctx,
		int ret_fd[2]) MUST_CHECK;
/*
 * This process's ends of the links to a new worker. Waits as long as the spare takes, or the machine has no
 * memory for a process. -EPIPE: the spare is dead. Then, and only then, can its socket be read without a question.
 */
int spare_ask(int spare_fd, int ret_fd[2]) MUST_CHECK;

#endif
