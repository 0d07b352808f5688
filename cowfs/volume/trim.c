/* SPDX-License-Identifier: MIT */
/*
 * TRIM: the card learns which blocks it need not keep.
 *
 * These are the blocks that are free in each generation that recovery may choose, and that the live
 * file system does not read from the card: volume_free_everywhere. From then on such a block may read
 * as anything, and as something else at each read. That is no new assumption. A commit writes in place
 * only what is free there, so a power cut in a commit leaves no less garbage in these blocks.
 *
 * What is free changes with a commit only, and a commit does not begin before a trim has ended. A trim
 * that has made way gathers again before it continues.
 *
 * A card that is busy with a discard answers no reads. So the length of a call is bounded by the time
 * that calls of this length took, and the card rests for as long as it was busy. Many cards take as long
 * for a part of an erase block as for all of it: calls do not cross a multiple of their length, and
 * become no shorter where that does not make them faster.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/invariant.h"
#include "base/msg.h"
#include "base/parse.h"
#include "volume/private.h"

#define WEEK_S (7 * 86400u)
#define CALL_NS 20000000ull   /* a call that takes longer is followed by shorter ones */
#define SLOW_NS 1000000000ull /* no call of a card that is good for this takes that long */
#define SLOWER 10	      /* nor so many times as long as announced */
/* shorter times are not announced: what programs may wait for a read */
#define LEAST_NS 50000000ull
#define ANNOUNCED_CALLS 8   /* the first of a session announce what the others take */
#define REST_NS 10000000ull /* the card is busy for this long before it rests */
#define NAP_NS 5000000ull   /* of a rest, before it looks whether a job waits */
#define FIRST_BYTES (4 * MIB)
#define MAX_BYTES (256 * MIB)

struct trim {
	struct volume *v;
	const struct volume_request *rq;
	struct volume_trim *t;
	uint64_t unit_bytes;  /* of discards */
	uint64_t max_bytes;   /* of a call now */
	uint64_t least_bytes; /* shorter calls are no faster */
	uint64_t longer_ns;   /* time of the call for which they became shorter; 0: not now */
	uint64_t busy_ns;     /* since the last rest */
	char slow[160];	      /* a call took too long: what to say of it */
};

/* By the timer, and not by hand. */
static bool is_own(const struct volume_request *rq)
{
	return rq->cause == CAUSE_TIMER;
}

bool trim_is_due(struct volume *v)
{
	uint64_t now_s = (uint64_t)time(NULL), last_s;

	pthread_mutex_lock(&v->lock);
	last_s = v->totals.trimmed_s;
	pthread_mutex_unlock(&v->lock);
	return v->trim.weekly && !v->trim.off && v->base->geo.discard_bytes &&
	       v->trim.refused_ns != v->committed_ns &&
	       (now_s < last_s || now_s - last_s >= WEEK_S);
}

void trim_status(struct volume *v, struct volume_trim_status *ret)
{
	*ret = (struct volume_trim_status){ .announced = v->base->geo.discard_bytes,
					    .weekly = v->trim.weekly,
					    .timer_off = v->trim.off,
					    .bytes = v->base->account.discarded_bytes };
	pthread_mutex_lock(&v->lock);
	if (v->trim.refused_ns == v->committed_ns)
		memcpy(ret->refused, v->trim.refused_why, sizeof(ret->refused));
	memcpy(ret->off_why, v->trim.off_why, sizeof(ret->off_why));
	pthread_mutex_unlock(&v->lock);
}

static bool must_stop(void *ctx)
{
	const struct trim *t = ctx;
	struct volume *v = t->v;

	return volume_job_waits(v) || v->slept || v->life != VOLUME_RUNNING ||
	       (is_own(t->rq) && idle_must_stop(v)) ||
	       (t->rq->stop && t->rq->stop(t->rq->stop_ctx));
}

/* Why nothing may be trimmed now; 0: it may. */
static int refuse(struct volume *v, char *why, size_t n)
{
	if (!v->base->geo.discard_bytes)
		return msg_why(why, n, -EOPNOTSUPP,
			       "%s: the card announces no discards, or is known to lose data by "
			       "them",
			       v->device);
	if (v->opened.state == LOG_FOREIGN || v->halted || invariant_broken())
		return msg_why(why, n, -EUCLEAN, "%s: nothing is written to this card any more",
			       v->device);
	if (volume_has_views(v))
		return msg_why(why, n, -EBUSY,
			       "not trimmed: there is a view, which may need blocks that are free "
			       "now: end it with umount first");
	if (single_replaced(v))
		return msg_why(why, n, -EBUSY, "not trimmed: what was imported comes first");
	if (v->diverged || v->diverged_lost)
		return msg_why(why, n, -EBUSY,
			       "not trimmed: the newest generation has only some files of now: "
			       "commit everything first");
	if (log_doubt(v->log) || log_undecided(v->log) || log_unconfirmed(v->log) ||
	    v->failed_below)
		return msg_why(why, n, -EBUSY,
			       "not trimmed: it is not certain which commit is the newest: commit "
			       "first");
	if (log_newest(v->log)->flags & RECORD_OF_IMAGE)
		return msg_why(why, n, -EBUSY,
			       "not trimmed: the newest generation was sealed without a freeze, or "
			       "its metadata was not checked: commit first");
	if (log_holds(v->log, NULL))
		return msg_why(
			why, n, -EBUSY,
			"not trimmed: a generation is held, which may need blocks that are free "
			"now: cowctl accept first");
	if (log_spilled(v->log))
		return msg_why(why, n, -EBUSY,
			       "not trimmed: free blocks hold a part of the newest generation: "
			       "cowctl commit --checkpoint first");
	if (log_older_unknown(v->log))
		return msg_why(why, n, -EBUSY,
			       "not trimmed: with lag 1, the free blocks are known after the first "
			       "commit of the session: commit first");
	return 0;
}

static int gather(struct trim *t, struct extents *ret, char *why, size_t n)
{
	struct volume *v = t->v;
	int r = volume_free_everywhere(v, ret, must_stop, t);

	if (r == -ENODATA)
		return msg_why(why, n, -EOPNOTSUPP,
			       "not trimmed: it is not known which blocks of this %s are free",
			       v->fs.type);
	if (r == -EUCLEAN)
		return msg_why(why, n, r,
			       "not trimmed: the file system is damaged: check it first");
	return r < 0 && r != -EINTR
		       ? msg_why(why, n, r, "not trimmed: cannot find out what is free: %s",
				 strerror(-r))
		       : r;
}

static void rest(struct trim *t)
{
	const struct timespec nap = { .tv_nsec = NAP_NS };
	uint64_t until_ns = now_ns() + t->busy_ns;

	if (t->busy_ns < REST_NS)
		return;
	while (now_ns() < until_ns && !must_stop(t))
		nanosleep(&nap, NULL);
	t->busy_ns = 0;
}

static uint64_t whole_units(const struct trim *t, uint64_t bytes)
{
	return max_u64(bytes / t->unit_bytes, 1) * t->unit_bytes;
}

/*
 * How long a discard should take. No device says it. So it is what the profile of the card states, or
 * else what the first calls of the session took; before there are enough of them, a tenth of SLOW_NS.
 */
static uint64_t announced_ns(const struct trim *t, uint64_t len_bytes)
{
	const struct volume *v = t->v;
	const struct flash_profile *p = v->profile;
	uint64_t ns = SLOW_NS / SLOWER;

	if (p && p->discard_us)
		ns = (len_bytes / p->unit_bytes + 1) * p->discard_us * 1000;
	else if (v->trim.first_calls == ANNOUNCED_CALLS)
		ns = mul_div_u64(v->trim.first_ns, len_bytes, v->trim.first_bytes);
	return min_u64(max_u64(ns, LEAST_NS), SLOW_NS / SLOWER);
}

static void look_at_time(struct trim *t, uint64_t len_bytes, uint64_t ns)
{
	struct volume *v = t->v;
	uint64_t announced = announced_ns(t, len_bytes);

	if (ns > SLOWER * announced && !*t->slow)
		snprintf(t->slow, sizeof(t->slow),
			 "the card took %.2f s for a discard of %s, more than %u times the %.2f s "
			 "that it should take",
			 (double)ns / 1e9, FORMAT_SIZE(len_bytes), SLOWER, (double)announced / 1e9);
	if (v->trim.first_calls == ANNOUNCED_CALLS)
		return;
	v->trim.first_calls++;
	v->trim.first_ns += ns;
	v->trim.first_bytes += len_bytes;
}

static void choose_length(struct trim *t, uint64_t len_bytes, uint64_t ns)
{
	bool whole = len_bytes == t->max_bytes;

	if (whole && t->longer_ns && ns > t->longer_ns / 4 * 3) {
		t->max_bytes = t->least_bytes = 2 * len_bytes;
		t->longer_ns = 0;
	} else if (ns > CALL_NS && len_bytes > t->max_bytes / 2 &&
		   t->max_bytes / 2 >= t->least_bytes) {
		t->max_bytes = whole_units(t, t->max_bytes / 2);
		t->longer_ns = ns;
	} else if (whole) {
		t->longer_ns = 0;
		if (ns < CALL_NS / 4)
			t->max_bytes = min_u64(2 * t->max_bytes, whole_units(t, MAX_BYTES));
	}
}

static int trim_call(struct trim *t, uint64_t off_bytes, uint64_t len_bytes)
{
	uint64_t start_ns = now_ns(), ns;
	int r = card_discard(t->v->base, off_bytes, len_bytes);

	if (r < 0)
		return r;
	ns = now_ns() - start_ns;
	t->busy_ns += ns;
	look_at_time(t, len_bytes, ns);
	choose_length(t, len_bytes, ns);
	t->t->bytes += len_bytes;
	t->t->next_bytes = off_bytes + len_bytes;
	log_ledger(t->v->log)->trimmed_bytes += len_bytes;
	t->v->progress.done_blks += len_bytes / COW_BLK_BYTES;
	return 0;
}

/* The units of discards that lie in this run, from next_bytes on. */
static int trim_run(struct trim *t, const struct extent_run *run)
{
	uint64_t unit = t->unit_bytes, disk = t->v->base->geo.disk_off_bytes;
	uint64_t off = max_u64(blk_to_bytes(run->blk), t->t->next_bytes) + disk;
	uint64_t end = (blk_to_bytes(run->blk + run->blks) + disk) / unit * unit;
	int r = 0;

	off = (off + unit - 1) / unit * unit;
	while (r == 0 && off < end) {
		uint64_t n = min_u64(end - off, t->max_bytes - off % t->max_bytes);

		r = must_stop(t) ? -EINTR : trim_call(t, off - disk, n);
		if (r == 0 && is_own(t->rq) && *t->slow)
			r = -ETIME;
		off += n;
		rest(t);
	}
	return r;
}

/* A checkpoint looks at the ledger (checkpoint.c), and that of a session after a power cut must, too. */
static int note_first(struct volume *v)
{
	struct wear_ledger *l = log_ledger(v->log);
	int r = l->trims++ ? 0 : commit_note(v->log, v->base);

	if (r < 0)
		l->trims--;
	return r;
}

static int stale(struct volume *v, char *why, size_t n)
{
	msg_why(why, n, -ESTALE, CARD_CHANGED "; nothing was written");
	volume_alarm(v, "%s", why);
	return -ESTALE;
}

/* Is it still the same card? Then it becomes writable. */
static int prepare(struct trim *t, const struct extents *x, char *why, size_t n)
{
	struct volume *v = t->v;
	int r = log_recheck(v->log);

	if (r < 0 && r != -ESTALE)
		return msg_why(why, n, r, "not trimmed: the card cannot be read: %s", strerror(-r));
	if (r == 0 && x->n && !t->t->next_bytes)
		r = note_first(v);
	if (r == -ESTALE)
		return stale(v, why, n);
	if (r == -ENOSPC)
		return msg_why(why, n, r,
			       "not trimmed: the log is full: cowctl commit --checkpoint first");
	if (r < 0)
		return msg_why(why, n, r, "not trimmed: the log cannot be written: %s",
			       strerror(-r));
	r = card_set_writable(v->base, true);
	return r < 0 ? msg_why(why, n, r, "not trimmed: the card cannot be set writable: %s",
			       strerror(-r))
		     : 0;
}

static int trim_all(struct trim *t, const struct extents *x)
{
	struct volume *v = t->v;
	int r = 0;

	v->progress.phase = PHASE_TRIM;
	v->progress.done_blks = t->t->bytes / COW_BLK_BYTES;
	v->progress.total_blks = x->blks;
	for (size_t i = 0; r == 0 && i < x->n; i++)
		r = trim_run(t, &x->e[i]);
	return r;
}

static void turn_off(struct volume *v, const char *why)
{
	if (v->trim.off)
		return;
	if (v->trim.weekly)
		msg(MSG_WARN, "%s: %s: trim=weekly is off until the next attach", v->name, why);
	pthread_mutex_lock(&v->lock);
	snprintf(v->trim.off_why, sizeof(v->trim.off_why), "%s", why);
	pthread_mutex_unlock(&v->lock);
	v->trim.off = true;
}

/* The timer waits for the next commit. */
static void note_refusal(struct volume *v, const char *why)
{
	pthread_mutex_lock(&v->lock);
	snprintf(v->trim.refused_why, sizeof(v->trim.refused_why), "%s", why);
	v->trim.refused_ns = v->committed_ns;
	pthread_mutex_unlock(&v->lock);
}

int trim_do(struct volume *v, const struct volume_request *rq, struct volume_result *res)
{
	struct trim t = {
		.v = v, .rq = rq, .t = rq->trim, .unit_bytes = v->base->geo.discard_bytes
	};
	struct extents x = { 0 };
	int r = is_own(rq) && !idle_may_begin(v) ? -EINTR : refuse(v, res->why, sizeof(res->why));

	if (r == 0)
		r = gather(&t, &x, res->why, sizeof(res->why));
	if (r == 0)
		r = prepare(&t, &x, res->why, sizeof(res->why));
	if (r == 0) {
		t.max_bytes = whole_units(&t, FIRST_BYTES);
		t.least_bytes = t.unit_bytes;
		r = trim_all(&t, &x);
		if (r < 0 && r != -EINTR && r != -ETIME) {
			snprintf(res->why, sizeof(res->why), "the card refuses a discard: %s",
				 strerror(-r));
			turn_off(v, res->why);
		}
	} else if (r != -EINTR && is_own(rq)) {
		note_refusal(v, res->why);
	}
	extents_clear(&x);
	if (*t.slow)
		turn_off(v, t.slow);
	if (r == 0) {
		log_ledger(v->log)->trimmed_s = (uint64_t)time(NULL);
		if (is_own(rq))
			msg(MSG_INFO, "%s: trimmed %s", v->name, FORMAT_SIZE(t.t->bytes));
	}
	if (r != -EINTR && is_own(rq))
		*t.t = (struct volume_trim){ 0 };
	return r;
}
