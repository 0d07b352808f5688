/* SPDX-License-Identifier: MIT */
/* Shared by the three files of the server: server.c (start, poll, end), sessions.c, queue.c. */
#ifndef COWFS_DAEMON_SERVER_PRIVATE_H
#define COWFS_DAEMON_SERVER_PRIVATE_H

#include "base/thread.h"
#include "wire/linebuf.h"
#include "wire/proto.h"
#include "daemon/server.h"
#include "daemon/views.h"

#define CLIENTS 32
#define JOBS_MAX (CLIENTS / 2) /* clients that wait for a job leave places for others */
#define GRACE_NS 100000000ull  /* a client keeps its place for so long without a word */
#define LINES_MAX 4	       /* requests of one client before it is the turn of the next one */
#define OUT_BYTES (128 * KIB)  /* limit of unread output for a client */
#define TEXT_BYTES (16 * KIB)  /* longest answer */
#define STACK_BYTES (256 * KIB)

enum work { WORK_NONE, WORK_QUEUED, WORK_RUNNING, WORK_DONE };

struct session {
	int fd;		   /* -1: disconnected */
	bool eof, closing; /* nothing more to read; close once everything is written */
	bool more;	   /* in `in`: requests that wait for the next round */
	struct linebuf in, out;
	uint64_t active_ns;
	/* under the server's lock while work != WORK_NONE */
	enum work work;
	uint64_t ticket;   /* position in the queue */
	uint64_t until_ns; /* of a commit with a deadline; 0: none */
	struct request rq;
	int passed_fd; /* received with the request; -1: none */
	struct volume_result result;
	struct volume_image image; /* of a view */
	struct volume_trim trim;
};

struct server {
	struct server_params p;
	struct views *views;
	pthread_t control, jobs;
	int listen_fd, event_fd;
	pthread_mutex_t lock;
	pthread_cond_t wake; /* for the job thread */
	bool stop;	     /* protected by lock, like the next two: */
	bool detached;	     /* `last` still awaits the farewell */
	struct session *last;
	uint64_t tickets;
	/* control thread only */
	struct session clients[CLIENTS];
	struct volume_status status;
	struct volume_wear wear;
	struct volume_changes changes;
	uint64_t next_tick_ns;
	bool accept_pause;
	size_t published_bytes;
	bool loops; /* control thread: a request has taken too long */
	char text[TEXT_BYTES], published[TEXT_BYTES];
};

/* queue.c */
void *server_job_thread(void *arg);
enum work server_work_of(struct server *s, const struct session *c);
/* Is a job queued or running? */
/* Trims make way. */
bool server_any_work(struct server *s, bool with_trims);
unsigned server_jobs(struct server *s); /* clients with a job that is not answered yet */
void server_queue_job(struct server *s, struct session *c, const struct request *rq);
/* Takes the result of a finished job: true once. */
bool server_take_result(struct server *s, struct session *c, struct volume_result *ret);
void server_kick(struct server *s); /* wakes the control thread */

/* sessions.c: control thread only */
/* Writes the fields of the status. */
void server_render_status(struct server *s, struct jsonw *w);
struct jsonw server_writer(struct server *s);
/* Sends to the client what was written with w. Drops a client that does not read its answers. */
void server_send(struct server *s, struct session *c, struct jsonw *w);
void server_send_result(struct server *s, struct session *c, const struct volume_result *r);
void server_drop(struct server *s, struct session *c);
/* Handles revents of one client, then does whatever its buffers allow. */
void server_serve_client(struct server *s, struct session *c, short revents);
void server_accept(struct server *s);
/* How long the next client has to wait for a place, in ms; 0: there is one. */
int server_full_ms(struct server *s);

#endif
