/* SPDX-License-Identifier: MIT */
/*
 * The jobs of the commit thread. A commit is do_commit_once, a list of steps:
 *
 * 	refuse -> quiesce and seal -> classify, write, record -> checkpoint if due -> release the RAM
 *
 * On any failure after the seal, the sealed generation stays as a layer below the active one, and the next commit writes all
 * of it again. docs/design/commit.md has the table of what differs in which kind of commit.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/invariant.h"
#include "base/msg.h"
#include "fs/fs_ops.h"
#include "volume/images.h"

#define ROUNDS_MAX 1000 /* of one commit, because a writer may never stop */

void volume_on_progress(void *ctx, enum commit_phase phase, uint64_t done, uint64_t total)
{
	struct volume *v = ctx;

	v->progress.phase = (int)phase;
	v->progress.done_blks = done;
	v->progress.total_blks = total;
}

void volume_on_publish(void *ctx, struct log_index *index)
{
	struct volume *v = ctx;

	if (v->committing)
		view_set_index(v->committing, log_index_ref(index));
	view_set_index(v->view, index);
}

/* ---- classify, write, record ---- */

/* Commit an unread image only on an explicit request, or if there is no later chance and all
 * changes in RAM would be lost. */
static bool goes_on_unread(const struct volume_request *rq)
{
	return rq->force || rq->cause == CAUSE_SHUTDOWN || rq->cause == CAUSE_DETACH;
}

static struct commit_options options_for(struct volume *v, const struct volume_request *rq,
					 const struct images *im)
{
	bool single = v->committing;

	return (struct commit_options){
		.dry_run = rq->job == JOB_DRY_RUN,
		.only_changed = single,
		.checkpoint_asked = rq->checkpoint || v->always_checkpoint || rq->job == JOB_DETACH,
		.cause = rq->cause,
		.profile = single ? NULL : v->profile,
		.price_by = v->price_by,
		.record_flags = im->unread ? (uint32_t)RECORD_UNREAD : 0,
		.differed = rq->cause == CAUSE_PRESSURE ? &v->differed : NULL,
		.renew = &v->renewed,
		.progress = volume_on_progress,
		.progress_ctx = v
	};
}

/* Nothing can be read of the image: it is committed as it is, and all of it counts as used. RAM keeps nothing of what it
 * leaves free. */
static bool give_up_replay(struct volume *v, struct volume_result *res)
{
	if (!v->replay)
		return false;
	replayed_end(v);
	overlap_end(v);
	v->kept->keeps = false;
	v->unsynced = true;
	v->kept->loose = true;
	return res->quiesce.raw = true;
}

static int try_commit(struct volume *v, const struct volume_request *rq, enum unread unread,
		      struct volume_result *res, struct log_index **ret_index)
{
	bool dry = rq->job == JOB_DRY_RUN, single = v->committing;
	struct images im = { .v = v,
			     .from = single ? v->committing : v->view,
			     .dry = dry && !single,
			     .shut_out = rq->cause == CAUSE_PRESSURE || res->quiesce.stopped,
			     /* a live image changes while its checksums are verified */
			     .force = rq->force || dry,
			     .unread = unread,
			     .raw = res->quiesce.raw };
	struct commit_options opt = options_for(v, rq, &im);
	struct commit_source src = { 0 };
	int r;

	if (unread && !single)
		im.raw |= give_up_replay(v, res);
	r = images_open(&im, res);

	if (r == 0 && single && !dry)
		r = single_keep_live(v, &im, res);
	if (r == 0 && v->diverged)
		fsmap_set_log_sequence(im.committed, diverged_log_sequence(v->diverged));
	if (r == 0) {
		images_source(&im, res, &src);
		r = commit_run(v->log, v->base, &src, &opt, volume_on_publish, v, &res->report,
			       ret_index);
	}
	/* then it is not known which blocks are free, and all of them were committed */
	if (!src.run_sealed || fsmap_doubts(im.sealed))
		(void)!overlap_note(v, 0, v->volume_blks); /* needs no memory */
	if (r == 0 && !dry &&
	    (fs_ops(v->fs.kind)->counts_on_free || fs_ops(im.fs.kind)->counts_on_free))
		single_note_room(v, single && !log_holds(v->log, NULL)
					    ? im.room_blks
					    : volume_room_blks(v, &im.fs));
	r = log_read_error(v->log, r);
	if (r == -ESTALE) /* not that a checksum is wrong */
		res->why[0] = '\0';
	if (r == -EUCLEAN && !res->why[0])
		snprintf(res->why, sizeof(res->why),
			 "a checksum of the file system is wrong: not committed (commit --force "
			 "overrides)");
	images_close(&im);
	return r;
}

/* An image that cannot be read is committed like a file system that cowfs does not know: all blocks
 * that differ go to the log. */
int volume_write_sealed(struct volume *v, const struct volume_request *rq, bool goes_on,
			struct volume_result *res, struct log_index **ret_index)
{
	enum unread unread = UNREAD_NOTHING;
	int r;

	log_need_reader(v->log, !goes_on);
	r = try_commit(v, rq, unread, res, ret_index);
	while (r == -EOWNERDEAD && goes_on && unread < UNREAD_ALL)
		r = try_commit(v, rq, ++unread, res, ret_index);
	res->unread = r == 0 && unread;
	if (r < 0) /* a FLUSH that failed may have lost blocks, whatever record the card has now */
		v->kept->mark.seq = 0;
	return r;
}

/* Under pressure another seal is useless before this one is committed. In the end, writes would
 * fail, so an unreadable image is committed all the same. */
static int run_with_retries(struct volume *v, const struct volume_request *rq,
			    struct volume_result *res, struct log_index **ret_index)
{
	int r = volume_write_sealed(v, rq, goes_on_unread(rq), res, ret_index);
	bool said = false;

	for (; r < 0 && monitor_retry(v->monitor, r); said = true) {
		if (!said)
			volume_alarm(
				v,
				"a commit failed (%s) and RAM is filling up: retrying, writers "
				"wait",
				r == -EOWNERDEAD ? FSINFO_DIED : strerror(-r));
		r = volume_write_sealed(v, rq, goes_on_unread(rq), res, ret_index);
	}
	return r == -EOWNERDEAD && said && v->life == VOLUME_RUNNING
		       ? volume_write_sealed(v, rq, true, res, ret_index)
		       : r;
}

/* adds the writes of programs so far to the totals that the record will carry */
static void count_absorbed(struct volume *v)
{
	struct wear_ledger *l = log_ledger(v->log);
	struct view_counters c;

	view_counters(v->view, &c);
	l->absorbed_bytes += c.written_bytes - v->counted.written_bytes;
	l->absorbed_writes += c.write_calls - v->counted.write_calls;
	l->punched_bytes += c.punched_bytes - v->counted.punched_bytes;
	v->counted = c;
}

/* ---- one commit ---- */

/* Has a commit of this session failed, and none succeeded since? Its record may be on the card, and
 * the next attach would choose it. Any newer record prevents that. */
static bool failed_may_return(const struct volume *v)
{
	return log_doubt(v->log) &&
	       log_ledger(v->log)->commits_failed != v->opened.ledger.commits_failed;
}

/* 1: there is nothing to do, which is not an error. */
int volume_refuses(struct volume *v, const struct volume_request *rq, struct volume_result *res)
{
	int r = 0;

	if (v->opened.state == LOG_FOREIGN)
		return volume_why(res, -ESTALE, LOG_SET_ASIDE);
	if (invariant_broken())
		return -ENOTRECOVERABLE;
	if (v->halted && (rq->cause == CAUSE_TIMER || rq->cause == CAUSE_PRESSURE))
		return volume_why(
			res, 1,
			"not committed: the daemon has died several times, so only a commit by "
			"hand is made");
	if (single_replaced(v) && !rq->replaces_s)
		return volume_why(
			res, rq->cause == CAUSE_MANUAL ? -ESTALE : 1,
			"not committed: the next start has generation %llu, which was imported, "
			"and what is mounted now is lost",
			(unsigned long long)v->kept->replaced_by);
	if (rq->cause == CAUSE_PRESSURE && v->discard_armed)
		return 1; /* discard was armed after the commit was requested */
	if (rq->cause != CAUSE_PRESSURE)
		v->differed = 0;
	if (rq->cause == CAUSE_SHUTDOWN && held_drops(v, res->why, sizeof(res->why)))
		return 1;
	if ((rq->cause == CAUSE_TIMER || rq->cause == CAUSE_SHUTDOWN) && v->discard_armed) {
		volume_why(res, 1, "not committed: the changes are to be discarded");
		if (rq->cause == CAUSE_SHUTDOWN && failed_may_return(v))
			r = home_write(v, rq->cause, 0, false, NULL, res);
		if (r < 0)
			msg(MSG_WARN, "%s: a commit that failed may be on the card: %s", v->name,
			    strerror(-r));
		return 1;
	}
	return 0;
}

/* Nothing to seal: what is asked for besides. */
static int end_unchanged(struct volume *v, const struct volume_request *rq,
			 struct volume_result *res)
{
	if (rq->cause == CAUSE_TIMER)
		volume_why(res, 0, "not committed: nothing has changed");
	return rq->checkpoint ? home_write(v, rq->cause, 0, false, NULL, res) : 0;
}

/* r: of the seal. An error: the image is not consistent. */
static int write_sealed(struct volume *v, const struct volume_request *rq, int r,
			struct volume_result *res, struct log_index **ret_index)
{
	bool loose = v->kept->loose;

	count_absorbed(v);
	monitor_stage(v->monitor, STAGE_SEALED);
	if (r == 0)
		r = view_check_sealed(v->view);
	if (r == 0)
		r = replayed_begin(v, &res->quiesce);
	if (r == 0)
		r = overlap_begin(v);
	if (r == 0)
		r = run_with_retries(v, rq, res, ret_index);
	if (r == -EFBIG && !loose) /* nothing was written */
		replayed_forget(v);
	v->kept->durable = r == 0;
	if (r == 0)
		v->kept->diverged = v->sealed = false;
	return r;
}

/* What is sealed stays a layer below the active one. */
static void keep_sealed(struct volume *v)
{
	volume_unseal(v);
	v->failed_below = true;
}

static void release(struct volume *v, struct log_index *ix)
{
	volume_publish_log(v); /* a list that lacks what goes now is one of this generation */
	if (v->overlap)
		view_release_keeping(v->view, ix, v->replay, overlap_keeps, v);
	else
		view_release(v->view, ix);
	v->failed_below = false;
	v->kept->stays = true;
	extents_clear(&v->renewed);
	single_forget(v);
	monitor_stage(v->monitor, STAGE_RELEASED);
}

/* The commit is durable. A checkpoint that is due reads the blocks from RAM; they are released afterwards. */
static int go_home(struct volume *v, const struct volume_request *rq, struct log_index *ix,
		   struct volume_result *res)
{
	const struct commit_options due = { .cause = rq->cause, .profile = v->profile };
	bool all = rq->checkpoint || home_is_wanted(v);
	int r = 0;

	res->generation = log_ledger(v->log)->commits;
	replayed_committed(v);
	if (all || commit_checkpoint_due(v->log, &due)) {
		monitor_stage(v->monitor, STAGE_DURABLE);
		r = home_write(v, rq->cause, rq->cause == CAUSE_DETACH ? RECORD_CLEAN : 0, true,
			       all ? NULL : home_makes_way, res);
		log_index_unref(ix);
		ix = log_index_of(v->log);
	}
	release(v, ix);
	if (r == 0 || rq->checkpoint)
		return r;
	/* the commit itself is valid */
	if (r != -EINTR)
		msg(MSG_WARN, "%s: checkpoint: %s", v->name, strerror(-r));
	return 0;
}

static int do_commit_once(struct volume *v, const struct volume_request *rq,
			  struct volume_result *res)
{
	struct log_index *ix = NULL;
	int r = volume_refuses(v, rq, res);

	res->withheld = r == 1 || held_drops(v, NULL, 0);
	res->not_begun = r < 0 && rq->cause == CAUSE_MANUAL; /* no failed commit */
	if (r)
		return r < 0 ? r : 0;
	home_first(v, rq, res);
	r = volume_quiesce(v, SEAL_COMMIT, rq->cause, res);
	if (r == -ENODATA)
		return end_unchanged(v, rq, res);
	if (!v->sealed)
		return r;
	v->kept->sealed = res->quiesce;
	v->kept->sealed_kind = v->live_kind;
	v->kept->resumes = r == 0;
	r = write_sealed(v, rq, r, res, &ix);
	if (r == 0)
		r = go_home(v, rq, ix, res);
	else
		keep_sealed(v);
	v->kept->resumes = false;
	return r;
}

static int commit_once(struct volume *v, const struct volume_request *rq, struct volume_result *res)
{
	int r = do_commit_once(v, rq, res);

	overlap_end(v);
	replayed_end(v);
	return r;
}

/* What it did to the card, whatever became of it. */
static void add_bill(struct commit_report *to, const struct commit_report *of)
{
	to->checkpoint += of->checkpoint;
	to->written_bytes += of->written_bytes;
	to->write_calls += of->write_calls;
	to->flushes += of->flushes;
	to->writable_ns += of->writable_ns;
	to->meta += of->meta;
	to->visits += of->visits;
}

/* And what it committed. Erase blocks and the time in the profile are those of the last round: their sum says nothing. */
static void add_round(struct commit_report *to, const struct commit_report *of)
{
	add_bill(to, of);
	to->dirty += of->dirty;
	to->holes += of->holes;
	to->skipped_holes += of->skipped_holes;
	to->skipped_free += of->skipped_free;
	to->skipped_journal += of->skipped_journal;
	to->skipped_same += of->skipped_same;
	to->direct += of->direct;
	to->logged += of->logged;
	to->zero += of->zero;
	to->spilled += of->spilled;
	to->moved += of->moved;
	to->padded += of->padded;
	to->loose += of->loose;
	to->direct_extents += of->direct_extents;
	to->logged_extents += of->logged_extents;
}

/* By hand a commit whose sync did not end in its time is made once more, which waits for the same sync. */
static bool lacks_sync(const struct volume_request *rq, const struct quiesce_report *q)
{
	return rq->cause == CAUSE_MANUAL && !rq->until_ns && q->unsynced && !q->failed &&
	       !q->hidden;
}

/* More was dirty than one commit can hold, or there was no sync. It is committed in several rounds. All but the last are in the
 * state that a power cut leaves. */
static int do_commit(struct volume *v, const struct volume_request *rq, struct volume_result *res)
{
	int r = commit_once(v, rq, res);
	bool once_more = true; /* for the lack of a sync alone */

	for (unsigned i = 0; r == 0 && i < ROUNDS_MAX; i++) {
		bool stopped = res->quiesce.stopped && rq->cause != CAUSE_PRESSURE;
		struct volume_result before = *res;

		if (!stopped && (!once_more || !lacks_sync(rq, &res->quiesce)))
			break;
		once_more &= stopped;
		*res = (struct volume_result){ .job = res->job };
		r = commit_once(v, rq, res);
		if (r == 0)
			res->why[0] = '\0'; /* for example, that there was nothing left to commit */
		/* what was committed stands, and says that it had no sync */
		if (r < 0 && !stopped) {
			r = 0;
			add_bill(&before.report, &res->report);
			*res = before;
		} else {
			add_round(&res->report, &before.report);
		}
	}
	return r;
}

/* ---- the other jobs ---- */

static int do_dry_run(struct volume *v, const struct volume_request *rq, struct volume_result *res)
{
	struct log_index *ix = NULL;
	int r = volume_quiesce(v, SEAL_NOTHING, rq->cause, res);

	if (r == -ENODATA) {
		res->report.estimate = true;
		res->report.checkpoint = rq->checkpoint ? home_waiting_blks(v) : 0;
		res->report.written_bytes = blk_to_bytes(res->report.checkpoint);
		r = 0;
	} else if (r == 0) {
		r = volume_write_sealed(v, rq, goes_on_unread(rq), res, &ix);
	}
	log_index_unref(ix);
	if (r == 0 && res->report.written_bytes)
		res->report.writable_ns = monitor_write_ns(v->monitor, res->report.written_bytes,
							   &res->report.time_by);
	return r;
}

/* A session without commits writes nothing: neither records, nor copies of the superblock. Blocks
 * that an earlier session left in the log are still written home, except where a mount failed and
 * its changes are discarded. */
static bool leaves_no_trace(const struct volume *v)
{
	return log_newest(v->log)->seq == v->opened.newest.seq && !failed_may_return(v) &&
	       (v->discard_armed || (!home_waiting_blks(v) && !log_guarded(v->log)));
}

/* Nothing is mounted: commits everything (unless it is to be discarded), checkpoints everything,
 * writes the clean record. */
static int do_detach(struct volume *v, const struct volume_request *rq, struct volume_result *res)
{
	/* its plan knows that everything goes home, and the checkpoint reads from RAM */
	struct volume_request commit = {
		.job = JOB_COMMIT, .force = rq->force, .cause = rq->cause, .checkpoint = true
	};
	bool drops = held_drops(v, res->why, sizeof(res->why)) || v->discard_armed;
	int r = 0;

	if (!drops && view_changed_blks(v->view))
		r = do_commit(v, &commit, res);
	if (r == 0 && v->opened.state != LOG_FOREIGN && !leaves_no_trace(v))
		r = home_write(v, rq->cause, RECORD_CLEAN, false, NULL, res);
	/* the changes in RAM were to be discarded anyway, and the committed ones are in the log: a
	 * missing card must not block the detach */
	if (r < 0 && v->discard_armed) {
		r = volume_why(res, 0,
			       "earlier commits may exist in the log only (%s): see cowctl check",
			       strerror(-r));
		msg(MSG_WARN, "%s: %s", v->name, res->why);
	}
	if (r == 0)
		explain_waiting(v, res);
	return r;
}

static void do_trim(struct volume *v, const struct volume_request *rq, struct volume_result *res)
{
	/* a client's comes again at once, so the job of idle.c may not get its turn */
	if (atomic_exchange(&v->slept, false))
		home_look_after_sleep(v);
	res->error = trim_do(v, rq, res);
	home_lock_cards(v);
}

static bool is_too_late(struct volume *v, const struct volume_request *rq,
			struct volume_result *res)
{
	uint64_t need_ns = monitor_commit_ns(v->monitor), now = now_ns();

	if (!rq->until_ns || now + need_ns <= rq->until_ns)
		return false;
	return volume_why(
		res, true,
		"not begun: it would take about %.1f s, and %.1f s are left; everything stays in RAM",
		(double)need_ns / 1e9, now < rq->until_ns ? (double)(rq->until_ns - now) / 1e9 : 0);
}

static void note_room_now(struct volume *v)
{
	struct blk_reader committed = volume_committed(v);
	struct fsinfo fs;

	if (fsinfo_probe_super(&committed, &fs) == 0 && fs_ops(fs.kind)->counts_on_free)
		single_note_room(v, volume_room_blks(v, &fs));
}

/* The log is emptied first, so that most of it is free for what follows. */
static int do_hold(struct volume *v, const struct volume_request *rq, struct volume_result *res)
{
	struct volume_request commit = *rq;
	int r;

	commit.checkpoint = true;
	r = do_commit(v, &commit, res);
	if (r == 0) {
		r = res->quiesce.unsynced ? volume_why(res, -EAGAIN, "nothing is held")
					  : held_begin(v, res);
		res->not_held = r < 0;
	}
	note_room_now(v);
	return r;
}

/* hold = previous: a commit that has no room beside the held generation is worth more than that. */
static int commit_and_hold(struct volume *v, const struct volume_request *rq,
			   struct volume_result *res)
{
	struct commit_report before = { 0 };
	char why[sizeof(res->why)] = "";
	struct log_hold was = { 0 };
	bool held = log_holds(v->log, &was);
	int r;

	if (single_replaced(v)) /* it is refused, and so is a change of the hold */
		return do_commit(v, rq, res);
	held_previous(v, rq, &before, why, sizeof(why));
	r = rq->trial ? held_try(v, rq, res, why, sizeof(why)) : 0;
	if (r == 0)
		r = do_commit(v, rq, res);
	if (r == -EFBIG && held_makes_way(v, &res->report, why, sizeof(why))) {
		*res = (struct volume_result){ .job = res->job };
		r = do_commit(v, rq, res);
	}
	if (r < 0 && rq->trial)
		held_take_back(v, held, &was, r, res);
	if (r == 0 && *why && !res->why[0])
		memcpy(res->why, why, sizeof(why));
	add_bill(&res->report, &before);
	return r;
}

static int do_accept(struct volume *v, const struct volume_request *rq, struct volume_result *res)
{
	const struct commit_options due = { .cause = rq->cause, .profile = v->profile };
	int r = held_accept(v, rq->on_trial, res);
	bool all = home_is_wanted(v);

	note_room_now(v);
	if (r == 0 && (all || commit_checkpoint_due(v->log, &due)) &&
	    home_write(v, rq->cause, 0, false, all ? NULL : home_makes_way, res) < 0)
		msg(MSG_WARN, "%s: the checkpoint behind a hold has failed or made way", v->name);
	return r;
}

static int do_job(struct volume *v, const struct volume_request *rq, struct volume_result *res)
{
	int r = held_check(v, rq, res->why, sizeof(res->why));

	res->not_begun = r < 0;
	if (r < 0)
		return r;
	switch (rq->job) {
	case JOB_ACCEPT:
		return do_accept(v, rq, res);
	case JOB_UNDO:
		return held_undo(v, rq->cancel, res);
	case JOB_COMMIT:
		return rq->hold ? do_hold(v, rq, res) : commit_and_hold(v, rq, res);
	case JOB_DRY_RUN:
		r = single_replaced(v) ? volume_refuses(v, rq, res) : do_dry_run(v, rq, res);
		if (r == 0 && (rq->hold || (v->hold_previous && !rq->checkpoint)))
			held_price(v, &res->report);
		return r;
	case JOB_DETACH:
		return do_detach(v, rq, res);
	case JOB_COMMIT_SCRATCH:
		return single_commit(v, rq, res);
	case JOB_VIEW:
		return volume_do_view(v, rq->image, res);
	default:
		return -EINVAL;
	}
}

/* Jobs without a result for people. */
static bool do_quietly(struct volume *v, const struct volume_request *rq, struct volume_result *res)
{
	switch (rq->job) {
	case JOB_CHECKPOINT:
		home_idle(v, rq, res);
		return true;
	case JOB_TRIM:
		do_trim(v, rq, res);
		return true;
	case JOB_RENEW:
		res->error = renew_do(v, rq->renew_blk, res->why, sizeof(res->why));
		return true;
	default:
		return false;
	}
}

/* Of a commit or a detach: what the monitor and the alarm make of it. */
static void report(struct volume *v, const struct volume_request *rq, struct volume_result *res)
{
	bool odd = (res->quiesce.raw && !res->quiesce.stopped) || res->quiesce.failed ||
		   res->unread;
	int error = res->not_held ? 0 : res->error;

	monitor_result(v->monitor, rq->job == JOB_COMMIT || error == -EFBIG ? error : 0);
	if (error == -ENOMEDIUM)
		return;
	if (error < 0)
		volume_alarm(v, "commit failed: %s%s", res->why,
			     monitor_gave_up(v->monitor) ? "; writes fail while RAM is full" : "");
	else
		volume_alarm(v, "%s", odd ? res->why : "");
}

/* 1: a commit of the timer, which is made when the card is back. A detach that discards needs no card. */
static int need_card(struct volume *v, const struct volume_request *rq, struct volume_result *res)
{
	if (away_any(v))
		away_search(v);
	if (!away_any(v) || (rq->job == JOB_DETACH && v->discard_armed))
		return 0;
	away_interrupts(v, rq, res);
	if (rq->cause != CAUSE_TIMER)
		return -ENOMEDIUM;
	return volume_why(res, 1,
			  "not committed: the card is away; it is done when the card is back");
}

void volume_do(struct volume *v, const struct volume_request *rq, struct volume_result *res)
{
	uint64_t start_ns = now_ns();
	bool looks = rq->job == JOB_VIEW || rq->job == JOB_DRY_RUN;
	int r;

	v->past_seal = false;
	log_need_reader(v->log, !goes_on_unread(rq));
	if (do_quietly(v, rq, res))
		return;
	res->not_begun = rq->job == JOB_COMMIT && is_too_late(v, rq, res);
	r = res->not_begun ? -ETIME : need_card(v, rq, res);
	if (r == 0)
		r = do_job(v, rq, res);
	if (r < 0 && !res->not_begun && away_any(v)) {
		away_interrupts(v, rq, res);
		r = -ENOMEDIUM;
	}
	if (r > 0)
		r = 0;
	res->report.duration_ns = now_ns() - start_ns;
	res->time_s = (uint64_t)time(NULL);
	res->generation = log_ledger(v->log)->commits;
	res->record_seq = log_newest(v->log)->seq;
	explain_result(v, res, r);
	if (rq->job != JOB_VIEW && !res->not_begun) {
		if (r == 0 && (rq->job == JOB_COMMIT || rq->job == JOB_COMMIT_SCRATCH))
			held_warn(v, rq->cause, res->why, sizeof(res->why));
		if (rq->job != JOB_COMMIT_SCRATCH) {
			explain_remarks(res);
			explain_lost(v, r, res);
		}
	}
	if (looks || res->not_begun || rq->job == JOB_COMMIT_SCRATCH || rq->job == JOB_ACCEPT ||
	    rq->job == JOB_UNDO || (rq->hold && r < 0 && log_holds(v->log, NULL)))
		monitor_stage(v->monitor, STAGE_IDLE);
	else
		report(v, rq, res);
	if (rq->job == JOB_VIEW || res->not_begun)
		return;
	home_lock_cards(v);
}
