/* SPDX-License-Identifier: MIT */
/*
 * Two threads.
 * - The control thread polls the listening socket, the clients and an eventfd. It waits for
 *   nothing else, and its reads and writes do not block. It buffers unread output of a client up
 *   to a limit, then drops the client.
 * - The job thread takes requests that may take long from the clients' slots, oldest first, and
 *   calls the volume. It touches only the fields of a slot below "lock", and no socket.
 *
 * If a client disconnects while its job runs, its slot stays taken until the job is done. A queued
 * job of a client that has disconnected is not started.
 */
#include "daemon/server_private.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/broker.h"
#include "base/msg.h"
#include "base/thread.h"
#include "wire/render.h"

#define BUSY_TICK_NS 200000000ull
#define IDLE_TICK_NS 1000000000ull
#define FAREWELL_MS 2000
#define CONTROL_NICE (-5)

/* len 0: none any more. */
static int write_status(const struct server *s, const char *text, size_t len)
{
	struct broker_message m = { .op = BROKER_PUBLISH };

	if (!broker_on())
		return rundir_publish_status(s->p.dir, text, len);
	m.bytes = (uint32_t)min_u64(len, sizeof(m.data));
	memcpy(m.data, text, m.bytes);
	return broker_ask(BROKER_LOOK, &m, NULL);
}

static void publish(struct server *s)
{
	struct jsonw w = server_writer(s);
	size_t len;

	answer_ok(&w);
	server_render_status(s, &w);
	len = jsonw_finish(&w);
	if (!len || (len == s->published_bytes && !memcmp(s->text, s->published, len)))
		return;
	if (write_status(s, s->text, len) < 0)
		return; /* tmpfs full: the next tick tries again */
	memcpy(s->published, s->text, len);
	s->published_bytes = len;
}

static void send_progress(struct server *s, const struct volume_progress *p)
{
	for (struct session *c = s->clients; c < s->clients + CLIENTS; c++) {
		enum work work = server_work_of(s, c);
		struct jsonw w = server_writer(s);

		/* a client that is behind gets its answer, but no progress events */
		if (c->fd < 0 || c->out.len || (work != WORK_RUNNING && work != WORK_QUEUED))
			continue;
		jsonw_object(&w, NULL);
		jsonw_str(&w, "event", work == WORK_RUNNING ? "progress" : "waiting");
		render_progress(&w, p);
		server_send(s, c, &w);
	}
}

/* Runs the periodic work. Returns how long the poll may sleep. */
static int tick(struct server *s)
{
	uint64_t now = now_ns();
	struct volume_progress p;
	bool busy;

	volume_get_progress(s->p.volume, &p);
	busy = server_any_work(s, true) || p.job != JOB_NONE;
	if (busy && s->next_tick_ns > now + BUSY_TICK_NS)
		s->next_tick_ns = now + BUSY_TICK_NS;
	if (now >= s->next_tick_ns) {
		s->next_tick_ns = now + (busy ? BUSY_TICK_NS : IDLE_TICK_NS);
		s->accept_pause = false;
		publish(s);
		if (busy)
			send_progress(s, &p);
	}
	return (int)((s->next_tick_ns - now) / 1000000) + 1;
}

static short wanted(struct server *s, const struct session *c)
{
	short events = c->out.len ? POLLOUT : 0;

	if (!c->eof && !c->closing && !c->more && server_work_of(s, c) == WORK_NONE)
		events |= POLLIN;
	return events;
}

static bool stopping(struct server *s)
{
	LOCKED(&s->lock);

	return s->stop;
}

/* A request that never ends: without a sign of life the parent process acts. */
static bool loops(struct server *s)
{
	bool yes = s->p.stuck_ns && transport_loops(s->p.transport, s->p.stuck_ns);

	if (yes && !s->loops)
		msg(MSG_ERR,
		    "%s: a request has taken %llu s of processor time: the worker is stuck",
		    s->p.dir->name, (unsigned long long)(s->p.stuck_ns / 1000000000));
	s->loops = yes;
	return yes;
}

static void *control_thread(void *arg)
{
	struct server *s = arg;
	struct pollfd fds[CLIENTS + 2];
	uint64_t count;

	while (!stopping(s)) {
		int timeout_ms = tick(s), full_ms = server_full_ms(s);

		if (s->p.signs && !loops(s))
			++s->p.signs->alive;
		fds[0] = (struct pollfd){ .fd = s->event_fd, .events = POLLIN };
		fds[1] = (struct pollfd){ .fd = s->accept_pause || full_ms ? -1 : s->listen_fd,
					  .events = POLLIN };
		if (full_ms && full_ms < timeout_ms)
			timeout_ms = full_ms;
		for (size_t i = 0; i < CLIENTS; i++) {
			fds[i + 2] = (struct pollfd){ .fd = s->clients[i].fd,
						      .events = wanted(s, &s->clients[i]) };
			if (s->clients[i].fd >= 0 && s->clients[i].more)
				timeout_ms = 0;
		}
		if (poll(fds, ARRAY_SIZE(fds), timeout_ms) < 0)
			continue; /* EINTR, ENOMEM: the ticks limit the rate of this loop */
		if (fds[0].revents && read(s->event_fd, &count, sizeof(count)) < 0)
			continue;
		views_reap(s->views);
		for (size_t i = 0; i < CLIENTS; i++)
			server_serve_client(s, &s->clients[i], fds[i + 2].revents);
		if (fds[1].revents)
			server_accept(s);
	}
	publish(s);
	return NULL;
}

/* ---- start and end ---- */

/*
 * Binds through the descriptor of the directory: a long path fits, and no part of it can be
 * exchanged.
 */
int server_listen(const struct rundir *dir, const char *name)
{
	_cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct sockaddr_un a = { .sun_family = AF_UNIX };

	if (fd < 0)
		return -errno;
	snprintf(a.sun_path, sizeof(a.sun_path), "/proc/self/fd/%d/%s", dir->fd, name);
	if (fchmod(fd, 0600) < 0) /* bind gives this mode to the file */
		return -errno;
	unlinkat(dir->fd, name, 0); /* of a start that was killed */
	if (bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(fd, CLIENTS) < 0)
		return -errno;
	return steal_fd(&fd);
}

static void stop_jobs(struct server *s)
{
	LOCKED(&s->lock);

	s->stop = true;
	pthread_cond_signal(&s->wake);
}

static int start_threads(struct server *s)
{
	int r = thread_start(&s->jobs, "cowfs-jobs", STACK_BYTES, server_job_thread, s);

	if (r < 0)
		return r;
	/* it inherits the priority, so that status stays responsive under load; best effort */
	(void)setpriority(PRIO_PROCESS, (id_t)gettid(), CONTROL_NICE);
	r = thread_start(&s->control, "cowfs-control", STACK_BYTES, control_thread, s);
	(void)setpriority(PRIO_PROCESS, (id_t)gettid(), 0);
	if (r < 0) {
		stop_jobs(s);
		pthread_join(s->jobs, NULL);
	}
	return r;
}

static void server_free(struct server *s)
{
	views_free(s->views);
	for (struct session *c = s->clients; c < s->clients + CLIENTS; c++)
		server_drop(s, c);
	cleanup_closep(&s->listen_fd);
	cleanup_closep(&s->event_fd);
	pthread_cond_destroy(&s->wake);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

static void view_gone(void *ctx)
{
	server_kick(ctx);
}

int server_start(struct server **ret, const struct server_params *p)
{
	struct server *s = calloc(1, sizeof(*s));
	int e;

	if (!s)
		return -ENOMEM;
	s->p = *p;
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->wake, NULL);
	for (struct session *c = s->clients; c < s->clients + CLIENTS; c++)
		c->fd = c->passed_fd = -1;
	s->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	s->listen_fd = s->event_fd < 0	   ? -errno
		       : p->listen_fd >= 0 ? p->listen_fd
					   : server_listen(p->dir, RUNDIR_SOCKET);
	e = s->listen_fd < 0 ? s->listen_fd : 0;
	if (e == 0)
		e = views_new(&s->views, p->volume, view_gone, s);
	if (e == 0) {
		publish(s); /* a client that finds the socket also finds the status */
		e = broker_on() ? broker_call(BROKER_LOOK, BROKER_PUBLISH, 1, 0)
				: rundir_publish_pid(p->dir, getpid());
	}
	if (e == 0 && p->hidden)
		e = broker_call(BROKER_MAIN, BROKER_LISTEN, 0, 0);
	if (e == 0)
		e = start_threads(s);
	if (e < 0) {
		server_free(s);
		return e;
	}
	*ret = s;
	return 0;
}

void server_stop(struct server *s)
{
	stop_jobs(s);
	server_kick(s);
	pthread_join(s->jobs, NULL);
	pthread_join(s->control, NULL);
	views_free(s->views);
	s->views = NULL;
	/* first: a status without a socket is that of a daemon that died */
	(void)!write_status(s, "", 0);
	close(steal_fd(&s->listen_fd));
	for (struct session *c = s->clients; c < s->clients + CLIENTS; c++)
		if (c != s->last)
			server_drop(s, c);
}

/* Both threads have ended: no lock is needed, and waiting is allowed. */
void server_farewell(struct server *s, int error, const char *why)
{
	struct session *c;

	if (!s)
		return;
	c = s->last;
	if (c && c->fd >= 0) {
		if (error) {
			c->result.error = error;
			snprintf(c->result.why, sizeof(c->result.why), "%s", why ? why : "");
		}
		server_send_result(s, c, &c->result);
		for (uint64_t end = now_ns() + FAREWELL_MS * 1000000ull;
		     c->fd >= 0 && c->out.len && now_ns() < end;) {
			struct pollfd pfd = { .fd = c->fd, .events = POLLOUT };

			poll(&pfd, 1, 100);
			if (linebuf_flush(&c->out, c->fd) == -EPIPE)
				break;
		}
	}
	server_free(s);
}
