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
 * A card that is busy with a discard answers no reads, and a commit waits for its end. So a trim asks
 * for one chunk at a time: the card's erase block, but at least 4 and at most 64 MiB. No call crosses a
 * multiple of it, because many cards take as long for a part of an erase block as for all of it.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/invariant.h"
#include "base/msg.h"
#include "volume/private.h"

#define WEEK_S (7 * 86400u)
#define THE_ATTACH UINT64_MAX /* v->trim.refused_ns */
#define CHUNK_MIN_BYTES (4 * MIB)
#define CHUNK_MAX_BYTES (64 * MIB)

struct trim {
	struct volume *v;
	const struct volume_request *rq;
	struct volume_trim *t;
};

/* By the timer, and not by hand. */
static bool is_own(const struct volume_request *rq)
{
	return rq->cause == CAUSE_TIMER;
}

/* Does something stand that refused a trim of the timer? */
static bool is_refused(const struct volume *v)
{
	uint64_t since_ns = v->trim.refused_ns;

	return since_ns == THE_ATTACH || since_ns == v->committed_ns;
}

bool trim_is_due(struct volume *v)
{
	uint64_t now_s = (uint64_t)time(NULL), last_s;

	LOCKED(&v->lock);
	last_s = v->of_log.totals.trimmed_s;
	return v->trim.weekly && v->base->geo.discard_bytes && !is_refused(v) &&
	       (now_s < last_s || now_s - last_s >= WEEK_S);
}

void trim_status(struct volume *v, struct volume_trim_status *ret)
{
	*ret = (struct volume_trim_status){ .announced = v->base->geo.discard_bytes,
					    .weekly = v->trim.weekly,
					    .bytes = v->base->account.discarded_bytes };
	LOCKED(&v->lock);
	if (is_refused(v))
		memcpy(ret->refused, v->trim.refused_why, sizeof(ret->refused));
}

static bool must_stop(void *ctx)
{
	const struct trim *t = ctx;
	struct volume *v = t->v;

	return volume_job_waits(v) || v->slept || v->life != VOLUME_RUNNING ||
	       (is_own(t->rq) && idle_must_stop(v)) ||
	       (t->rq->stop && t->rq->stop(t->rq->stop_ctx));
}

/* What nothing is trimmed beside; NULL: nothing stands against it. */
static const char *obstacle(struct volume *v)
{
	if (volume_has_views(v))
		return "there is a view, which may need blocks that are free now: end it with umount first";
	if (single_replaced(v))
		return "what was imported comes first";
	if (v->diverged || v->diverged_lost)
		return "the newest generation has only some files of now: commit everything first";
	if (log_doubt(v->log) || v->failed_below)
		return "it is not certain which commit is the newest: commit first";
	if (v->kept->loose)
		return "the newest generation was sealed while programs wrote: commit first";
	if (log_newest(v->log)->flags & RECORD_UNREAD)
		return "the metadata of the newest generation was not checked: commit first";
	if (log_holds(v->log, NULL))
		return "a generation is held, which may need blocks that are free now: cowctl accept first";
	if (log_spilled(v->log))
		return "free blocks hold a part of the newest generation: cowctl commit --checkpoint first";
	if (log_older_unknown(v->log))
		return "with lag 1, the free blocks are known after the first commit of the session: "
		       "commit first";
	return NULL;
}

/* Why nothing may be trimmed now; 0: it may. */
static int refuse(struct volume *v, char *why, size_t n)
{
	const char *what;

	if (!v->base->geo.discard_bytes)
		return msg_why(why, n, -EOPNOTSUPP,
			       "%s: the card announces no discards, or is known to lose data by "
			       "them",
			       v->device);
	if (v->opened.state == LOG_FOREIGN || v->halted || invariant_broken())
		return msg_why(why, n, -EUCLEAN, "%s: nothing is written to this card any more",
			       v->device);
	what = obstacle(v);
	return what ? msg_why(why, n, -EBUSY, "not trimmed: %s", what) : 0;
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

static int trim_call(struct trim *t, uint64_t off_bytes, uint64_t len_bytes)
{
	int r = card_discard(t->v->base, off_bytes, len_bytes);

	if (r < 0)
		return r;
	t->t->bytes += len_bytes;
	t->t->next_bytes = off_bytes + len_bytes;
	log_ledger(t->v->log)->trimmed_bytes += len_bytes;
	t->v->progress.done_blks += len_bytes / COW_BLK_BYTES;
	return 0;
}

/* The units of discards that lie in this run, from next_bytes on. */
static int trim_run(struct trim *t, const struct extent_run *run)
{
	const struct card_geometry *geo = &t->v->base->geo;
	uint64_t unit = geo->discard_bytes, disk = geo->disk_off_bytes;
	uint64_t chunk = min_u64(max_u64(geo->erase_block_bytes, CHUNK_MIN_BYTES), CHUNK_MAX_BYTES);
	uint64_t off = max_u64(blk_to_bytes(run->blk), t->t->next_bytes) + disk;
	uint64_t end = (blk_to_bytes(run->blk + run->blks) + disk) / unit * unit;
	int r = 0;

	off = (off + unit - 1) / unit * unit;
	chunk = max_u64(chunk / unit, 1) * unit;
	while (r == 0 && off < end) {
		uint64_t n = min_u64(end - off, chunk - off % chunk);

		r = must_stop(t) ? -EINTR : trim_call(t, off - disk, n);
		off += n;
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

/* The timer waits for the next commit, or for the next attach. */
static void note_refusal(struct volume *v, const char *why, uint64_t since_ns)
{
	LOCKED(&v->lock);
	snprintf(v->trim.refused_why, sizeof(v->trim.refused_why), "%.*s",
		 (int)sizeof(v->trim.refused_why) - 1, why);
	v->trim.refused_ns = since_ns;
}

int trim_do(struct volume *v, const struct volume_request *rq, struct volume_result *res)
{
	struct trim t = { .v = v, .rq = rq, .t = rq->trim };
	struct extents x = { 0 };
	uint64_t since_ns = v->committed_ns;
	int r = is_own(rq) && !idle_may_begin(v) ? -EINTR : refuse(v, res->why, sizeof(res->why));

	if (r == 0)
		r = gather(&t, &x, res->why, sizeof(res->why));
	if (r == 0)
		r = prepare(&t, &x, res->why, sizeof(res->why));
	if (r == 0) {
		r = trim_all(&t, &x);
		if (r < 0 && r != -EINTR) {
			msg_why(res->why, sizeof(res->why), r, "the card refuses a discard: %s",
				strerror(-r));
			msg(MSG_WARN, "%s: %s", v->name, res->why);
			/* each such call may take the card as long as it likes */
			since_ns = away_any(v) ? since_ns : THE_ATTACH;
		}
	}
	extents_clear(&x);
	if (r == 0) {
		log_ledger(v->log)->trimmed_s = (uint64_t)time(NULL);
		v->trim.refused_ns = 0;
	}
	if (r == -EINTR || !is_own(rq))
		return r;
	if (r < 0)
		note_refusal(v, res->why, since_ns);
	*t.t = (struct volume_trim){ 0 };
	return r;
}
