/* SPDX-License-Identifier: MIT */
/* State that the threads of a volume share: the queue of jobs, the alarm, progress and room. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/msg.h"
#include "volume/private.h"

void volume_enqueue(struct volume *v, struct ticket *t)
{
	struct ticket **p;

	for (p = &v->queue; *p; p = &(*p)->next)
		;
	*p = t;
	pthread_cond_signal(&v->work);
}

bool volume_works(const struct volume *v)
{
	return (v->busy && !v->idling) || (v->queue && (v->queue != &v->idle.t || v->queue->next));
}

bool volume_job_waits(struct volume *v)
{
	LOCKED(&v->lock);

	return v->queue;
}

/* Lock held. */
static void put_own(struct volume *v, struct own_job *o, enum volume_job job,
		    enum commit_cause cause)
{
	o->rq = (struct volume_request){ .job = job,
					 .cause = cause,
					 .checkpoint = job == JOB_COMMIT && cause == CAUSE_TIMER,
					 .trim = &v->trim.own };
	o->res = (struct volume_result){ .job = job };
	o->t = (struct ticket){ .rq = &o->rq, .res = &o->res };
	volume_enqueue(v, &o->t);
}

bool volume_ask_commit(struct volume *v, enum commit_cause cause)
{
	LOCKED(&v->lock);

	if (v->life >= VOLUME_STOPPING || volume_works(v))
		return false;
	put_own(v, &v->own, JOB_COMMIT, cause);
	return true;
}

static bool ask_idle(struct volume *v, enum volume_job job)
{
	LOCKED(&v->lock);

	if (v->life >= VOLUME_STOPPING || v->busy || v->queue)
		return false;
	put_own(v, &v->idle, job, CAUSE_TIMER);
	return true;
}

bool volume_ask_checkpoint(struct volume *v)
{
	return ask_idle(v, JOB_CHECKPOINT);
}

bool volume_ask_trim(struct volume *v)
{
	return ask_idle(v, JOB_TRIM);
}

void volume_alarm(struct volume *v, const char *fmt, ...)
{
	char text[sizeof(v->alarm)];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (text[0])
		msg(MSG_ERR, "%s: %s", v->name, text);
	LOCKED(&v->lock);
	memcpy(v->alarm, text, sizeof(text));
	volume_keep_state(v);
}

void volume_get_progress(const struct volume *v, struct volume_progress *ret)
{
	ret->job = (enum volume_job)v->progress.job;
	ret->phase = (enum commit_phase)v->progress.phase;
	ret->done_blks = v->progress.done_blks;
	ret->total_blks = v->progress.total_blks;
	ret->elapsed_ns = ret->job == JOB_NONE ? 0 : now_ns() - v->progress.start_ns;
}

uint64_t volume_free_blks(const struct fsinfo *fs, uint64_t free_bytes)
{
	uint64_t free_blks = free_bytes / COW_BLK_BYTES;

	/* small blocks: a spill takes units of 4 KiB that are entirely free */
	return fs->block_bytes < COW_BLK_BYTES ? free_blks / 2 : free_blks;
}

uint64_t volume_room_blks(const struct volume *v, const struct fsinfo *fs)
{
	/* the bitmaps of an image with a non-empty journal are not trusted, so nothing is
	 * spilled */
	bool spills = !fs->needs_recovery && !log_holds(v->log, NULL);
	uint64_t free_blks = spills ? volume_free_blks(fs, fs->free_bytes) : 0;

	return max_u64(log_capacity_blks(v->log) + free_blks, 1); /* 0: no such budget */
}
