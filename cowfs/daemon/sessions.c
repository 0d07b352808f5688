/* SPDX-License-Identifier: MIT */
/* The clients of the control thread: accept, read requests, send answers, drop. */
#include "daemon/server_private.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "wire/render.h"

void server_render_status(struct server *s, struct jsonw *w)
{
	bool no_spare = s->p.signs && s->p.signs->no_spare;

	volume_get_status(s->p.volume, &s->status);
	if (no_spare && !*s->status.alarm)
		snprintf(
			s->status.alarm, sizeof(s->status.alarm),
			"a worker that dies is not replaced any more, and what is not committed is lost with it: "
			"run cowctl commit");
	render_status(w, &s->status);
	jsonw_str(w, "on_crash", !no_spare ? s->p.on_crash : s->p.running_root ? "reboot" : "stop");
	jsonw_str(w, "on_crash_reason",
		  no_spare ? "the process that would replace the worker died" : s->p.on_crash_why);
	jsonw_u64(w, "replaced", s->p.replaced);
	jsonw_bool(w, "halted", s->status.halted);
}

void server_drop(struct server *s, struct session *c)
{
	linebuf_free(&c->in);
	linebuf_free(&c->out);
	LOCKED(&s->lock);
	cleanup_closep(&c->fd);
	if (c->work == WORK_QUEUED)
		c->work = WORK_NONE;
	cleanup_closep(&c->passed_fd);
}

void server_send(struct server *s, struct session *c, struct jsonw *w)
{
	size_t len = jsonw_finish(w);
	int e;

	if (c->fd < 0)
		return;
	e = len ? linebuf_append(&c->out, s->text, len) : -ENOBUFS;
	if (e == 0)
		e = linebuf_flush(&c->out, c->fd);
	if (e < 0 && e != -EAGAIN)
		server_drop(s, c);
}

struct jsonw server_writer(struct server *s)
{
	struct jsonw w;

	jsonw_init(&w, s->text, sizeof(s->text));
	return w;
}

static void send_error(struct server *s, struct session *c, int error, enum exit_code exit,
		       const char *why)
{
	struct jsonw w = server_writer(s);

	answer_error(&w, error, exit, why);
	server_send(s, c, &w);
}

void server_send_result(struct server *s, struct session *c, const struct volume_result *r)
{
	struct jsonw w = server_writer(s);

	if (r->error)
		answer_error(&w, r->error, r->error == -ENOMEDIUM ? EXIT_AWAY : EXIT_FAILED,
			     r->why);
	else
		answer_ok(&w);
	if (c->rq.command == COMMAND_VIEW)
		render_image(&w, &c->image);
	else if (c->rq.command == COMMAND_TRIM)
		jsonw_u64(&w, "trimmed_bytes", c->trim.bytes);
	else
		render_result(&w, r);
	server_send(s, c, &w);
}

static void send_status(struct server *s, struct session *c)
{
	struct jsonw w = server_writer(s);

	answer_ok(&w);
	server_render_status(s, &w);
	server_send(s, c, &w);
}

static void send_wear(struct server *s, struct session *c, const struct request *rq)
{
	struct jsonw w = server_writer(s);

	volume_get_wear(s->p.volume, (uint32_t)rq->first, &s->wear);
	answer_ok(&w);
	render_wear(&w, &s->wear);
	server_send(s, c, &w);
}

static void send_changes(struct server *s, struct session *c, const struct request *rq)
{
	struct jsonw w = server_writer(s);

	volume_get_changes(s->p.volume, rq->first, &s->changes);
	answer_ok(&w);
	render_changes(&w, &s->changes);
	server_send(s, c, &w);
}

static void set_discard(struct server *s, struct session *c, bool armed)
{
	struct volume_status st;
	struct jsonw w;

	volume_get_status(s->p.volume, &st);
	if (!armed && st.replaced_by) {
		send_error(
			s, c, -EBUSY, EXIT_FAILED,
			"the next start has what was imported, and nothing of now can be committed");
		return;
	}
	volume_arm_discard(s->p.volume, armed);
	w = server_writer(s);
	answer_ok(&w);
	jsonw_bool(&w, "discard_armed", armed);
	server_send(s, c, &w);
}

static void serve_inhibit(struct server *s, struct session *c, const struct request *rq)
{
	uint64_t wanted = rq->seconds ? rq->seconds : INHIBIT_DEFAULT_S;
	uint64_t seconds = rq->command == COMMAND_UNINHIBIT ? 0 : wanted;
	struct jsonw w = server_writer(s);

	if (seconds > INHIBIT_MAX_S) {
		send_error(s, c, -EINVAL, EXIT_USAGE,
			   "timer commits are inhibited for at most 24 hours");
		return;
	}
	volume_inhibit(s->p.volume, seconds * 1000000000u);
	answer_ok(&w);
	jsonw_u64(&w, "inhibit_seconds", seconds);
	server_send(s, c, &w);
}

static void serve_job(struct server *s, struct session *c, const struct request *rq)
{
	if (server_jobs(s) >= JOBS_MAX)
		send_error(s, c, -EBUSY, EXIT_FAILED, "too many clients wait for a commit");
	else
		server_queue_job(s, c, rq);
}

static void serve_line(struct server *s, struct session *c, const char *line, size_t len)
{
	struct request rq;
	char why[200];
	int e = request_parse(line, len, &rq, why, sizeof(why));

	if (e < 0) {
		send_error(s, c, e, EXIT_USAGE, why);
		return;
	}
	switch (rq.command) {
	case COMMAND_STATUS:
		send_status(s, c);
		break;
	case COMMAND_WEAR:
		send_wear(s, c, &rq);
		break;
	case COMMAND_CHANGES:
		send_changes(s, c, &rq);
		break;
	case COMMAND_DISCARD:
		set_discard(s, c, !rq.cancel);
		break;
	case COMMAND_INHIBIT:
	case COMMAND_UNINHIBIT:
		serve_inhibit(s, c, &rq);
		break;
	case COMMAND_COMMIT:
	case COMMAND_DETACH:
		if (rq.when_unmounted) {
			struct jsonw w = server_writer(s);

			volume_detach_later(s->p.volume);
			answer_ok(&w);
			server_send(s, c, &w);
		} else if (rq.no_wait && server_any_work(s, false))
			send_error(s, c, -EBUSY, EXIT_FAILED, "another commit is under way");
		else
			serve_job(s, c, &rq);
		break;
	case COMMAND_VIEW:
	case COMMAND_TRIM:
	case COMMAND_ACCEPT:
	case COMMAND_UNDO:
	case COMMAND_RENEW:
		c->trim = (struct volume_trim){ 0 };
		serve_job(s, c, &rq);
		break;
	case COMMAND_NONE:
		break;
	}
}

static void serve_lines(struct server *s, struct session *c)
{
	const char *line;
	size_t len;

	for (unsigned n = 0; c->fd >= 0 && server_work_of(s, c) == WORK_NONE; n++) {
		line = linebuf_line(&c->in, &len);
		c->more = line && n == LINES_MAX;
		if (!line || c->more)
			return;
		serve_line(s, c, line, len);
		if (c->fd >= 0)
			linebuf_drop_line(&c->in, len);
	}
}

static void read_client(struct server *s, struct session *c)
{
	ssize_t n = linebuf_fill_passed(&c->in, c->fd, &c->passed_fd);

	c->active_ns = now_ns();
	if (n == 0) {
		c->eof = true;
	} else if (n == -E2BIG) {
		c->closing = true;
		send_error(s, c, -E2BIG, EXIT_USAGE, "the request is too long");
	} else if (n < 0 && n != -EAGAIN) {
		server_drop(s, c);
	}
}

void server_serve_client(struct server *s, struct session *c, short revents)
{
	struct volume_result result;

	if (server_take_result(s, c, &result))
		server_send_result(s, c, &result);
	if (c->fd < 0)
		return;
	if (revents &
	    (POLLHUP | POLLERR)) { /* both directions are closed: an answer would not be read */
		server_drop(s, c);
		return;
	}
	if (revents & POLLIN)
		read_client(s, c);
	if (c->fd >= 0 && !c->closing)
		serve_lines(s, c);
	if (c->fd >= 0 && c->out.len) {
		int e = linebuf_flush(&c->out, c->fd);

		if (e < 0 && e != -EAGAIN)
			server_drop(s, c);
	}
	if (c->fd >= 0 && !c->out.len && !c->more && (c->eof || c->closing) &&
	    server_work_of(s, c) == WORK_NONE)
		server_drop(s, c);
}

/*
 * A free slot, otherwise that of the client that has been silent longest and has no pending
 * request. There is always one: see JOBS_MAX.
 */
static struct session *slot(struct server *s)
{
	struct session *oldest = NULL;

	for (struct session *c = s->clients; c < s->clients + CLIENTS; c++) {
		if (server_work_of(s, c) != WORK_NONE)
			continue;
		if (c->fd < 0)
			return c;
		if (!oldest || c->active_ns < oldest->active_ns)
			oldest = c;
	}
	return oldest;
}

/* Who connects often does not displace a client that is about to write its request. */
int server_full_ms(struct server *s)
{
	const struct session *c = slot(s);
	uint64_t silent_ns = c->fd < 0 ? GRACE_NS : now_ns() - c->active_ns;

	return silent_ns >= GRACE_NS ? 0 : (int)((GRACE_NS - silent_ns) / 1000000) + 1;
}

/* For a client that is not served: one line into the empty socket buffer, if it fits. */
static void turn_away(int fd, int error, const char *why)
{
	char text[256];
	struct jsonw w;
	size_t len;

	jsonw_init(&w, text, sizeof(text));
	answer_error(&w, error, EXIT_FAILED, why);
	len = jsonw_finish(&w);
	if (send(fd, text, len, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		return; /* the client did not ask for progress */
}

void server_accept(struct server *s)
{
	_cleanup_close_ int fd = accept4(s->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct ucred peer;
	socklen_t len = sizeof(peer);
	struct session *c;

	if (fd < 0) {
		/* out of descriptors or memory: try again at the next tick instead of spinning */
		s->accept_pause = errno != EAGAIN && errno != EINTR && errno != ECONNABORTED;
		return;
	}
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0 ||
	    (peer.uid != 0 && peer.uid != geteuid())) {
		turn_away(fd, -EPERM, "only root may control this volume");
		return;
	}
	c = slot(s);
	if (c->fd >= 0)
		server_drop(s, c);
	c->in = (struct linebuf){ .max_bytes = PROTO_LINE_BYTES };
	c->out = (struct linebuf){ .max_bytes = OUT_BYTES };
	c->eof = c->closing = c->more = false;
	c->active_ns = now_ns();
	c->fd = steal_fd(&fd);
}
