/* SPDX-License-Identifier: MIT */
/*
 * Life cycle of a volume: open, commit thread, status, close. The commit thread runs jobs one after
 * another, in the order of their requests (commit_thread.c). Callers wait on `done`.
 */
#include "volume/volume.h"

#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>

#include "base/invariant.h"
#include "base/msg.h"
#include "base/thread.h"
#include "volume/private.h"
#include "volume/scratch.h"

struct scratch *volume_scratch(struct volume *v)
{
	LOCKED(&v->scratch_lock);

	return v->scratch ? scratch_ref(v->scratch) : NULL;
}

static void set_life(struct volume *v, enum volume_life to)
{
	if (INVARIANT("volume life", to == v->life + 1))
		v->life = to;
}

/* Is its result that of the last commit? */
static bool is_commit(enum volume_job job)
{
	return job == JOB_COMMIT || job == JOB_DETACH || job == JOB_COMMIT_SCRATCH;
}

/* Lock held, but not while it looks for a card that is away. */
static void wait_for_job(struct volume *v)
{
	uint64_t until_ns = now_ns() + AWAY_LOOK_NS;

	if (!away_pending(v)) {
		pthread_cond_wait(&v->work, &v->lock);
		return;
	}
	pthread_mutex_unlock(&v->lock);
	away_search(v);
	pthread_mutex_lock(&v->lock);
	if (!v->queue && v->life != VOLUME_STOPPING && away_pending(v))
		thread_cond_wait_until(&v->work, &v->lock, until_ns);
}

static void *commit_thread(void *arg)
{
	struct volume *v = arg;

	log_wear_load(v->log);
	if (!v->taken_over_ns && log_wear(v->log))
		monitor_remember(v->monitor, log_wear(v->log));
	single_end_import(v);
	volume_publish_log(v);
	log_relax(v->log);
	pthread_mutex_lock(&v->lock);
	for (;;) {
		struct ticket *t;
		uint64_t commits;

		while (!v->queue && v->life != VOLUME_STOPPING)
			wait_for_job(v);
		if (!v->queue)
			break;
		t = v->queue;
		v->queue = t->next;
		v->busy = true;
		v->idling = t == &v->idle.t || t->rq->job == JOB_TRIM;
		commits = log_ledger(v->log)->commits;
		pthread_mutex_unlock(&v->lock);
		v->progress.start_ns = now_ns();
		v->progress.done_blks = v->progress.total_blks = 0;
		v->progress.job = (int)t->rq->job;
		account_check(v); /* I/O since the last job goes into the records of this job */
		volume_do(v, t->rq, t->res);
		account_check(v);
		volume_publish_log(v);
		if (log_ledger(v->log)->commits != commits) {
			v->committed_ns = now_ns();
			v->idle_failed = false;
		}
		/* memory of a large commit stays locked until it is returned */
		malloc_trim(0);
		log_relax(v->log);
		v->progress.job = JOB_NONE;
		pthread_mutex_lock(&v->lock);
		if (is_commit(t->rq->job) && !t->res->not_begun &&
		    (t->res->error || t->res->withheld || v->last.error ||
		     t->res->report.written_bytes || log_ledger(v->log)->commits != commits))
			v->last = *t->res; /* an empty commit says nothing about the last one */
		volume_keep_state(v);
		v->busy = v->idling = false;
		t->done = true;
		pthread_cond_broadcast(&v->done);
	}
	pthread_mutex_unlock(&v->lock);
	return NULL;
}

int volume_start(struct volume *v, int loop_fd, dev_t loop_rdev, const char *loop_path)
{
	int r;

	v->loop_fd = loop_fd;
	v->loop_rdev = loop_rdev;
	snprintf(v->loop_path, sizeof(v->loop_path), "%s", loop_path);
	r = -pthread_create(&v->thread, NULL, commit_thread, v);
	if (r == 0)
		set_life(v, VOLUME_RUNNING);
	return r < 0 ? r : monitor_start(v->monitor, loop_rdev);
}

void volume_set_loop_fd(struct volume *v, int loop_fd)
{
	v->loop_fd = loop_fd;
}

void volume_stop(struct volume *v)
{
	if (v->life != VOLUME_RUNNING)
		return;
	monitor_stop(v->monitor);
	pthread_mutex_lock(&v->lock);
	set_life(v, VOLUME_STOPPING);
	pthread_cond_signal(&v->work);
	pthread_mutex_unlock(&v->lock);
	pthread_join(v->thread, NULL);
	set_life(v, VOLUME_STOPPED);
}

/* Lock held. 0, or the reason why a job is not even queued. */
static int refuse(struct volume *v, const struct volume_request *rq, char *why, size_t n)
{
	if (v->life >= VOLUME_STOPPING)
		return msg_why(why, n, -ESHUTDOWN, "the volume is being detached");
	if (rq->no_wait && volume_works(v))
		return msg_why(why, n, -EBUSY, "another commit is under way");
	if (rq->cause == CAUSE_TIMER && monitor_inhibit_left_ns(v->monitor))
		return msg_why(why, n, -EBUSY, "timer commits are inhibited");
	return 0;
}

int volume_run(struct volume *v, const struct volume_request *rq, struct volume_result *ret)
{
	struct ticket t = { .rq = rq, .res = ret };

	*ret = (struct volume_result){ .job = rq->job };
	pthread_mutex_lock(&v->lock);
	ret->error = refuse(v, rq, ret->why, sizeof(ret->why));
	if (!ret->error) {
		volume_enqueue(v, &t);
		while (!t.done)
			pthread_cond_wait(&v->done, &v->lock);
	}
	pthread_mutex_unlock(&v->lock);
	return ret->error;
}

void volume_inhibit(struct volume *v, uint64_t ns)
{
	monitor_inhibit(v->monitor, ns);
	LOCKED(&v->lock);
	volume_keep_state(v);
}

void volume_arm_discard(struct volume *v, bool armed)
{
	v->discard_armed = armed;
	pthread_mutex_lock(&v->lock);
	volume_keep_state(v);
	pthread_mutex_unlock(&v->lock);
	monitor_wake(v->monitor);
}

void volume_detach_later(struct volume *v)
{
	v->kept->when_unmounted = true;
}

void volume_end_view(struct volume *v, struct snapshot *s)
{
	snapshot_end(s);
	snapshots_remove(v->snapshots, s);
	snapshot_unref(s);
	monitor_wake(v->monitor);
}

void volume_end_scratch(struct volume *v, struct scratch *s)
{
	bool last;

	scratch_end(s);
	pthread_mutex_lock(&v->scratch_lock);
	last = v->scratch == s;
	if (last)
		v->scratch = NULL;
	pthread_mutex_unlock(&v->scratch_lock);
	if (last)
		scratch_unref(s);
	scratch_unref(s);
	monitor_wake(v->monitor);
}
