/* SPDX-License-Identifier: MIT */
/*
 * The spare process: a copy of the daemon from before it opened anything, which becomes the next
 * worker when the present one dies. The parent cannot make one itself: it has neither the system
 * calls nor the capabilities. It ends with its parent. When it is asked, a copy of it executes
 * another program, which says hello when it can take its place.
 */
#ifndef COWFS_DAEMON_SPARE_H
#define COWFS_DAEMON_SPARE_H

#include <sys/types.h>

#include "base/util.h"

struct spare {
	pid_t pid;
	int sock_fd;
};

/* The first message of a spare that was executed. */
struct spare_hello {
	uint32_t layout; /* base/layout.h */
	char version[32];
};

enum spare_role { SPARE_WORKER = 1, SPARE_EXECUTES = 2 };

/* A link between the parent, pair[0], and a worker, whose end waits at most 1 s for an answer. */
int spare_link(int pair[2]) MUST_CHECK;
/*
 * Forks the spare, which calls prepare and keeps only the n descriptors in keep. Returns 0 in this
 * process. Later it returns what spare_serve returns. This process must be a subreaper: it is the
 * worker's parent.
 */
int spare_start(struct spare *ret, const int *keep, unsigned n, void (*prepare)(void *ctx),
		void *ctx, int *ret_fd) MUST_CHECK;
/*
 * The spare's work: waits on its socket. Returns in new processes only, a role: SPARE_WORKER in a worker
 * that spare_ask made, SPARE_EXECUTES in one that has to execute a program. *ret_fd is its end of
 * the link to the parent.
 */
enum spare_role spare_serve(int sock_fd, int *ret_fd);
/* Returns this process's end of the link to a new process. -EPIPE: the spare is dead; -ETIMEDOUT. */
int spare_ask(const struct spare *s, enum spare_role role) MUST_CHECK;
/* When its socket can be read, although nothing was asked: drops a late answer. False: it is dead. */
bool spare_lives(const struct spare *s);

#endif
