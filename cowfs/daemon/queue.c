/* SPDX-License-Identifier: MIT */
/* The job thread of the server, and its queue, which is stored in the clients' slots. */
#include "base/holder.h"
#include "daemon/server_private.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

void server_kick(struct server *s)
{
	uint64_t one = 1;

	if (write(s->event_fd, &one, sizeof(one)) < 0)
		return; /* the counter is full: the thread wakes up anyway */
}

static int run_commit(struct server *s, const struct session *c, struct volume_result *ret)
{
	const struct request *rq = &c->rq;
	const struct volume_request vr = {
		.job = rq->command == COMMAND_ACCEPT ? JOB_ACCEPT
		       : rq->command == COMMAND_UNDO ? JOB_UNDO
		       : rq->scratch		     ? JOB_COMMIT_SCRATCH
		       : rq->dry_run		     ? JOB_DRY_RUN
						     : JOB_COMMIT,
		.checkpoint = rq->checkpoint || rq->hold,
		.hold = rq->hold,
		.replaces_s = rq->replaces,
		.trial = (unsigned)min_u64(rq->trial, RECORD_BOOTS_MAX),
		.cancel = rq->cancel,
		.on_trial = rq->on_trial,
		.force = rq->force,
		.no_wait = rq->no_wait,
		.until_ns = c->until_ns,
		.cause = rq->timer	? CAUSE_TIMER
			 : rq->shutdown ? CAUSE_SHUTDOWN
					: CAUSE_MANUAL,
	};

	return volume_run(s->p.volume, &vr, ret);
}

/* image: read by the control thread once the job is done */
static int run_view(struct server *s, struct session *c, int passed_fd, struct volume_result *ret)
{
	c->image = (struct volume_image){ .now = c->rq.now,
					  .held = c->rq.held,
					  .writable = c->rq.scratch,
					  .replaces = c->rq.replaces };
	return views_open(s->views, passed_fd, &c->image, ret);
}

static int run_detach(struct server *s, const struct request *rq, struct volume_result *ret)
{
	const struct volume_request vr = { .job = JOB_DETACH, .cause = CAUSE_DETACH };
	const char *loop = transport_disk(s->p.transport)->path;
	struct volume_status st;
	char holder[64] = "the kernel (a loop device, swap, an overlay, a freeze)";
	int e = transport_in_use(s->p.transport);

	ret->job = JOB_DETACH;
	volume_get_status(s->p.volume, &st);
	if (e < 0)
		return volume_why(ret, e, "%s: cannot find out whether it is in use: %s", loop,
				  strerrordesc_np(-e));
	if (e && st.mountpoint[0])
		return volume_why(ret, -EBUSY, "%s is mounted on %s: unmount it first", loop,
				  st.mountpoint);
	if (e) {
		(void)!holder_find(s->p.proc_dirfd, transport_disk(s->p.transport)->rdev, holder,
				   sizeof(holder));
		return volume_why(ret, -EBUSY, "%s is in use by %s: stop that first", loop, holder);
	}
	if (rq->discard)
		volume_arm_discard(s->p.volume, true);
	e = volume_run(s->p.volume, &vr, ret);
	if (e < 0) {
		volume_arm_discard(s->p.volume, st.discard_armed);
		return e;
	}
	e = s->p.let_go(s->p.ctx);
	if (e < 0) { /* another user was faster: the changes are still in RAM */
		volume_arm_discard(s->p.volume, st.discard_armed);
		return volume_why(
			ret, e, "%s: cannot detach the loop device (%s): the volume stays attached",
			loop, strerrordesc_np(-e));
	}
	if (!ret->why[0] && (rq->discard || st.discard_armed))
		snprintf(ret->why, sizeof(ret->why), "uncommitted changes were discarded");
	if (st.views.n) {
		size_t len = strlen(ret->why);

		snprintf(ret->why + len, sizeof(ret->why) - len, "%s%u view%s ended: unmount %s",
			 len ? "; " : "", st.views.n, st.views.n == 1 ? " was" : "s were",
			 st.views.n == 1 ? "it" : "them");
	}
	return 0;
}

static struct session *next_job(struct server *s)
{
	struct session *next = NULL;

	for (struct session *c = s->clients; c < s->clients + CLIENTS; c++)
		if (c->work == WORK_QUEUED && (!next || c->ticket < next->ticket))
			next = c;
	return next;
}

struct asker {
	struct server *s;
	const struct session *c;
};

/* Another client waits that has something other to do, or this one has gone. */
static bool trim_stops(void *ctx)
{
	const struct asker *a = ctx;
	bool waits = false;

	LOCKED(&a->s->lock);
	for (const struct session *c = a->s->clients; c < a->s->clients + CLIENTS; c++)
		waits |= c->work == WORK_QUEUED && c->rq.command != COMMAND_TRIM;
	return waits || a->c->fd < 0 || a->s->stop;
}

static int run_trim(struct server *s, struct session *c, struct volume_result *ret)
{
	struct asker asker = { s, c };
	const struct volume_request vr = { .job = JOB_TRIM,
					   .cause = CAUSE_MANUAL,
					   .trim = &c->trim,
					   .stop = trim_stops,
					   .stop_ctx = &asker };

	return volume_run(s->p.volume, &vr, ret);
}

static int run_renew(struct server *s, const struct request *rq, struct volume_result *ret)
{
	const struct volume_request vr = { .job = JOB_RENEW, .renew_blk = rq->first };

	return volume_run(s->p.volume, &vr, ret);
}

void *server_job_thread(void *arg)
{
	struct server *s = arg;
	bool ended = false;

	pthread_mutex_lock(&s->lock);
	while (!s->stop && !ended) {
		struct session *c = next_job(s);
		struct volume_result result = { 0 };
		int passed_fd;

		if (!c) {
			pthread_cond_wait(&s->wake, &s->lock);
			continue;
		}
		c->work = WORK_RUNNING;
		passed_fd = steal_fd(&c->passed_fd);
		pthread_mutex_unlock(&s->lock);
		if (c->rq.command == COMMAND_DETACH)
			result.error = run_detach(s, &c->rq, &result);
		else if (c->rq.command == COMMAND_VIEW)
			result.error = run_view(s, c, passed_fd, &result);
		else if (c->rq.command == COMMAND_TRIM)
			result.error = run_trim(s, c, &result);
		else if (c->rq.command == COMMAND_RENEW)
			result.error = run_renew(s, &c->rq, &result);
		else
			result.error = run_commit(s, c, &result);
		cleanup_closep(&passed_fd);
		pthread_mutex_lock(&s->lock);
		if (c->rq.command == COMMAND_TRIM && result.error == -EINTR && c->fd >= 0) {
			c->ticket = ++s->tickets; /* behind what it made way for */
			c->work = WORK_QUEUED;
			continue;
		}
		c->result = result;
		ended = c->rq.command == COMMAND_DETACH && !result.error;
		if (ended) {
			s->detached = true;
			s->last = c;
		} else {
			c->work = WORK_DONE;
		}
		server_kick(s);
	}
	pthread_mutex_unlock(&s->lock);
	if (ended)
		s->p.ended(s->p.ctx);
	return NULL;
}

enum work server_work_of(struct server *s, const struct session *c)
{
	LOCKED(&s->lock);

	return c->work;
}

bool server_any_work(struct server *s, bool with_trims)
{
	bool any = false;

	LOCKED(&s->lock);
	for (const struct session *c = s->clients; c < s->clients + CLIENTS; c++)
		any |= c->work != WORK_NONE && (with_trims || c->rq.command != COMMAND_TRIM);
	return any && !s->detached;
}

unsigned server_jobs(struct server *s)
{
	unsigned n = 0;

	LOCKED(&s->lock);
	for (const struct session *c = s->clients; c < s->clients + CLIENTS; c++)
		n += c->work != WORK_NONE;
	return n;
}

void server_queue_job(struct server *s, struct session *c, const struct request *rq)
{
	LOCKED(&s->lock);
	c->rq = *rq;
	c->ticket = ++s->tickets;
	c->until_ns = rq->deadline_ms ? now_ns() + rq->deadline_ms * 1000000 : 0;
	c->work = WORK_QUEUED;
	pthread_cond_signal(&s->wake);
}

bool server_take_result(struct server *s, struct session *c, struct volume_result *ret)
{
	LOCKED(&s->lock);

	if (c->work != WORK_DONE)
		return false;
	*ret = c->result;
	c->work = WORK_NONE;
	return true;
}
