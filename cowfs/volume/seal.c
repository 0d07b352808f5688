/* SPDX-License-Identifier: MIT */
/* A sync, and the seal behind it. */
#include <errno.h>
#include <string.h>

#include "base/io.h"
#include "base/msg.h"
#include "fs/fs_ops.h"
#include "volume/away.h"
#include "volume/images.h"

#define SEAL_TRIES 3

/* A copy of the superblock that has nothing to commit? */
static bool is_same_copy(struct volume *v, uint64_t blk)
{
	uint64_t of_blk = fsinfo_copied_blk(&v->fs, blk);
	_cleanup_free_ uint8_t *buf = of_blk ? io_alloc(2 * COW_BLK_BYTES) : NULL;

	return buf && view_read_committed(v->view, of_blk, 1, buf) == 0 &&
	       view_read_live(v->view, blk, 1, buf + COW_BLK_BYTES) == 0 &&
	       fsinfo_is_copy(&v->fs, buf, buf + COW_BLK_BYTES);
}

/* A generation that was sealed without a sync (loose), or unread, is always replaced. */
static bool something_changed(void *ctx)
{
	struct volume *v = ctx;
	enum blk_state state;

	/* diverged: the newest generation has only some files of now */
	if (v->diverged || v->diverged_lost || v->kept->loose ||
	    log_newest(v->log)->flags & RECORD_UNREAD)
		return true;
	for (uint64_t blk = 0, blks; view_next_live(v->view, &blk, v->volume_blks, &blks, &state);
	     blk += blks)
		for (uint64_t i = 0; i < blks; i++)
			if (!is_same_copy(v, blk + i))
				return true;
	return false;
}

/* They are of an earlier commit, and say nothing about what is sealed now: a process that takes over must not take that for
 * committed. */
static void forget_commit(struct volume_kept *k)
{
	k->mark.seq = 0;
	k->durable = false;
	k->stays = false;
}

static int seal(void *ctx)
{
	struct volume *v = ctx;
	int r;

	if (away_any(v) || v->seals_nothing)
		return away_any(v) ? -ENOMEDIUM : 0;
	forget_commit(v->kept);
	/* a transaction may be under way that has written to blocks which the image calls free */
	v->kept->keeps = fs_ops(v->live_kind)->image;
	r = view_seal(v->view);
	v->sealed = r == 0;
	v->past_seal |= v->sealed;
	return r;
}

/* May this commit end because nothing has changed? Not a detach, whose file system is unmounted.
 * Not under pressure, when no sync comes first. */
static bool may_be_needless(struct volume *v, enum commit_cause cause)
{
	return (cause == CAUSE_MANUAL || cause == CAUSE_TIMER || cause == CAUSE_SHUTDOWN) &&
	       !monitor_hurries(v->monitor);
}

/* What the live file system says of itself. False: its superblock cannot be read. */
static bool probe_live(struct volume *v, struct fsinfo *ret)
{
	struct images im = { .v = v };
	struct blk_reader live = { .read = images_read_live,
				   .ctx = &im,
				   .volume_blks = v->volume_blks };

	return fsinfo_probe_super(&live, ret) == 0;
}

/* Is a seal without a sync allowed? Such a seal equals a power cut, so the file system needs a
 * journal that makes power cuts harmless. */
static bool bears_power_cut(const struct fsinfo *fs)
{
	return (fs->has_journal && !fs->external_journal && fs->needs_recovery) ||
	       fs_ops(fs->kind)->crash_safe;
}

/* May all writes be withheld before the seal? Of an ext only while monitor_counts_on_free does not hold. */
static bool may_stop(const struct fsinfo *fs)
{
	return fs_ops(fs->kind)->crash_safe || (fs->has_journal && !fs->external_journal);
}

/* A sync waits for a parked request (export/parked.h), which waits for the card, which the caller of the sync looks for: it must
 * not wait for the sync. The seal refuses then. */
static bool is_stopped(void *ctx)
{
	return away_any(ctx) || monitor_stopped(((struct volume *)ctx)->monitor);
}

void volume_unseal(struct volume *v)
{
	int e = view_fail(v->view);

	v->sealed = false;
	if (e < 0)
		msg(MSG_WARN, "%s: cannot merge the layers in RAM: %s", v->name, strerror(-e));
}

static int quiesce_again(struct volume *v, const struct quiesce_target *t,
			 struct quiesce_report *ret)
{
	int r = quiesce_run(t, seal, v, ret);

	for (unsigned i = 0; i < SEAL_TRIES && r == -ETXTBSY && v->sealed; i++) {
		volume_unseal(v);
		r = quiesce_run(t, seal, v, ret);
	}
	return r == -ETXTBSY ? -ESTALE : r;
}

/* fs: NULL if it is not known. */
static struct quiesce_target target_for(struct volume *v, const struct fsinfo *fs,
					enum seal_use use, enum commit_cause cause)
{
	bool stops = fs && may_stop(fs) && !monitor_counts_on_free(v->monitor);
	/* a view is taken without changes, too */
	bool may_end = use != SEAL_VIEW && may_be_needless(v, cause);

	return (struct quiesce_target){ .proc_dirfd = v->proc_dirfd,
					.dev = v->loop_rdev,
					.loop_fd = v->loop_fd,
					.any = fs && fsinfo_any_moment(fs),
					.unsynced = fs && bears_power_cut(fs) &&
						    use != SEAL_NOTHING,
					.again = fs && fs_ops(fs->kind)->crash_safe &&
						 use != SEAL_NOTHING && cause != CAUSE_PRESSURE,
					.needed = may_end ? something_changed : NULL,
					.stopped = is_stopped,
					.unseen = stops };
}

/* A journal that met an error does not tell, where not even its superblock could be written. */
static bool gave_up_once(const struct volume *v)
{
	return fs_ops(v->fs.kind)->settle && v->kept->lost_said;
}

/* What the seal was, beside the report of quiesce.h. */
static int note_seal(struct volume *v, const struct quiesce_target *t, bool sealing, int r,
		     struct quiesce_report *q)
{
	/* the sync of such a seal reports no errors */
	if (r == 0 && t->any && q->instant && sealing &&
	    (volume_lost_writes(v) || gave_up_once(v))) {
		q->instant = false;
		q->failed = q->unsynced = true;
	}
	if (v->sealed && !q->instant)
		v->kept->keeps = false; /* nothing was under way */
	return r;
}

/* Under pressure, what a worker had sealed when it died is committed as it is: RAM may have no reserve for what another
 * sync lets in. */
static bool seal_again(struct volume *v, enum commit_cause cause, struct volume_result *res)
{
	struct volume_kept *k = v->kept;

	k->resumes &= cause == CAUSE_PRESSURE;
	if (!k->resumes)
		return false;
	forget_commit(k);
	view_seal_again(v->view);
	v->sealed = v->past_seal = true;
	v->live_kind = k->sealed_kind;
	res->quiesce = k->sealed;
	monitor_stage(v->monitor, STAGE_QUIESCE);
	return true;
}

int volume_quiesce(struct volume *v, enum seal_use use, enum commit_cause cause,
		   struct volume_result *res)
{
	if (seal_again(v, cause, res))
		return 0;

	struct fsinfo fs;
	bool known = probe_live(v, &fs);
	struct quiesce_target t = target_for(v, known ? &fs : NULL, use, cause);
	int r = known ? volume_check_fs(v, &fs, res->why, sizeof(res->why)) : 0;

	/* no seal would release writes that are withheld: they go on, until RAM is full */
	v->kept->needs_sync = !known || !bears_power_cut(&fs) || r < 0;
	monitor_set_stops(v->monitor, known && may_stop(&fs) && r == 0);
	if (r < 0)
		return r;
	monitor_stage(v->monitor, STAGE_QUIESCE);
	v->live_kind = known ? fs.kind : FS_UNKNOWN;
	v->seals_nothing = use == SEAL_NOTHING;
	r = quiesce_again(v, &t, &res->quiesce);
	return note_seal(v, &t, use == SEAL_COMMIT, r, &res->quiesce);
}
