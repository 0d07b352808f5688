/* SPDX-License-Identifier: MIT */
/*
 * The control thread of the daemon: answers clients on the socket and keeps status.json fresh; and
 * the job thread, which runs what may take long, so that a status is answered meanwhile.
 */
#ifndef COWFS_DAEMON_SERVER_H
#define COWFS_DAEMON_SERVER_H

#include "wire/rundir.h"
#include "export/transport.h"
#include "volume/volume.h"

struct server;

struct server_params {
	struct volume *volume;
	struct transport *transport;
	int proc_dirfd;
	const struct rundir *dir; /* claimed; outlives the server */
	/* Called by the job thread once everything is on the card: takes the disk away.
	 * -EBUSY: somebody was faster and uses it; the daemon goes on. */
	int (*let_go)(void *ctx);
	/* After that: the program may end (and has to call server_stop). */
	void (*ended)(void *ctx);
	void *ctx;
};

int server_start(struct server **ret, const struct server_params *p) MUST_CHECK;
/* Waits for a job under way, joins the threads, drops the clients but the one that asked for the
 * end. */
void server_stop(struct server *s);
/* When everything is let go: tells that client how it went (error: -errno), and frees. NULL
 * allowed. */
void server_farewell(struct server *s, int error, const char *why);

#endif
