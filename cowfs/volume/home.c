/* SPDX-License-Identifier: MIT */
/* Checkpoints: what is only in the log is written home. After each job the cards are read-only again. */
#include <errno.h>
#include <string.h>

#include "base/msg.h"
#include "fs/fs_ops.h"
#include "fs/replay.h"
#include "volume/images.h"

uint64_t home_waiting_blks(const struct volume *v)
{
	struct log_index *ix = log_index_of(v->log);
	uint64_t blks = log_index_blks(ix);

	log_index_unref(ix);
	return blks;
}

/* For what reads the bare card. A file system that is committed unmounted has no guard: others find it whole.
 * A checkpoint keeps no limit of time. */
bool home_is_wanted(const struct volume *v)
{
	return v->always_checkpoint ||
	       (fs_ops(v->fs.kind)->unguarded && monitor_time_blks(v->monitor) == UINT64_MAX);
}

static bool peek_sealed(void *ctx, uint64_t blk, uint64_t blks, void *buf)
{
	struct volume *v = ctx;

	if (view_peek_sealed(v->committing ? v->committing : v->view, blk, blks, buf) < 0)
		return false;
	return v->committing || !v->replay || replay_next(v->replay, blk) - blk >= blks ||
	       v->clean.read(v->clean.ctx, blk, blks, buf) == 0;
}

/* A commit must not wait for a checkpoint that nobody asked for. */
bool home_makes_way(void *ctx)
{
	struct volume *v = ctx;

	return volume_job_waits(v) &&
	       monitor_may_stop_checkpoint(v->monitor, log_room_blks(v->log));
}

/* sealed: the blocks of the newest commit are still in RAM. stop: NULL, or whether it makes way now
 * (-EINTR). */
int home_write(struct volume *v, enum commit_cause cause, uint32_t flags, bool sealed,
	       bool (*stop)(void *ctx), struct volume_result *res)
{
	const struct log_content ram = { .read = peek_sealed, .ctx = v };
	struct images im = { .v = v, .from = v->view };
	struct commit_source uses;
	struct commit_options opt = { .cause = cause,
				      .record_flags = flags,
				      .content = sealed ? &ram : NULL,
				      .profile = v->profile,
				      .stop = stop,
				      .stop_ctx = v,
				      .goes_on = stop == home_makes_way &&
						 cause != CAUSE_SHUTDOWN && cause != CAUSE_DETACH,
				      .progress = volume_on_progress,
				      .progress_ctx = v };
	struct wear_ledger before;
	uint64_t blks;
	int r;

	if (log_holds(v->log, NULL)) /* the log has everything */
		return 0;
	if (!v->profile)
		images_free_when_asked(&im, sealed, &uses);
	else if (!images_open_free(&im, sealed, &uses))
		uses = (struct commit_source){ .ctx = &im };
	opt.uses = &uses;
	log_totals(v->log, &before);
	r = commit_checkpoint(v->log, v->base, &opt, volume_on_publish, v, RECORD_TAIL, &blks);
	res->report.checkpoint += blks;
	commit_bill(&res->report, v->log, &before);
	images_close(&im);
	return r;
}

/* What an earlier session, or a checkpoint that failed, left in the log. If that cannot be
 * checkpointed, a commit is still worth more than none. */
void home_first(struct volume *v, const struct volume_request *rq, struct volume_result *res)
{
	int r = 0;

	if (home_is_wanted(v) && home_waiting_blks(v))
		r = home_write(v, rq->cause, 0, false, NULL, res);
	if (r < 0)
		msg(MSG_WARN, "%s: checkpoint: %s", v->name, strerror(-r));
}

/* Cards are writable only during a commit. If a card cannot be set read-only afterwards, this is
 * tried again after each job. */
void home_lock_cards(struct volume *v)
{
	struct card *cards[] = { v->base, v->log_card };

	for (size_t i = 0; i < ARRAY_SIZE(cards); i++) {
		int r = card_set_writable(cards[i], false);

		if (r < 0)
			volume_alarm(
				v,
				"%s: cannot be set read-only after a commit (%s); retried after "
				"the next one",
				cards[i]->geo.path, strerror(-r));
	}
}

/* The system has slept: finds a card that was changed meanwhile. Nothing is written. */
void home_look_after_sleep(struct volume *v)
{
	int r = v->opened.state != LOG_FOREIGN ? log_recheck(v->log) : 0;

	if (away_any(v))
		return; /* it is found again when it is back */
	if (r == -ESTALE)
		volume_alarm(v,
			     "while the system slept, " CARD_CHANGED
			     "; nothing more is written to it, and what it reads may be a mixture: "
			     "copy what you need to another place");
	else if (r < 0)
		volume_alarm(v,
			     "since the system slept, the card cannot be read (%s): it was "
			     "removed, or it fails. What was changed since the last commit is "
			     "only in RAM: copy what you need to another place",
			     strerror(-r));
}

/* A failure is that of a checkpoint after a commit: the log has every block. The next commit makes
 * another attempt possible. */
void home_idle(struct volume *v, const struct volume_request *rq, struct volume_result *res)
{
	int r;

	if (v->slept) {
		v->slept = false;
		home_look_after_sleep(v);
		return;
	}
	r = v->idle_checkpoint && idle_may_begin(v)
		    ? home_write(v, rq->cause, 0, false, idle_must_stop, res)
		    : -EINTR;
	if (r < 0 && r != -EINTR) {
		v->idle_failed = true;
		msg(MSG_WARN, "%s: checkpoint: %s", v->name, strerror(-r));
	}
	home_lock_cards(v);
}
