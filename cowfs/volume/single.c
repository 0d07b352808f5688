/* SPDX-License-Identifier: MIT */
/*
 * A commit of single files: the scratch image is committed. The live volume does not see it: what it reads from the card and
 * the commit changes is kept for it.
 *
 * An import is the same with an image that has nothing of the live volume. So nothing of that is committed from then on:
 * it would take the import back.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/msg.h"
#include "base/parse.h"
#include "fs/fs_ops.h"
#include "volume/images.h"
#include "volume/scratch.h"

static uint64_t bounded_room_blks(const struct volume *v, uint64_t room_blks)
{
	/* with lag a spill takes blocks that are free in both */
	return log_super(v->log)->lag ? min_u64(room_blks, v->kept->room_blks) : room_blks;
}

/* Sets the room that lets the monitor hold writes and start a commit before the next commit cannot
 * hold the dirty blocks. */
void single_note_room(struct volume *v, uint64_t room_blks)
{
	uint64_t bounded_blks = bounded_room_blks(v, room_blks);

	v->kept->room_blks = room_blks;
	monitor_set_room(v->monitor, bounded_blks);
}

/* Can the next full commit hold what is dirty, and what is kept for the live volume? A spill takes
 * no block that the base used: the live file system may still use it although the scratch image
 * has freed it. *ret_dirty_blks: how many may be dirty; 0: any number, also while all of it is to
 * be discarded, or if it is too much already: single files can still be saved then. */
static int plan_next(struct volume *v, struct images *im, struct volume_pressure *m,
		     uint64_t *ret_dirty_blks)
{
	struct generation_stats active, below;
	bool too_much;
	int r = 0;

	view_dirty(v->view, &active, &below);
	too_much = m->plan.ring_blks.full &&
		   active.data_blks + below.data_blks > m->plan.ring_blks.full;
	if (fs_ops(im->fs.kind)->counts_on_free) {
		if (!log_holds(v->log, NULL)) /* else nothing is spilled */
			r = diverged_count_free(v->diverged, im->sealed, &im->room_blks);
		im->room_blks += log_capacity_blks(v->log);
		v->kept->room_blks = min_u64(v->kept->room_blks, im->room_blks);
		pressure_plan_room(&m->plan, log_capacity_blks(v->log),
				   bounded_room_blks(v, im->room_blks));
	}
	*ret_dirty_blks = v->discard_armed || m->fails || too_much ? 0 : m->plan.ring_blks.full;
	return r;
}

/* The scratch image is about to be committed over im->committed. From now on the live volume and
 * the card have only their common base in common. */
int single_keep_live(struct volume *v, struct images *im, struct volume_result *res)
{
	const char *instead = v->kept->replaced_by ? "unmount it" : "commit everything";
	const uint8_t *uuid = im->fs.has_metadata_uuid ? im->fs.metadata_uuid : NULL;
	struct volume_pressure m;
	uint64_t dirty_blks = 0;
	int r = 0;

	if (!images_tells_truth(im->sealed) || !images_tells_truth(im->committed))
		return volume_why(
			res, -EUCLEAN,
			"the free blocks of the file system are not known, so nothing can be "
			"committed beside what is in use: %s",
			instead);
	if (v->diverged_lost)
		return volume_why(
			res, -EUCLEAN,
			"the daemon was replaced after single files were committed: commit "
			"everything first");
	if (!v->diverged)
		r = diverged_new(&v->diverged, v->store, v->volume_blks, im->committed, uuid);
	v->kept->diverged = v->diverged;
	monitor_status(v->monitor, &m);
	if (r == 0)
		r = plan_next(v, im, &m, &dirty_blks);
	if (r == 0)
		r = diverged_keep(v->diverged, v->view, v->committing, v->store,
				  m.plan.ram_bytes.full, dirty_blks);
	if (r == -EFBIG)
		volume_why(res, r,
			   "the log is too small to commit single files now and all other changes "
			   "later: commit everything");
	if (r == -ENOSPC || r == -ENOMEM)
		volume_why(res, r,
			   "not enough RAM to keep what the running system reads of the old files "
			   "(ram=): %s",
			   instead);
	return r;
}

/* Live changes are based on the newest generation again. */
void single_forget(struct volume *v)
{
	v->diverged_lost = false;
	diverged_free(v->diverged);
	v->diverged = NULL;
}

static int commit_image(struct volume *v, const struct volume_request *rq,
			struct volume_result *res)
{
	const struct commit_options due = { .cause = rq->cause };
	struct log_index *ix = NULL;
	int r = view_check_sealed(v->committing);

	if (r == 0)
		r = volume_write_sealed(v, rq, false, res, &ix);
	if (r < 0)
		return r;
	if (rq->checkpoint || home_is_wanted(v) || commit_checkpoint_due(v->log, &due)) {
		volume_on_publish(v, log_index_ref(ix));
		r = home_write(v, rq->cause, 0, true, NULL, res);
		if (r < 0 && !rq->checkpoint) {
			msg(MSG_WARN, "%s: checkpoint: %s", v->name, strerror(-r));
			r = 0;
		}
		log_index_unref(ix);
		ix = log_index_of(v->log);
	}
	view_set_index(v->view, ix);
	/* what was replayed stays in what the live volume reads */
	if (rq->replaces_s)
		v->replayed = (struct replay_mark){ 0 };
	return r;
}

bool single_replaced(const struct volume *v)
{
	return v->kept->replaced_by && v->kept->replaced_by <= log_ledger(v->log)->commits;
}

static int may_import(struct volume *v, const struct volume_request *rq, struct volume_result *res)
{
	struct log_hold h;

	if (!log_holds(v->log, &h) || single_replaced(v))
		return 0;
	if (!h.trial && !h.back && (!rq->trial || v->hold_previous))
		return 0;
	return volume_why(
		res, -EBUSY, "%s: cowctl %s, then import",
		h.back	  ? "an undo is pending"
		: h.trial ? "what runs now is on trial itself"
			  : "another generation is held, and a trial needs the one before it",
		h.back ? "undo --cancel" : "accept");
}

/* The generation before the import: on trial, and with hold = previous, which moves a hold of its own. */
static int hold_before(struct volume *v, const struct volume_request *rq, struct volume_result *res)
{
	char why[sizeof(res->why)] = "";
	struct volume_result plan = { 0 };
	struct log_hold h;
	int r = 0;

	if ((v->hold_previous || rq->trial) && held_too_large(v, rq, &plan)) {
		res->report = plan.report;
		return -EFBIG;
	}
	if (v->hold_previous && log_holds(v->log, &h) && !h.trial && !h.back)
		r = held_end(v, res);
	if (r == 0 && rq->trial)
		return held_try(v, rq, res, why, sizeof(why));
	if (r < 0 || !v->hold_previous || log_holds(v->log, NULL))
		return r;
	r = home_write(v, rq->cause, 0, false, NULL, res);
	return r == 0 ? held_begin(v, res) : r;
}

/* Ahead of the commit, so that no attach has it without a way back, and no process that takes over goes on as if nothing
 * had come. */
static int before_import(struct volume *v, const struct volume_request *rq,
			 struct volume_result *res)
{
	uint64_t newest_s = max_u64(v->kept->imported_before, rq->replaces_s);
	int r = hold_before(v, rq, res);

	if (r == 0)
		r = commit_set_imported(v->log, v->base,
					rq->trial ? v->kept->imported_before : newest_s,
					rq->trial ? rq->replaces_s : 0);
	v->kept->replaced_by = log_ledger(v->log)->commits + 1;
	volume_arm_discard(v, true);
	return r;
}

static void take_import_back(struct volume *v)
{
	const struct log_super *s = log_super(v->log);
	struct volume_kept *k = v->kept;
	int r = 0;

	k->replaced_by = k->replaced_before;
	volume_arm_discard(v, k->armed_before);
	/* what is not there is not accepted with the end of the hold, and nothing is older than that */
	if (s->imported_s != k->imported_before || s->offered_s)
		r = commit_set_imported(v->log, v->base, k->imported_before, 0);
	/* neither a trial nor an undo: may_import. A hold that has moved stays where it is */
	if (r == 0)
		r = held_put_back(v, k->held_before, &(struct log_hold){ 0 });
	if (r < 0)
		msg(MSG_WARN,
		    "%s: the generation before an import that failed may still be held: %s",
		    v->name, strerror(-r));
}

void single_end_import(struct volume *v)
{
	struct volume_kept *k = v->kept;

	if (!k->importing)
		return;
	if (k->replaced_by == k->replaced_before || !single_replaced(v)) {
		take_import_back(v);
		home_lock_cards(v);
	}
	k->importing = false;
}

static int import_image(struct volume *v, const struct volume_request *rq,
			struct volume_result *res)
{
	struct volume_kept *k = v->kept;
	int r;

	k->replaced_before = k->replaced_by;
	k->armed_before = v->discard_armed;
	k->held_before = log_holds(v->log, NULL);
	k->imported_before = log_super(v->log)->imported_s;
	k->importing = true;
	r = before_import(v, rq, res);
	if (r == 0)
		r = commit_image(v, rq, res);
	/* what a hold of its own takes goes with it */
	if (r == -EFBIG && (!k->held_before || !res->report.held))
		volume_why(
			res, r,
			"nothing was imported: the log is too small for it: %s needed, %s available",
			FORMAT_SIZE(blk_to_bytes(res->report.need_blks)),
			FORMAT_SIZE(blk_to_bytes(res->report.room_blks)));
	if (r < 0)
		take_import_back(v);
	k->importing = false;
	return r;
}

/* Commits the scratch image. The live volume does not see it: what it reads from the card and the
 * commit changes is kept for it (single_keep_live). */
int single_commit(struct volume *v, const struct volume_request *rq, struct volume_result *res)
{
	struct scratch *s = volume_scratch(v);
	int r = volume_refuses(v, rq, res);

	if (r == 0 && rq->replaces_s)
		r = may_import(v, rq, res);
	if (r == 0)
		r = s ? scratch_seal(s, &v->committing) : -EAGAIN;
	v->kept->resumes = false; /* it is older */
	if (r == -EAGAIN)
		snprintf(res->why, sizeof(res->why),
			 "%s: another commit came first, or RAM ran short",
			 rq->replaces_s ? "nothing was imported" : "the files were not committed");
	if (r == 0) {
		r = rq->replaces_s ? import_image(v, rq, res) : commit_image(v, rq, res);
		v->committing = NULL;
		scratch_close(s);
	}
	scratch_unref(s);
	return r;
}
