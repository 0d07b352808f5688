/* SPDX-License-Identifier: MIT */
/* A generation that is held (log/hold.c): the jobs that begin and end it, and what it forbids. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/msg.h"
#include "base/parse.h"
#include "volume/private.h"

#define RATE_NS 60000000000ull
#define RATE_LEAST_NS 10000000000ull
#define SOON_S 600u
#define NO_SYNC "had no sync, so it may be the half of what was written"

int held_check(struct volume *v, const struct volume_request *rq, char *why, size_t n)
{
	struct log_hold h;
	bool holds = log_holds(v->log, &h);

	if (rq->job == JOB_UNDO && rq->cancel && log_newest(v->log)->seq == v->opened.back_seq &&
	    v->opened.back_seq)
		return msg_why(
			why, n, -EBUSY,
			"it was attached at generation %llu and has committed nothing: end that without a "
			"commit, then cowctl undo --cancel %s",
			(unsigned long long)v->opened.back_generation, v->device);
	if ((rq->job == JOB_UNDO ||
	     (rq->job == JOB_ACCEPT && !volume_lost_writes(v) && !v->kept->lost_said)) &&
	    !holds && !rq->on_trial)
		return msg_why(why, n, -ENOENT, "no generation is held");
	if (rq->job == JOB_UNDO && rq->cancel && !h.back)
		return msg_why(why, n, -ENOENT, "no undo is pending");
	if (rq->hold && holds)
		return msg_why(why, n, -EEXIST,
			       "generation %llu is held already: cowctl accept ends that, and "
			       "cowctl undo goes back to it",
			       (unsigned long long)h.generation);
	/* hold = previous: held_previous ends the hold */
	if (rq->checkpoint && rq->cause == CAUSE_MANUAL && holds &&
	    (!v->hold_previous || h.back || h.trial))
		return msg_why(why, n, -EBUSY,
			       "generation %llu is held, and nothing is checkpointed until cowctl "
			       "accept or cowctl undo",
			       (unsigned long long)h.generation);
	return 0;
}

int held_begin(struct volume *v, struct volume_result *res)
{
	struct log_index *ix = NULL;
	struct wear_ledger before;
	int r;

	log_totals(v->log, &before);
	r = commit_hold(v->log, v->base, &ix);
	commit_bill(&res->report, v->log, &before);
	if (ix)
		volume_on_publish(v, ix);
	return r < 0 ? volume_why(res, r, "committed, but not held: %s",
				  r == -ENOSPC	? "the log has no room for that"
				  : r == -EBUSY ? "the log cannot be emptied before"
						: strerror(-r))
		     : 0;
}

/* Both copies of the superblock of the log, the superblock with the guard on the base and in the log, a
 * descriptor and a record. With lag empty records come between. */
void held_price(const struct volume *v, struct commit_report *rep)
{
	uint64_t blks = log_super(v->log)->lag ? 13 : 7;

	rep->meta += blks;
	rep->written_bytes += blk_to_bytes(blks);
	rep->flushes += log_super(v->log)->lag ? 21 : 4;
	rep->estimate = true;
}

/* The boot of an initramfs on trial was a good one. */
static int accept_image(struct volume *v)
{
	const struct log_super *s = log_super(v->log);

	return !s->image || s->image_boots == SUPER_PROVEN
		       ? 0
		       : commit_set_image(v->log, v->base, s->image, SUPER_PROVEN);
}

int held_accept(struct volume *v, bool on_trial, struct volume_result *res)
{
	struct log_hold h = { 0 };
	int r = 0;

	if (log_holds(v->log, &h) && (!on_trial || h.trial))
		r = held_end(v, res);
	if (r == 0 && !on_trial) {
		v->lost_known += volume_lost_writes(v);
		v->kept->lost_said = 0;
	}
	if (r == 0 && on_trial)
		r = accept_image(v);
	return r;
}

/* The hold ends with its record. A feature of the superblock that stays behind goes with the next job that writes. */
static int release(struct volume *v)
{
	int r = commit_release(v->log, v->base);

	return r == -ENOENT || log_holds(v->log, NULL) ? r : 0;
}

int held_end(struct volume *v, struct volume_result *res)
{
	int r = release(v);

	return r < 0 ? volume_why(res, r, "the generation is still held: %s",
				  r == -ENOSPC ? "the log has no room for a record" : strerror(-r))
		     : 0;
}

bool held_too_large(struct volume *v, const struct volume_request *rq, struct volume_result *res)
{
	const struct volume_request dry = { .job = JOB_DRY_RUN,
					    .cause = rq->cause,
					    .force = rq->force };
	struct log_index *ix = NULL;
	int r;

	/* what fits in any case is not planned twice */
	if (view_changed_blks(v->committing ? v->committing : v->view) <
	    super_capacity_blks(log_super(v->log)) / 4)
		return false;
	r = volume_write_sealed(v, &dry, rq->force, res, &ix);
	log_index_unref(ix);
	return r == -EFBIG && !res->report.held;
}

/* Will there be a commit, as far as the seal is concerned? A sync that does not end keeps it from none that bears a power cut. */
static bool is_sealed(struct volume *v, const struct volume_request *rq)
{
	struct volume_result unused = { 0 };
	int r = volume_quiesce(v, SEAL_NOTHING, rq->cause, &unused);

	return r == 0 || ((r == -ETIMEDOUT || r == -EALREADY) && !v->kept->needs_sync);
}

/* A hold that an undo waits for stays. Without changes, or room for them, there will be no commit, and the hold
 * stays, too. */
static bool moves(struct volume *v, const struct volume_request *rq, char *why, size_t n)
{
	struct volume_result unused = { 0 };
	struct log_hold h = { 0 };

	if (!v->hold_previous || rq->cause != CAUSE_MANUAL || rq->hold || rq->trial ||
	    !log_newest(v->log)->seq || (log_holds(v->log, &h) && h.trial))
		return false;
	if (rq->checkpoint)
		return log_holds(v->log, NULL);
	if (v->kept->loose) {
		snprintf(why, n, "the generation before is not held: it " NO_SYNC);
		return false;
	}
	if ((log_holds(v->log, &h) && h.back) || !is_sealed(v, rq))
		return false;
	if (!held_too_large(v, rq, &unused))
		return true;
	/* one that fits after all, because something was deleted */
	snprintf(why, n, "the hold has not moved, because this commit seemed too large at first");
	return false;
}

void held_previous(struct volume *v, const struct volume_request *rq, struct commit_report *rep,
		   char *why, size_t n)
{
	struct volume_result res = { 0 };
	struct wear_ledger before;
	int r = 0;

	if (!moves(v, rq, why, n))
		return;
	log_totals(v->log, &before);
	if (log_holds(v->log, NULL))
		r = held_end(v, &res);
	/* a boot loader reads what was written home only */
	if (r == 0 && rq->checkpoint)
		snprintf(why, n, "no generation is held, because a checkpoint was asked for");
	if (r == 0 && !rq->checkpoint)
		r = home_write(v, rq->cause, 0, false, NULL, &res);
	if (r == 0 && !rq->checkpoint)
		r = held_begin(v, &res);
	commit_bill(rep, v->log, &before);
	if (r < 0)
		snprintf(why, n, "the generation before is not held: %s", strerror(-r));
}

/* The order comes before the commit, so that no boot has the commit without it. */
int held_try(struct volume *v, const struct volume_request *rq, struct volume_result *res,
	     char *why, size_t n)
{
	struct log_hold h = { 0 };
	struct volume_result plan = { 0 };
	bool holds = log_holds(v->log, &h);
	int r = 0;

	if (!holds && v->kept->loose)
		return volume_why(res, -EAGAIN,
				  "nothing is on trial: the generation before " NO_SYNC
				  ": commit without a trial first");
	/* an import has been planned */
	if (!v->committing && is_sealed(v, rq) && held_too_large(v, rq, &plan)) {
		res->report = plan.report;
		return -EFBIG;
	}
	if (!holds) {
		r = home_write(v, rq->cause, 0, false, NULL, res);
		if (r == 0)
			r = held_begin(v, res);
	}
	if (r == 0)
		r = commit_try(v->log, v->base, rq->trial);
	if (r == 0 && h.back)
		snprintf(why, n, "the undo that was pending is taken back");
	return r < 0 ? volume_why(res, r, "not committed: the generation before cannot be held: %s",
				  strerror(-r))
		     : 0;
}

int held_put_back(struct volume *v, bool held, const struct log_hold *was)
{
	struct log_hold h;

	if (!log_holds(v->log, &h))
		return 0;
	if (!held)
		return release(v);
	return h.back == was->back && h.trial == was->trial && h.boots == was->boots
		       ? 0
		       : commit_put_order(v->log, v->base, was);
}

void held_take_back(struct volume *v, bool held, const struct log_hold *was, int error,
		    struct volume_result *res)
{
	int r = held_put_back(v, held, was);

	if (r < 0)
		volume_why(res, error, "not committed: %s, and it is still on trial: %s",
			   strerror(-error), strerror(-r));
	else if (error == -EFBIG && res->report.held && !held)
		volume_why(
			res, error,
			"not committed, and nothing is on trial: the log has no room for this commit while "
			"the generation before it is held: %s needed, %s available; everything stays in RAM",
			FORMAT_SIZE(blk_to_bytes(res->report.need_blks)),
			FORMAT_SIZE(blk_to_bytes(res->report.room_blks)));
}

bool held_makes_way(struct volume *v, const struct commit_report *rep, char *why, size_t n)
{
	struct log_hold h = { 0 };

	if (!v->hold_previous || !rep->held || !log_holds(v->log, &h) || h.back || h.trial ||
	    release(v) < 0)
		return false;
	snprintf(why, n,
		 "generation %llu is no longer held: the log had no room for this commit beside it",
		 (unsigned long long)h.generation);
	msg(MSG_WARN, "%s: %s", v->name, why);
	return true;
}

int held_undo(struct volume *v, bool cancel, struct volume_result *res)
{
	struct log_hold h;
	int r = log_holds(v->log, &h) && h.back == !cancel
			? 0
			: commit_go_back(v->log, v->base, !cancel);

	if (r == -EBADMSG)
		return volume_why(res, r, "the held generation is damaged: nothing was written");
	return r < 0 ? volume_why(
			       res, r, "nothing has changed: %s",
			       r == -ENOSPC
				       ? "the log has no room for a record; cowctl accept makes room"
				       : strerror(-r))
		     : 0;
}

bool held_drops(struct volume *v, char *why, size_t n)
{
	struct log_hold h;

	if (!log_holds(v->log, &h) || !h.back)
		return false;
	snprintf(why, n, "not committed: the next start goes back to generation %llu (cowctl undo)",
		 (unsigned long long)h.generation);
	return true;
}

void held_explain(const struct volume *v, const struct commit_report *rep, char *why, size_t n)
{
	struct log_hold h = { 0 };

	log_holds(v->log, &h);
	snprintf(
		why, n,
		"not committed: the log has no room for this commit while generation %llu is held: %s "
		"needed, %s available; everything stays in RAM. cowctl accept ends the hold, and "
		"cowctl undo goes back to that generation",
		(unsigned long long)h.generation, FORMAT_SIZE(blk_to_bytes(rep->need_blks)),
		FORMAT_SIZE(blk_to_bytes(rep->room_blks)));
}

void held_note_room(const struct volume_log *before, struct volume_log *now)
{
	uint64_t ns = now_ns();

	memcpy(now->then, before->then, sizeof(now->then));
	if (!now->holds || !before->holds || now->room_blks > now->then[1].room_blks) {
		now->then[0].ns = now->then[1].ns = ns;
		now->then[0].room_blks = now->then[1].room_blks = now->room_blks;
	} else if (ns - now->then[1].ns > RATE_NS) {
		now->then[0] = now->then[1];
		now->then[1].ns = ns;
		now->then[1].room_blks = now->room_blks;
	}
}

uint64_t held_full_s(const struct volume *v, const struct volume_log *l)
{
	uint64_t used_blks = l->then[0].room_blks - l->room_blks, ns = now_ns() - l->then[0].ns, s;

	if (!l->holds || !used_blks || ns < RATE_LEAST_NS ||
	    l->room_blks >= super_capacity_blks(log_super(v->log)) / 2)
		return 0;
	s = ns / 1000000 * l->room_blks / used_blks / 1000;
	return s < SOON_S ? s + 1 : 0;
}

bool held_low(const struct volume *v)
{
	return log_holds(v->log, NULL) &&
	       log_room_blks(v->log) < super_capacity_blks(log_super(v->log)) / 4;
}

void held_warn(const struct volume *v, enum commit_cause cause, char *why, size_t n)
{
	size_t len = strlen(why);
	struct log_hold h;

	if (!log_holds(v->log, &h))
		return;
	if (h.back && cause != CAUSE_SHUTDOWN) /* which commits nothing then */
		snprintf(
			why + len, n - len,
			"%sUNDO PENDING: the next start goes back to generation %llu, and this commit is lost. To keep it: "
			"cowctl undo --cancel, or cowctl accept",
			len ? ". And " : "", (unsigned long long)h.generation);
	if (*why)
		return;
	if (held_low(v))
		snprintf(why, n,
			 "%s of the log are left for commits while generation %llu is held: cowctl "
			 "accept, or cowctl undo",
			 FORMAT_SIZE(blk_to_bytes(log_room_blks(v->log))),
			 (unsigned long long)h.generation);
	else if (v->always_checkpoint && cause == CAUSE_MANUAL)
		snprintf(why, n,
			 "generation %llu is held: a boot loader finds /boot as it was then, until "
			 "cowctl accept",
			 (unsigned long long)h.generation);
}
