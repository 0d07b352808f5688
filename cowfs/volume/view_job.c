/* SPDX-License-Identifier: MIT */
/*
 * The job that makes the image of a view, in the commit thread: no write to a card is under way
 * meanwhile.
 *
 * An image of now is sealed as for a commit. The sealed generation then becomes a layer that the
 * volume and the snapshot share: for the volume it is what a failed commit leaves (view_fail), so
 * the next commit writes it.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/msg.h"
#include "fs/fs_ops.h"
#include "volume/private.h"

/* Layers in RAM that a snapshot of now may share. Overlapping views keep them apart until a commit, and
 * each costs RAM and time at every read. */
#define SHARED_MAX 16u

/* Syncs, seals, and copies the stack below the new active generation. */
static int take_now(struct volume *v, struct volume_result *res, struct layers **ret)
{
	int r = volume_quiesce(v, SEAL_VIEW, CAUSE_MANUAL, res), e;

	if (!v->sealed)
		return r < 0 ? r : -EAGAIN;
	v->sealed = false;
	/* first: the new snapshot shares all layers, and a shared one is not merged */
	e = view_fail(v->view);
	if (e < 0)
		msg(MSG_WARN, "%s: cannot merge the layers in RAM: %s", v->name, strerror(-e));
	if (r == 0)
		r = view_copy_layers(v->view, false, SNAPSHOT_ROOM, ret);
	if (r == 0 && (*ret)->n > SHARED_MAX) {
		layers_free(*ret);
		*ret = NULL;
		r = volume_why(
			res, -EBUSY,
			"views of now since the last commit hold %u states of the volume: commit "
			"first, or end them with umount",
			SHARED_MAX);
	}
	return r;
}

static int read_image(void *ctx, uint64_t blk, uint64_t blks, void *buf)
{
	return snapshot_read(ctx, blk_to_bytes(blk), buf, blk_to_bytes(blks));
}

/* Blocks that are free in the image are not saved before a commit takes them. Without this
 * knowledge the view only needs more RAM. */
static void forget_free(struct volume *v, struct snapshot *s, const struct blk_reader *r)
{
	struct fsmap *m = NULL;
	enum blk_use use;
	uint64_t n;
	int e = fsmap_open(&m, r);

	if (e < 0 || !fsmap_knows(m) || (fsmap_alarms(m) & FSMAP_NEEDS_RECOVERY))
		goto out;
	for (uint64_t blk = 0; e == 0 && blk < v->volume_blks; blk += n) {
		e = fsmap_run(m, blk, v->volume_blks - blk, &use, &n);
		if (e == 0 && use == USE_FREE)
			e = snapshot_forget(s, blk, n);
	}
out:
	fsmap_close(m);
}

/* The newest record may be a checkpoint, which is later. */
static uint64_t committed_s(const struct log *l, uint64_t generation)
{
	const struct wear_table *t = log_wear(l);
	const struct wear_commit *c = t ? &t->commit[generation % WEAR_COMMITS] : NULL;

	if (!generation)
		return 0;
	return c && c->n == generation ? c->time_s : log_newest(l)->time_s;
}

/* While it is held, the card keeps what it reads; afterwards the view's snapshot does. */
static int take_held(struct volume *v, struct volume_image *im, struct volume_result *res,
		     struct layers **ret)
{
	struct log_index *ix = log_hold_index(v->log);
	struct log_hold h;
	int r;

	if (!ix || !log_holds(v->log, &h))
		return volume_why(res, -ENOENT, "no generation is held");
	r = view_copy_layers(v->view, true, SNAPSHOT_ROOM, ret);
	if (r < 0) {
		log_index_unref(ix);
		return r;
	}
	log_index_unref((*ret)->index);
	(*ret)->index = ix;
	im->generation = h.generation;
	im->time_s = h.time_s;
	return 0;
}

static int take_image(struct volume *v, struct volume_image *im, struct volume_result *res,
		      struct layers **ret)
{
	if (im->held)
		return take_held(v, im, res, ret);
	if (im->now) {
		int r;

		im->time_s = (uint64_t)time(NULL);
		r = take_now(v, res, ret);
		im->unsynced = res->quiesce.unsynced;
		return r;
	}
	im->time_s = committed_s(v->log, im->generation);
	return view_copy_layers(v->view, true, SNAPSHOT_ROOM, ret);
}

/* What forbids a commit of single files, or an import; NULL: nothing. */
static const char *scratch_refusal(struct volume *v, const struct volume_image *im)
{
	if (!im->replaces && !fs_ops(v->fs.kind)->single_files)
		return "single files can be committed on ext3, ext4 and xfs only: commit "
		       "everything";
	if (v->opened.state == LOG_FOREIGN)
		return LOG_SET_ASIDE;
	if (v->kept->loose)
		return "the newest generation was sealed while programs wrote: commit everything first";
	return NULL;
}

static int do_scratch(struct volume *v, struct volume_image *im, struct volume_result *res)
{
	const char *refusal = scratch_refusal(v, im);
	struct scratch *old = volume_scratch(v), *s;
	struct volume_pressure m;
	struct log_index *ix;
	int r = old && !scratch_ended(old) ? -EBUSY : refusal ? -EOPNOTSUPP : 0;

	scratch_unref(old);
	if (r < 0)
		return volume_why(
			res, r, "%s",
			r == -EBUSY ? "another commit of single files, or an import, is under way"
				    : refusal);
	monitor_status(v->monitor, &m);
	ix = log_index_of(v->log);
	r = scratch_new(&s, v->store, v->base, v->volume_blks, ix, m.plan.ram_bytes.full);
	log_index_unref(ix);
	if (r < 0)
		return r;
	/* one that has ended is only not forgotten yet by its service */
	pthread_mutex_lock(&v->scratch_lock);
	old = v->scratch;
	v->scratch = scratch_ref(s);
	pthread_mutex_unlock(&v->scratch_lock);
	scratch_unref(old);
	im->scratch = s;
	im->time_s = log_newest(v->log)->time_s;
	im->generation = log_ledger(v->log)->commits;
	memcpy(im->fs_type, v->fs.type, sizeof(im->fs_type));
	return 0;
}

int volume_do_view(struct volume *v, struct volume_image *im, struct volume_result *res)
{
	struct layers *l = NULL;
	struct snapshot *s;
	struct volume_pressure m;
	struct fsinfo fs;
	struct blk_reader reader = { .read = read_image, .volume_blks = v->volume_blks };
	int r;

	if (im->writable)
		return do_scratch(v, im, res);
	if (snapshots_full(v->snapshots))
		return volume_why(res, -EMFILE,
				  "the volume has %u views: end one with umount first",
				  VOLUME_VIEWS);
	if (im->now && !monitor_bears_now(v->monitor))
		return volume_why(
			res, -ENOSPC,
			"changes take RAM twice once they are written again after a view of now, and "
			"this volume does not commit when RAM is full: commit first, or look "
			"at what is committed: cowctl view");
	im->generation = log_ledger(v->log)->commits;
	r = take_image(v, im, res, &l);
	if (r < 0)
		return r;
	monitor_status(v->monitor, &m);
	/* the reserve for a sync takes what a mount of the view replays */
	r = snapshot_new(&s, v->store, l, v->volume_blks,
			 m.too_large ? m.plan.ram_bytes.ruin : m.plan.ram_bytes.full);
	if (r < 0) {
		layers_free(l);
		return r;
	}
	reader.ctx = s;
	if (im->now)
		(void)!replayed_in_view(v, s); /* the mount of the view does what it can */
	r = fsinfo_probe(&reader, &fs);
	if (r == 0)
		r = snapshots_add(v->snapshots, s, im->now, im->generation, im->time_s);
	if (r < 0) {
		snapshot_unref(s);
		return r;
	}
	forget_free(v, s, &reader);
	im->replays = fs.needs_recovery;
	memcpy(im->fs_type, fs.type, sizeof(im->fs_type));
	im->snapshot = s;
	return 0;
}
