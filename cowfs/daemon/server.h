/* SPDX-License-Identifier: MIT */
/*
 * Two threads of the daemon. The control thread answers clients on the socket and keeps
 * status.json current. The job thread runs requests that may take long, so that status stays
 * responsive.
 */
#ifndef COWFS_DAEMON_SERVER_H
#define COWFS_DAEMON_SERVER_H

#include "wire/rundir.h"
#include "daemon/link.h"
#include "export/transport.h"
#include "volume/volume.h"

struct server;

struct server_params {
	struct volume *volume;
	struct transport *transport;
	int proc_dirfd;
	const struct rundir *dir; /* claimed; outlives the server */
	int listen_fd;		  /* -1, or from server_listen, or of a daemon that has died */
	bool hidden;		  /* it has the name for which BROKER_LISTEN looks */
	const char *on_crash;	  /* the word of the option, */
	const char *on_crash_why; /* and a clause that says why */
	unsigned replaced;	  /* number of workers that died */
	bool running_root;
	struct signs *signs; /* counts the rounds of the control thread; NULL: nobody looks */
	uint64_t stuck_ns; /* but not while a request has taken more processor time; 0: no limit */
	/*
	 * Called by the job thread once all changes are committed; removes the disk. -EBUSY:
	 * another user has opened it meanwhile, and the daemon continues.
	 */
	int (*let_go)(void *ctx);
	/* Called after let_go: the program may end, and must call server_stop. */
	void (*ended)(void *ctx);
	void *ctx;
};

/* Makes the control socket in a directory. A descriptor or -errno. */
int server_listen(const struct rundir *dir, const char *name) MUST_CHECK;
int server_start(struct server **ret, const struct server_params *p) MUST_CHECK;
/*
 * Waits for a running job, joins the threads, and drops all clients except the one that requested
 * the end.
 */
void server_stop(struct server *s);
/*
 * Call it once everything is released. Reports the result to that client (error: -errno), and
 * frees. NULL allowed.
 */
void server_farewell(struct server *s, int error, const char *why);

#endif
