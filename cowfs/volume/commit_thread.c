/* SPDX-License-Identifier: MIT */
/*
 * The jobs of the commit thread.
 *
 * 	quiesce (freeze) -> seal -> thaw -> classify, write, record
 * 	-> checkpoint if due -> release the RAM
 *
 * Only the seal happens while the file system is frozen. On any failure after the seal, the sealed
 * generation stays as a layer below the active one, and the next commit writes all of it again.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/invariant.h"
#include "base/io.h"
#include "base/msg.h"
#include "base/parse.h"
#include "fs/fs_ops.h"
#include "volume/private.h"

#define ROUNDS_MAX 1000 /* of one commit, because a writer may never stop */
#define THAW_NS (10 * 1000000000ull)
#define THAW_NAP_NS 50000000

/* Images that are no longer read, because reading them kills the reader process. */
enum unread { UNREAD_NOTHING, UNREAD_SEALED, UNREAD_ALL };

struct images {
	struct volume *v;
	struct view *from; /* of the sealed image: the volume's, or that of the scratch */
	struct fsmap *sealed, *committed;
	/* with lag: another image that recovery may choose besides the committed one; NULL: none */
	struct fsmap *older;
	struct log_index *older_index;
	struct fsinfo fs; /* of the sealed image */
	bool force, dry;
	enum unread unread;
	bool unfrozen;	    /* the sealed image is in the state that a power cut leaves */
	uint64_t room_blks; /* of the commit after this one of single files (note_room) */
};

/* ---- callbacks of commit_run ---- */

static int img_read_sealed(void *ctx, uint64_t blk, uint64_t blks, void *buf)
{
	return view_read_sealed(((struct images *)ctx)->from, blk, blks, buf);
}

static int img_read_live(void *ctx, uint64_t blk, uint64_t blks, void *buf)
{
	return view_read_live(((struct images *)ctx)->v->view, blk, blks, buf);
}

static int img_read_committed(void *ctx, uint64_t blk, uint64_t blks, void *buf)
{
	return view_read_committed(((struct images *)ctx)->v->view, blk, blks, buf);
}

static bool img_next_sealed(void *ctx, uint64_t *blk, uint64_t max_blks, uint64_t *ret_blks,
			    enum blk_state *state)
{
	return view_next_sealed(((struct images *)ctx)->from, blk, max_blks, ret_blks, state);
}

static bool img_next_live(void *ctx, uint64_t *blk, uint64_t max_blks, uint64_t *ret_blks,
			  enum blk_state *state)
{
	return view_next_live(((struct images *)ctx)->v->view, blk, max_blks, ret_blks, state);
}

static int img_run_sealed(void *ctx, uint64_t blk, uint64_t max_blks, enum blk_use *ret,
			  uint64_t *ret_blks)
{
	struct images *im = ctx;
	int r = fsmap_run_after(im->sealed, im->committed, blk, max_blks, ret, ret_blks);

	if (r == 0 && *ret == USE_FREE && im->v->diverged && !im->v->committing &&
	    diverged_must_write(im->v->diverged, blk, *ret_blks, ret_blks))
		*ret = USE_USED;
	if (r == 0 && *ret == USE_FREE)
		overlap_note(im->v, blk, *ret_blks);

	/* a damaged bitmap in the image to be committed: only with force */
	return r == 0 && !im->force && (fsmap_alarms(im->sealed) & FSMAP_BAD_CHECKSUM) ? -EUCLEAN
										       : r;
}

static int img_run_committed(void *ctx, uint64_t blk, uint64_t max_blks, enum blk_use *ret,
			     uint64_t *ret_blks)
{
	return fsmap_run(((struct images *)ctx)->committed, blk, max_blks, ret, ret_blks);
}

static int img_read_older(void *ctx, uint64_t blk, uint64_t blks, void *buf)
{
	struct images *im = ctx;

	return log_index_read_volume(im->older_index, im->v->base, blk, blks, buf);
}

static int img_run_older(void *ctx, uint64_t blk, uint64_t max_blks, enum blk_use *ret,
			 uint64_t *ret_blks)
{
	return fsmap_run(((struct images *)ctx)->older, blk, max_blks, ret, ret_blks);
}

static void on_progress(void *ctx, enum commit_phase phase, uint64_t done, uint64_t total)
{
	struct volume *v = ctx;

	v->progress.phase = (int)phase;
	v->progress.done_blks = done;
	v->progress.total_blks = total;
}

static void on_publish(void *ctx, struct log_index *index)
{
	struct volume *v = ctx;

	if (v->committing)
		view_set_index(v->committing, log_index_ref(index));
	view_set_index(v->view, index);
}

/* ---- parts of a commit ---- */

int volume_seal(struct volume *v, int (*between)(void *ctx))
{
	int r;

	/* both are of an earlier commit, and say nothing about what is sealed now */
	v->kept->mark.seq = 0;
	v->kept->durable = false;
	v->kept->keeps = instant_overlaps(v);
	if (v->instant.serving) {
		r = view_seal_keeping(v->view, instant_kept_blk(v), between, v);
	} else {
		r = between ? between(v) : 0;
		if (r == 0)
			r = view_seal(v->view);
	}
	v->sealed = r == 0;
	v->past_seal |= v->sealed;
	return r;
}

static int seal(void *ctx)
{
	return volume_seal(ctx, NULL);
}

static bool something_changed(void *ctx);

bool volume_hurries(struct volume *v)
{
	return monitor_hurries(v->monitor);
}

/* Before the freeze. If another volume gives up, the seal says so. */
static bool others_synced(void *ctx)
{
	struct volume *v = ctx;

	(void)!joint_synced(v->joint);
	return true;
}

static int others_still(void *ctx)
{
	struct volume *v = ctx;
	bool changed = something_changed(v);
	int r = joint_frozen(v->joint, changed);

	return r < 0 ? r : changed ? 0 : -ENODATA;
}

/* All volumes are frozen, or let no write through, when the first one is sealed. */
static int seal_together(void *ctx)
{
	return volume_seal(ctx, others_still);
}

static int no_seal(void *ctx)
{
	(void)ctx;
	return 0;
}

static const char UNFREEZABLE[] =
	"the file system has seen I/O errors and can no longer be frozen: unmount it, then "
	"commit; what RAM holds stays there";

static void explain_room(const struct commit_report *rep, char *w, size_t n)
{
	snprintf(w, n,
		 "the log is too small for this commit: %s needed, %s available (with the free "
		 "blocks of the file system); everything stays in RAM",
		 FORMAT_SIZE(blk_to_bytes(rep->need_blks)),
		 FORMAT_SIZE(blk_to_bytes(rep->room_blks)));
	if (rep->lend_blks) /* plus an eighth for the writes in the meantime */
		snprintf(w + strlen(w), n - strlen(w),
			 ". To commit it, lend %llu MiB on another device, or in a file there: "
			 "cowctl commit --lend DEVICE|FILE",
			 (unsigned long long)(blk_to_bytes(rep->lend_blks + rep->lend_blks / 8) /
						      MIB +
					      1));
}

static void explain_stale(const struct quiesce_report *q, char *w, size_t n)
{
	if (q->hidden)
		snprintf(w, n,
			 "the device is used without a mount by %s (a checker, for example), so "
			 "it cannot be frozen; nothing was written",
			 q->holder[0] ? q->holder : "something else");
	else
		snprintf(w, n, CARD_CHANGED "; nothing was written");
}

/* Writes that failed because RAM was full, and that no result has reported. */
static uint64_t lost_writes(const struct volume *v)
{
	struct monitor_status m;

	monitor_status(v->monitor, &m);
	return m.throttle.refused + m.throttle.full_errors - v->lost_known;
}

static int explain(const struct volume *v, struct volume_result *res, int error)
{
	const struct commit_report *rep = &res->report;
	const struct quiesce_report *q = &res->quiesce;
	char *w = res->why;
	size_t n = sizeof(res->why);

	res->error = error;
	if (!error || w[0])
		return error;
	if (q->failed && !q->frozen && !q->unfrozen) {
		snprintf(w, n, "%s", UNFREEZABLE);
		return error;
	}
	switch (error) {
	case -EFBIG:
		explain_room(rep, w, n);
		break;
	case -ESTALE:
		explain_stale(q, w, n);
		break;
	case -EALREADY:
		snprintf(
			w, n,
			"an earlier freeze of the file system is still pending; nothing was written");
		break;
	case -ETIMEDOUT:
		snprintf(w, n,
			 "the file system did not freeze in time: a program keeps a write from "
			 "ending; nothing was written");
		break;
	case -EOPNOTSUPP:
		snprintf(
			w, n,
			"this file system cannot be frozen while it is mounted read-write: unmount it or remount it "
			"read-only, then %s",
			res->job == JOB_VIEW ? "try again" : "commit");
		break;
	case -EBUSY:
		snprintf(w, n, "another program has frozen the file system");
		break;
	case -EOWNERDEAD:
		snprintf(w, n,
			 "%s; everything stays in RAM. If the next commit fails too: check the "
			 "file system, or commit --force, which skips this test",
			 FSINFO_DIED);
		break;
	case -ENOTRECOVERABLE:
		snprintf(w, n,
			 "internal error: rule %s violated; no more writes to the card, "
			 "everything stays in RAM: copy what you need to another place, then "
			 "detach with --discard",
			 invariant_broken() ? invariant_broken() : "of the kernel");
		break;
	case -EIO:
		if (lost_writes(v) && !v->past_seal)
			snprintf(w, n,
				 "RAM is full, so not everything could be flushed; nothing was "
				 "written, what RAM holds stays there");
		else
			snprintf(w, n, "the card reports an error; %severything stays in RAM",
				 lost_writes(v) ? "" : "nothing is lost, ");
		break;
	default:
		snprintf(w, n, "%s; everything stays in RAM", strerror(-error));
	}
	return error;
}

/* A unit that each thaw writes, or a copy of the superblock: does it have nothing to commit? */
static bool same_but_thaw(struct volume *v, uint64_t blk)
{
	uint64_t of_blk = fsinfo_copied_blk(&v->fs, blk);
	_cleanup_free_ uint8_t *buf = NULL;

	if (!of_blk && !fsinfo_thaw_writes(&v->fs, blk))
		return false;
	buf = io_alloc(2 * COW_BLK_BYTES);
	return buf && view_read_committed(v->view, of_blk ? of_blk : blk, 1, buf) == 0 &&
	       view_read_live(v->view, blk, 1, buf + COW_BLK_BYTES) == 0 &&
	       (of_blk ? fsinfo_is_copy(&v->fs, buf, buf + COW_BLK_BYTES)
		       : fsinfo_same_but_thaw(&v->fs, buf, buf + COW_BLK_BYTES));
}

/* Is there more than the changes that every thaw makes? A generation that was sealed without a
 * freeze, or unread, is always replaced, and lent space is given back. */
static bool something_changed(void *ctx)
{
	struct volume *v = ctx;
	enum blk_state state;

	/* diverged: the newest generation has only some files of now */
	if (v->diverged || v->diverged_lost || log_unconfirmed(v->log) ||
	    log_newest(v->log)->flags & (RECORD_UNFROZEN | RECORD_UNREAD) ||
	    log_lent_needed(v->log))
		return true;
	for (uint64_t blk = 0, blks; view_next_live(v->view, &blk, v->volume_blks, &blks, &state);
	     blk += blks)
		for (uint64_t i = 0; i < blks; i++)
			if (!same_but_thaw(v, blk + i))
				return true;
	return false;
}

/* May this commit end because nothing has changed? Not a detach, whose file system is unmounted.
 * Not under pressure, when no sync comes first. */
static bool may_be_needless(struct volume *v, enum commit_cause cause)
{
	return (cause == CAUSE_MANUAL || cause == CAUSE_TIMER || cause == CAUSE_SHUTDOWN) &&
	       !monitor_hurries(v->monitor);
}

static int probe_live(struct volume *v,
		      int (*probe)(const struct blk_reader *r, struct fsinfo *ret),
		      struct fsinfo *ret)
{
	struct images im = { .v = v };
	struct blk_reader live = { .read = img_read_live,
				   .ctx = &im,
				   .volume_blks = v->volume_blks };

	return probe(&live, ret);
}

/* Is a seal without a freeze allowed? Such a seal equals a power cut, so the file system needs a
 * journal that makes power cuts harmless. */
static bool bears_power_cut(const struct fsinfo *fs)
{
	return (fs->has_journal && !fs->external_journal && fs->needs_recovery) ||
	       fs_ops(fs->kind)->crash_safe;
}

/* May all writes be withheld before the seal? Not for an ext file system whose commits rely on its
 * bitmaps, because they are only valid while it is frozen. */
static bool may_stop(struct volume *v, const struct fsinfo *fs)
{
	return fs_ops(fs->kind)->crash_safe ||
	       (fs->has_journal && !fs->external_journal &&
		v->committed_room_blks <= log_capacity_blks(v->log));
}

static bool is_stopped(void *ctx)
{
	return monitor_stopped(((struct volume *)ctx)->monitor);
}

int volume_quiesce(struct volume *v, int (*fn)(void *ctx), enum commit_cause cause,
		   struct volume_result *res)
{
	/* fn: not for a dry run */
	bool sealing = fn == seal || fn == seal_together;
	struct fsinfo fs;
	/* with its journal, or at least its superblock */
	bool read = probe_live(v, fsinfo_probe, &fs) == 0;
	bool known = read || probe_live(v, fsinfo_probe_super, &fs) == 0;
	bool stops = known && may_stop(v, &fs), unfrozen = sealing && read && bears_power_cut(&fs);
	struct quiesce_target t = {
		.proc_dirfd = v->proc_dirfd,
		.dev = v->loop_rdev,
		.loop_fd = v->loop_fd,
		.type = v->fs.type,
		/* volumes that are to be of one moment all stand still */
		.unfrozen = unfrozen && (fn == seal || cause == CAUSE_SHUTDOWN),
		.unfrozen_failed = unfrozen,
		.frozen = v->frozen,
		.ctx = v->frozen_ctx,
		/* a view is taken without changes, too */
		.needed = fn == seal_together ? others_synced
			  : (sealing || fn == no_seal) && may_be_needless(v, cause)
				  ? something_changed
				  : NULL,
		.any_instant = read && fsinfo_any_moment(&fs, v->always_checkpoint),
		.instant = read && fs.instant_bytes ? instant_watch : NULL,
		.instant_by_sync = read && fs.instant_bytes && fs_ops(fs.kind)->instant->by_sync,
		.stopped = stops ? is_stopped : NULL,
		.no_sync = monitor_hurries(v->monitor)
	};
	int r = known ? volume_check_fs(v, &fs, res->why, sizeof(res->why)) : 0;

	/* no seal would release writes that are withheld: they go on, until RAM is full */
	monitor_set_stops(v->monitor, stops && r == 0);
	if (r < 0)
		return r;
	monitor_stage(v->monitor, STAGE_QUIESCE);
	instant_prepare(v, read ? &fs : NULL, fn);
	r = quiesce_run(&t, fn, v, &res->quiesce);
	/* what the process before had frozen is thawed beside the take-over */
	while (r == -EBUSY && v->taken_over_ns && v->life == VOLUME_RUNNING &&
	       now_ns() < v->taken_over_ns + THAW_NS) {
		const struct timespec nap = { .tv_nsec = THAW_NAP_NS };

		nanosleep(&nap, NULL);
		r = quiesce_run(&t, fn, v, &res->quiesce);
	}
	if (res->quiesce.instant) {
		res->quiesce.frozen_ns = v->instant.held_ns;
		if (r == 0 && v->sealed)
			r = instant_settle(v);
	}
	if (v->sealed && !res->quiesce.instant)
		v->kept->keeps = false; /* nothing was under way */
	return r;
}

static int open_map(struct fsmap **ret, const struct blk_reader *r, bool unread)
{
	return unread ? fsmap_open_unread(ret, r) : fsmap_open(ret, r);
}

/* Opens the block maps of both images and checks for anything that forbids a commit. In an image
 * that was not frozen, the journal holds the valid state. The home locations may hold half of a
 * change, checksums included. */
static int open_maps(struct images *im, struct blk_reader *sealed, struct blk_reader *committed,
		     struct volume_result *res)
{
	unsigned a, b;
	int r = open_map(&im->sealed, sealed, im->unread >= UNREAD_SEALED);

	if (r == 0)
		r = open_map(&im->committed, committed, im->unread >= UNREAD_ALL);
	if (r == 0)
		r = fsinfo_probe_super(sealed, &im->fs);
	if (r < 0)
		return r;
	/* changed since the attach: a device was added, for example */
	r = volume_check_fs(im->v, &im->fs, res->why, sizeof(res->why));
	if (r < 0)
		return r;
	if (im->dry)
		fsmap_assume_empty_journal(im->sealed);
	a = fsmap_alarms(im->sealed);
	b = fsmap_alarms(im->committed);
	if (!im->force && (a & FSMAP_ERROR_FLAG) && !(b & FSMAP_ERROR_FLAG)) {
		snprintf(res->why, sizeof(res->why),
			 "the file system has recorded errors: not committed (commit --force "
			 "overrides)");
		return -EUCLEAN;
	}
	if (!im->force && !im->unfrozen && (a & FSMAP_BAD_CHECKSUM)) {
		snprintf(res->why, sizeof(res->why),
			 "a checksum of the file system is wrong: not committed (commit --force "
			 "overrides)");
		return -EUCLEAN;
	}
	return 0;
}

/* Bitmaps are only valid while the journal is empty. */
static bool tells_truth(struct fsmap *m)
{
	return m && fsmap_knows(m) && !(fsmap_alarms(m) & FSMAP_NEEDS_RECOVERY);
}

/* After such a failure it reads blocks that no tree on the device contains. */
static bool gave_up(const struct images *im, const struct volume_result *res)
{
	return fs_ops(im->fs.kind)->reads_lost_transaction && res->quiesce.mounted &&
	       res->quiesce.readonly;
}

static int open_older(struct images *im)
{
	struct blk_reader older = { .read = img_read_older,
				    .ctx = im,
				    .volume_blks = im->v->volume_blks };

	im->older_index = log_older_index(im->v->log);
	return im->older_index ? open_map(&im->older, &older, im->unread >= UNREAD_ALL) : 0;
}

static uint64_t bounded_room_blks(const struct volume *v, uint64_t room_blks)
{
	/* with lag a spill takes blocks that are free in both */
	return log_super(v->log)->lag ? min_u64(room_blks, v->committed_room_blks) : room_blks;
}

/* Sets the room that lets the monitor hold writes and start a commit before the next commit cannot
 * hold the dirty blocks. */
static void note_room(struct volume *v, uint64_t room_blks)
{
	uint64_t bounded_blks = bounded_room_blks(v, room_blks);

	v->committed_room_blks = room_blks;
	v->kept->room_blks = room_blks;
	monitor_set_room(v->monitor, bounded_blks);
}

/* Can the next full commit hold what is dirty, and what is kept for the live volume? A spill takes
 * no block that the base used: the live file system may still use it although the scratch image
 * has freed it. *ret_dirty_blks: how many may be dirty; 0: any number, also while all of it is to
 * be discarded, or if it is too much already: single files can still be saved then. */
static int plan_next(struct volume *v, struct images *im, struct monitor_status *m,
		     uint64_t *ret_dirty_blks)
{
	struct generation_stats active, below;
	bool too_much;
	int r = 0;

	view_dirty(v->view, &active, &below);
	too_much = m->plan.ring_blks.full &&
		   active.data_blks + below.data_blks > m->plan.ring_blks.full;
	if (fs_ops(im->fs.kind)->counts_on_free) {
		r = diverged_count_free(v->diverged, im->sealed, &im->room_blks);
		im->room_blks += log_capacity_blks(v->log);
		pressure_plan_room(&m->plan, bounded_room_blks(v, im->room_blks));
	}
	*ret_dirty_blks = v->discard_armed || m->fail || too_much ? 0 : m->plan.ring_blks.full;
	return r;
}

/* The scratch image is about to be committed over im->committed. From now on the live volume and
 * the card have only their common base in common. */
static int keep_live(struct volume *v, struct images *im, struct volume_result *res)
{
	const uint8_t *uuid = im->fs.has_metadata_uuid ? im->fs.metadata_uuid : NULL;
	struct monitor_status m;
	uint64_t dirty_blks = 0;
	int r = 0;

	if (!tells_truth(im->sealed) || !tells_truth(im->committed)) {
		snprintf(res->why, sizeof(res->why),
			 "the free blocks of the file system are not known, so single files cannot "
			 "be committed: commit everything");
		return -EUCLEAN;
	}
	if (v->diverged_lost) {
		snprintf(res->why, sizeof(res->why),
			 "the daemon was replaced after single files were committed: commit "
			 "everything first");
		return -EUCLEAN;
	}
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
		snprintf(res->why, sizeof(res->why),
			 "the log is too small to commit single files now and all other changes "
			 "later: commit everything");
	if (r == -ENOSPC || r == -ENOMEM)
		snprintf(res->why, sizeof(res->why),
			 "not enough RAM to keep what the running system reads of the old files "
			 "(ram=): commit everything");
	return r;
}

static int try_commit(struct volume *v, const struct volume_request *rq, enum unread unread,
		      struct volume_result *res, struct log_index **ret_index)
{
	bool dry = rq->job == JOB_DRY_RUN;
	bool scratch = rq->job == JOB_COMMIT_SCRATCH;
	struct images im = { .v = v,
			     .from = scratch ? v->committing : v->view,
			     .dry = dry,
			     /* a live image changes while its checksums are verified */
			     .force = rq->force || dry,
			     .unread = unread,
			     .unfrozen = res->quiesce.unfrozen };
	struct blk_reader sealed = { .read = dry ? img_read_live : img_read_sealed,
				     .ctx = &im,
				     .volume_blks = v->volume_blks };
	struct blk_reader committed = { .read = img_read_committed,
					.ctx = &im,
					.volume_blks = v->volume_blks };
	struct commit_source src = { .ctx = &im,
				     .volume_blks = v->volume_blks,
				     .next = dry ? img_next_live : img_next_sealed,
				     .read_sealed = sealed.read,
				     .read_committed = committed.read };
	const struct log_together together = joint_log(v->joint);
	struct commit_options opt = {
		.dry_run = dry,
		.only_changed = scratch,
		.checkpoint_asked = rq->checkpoint || v->always_checkpoint || rq->job == JOB_DETACH,
		.cause = rq->cause,
		.profile = scratch ? NULL : v->profile,
		.price_by = v->price_by,
		.record_flags = (im.unfrozen ? (uint32_t)RECORD_UNFROZEN : 0) |
				(unread ? (uint32_t)RECORD_UNREAD : 0),
		.together = v->joint ? &together : NULL,
		.differed = rq->cause == CAUSE_PRESSURE ? &v->differed : NULL,
		.progress = on_progress,
		.progress_ctx = v
	};
	int r = open_maps(&im, &sealed, &committed, res);

	if (r == 0)
		r = open_older(&im);
	if (r == 0 && scratch)
		r = keep_live(v, &im, res);
	if (r == 0 && v->diverged)
		fsmap_set_log_sequence(im.committed, diverged_log_sequence(v->diverged));
	if (r == 0 && (fsmap_alarms(im.sealed) & FSMAP_NEEDS_RECOVERY) && res->quiesce.frozen) {
		snprintf(res->why, sizeof(res->why),
			 "the journal is not empty although the file system is frozen");
		r = -EUCLEAN;
	}
	/* blocks that are free in the committed image may be written in place, whatever the sealed
	 * image is */
	if (r == 0) {
		src.run_sealed = !im.unfrozen && !unread && !v->diverged_lost &&
						 !gave_up(&im, res) && tells_truth(im.sealed)
					 ? img_run_sealed
					 : NULL;
		src.run_committed = tells_truth(im.committed) ? img_run_committed : NULL;
		src.run_older = tells_truth(im.older) ? img_run_older : NULL;
		src.metadata_uuid = im.fs.has_metadata_uuid ? im.fs.metadata_uuid : NULL;
	}
	if (r == 0)
		r = commit_run(v->log, v->base, &src, &opt, on_publish, v, &res->report, ret_index);
	/* then it is not known which blocks are free, and all of them were committed */
	if (!src.run_sealed || fsmap_doubts(im.sealed))
		overlap_note(v, 0, v->volume_blks);
	if (r == 0 && !dry &&
	    (fs_ops(v->fs.kind)->counts_on_free || fs_ops(im.fs.kind)->counts_on_free))
		note_room(v, scratch ? im.room_blks : volume_room_blks(v, &im.fs));
	r = log_read_error(v->log, r);
	if (r == -ESTALE) /* not that a checksum is wrong */
		res->why[0] = '\0';
	if (r == -EUCLEAN && !res->why[0])
		snprintf(res->why, sizeof(res->why),
			 "a checksum of the file system is wrong: not committed (commit --force "
			 "overrides)");
	fsmap_close(im.sealed);
	fsmap_close(im.committed);
	fsmap_close(im.older);
	log_index_unref(im.older_index);
	return r;
}

/* Commit an unread image only on an explicit request, or if there is no later chance and all
 * changes in RAM would be lost. */
static bool goes_on_unread(const struct volume_request *rq)
{
	return rq->force || rq->cause == CAUSE_SHUTDOWN || rq->cause == CAUSE_DETACH;
}

/* An image that cannot be read is committed like a file system that cowfs does not know: all blocks
 * that differ go to the log. */
static int run_commit(struct volume *v, const struct volume_request *rq, bool goes_on,
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

static bool peek_sealed(void *ctx, uint64_t blk, uint64_t blks, void *buf)
{
	struct volume *v = ctx;

	return view_peek_sealed(v->committing ? v->committing : v->view, blk, blks, buf) == 0;
}

/* Opens the map of free blocks of the newest commit, so that gaps may be written over. Without the
 * map the checkpoint is only slower. Not used after a commit of single files: the live file system
 * may read blocks from the card that are free there. Not used if the file system was not frozen: a
 * gap may then hold data of its next transaction, which the live file system will read. */
static bool open_free(struct images *im, bool sealed)
{
	struct blk_reader r = { .read = sealed ? img_read_sealed : img_read_committed,
				.ctx = im,
				.volume_blks = im->v->volume_blks };

	return !im->v->diverged && !im->v->diverged_lost &&
	       !(log_newest(im->v->log)->flags & RECORD_UNFROZEN) &&
	       fsmap_open(&im->committed, &r) == 0 && tells_truth(im->committed) &&
	       open_older(im) == 0 && (!im->older || tells_truth(im->older));
}

int volume_free_everywhere(struct volume *v, struct extents *ret, bool (*stop)(void *ctx),
			   void *ctx)
{
	struct images im = { .v = v, .from = v->view };
	int r = open_free(&im, false) && !log_older_unknown(v->log) ? 0 : -ENODATA;
	enum blk_use use;
	uint64_t n;

	for (uint64_t blk = 0; r == 0 && blk < v->volume_blks; blk += n) {
		bool held = false;

		r = stop(ctx) ? -EINTR
			      : img_run_committed(&im, blk, v->volume_blks - blk, &use, &n);
		if (r == 0 && use == USE_FREE && im.older)
			r = img_run_older(&im, blk, n, &use, &n);
		if (r == 0 && use == USE_FREE)
			n = log_held_run(v->log, blk, n, &held);
		if (r == 0 && use == USE_FREE && !held)
			r = extents_add(ret, blk, n);
	}
	if (r == 0 && (fsmap_alarms(im.committed) || (im.older && fsmap_alarms(im.older))))
		r = -EUCLEAN;
	fsmap_close(im.committed);
	fsmap_close(im.older);
	log_index_unref(im.older_index);
	return r;
}

/* A commit must not wait for a checkpoint that nobody asked for. */
static bool makes_way(void *ctx)
{
	struct volume *v = ctx;

	return volume_job_waits(v) &&
	       monitor_may_stop_checkpoint(v->monitor, log_room_blks(v->log));
}

/* sealed: the blocks of the newest commit are still in RAM. stop: NULL, or whether it makes way now
 * (-EINTR). */
static int do_checkpoint(struct volume *v, enum commit_cause cause, uint32_t flags, bool sealed,
			 bool (*stop)(void *ctx), struct volume_result *res)
{
	const struct log_content ram = { .read = peek_sealed, .ctx = v };
	struct images im = { .v = v, .from = v->view };
	const struct commit_source uses = { .ctx = &im,
					    .run_committed = img_run_committed,
					    .run_older = img_run_older };
	struct commit_options opt = { .cause = cause,
				      .record_flags = flags,
				      .content = sealed ? &ram : NULL,
				      .profile = v->profile,
				      .stop = stop,
				      .stop_ctx = v,
				      .goes_on = stop == makes_way && cause != CAUSE_SHUTDOWN &&
						 cause != CAUSE_DETACH,
				      .progress = on_progress,
				      .progress_ctx = v };
	struct wear_ledger before;
	uint64_t blks;
	int r;

	if (v->profile && open_free(&im, sealed))
		opt.uses = &uses;
	log_totals(v->log, &before);
	r = commit_checkpoint(v->log, v->base, &opt, on_publish, v, RECORD_TAIL, &blks);
	res->report.checkpoint += blks;
	commit_bill(&res->report, v->log, &before);
	fsmap_close(im.committed);
	fsmap_close(im.older);
	log_index_unref(im.older_index);
	return r;
}

/* In this case the card did not fail, and the user who lent the room decides whether to try
 * again. */
static bool lent_failed(const struct volume *v)
{
	return v->lent && log_lent_failed(v->log);
}

/* Under pressure another seal is useless before this one is committed. In the end, writes would
 * fail, so an unreadable image is committed all the same. */
static int run_with_retries(struct volume *v, const struct volume_request *rq,
			    struct volume_result *res, struct log_index **ret_index)
{
	int r = run_commit(v, rq, goes_on_unread(rq), res, ret_index);
	bool said = false;

	for (; r < 0 && !lent_failed(v) && !v->joint && monitor_retry(v->monitor, r); said = true) {
		if (!said)
			volume_alarm(
				v,
				"a commit failed (%s) and RAM is filling up: retrying, writers "
				"wait",
				r == -EOWNERDEAD ? FSINFO_DIED : strerror(-r));
		r = run_commit(v, rq, goes_on_unread(rq), res, ret_index);
	}
	return r == -EOWNERDEAD && said && v->life == VOLUME_RUNNING
		       ? run_commit(v, rq, true, res, ret_index)
		       : r;
}

/* Lends room to the log, which uses it until no generation needs it (volume_return_lent). */
static int take_lent(struct volume *v, const struct volume_request *rq, struct volume_result *res)
{
	struct card *lent = rq->lent ? *rq->lent : NULL;
	int r = lent ? log_lend(v->log, lent) : 0;

	if (r == -EBUSY)
		snprintf(res->why, sizeof(res->why),
			 "space lent before is still in use: run cowctl commit --checkpoint first");
	else if (r == -EEXIST)
		snprintf(res->why, sizeof(res->why),
			 "the space to lend holds committed blocks of another volume: checkpoint "
			 "them with cowctl recover --lend. If they are not needed, wipe its first "
			 "4 KiB");
	else if (r < 0)
		snprintf(res->why, sizeof(res->why), "cannot use the lent space: %s",
			 r == -ENOSPC ? "it is smaller than 8 KiB" : strerror(-r));
	if (r == 0 && lent) {
		lent->before_write = snapshots_before_write;
		lent->before_write_ctx = v->snapshots;
		v->lent = lent;
		*rq->lent = NULL;
		if (v->changed)
			v->changed(v->changed_ctx);
	}
	return r;
}

void volume_return_lent(struct volume *v)
{
	int r = v->lent ? log_unlend(v->log) : -EBUSY;
	struct card *lent = v->lent;
	struct scratch *s;

	if (r == -EBUSY) /* still needed, or there is none */
		return;
	if (r < 0)
		msg(MSG_WARN,
		    "%s: the lent space is no longer needed, but its header could not be wiped: "
		    "%s",
		    v->name, strerror(-r));
	snapshots_leave_card(v->snapshots, v->lent);
	/* it has ended, but a read may be under way */
	s = volume_scratch(v);
	if (s)
		scratch_synchronize(s);
	scratch_unref(s);
	v->lent = NULL;
	if (v->changed)
		v->changed(v->changed_ctx);
	card_close(lent);
}

/* Live changes are based on the newest generation again. */
static void forget_diverged(struct volume *v)
{
	v->diverged_lost = false;
	diverged_free(v->diverged);
	v->diverged = NULL;
}

/* A commit together with others may be on the card, and only the card of the one that leads it knows
 * whether it counts. 1: it does, and is the newest generation now. RAM stays above. */
static int decide(struct volume *v, char *why, size_t n)
{
	int r = log_decide(&v->log, why, n);
	struct blk_reader committed = volume_committed(v);
	struct scratch *s;
	struct fsinfo fs;

	if (r <= 0)
		return r;
	s = volume_scratch(v); /* of the generation before */
	if (s)
		scratch_end(s);
	scratch_unref(s);
	v->kept->mark.seq = 0;
	v->kept->mark.newest = log_newest(v->log)->seq;
	on_publish(v, log_index_of(v->log));
	v->kept->diverged = false;
	forget_diverged(v);
	if (fsinfo_probe_super(&committed, &fs) == 0 && fs_ops(fs.kind)->counts_on_free)
		note_room(v, volume_room_blks(v, &fs));
	return r;
}

/* Before a job that writes. Without an answer a commit is refused, because a power cut in it could
 * leave this volume one generation behind the others. Not if there is no later chance, or no more
 * RAM. */
static int decide_first(struct volume *v, const struct volume_request *rq,
			struct volume_result *res)
{
	char why[120] = "";
	int r;

	if (!log_undecided(v->log))
		return 0;
	r = decide(v, why, sizeof(why));
	if (r >= 0) {
		msg(MSG_NOTICE, "%s: the commit of several volumes that ended without an answer %s",
		    v->name, r ? "counts" : "does not count");
		return 0;
	}
	if (v->discard_armed) /* the card stays as it is, and the next attach asks */
		return 0;
	if (goes_on_unread(rq) || rq->cause == CAUSE_PRESSURE) {
		msg(MSG_WARN,
		    "%s: it is not known whether the last commit of several volumes counts (%s): "
		    "committing over it",
		    v->name, *why ? why : strerror(-r));
		log_reject_undecided(v->log);
		return 0;
	}
	if (r == -ENOLINK)
		snprintf(res->why, sizeof(res->why),
			 "not committed: %s: plug in its card; everything stays in RAM. Or "
			 "commit --force: a power cut in that commit may leave this volume one "
			 "generation behind the others",
			 why);
	return r;
}

/* Has a commit of this session failed, and none succeeded since? Its record may be on the card, and
 * the next attach would choose it. Any newer record prevents that. */
static bool failed_may_return(const struct volume *v)
{
	return log_doubt(v->log) &&
	       log_ledger(v->log)->commits_failed != v->opened.ledger.commits_failed;
}

/* 1: there is nothing to do, which is not an error. */
static int commit_is_idle(struct volume *v, const struct volume_request *rq,
			  struct volume_result *res)
{
	int r = 0;

	if (v->opened.state == LOG_FOREIGN) {
		snprintf(res->why, sizeof(res->why),
			 "the log is set aside because of foreign changes to the file system: "
			 "nothing can be committed");
		return -ESTALE;
	}
	if (invariant_broken())
		return -ENOTRECOVERABLE;
	if (v->halted && (rq->cause == CAUSE_TIMER || rq->cause == CAUSE_PRESSURE)) {
		snprintf(res->why, sizeof(res->why),
			 "not committed: the daemon has died several times, so only a commit by "
			 "hand is made");
		return 1;
	}
	if (rq->cause == CAUSE_PRESSURE && v->discard_armed)
		return 1; /* discard was armed after the commit was requested */
	if (rq->cause != CAUSE_PRESSURE)
		v->differed = 0;
	if ((rq->cause == CAUSE_TIMER || rq->cause == CAUSE_SHUTDOWN) && v->discard_armed) {
		snprintf(res->why, sizeof(res->why),
			 "not committed: the changes are to be discarded");
		if (rq->cause == CAUSE_SHUTDOWN && failed_may_return(v))
			r = do_checkpoint(v, rq->cause, 0, false, NULL, res);
		if (r < 0)
			msg(MSG_WARN, "%s: a commit that failed may be on the card: %s", v->name,
			    strerror(-r));
		return 1;
	}
	return 0;
}

static uint64_t waiting_blks(const struct volume *v)
{
	struct log_index *ix = log_index_of(v->log);
	uint64_t blks = log_index_data_blks(ix) + log_index_zero_blks(ix);

	log_index_unref(ix);
	return blks;
}

/* For boot loaders, which read the bare card, and may write to it. A checkpoint keeps no limit of time. */
static bool wants_empty_log(const struct volume *v)
{
	return v->always_checkpoint ||
	       (log_loader_waits(v->log) && monitor_time_blks(v->monitor) == UINT64_MAX);
}

/* What an earlier session, or a checkpoint that failed, left in the log. If that cannot be
 * checkpointed, a commit is still worth more than none. */
static void checkpoint_first(struct volume *v, const struct volume_request *rq,
			     struct volume_result *res)
{
	int r = 0;

	if (wants_empty_log(v) && waiting_blks(v))
		r = do_checkpoint(v, rq->cause, 0, false, NULL, res);
	if (r < 0)
		msg(MSG_WARN, "%s: checkpoint: %s", v->name, strerror(-r));
}

/* At once, because the log of the leader goes on, and forgets. Of the leader itself all stays in RAM
 * in any case: its card has failed. */
bool volume_decide(struct volume *v)
{
	char why[120];
	bool counts = decide(v, why, sizeof(why)) == 1 && log_unconfirmed(v->log);

	/* a record that needs no answer; a failure is that of the next commit, too */
	if (!log_undecided(v->log))
		(void)!commit_confirm(v->log, v->base);
	return counts;
}

static int do_commit_once(struct volume *v, const struct volume_request *rq,
			  struct volume_result *res)
{
	const struct commit_options due = { .cause = rq->cause, .profile = v->profile };
	struct log_index *ix = NULL;
	bool must_go_home, all;
	int r = commit_is_idle(v, rq, res);

	if (r)
		return r < 0 ? r : 0;
	r = take_lent(v, rq, res);
	if (r < 0)
		return r;
	checkpoint_first(v, rq, res);
	r = volume_quiesce(v, v->joint ? seal_together : seal, rq->cause, res);
	if (r == -ENODATA) {
		if (rq->cause == CAUSE_TIMER)
			snprintf(res->why, sizeof(res->why), "not committed: nothing has changed");
		return rq->checkpoint ? do_checkpoint(v, rq->cause, 0, false, NULL, res) : 0;
	}
	if (!v->sealed)
		return r;
	count_absorbed(v);
	/* an error after the seal: a foreign thaw came too early, so this image is not
	 * consistent */
	monitor_stage(v->monitor, STAGE_SEALED);
	if (r == 0)
		r = view_check_sealed(v->view);
	if (r == 0)
		r = overlap_begin(v);
	if (r == 0)
		r = run_with_retries(v, rq, res, &ix);
	if (r < 0 && log_undecided(v->log) && volume_decide(v)) {
		ix = log_index_of(v->log);
		r = 0;
	}
	v->sealed = false;
	v->kept->durable = r == 0;
	if (r == 0)
		v->kept->diverged = false;
	if (r < 0) {
		int e = view_fail(v->view);

		v->failed_below = true;
		if (e < 0)
			msg(MSG_WARN, "%s: cannot merge the layers in RAM: %s", v->name,
			    strerror(-e));
		if (lent_failed(v))
			snprintf(res->why, sizeof(res->why),
				 "cannot write to the lent space (%s); nothing was committed, "
				 "everything stays in RAM: lend another device or file",
				 strerror(-r));
		return r;
	}
	res->generation = log_ledger(v->log)->commits;
	must_go_home = rq->checkpoint || res->report.lent;
	all = must_go_home || wants_empty_log(v);
	if (all || commit_checkpoint_due(v->log, &due)) {
		/* the checkpoint reads the blocks from RAM; they are released afterwards */
		monitor_stage(v->monitor, STAGE_DURABLE);
		r = do_checkpoint(v, rq->cause, rq->cause == CAUSE_DETACH ? RECORD_CLEAN : 0, true,
				  all ? NULL : makes_way, res);
		log_index_unref(ix);
		ix = log_index_of(v->log);
	}
	if (v->overlap)
		view_release_keeping(v->view, ix, overlap_keeps, v);
	else
		view_release(v->view, ix);
	v->failed_below = false;
	forget_diverged(v);
	monitor_stage(v->monitor, STAGE_RELEASED);
	if (r < 0 && res->report.lent)
		snprintf(res->why, sizeof(res->why),
			 "generation %llu is committed, but the lent space holds blocks of it "
			 "that could not be checkpointed (%s): leave it in place and run cowctl "
			 "commit --checkpoint",
			 (unsigned long long)res->generation, strerror(-r));
	if (r < 0 && !must_go_home) {
		/* the commit itself is valid */
		if (r != -EINTR)
			msg(MSG_WARN, "%s: checkpoint: %s", v->name, strerror(-r));
		r = 0;
	}
	return r;
}

static int commit_once(struct volume *v, const struct volume_request *rq, struct volume_result *res)
{
	int r = do_commit_once(v, rq, res);

	overlap_end(v);
	return r;
}

/* More was dirty than one commit can hold. It is committed in several rounds. All but the last are
 * in the state that a power cut leaves. */
static int do_commit(struct volume *v, const struct volume_request *rq, struct volume_result *res)
{
	int r = commit_once(v, rq, res);

	for (unsigned i = 0; r == 0 && res->quiesce.stopped && rq->cause != CAUSE_PRESSURE &&
			     !v->joint && i < ROUNDS_MAX;
	     i++) {
		*res = (struct volume_result){ .job = res->job };
		r = commit_once(v, rq, res);
		if (r == 0)
			res->why[0] = '\0'; /* for example, that there was nothing left to commit */
	}
	return r;
}

/* With other volumes. */
static int do_joint_commit(struct volume *v, const struct volume_request *rq,
			   struct volume_result *res)
{
	int r;

	v->joint = rq->joint;
	r = commit_once(v, rq, res);
	v->joint = NULL;
	/* without the retries of a commit that is alone nothing has given up */
	if (r < 0)
		monitor_stage(v->monitor, STAGE_IDLE);
	if (r == -ECANCELED)
		snprintf(res->why, sizeof(res->why), "not committed: %s; everything stays in RAM",
			 joint_why(rq->joint));
	if (r == -ENOLINK && !res->why[0])
		snprintf(res->why, sizeof(res->why),
			 "not known whether it is committed: %s; everything stays in RAM",
			 joint_why(rq->joint));
	return r;
}

/* ---- single files ---- */

static int commit_image(struct volume *v, const struct volume_request *rq,
			struct volume_result *res)
{
	const struct commit_options due = { .cause = rq->cause };
	struct log_index *ix = NULL;
	int r = view_check_sealed(v->committing);

	if (r == 0)
		r = run_commit(v, rq, false, res, &ix);
	if (r < 0)
		return r;
	if (rq->checkpoint || wants_empty_log(v) || commit_checkpoint_due(v->log, &due)) {
		on_publish(v, log_index_ref(ix));
		r = do_checkpoint(v, rq->cause, 0, true, NULL, res);
		if (r < 0 && !rq->checkpoint) {
			msg(MSG_WARN, "%s: checkpoint: %s", v->name, strerror(-r));
			r = 0;
		}
		log_index_unref(ix);
		ix = log_index_of(v->log);
	}
	view_set_index(v->view, ix);
	return r;
}

/* Commits the scratch image. The live volume does not see it: what it reads from the card and the
 * commit changes is kept for it (keep_live). */
static int do_commit_scratch(struct volume *v, const struct volume_request *rq,
			     struct volume_result *res)
{
	struct scratch *s = volume_scratch(v);
	int r = commit_is_idle(v, rq, res);

	if (r == 0)
		r = s ? scratch_seal(s, &v->committing) : -EAGAIN;
	if (r == -EAGAIN)
		snprintf(
			res->why, sizeof(res->why),
			"the files were not committed: another commit came first, or RAM ran short");
	if (r == 0) {
		r = commit_image(v, rq, res);
		v->committing = NULL;
		scratch_close(s);
	}
	scratch_unref(s);
	return r;
}

/* Cards are writable only during a commit. If a card cannot be set read-only afterwards, this is
 * tried again after each job. */
static void lock_cards(struct volume *v)
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
static void look_after_sleep(struct volume *v)
{
	int r = v->opened.state != LOG_FOREIGN ? log_recheck(v->log) : 0;

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
static void do_idle(struct volume *v, const struct volume_request *rq, struct volume_result *res)
{
	int r;

	if (v->slept) {
		v->slept = false;
		look_after_sleep(v);
		return;
	}
	r = v->idle_checkpoint && idle_may_begin(v)
		    ? do_checkpoint(v, rq->cause, 0, false, idle_must_stop, res)
		    : -EINTR;
	if (r < 0 && r != -EINTR) {
		v->idle_failed = true;
		msg(MSG_WARN, "%s: checkpoint: %s", v->name, strerror(-r));
	} else if (r == 0) {
		/* a line in a log on the volume would be the next change to commit */
		msg(MSG_INFO, "%s: the card was idle: everything is checkpointed", v->name);
	}
	lock_cards(v);
}

static int do_dry_run(struct volume *v, const struct volume_request *rq, struct volume_result *res)
{
	struct log_index *ix = NULL;
	int r = volume_quiesce(v, no_seal, rq->cause, res);

	if (r == -ENODATA) {
		res->report.estimate = true;
		res->report.checkpoint = rq->checkpoint ? waiting_blks(v) : 0;
		res->report.written_bytes = blk_to_bytes(res->report.checkpoint);
		return 0;
	}
	if (r == 0)
		r = run_commit(v, rq, goes_on_unread(rq), res, &ix);
	log_index_unref(ix);
	return r;
}

/* A session without commits writes nothing: neither records, nor copies of the superblock. Blocks
 * that an earlier session left in the log are still written home, except where a mount failed and
 * its changes are discarded. */
static bool leaves_no_trace(const struct volume *v)
{
	return log_newest(v->log)->seq == v->opened.newest.seq && !failed_may_return(v) &&
	       !log_unconfirmed(v->log) &&
	       (v->discard_armed || (!waiting_blks(v) && !log_guarded(v->log)));
}

/* With blocks only in the log, the file system at the home locations is a mixture. */
static void tell_waiting(const struct volume *v, struct volume_result *res)
{
	uint64_t blks = waiting_blks(v);

	if (blks && !res->why[0])
		snprintf(res->why, sizeof(res->why),
			 "but %llu committed block%s in the log only: run 'cowctl recover' "
			 "before you mount the card without cowfs",
			 (unsigned long long)blks, blks == 1 ? " exists" : "s exist");
}

/* Nothing is mounted: commits everything (unless it is to be discarded), checkpoints everything,
 * writes the clean record. */
static int do_detach(struct volume *v, const struct volume_request *rq, struct volume_result *res)
{
	struct generation_stats active, below;
	/* its plan knows that everything goes home, and the checkpoint reads from RAM */
	struct volume_request commit = {
		.job = JOB_COMMIT, .force = rq->force, .cause = rq->cause, .checkpoint = true
	};
	int r = 0;

	view_dirty(v->view, &active, &below);
	if (!v->discard_armed &&
	    active.data_blks + active.hole_blks + below.data_blks + below.hole_blks)
		r = do_commit(v, &commit, res);
	if (r == 0 && v->opened.state != LOG_FOREIGN && !leaves_no_trace(v) &&
	    !log_undecided(v->log))
		r = do_checkpoint(v, rq->cause, RECORD_CLEAN, false, NULL, res);
	/* the changes in RAM were to be discarded anyway, and the committed ones are in the log: a
	 * missing card must not block the detach */
	if (r < 0 && v->discard_armed) {
		snprintf(res->why, sizeof(res->why),
			 "earlier commits may exist in the log only (%s): see cowctl check",
			 strerror(-r));
		msg(MSG_WARN, "%s: %s", v->name, res->why);
		r = 0;
	}
	if (r == 0)
		tell_waiting(v, res);
	return r;
}

/* Applies to every kind of job.  A failed commit that was lent space has said so already. */
static void tell_lent(const struct volume *v, int r, struct volume_result *res)
{
	size_t n = strlen(res->why);

	if (log_lent_needed(v->log) && !(r < 0 && res->report.lent))
		snprintf(res->why + n, sizeof(res->why) - n, "%s%s", n ? ". And " : "",
			 VOLUME_LENT_NEEDED);
}

/* Programs may not have noticed: most writes fail after the call that made them. */
static void tell_lost(struct volume *v, int r, struct volume_result *res)
{
	uint64_t lost = lost_writes(v);
	size_t n = strlen(res->why);

	if (!lost || (res->job != JOB_COMMIT && res->job != JOB_DETACH) || v->discard_armed)
		return;
	snprintf(res->why + n, sizeof(res->why) - n,
		 "%s%llu write%s failed because %s: the data is lost", n ? ". And " : "",
		 (unsigned long long)lost, lost == 1 ? "" : "s",
		 v->halted ? "the daemon has died several times" : "RAM was full");
	if (r == 0)
		v->lost_known += lost;
}

static bool is_too_late(struct volume *v, const struct volume_request *rq,
			struct volume_result *res)
{
	uint64_t need_ns = monitor_commit_ns(v->monitor), now = now_ns();

	if (!rq->until_ns || now + need_ns <= rq->until_ns)
		return false;
	snprintf(
		res->why, sizeof(res->why),
		"not begun: it would take about %.1f s, and %.1f s are left; everything stays in RAM",
		(double)need_ns / 1e9, now < rq->until_ns ? (double)(rq->until_ns - now) / 1e9 : 0);
	return true;
}

static int do_job(struct volume *v, const struct volume_request *rq, struct volume_result *res)
{
	switch (rq->job) {
	case JOB_COMMIT:
		return rq->joint ? do_joint_commit(v, rq, res) : do_commit(v, rq, res);
	case JOB_DRY_RUN:
		return do_dry_run(v, rq, res);
	case JOB_DETACH:
		return do_detach(v, rq, res);
	case JOB_COMMIT_SCRATCH:
		return do_commit_scratch(v, rq, res);
	case JOB_VIEW:
		return volume_do_view(v, rq->image, res);
	default:
		return -EINVAL;
	}
}

void volume_do(struct volume *v, const struct volume_request *rq, struct volume_result *res)
{
	uint64_t start_ns = now_ns();
	int r;

	if (rq->job == JOB_CALL) {
		res->error = rq->call(rq->call_ctx);
		return;
	}
	v->past_seal = false;
	log_need_reader(v->log, !goes_on_unread(rq));
	if (rq->job == JOB_RELIEVE) {
		relief_do(v);
		return;
	}
	if (rq->job == JOB_CHECKPOINT) {
		do_idle(v, rq, res);
		return;
	}
	if (rq->job == JOB_TRIM) {
		/* a client's comes again at once, so the job of idle.c may not get its turn */
		if (atomic_exchange(&v->slept, false))
			look_after_sleep(v);
		res->error = trim_do(v, rq, res);
		lock_cards(v);
		return;
	}
	res->not_begun = rq->job == JOB_COMMIT && is_too_late(v, rq, res);
	r = res->not_begun				    ? -ETIME
	    : rq->job == JOB_VIEW || rq->job == JOB_DRY_RUN ? 0
							    : decide_first(v, rq, res);
	if (r == 0)
		r = do_job(v, rq, res);
	res->report.duration_ns = now_ns() - start_ns;
	res->time_s = (uint64_t)time(NULL);
	res->generation = log_ledger(v->log)->commits;
	res->record_seq = log_newest(v->log)->seq;
	explain(v, res, r);
	if (rq->job == JOB_VIEW || res->not_begun) {
		monitor_stage(v->monitor, STAGE_IDLE);
		return;
	}
	tell_lent(v, r, res);
	if (rq->job == JOB_COMMIT_SCRATCH) {
		monitor_stage(v->monitor, STAGE_IDLE);
		volume_return_lent(v);
		lock_cards(v);
		return;
	}
	if (r == 0 && res->quiesce.stopped && !res->why[0])
		snprintf(res->why, sizeof(res->why),
			 "sealed without a freeze, as a power cut would leave it: the log is full "
			 "and the file system still writes");
	else if (r == 0 && res->quiesce.unfrozen && res->quiesce.failed && !res->why[0])
		snprintf(res->why, sizeof(res->why),
			 "sealed without a freeze, as a power cut would leave it: the file system "
			 "has seen I/O errors and can no longer be frozen: unmount it and mount "
			 "it again (if it is the root: reboot)");
	else if (r == 0 && res->quiesce.unfrozen && !res->why[0])
		snprintf(
			res->why, sizeof(res->why),
			"sealed without a freeze, as a power cut would leave it: a program kept a write "
			"to the file system from ending");
	if (r == 0 && res->unread && !res->why[0])
		snprintf(res->why, sizeof(res->why),
			 "committed, but the metadata was not checked (%s): check the file system "
			 "(e2fsck)",
			 FSINFO_DIED);
	if (r == 0 && res->report.old_form && !res->why[0])
		snprintf(
			res->why, sizeof(res->why),
			"committed, but the log keeps its old form, in which the content of a file "
			"may pass for a commit: it cannot be emptied. Save the files, then format "
			"the card again");
	tell_lost(v, r, res);
	if (rq->job == JOB_DRY_RUN) {
		monitor_stage(v->monitor, STAGE_IDLE);
	} else {
		monitor_result(v->monitor, rq->job == JOB_COMMIT ? r : 0);
		if (r < 0)
			volume_alarm(v, "commit failed: %s%s", res->why,
				     monitor_gave_up(v->monitor) ? "; writes fail while RAM is full"
								 : "");
		else
			volume_alarm(v, "%s",
				     (res->quiesce.unfrozen && !res->quiesce.stopped) ||
						     res->unread || res->report.old_form
					     ? res->why
					     : "");
	}
	volume_return_lent(v);
	lock_cards(v);
}
