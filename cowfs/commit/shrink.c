/* SPDX-License-Identifier: MIT */
/*
 * The one commit that makes a file system smaller.
 *
 *	void heads | FLUSH | open record | FLUSH | pending superblock of the log | FLUSH
 *	the commit | checkpoint record | FLUSH
 *	block 0 with tags: as it is | FLUSH | with the guard | FLUSH | as in the log, with it | FLUSH
 *	all other home writes | FLUSH | superblock A of the log that stays | FLUSH
 *	block 0 without the guard | FLUSH | without tags | FLUSH
 *	superblock B | FLUSH | a pending one that lies elsewhere is zeroed | FLUSH
 *
 * I1  The short ring and the pending superblock lie in blocks that are free in the old file system,
 *     and free in or behind the new one: until the tags are durable nothing of the old one is
 *     touched, and no home write or direct block overwrites them.
 * I2  The log that stays is another ring. Copy A of its superblock is written when everything but
 *     the tags is checkpointed, and no block of the short ring lies there.
 * I3  The pending superblock counts only while the superblock of the file system on the card has
 *     the tags (super_find): every block of I1 may have been, or be, a block of a file.
 */
#include "commit/shrink.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "base/parse.h"

#define MAX_RING_BYTES (64 * MIB)
#define MIN_RING_BYTES (LOG_MIN_SEGMENTS * LOG_MIN_SEG_BYTES)

struct shrink {
	struct card *base;
	const struct shrink_image *img;
	struct fsmap *old, *new;
	uint64_t new_blks, old_blks;		 /* sizes of the file systems */
	uint64_t ring_blk, ring_blks, super_blk; /* where the short log lies */
	uint64_t copy_a_blk;			 /* place of the superblock of the log that stays */
};

/* ---- callbacks of commit_run ---- */

static bool img_next(void *ctx, uint64_t *blk, uint64_t max_blks, uint64_t *ret_blks,
		     enum blk_state *state)
{
	const struct shrink *s = ctx;

	if (!s->img->next(s->img->ctx, blk, max_blks, ret_blks, state) || *blk >= s->new_blks)
		return false;
	*ret_blks = min_u64(*ret_blks, s->new_blks - *blk);
	return true;
}

static int img_read(void *ctx, uint64_t blk, uint64_t blks, void *buf)
{
	const struct shrink *s = ctx;

	return s->img->read(s->img->ctx, blk, blks, buf);
}

static int img_read_base(void *ctx, uint64_t blk, uint64_t blks, void *buf)
{
	return card_read(((const struct shrink *)ctx)->base, blk_to_bytes(blk), buf,
			 blk_to_bytes(blks));
}

/* The new journal counts its transactions from 1. Old transactions in those blocks could pass for
 * its continuation, so the journal's blocks are written, too. */
static int run_new(void *ctx, uint64_t blk, uint64_t max_blks, enum blk_use *ret,
		   uint64_t *ret_blks)
{
	return fsmap_run_after(((struct shrink *)ctx)->new, NULL, blk, max_blks, ret, ret_blks);
}

/* The blocks of the short log count as used: nothing is spilled there. */
static int run_old(void *ctx, uint64_t blk, uint64_t max_blks, enum blk_use *ret,
		   uint64_t *ret_blks)
{
	struct shrink *s = ctx;
	int r = fsmap_run(s->old, blk, max_blks, ret, ret_blks);

	if (r == 0 && *ret == USE_FREE)
		*ret_blks = 1; /* the short log may begin after it */
	if (blk == s->super_blk || blk - s->ring_blk < s->ring_blks)
		*ret = USE_USED;
	return r;
}

/* ---- place of the short log ---- */

/* 1: free in the old file system and unused in the new one; 0: not; -errno */
static int is_spare(struct shrink *s, uint64_t blk)
{
	enum blk_use a = USE_FREE, b = USE_FREE;
	int r = blk < s->old_blks ? fsmap_use(s->old, blk, &a) : 0;

	if (r == 0 && a == USE_FREE && blk < s->new_blks)
		r = fsmap_use(s->new, blk, &b);
	return r < 0 ? r : a == USE_FREE && b == USE_FREE && blk != s->copy_a_blk;
}

static int place_super(struct shrink *s)
{
	uint64_t off;

	for (unsigned i = 0; (off = super_pending_off(s->base, i)); i++) {
		int r = is_spare(s, off / COW_BLK_BYTES);

		s->super_blk = off / COW_BLK_BYTES;
		if (r)
			return r < 0 ? r : 0;
	}
	return -ENOSPC;
}

/* The longest spare run; if several are long enough, the last one. */
static int place_ring(struct shrink *s)
{
	uint64_t end = s->base->geo.size_bytes / COW_BLK_BYTES, run = 0,
		 enough = MAX_RING_BYTES / COW_BLK_BYTES;

	for (uint64_t blk = 0; blk < end; blk++) {
		int r = blk == s->super_blk ? 0 : is_spare(s, blk);

		if (r < 0)
			return r;
		run = r ? run + 1 : 0;
		if (run && (run >= enough || run > s->ring_blks)) {
			s->ring_blks = min_u64(run, enough);
			s->ring_blk = blk + 1 - s->ring_blks;
		}
	}
	return s->ring_blks < MIN_RING_BYTES / COW_BLK_BYTES ? -ENOSPC : 0;
}

static int place(struct shrink *s, struct shrink_report *rep)
{
	int r = place_super(s);

	if (r == -ENOSPC)
		snprintf(rep->why, sizeof(rep->why),
			 "files fill the end of the device: none of the blocks that may hold the "
			 "record of the shrink is free");
	if (r < 0)
		return r;
	r = place_ring(s);
	if (r == -ENOSPC)
		snprintf(rep->why, sizeof(rep->why),
			 "the free space is too fragmented: the longest free extent has %s, the "
			 "commit needs at least %s",
			 FORMAT_SIZE(blk_to_bytes(s->ring_blks)), FORMAT_SIZE(MIN_RING_BYTES));
	return r;
}

static struct log_super pending_super(const struct shrink *s, const struct log_super *final)
{
	struct log_super p = *final;
	uint64_t bytes = blk_to_bytes(s->ring_blks), seg = LOG_MIN_SEG_BYTES;

	while (seg < LOG_MAX_SEG_BYTES && seg * 2 * 12 <= bytes)
		seg *= 2;
	p.state = SUPER_PENDING;
	p.copy_off_bytes[1] = blk_to_bytes(s->super_blk);
	p.ring_off_bytes = blk_to_bytes(s->ring_blk);
	p.seg_bytes = (uint32_t)seg;
	p.seg_count = (uint32_t)(bytes / seg);
	return p;
}

/* ---- steps ---- */

/*
 * Plans the largest log that fits behind a file system of this size, for erase blocks of base->geo.
 * -ENOSPC, -EINVAL.
 */
static int shrink_plan(struct card *base, uint64_t fs_bytes, struct log_super *ret)
{
	uint64_t room = base->geo.size_bytes - min_u64(fs_bytes, base->geo.size_bytes), short_bytes;
	uint64_t unit = max_u64(base->geo.erase_block_bytes, LOG_MIN_SEG_BYTES);
	int r = -ENOSPC;

	for (uint64_t want = round_down_u64(room, unit); want && r == -ENOSPC; want -= unit)
		r = super_plan(base, base, fs_bytes, want, ret, &short_bytes);
	return r;
}

static int write_zeros(struct card *base, uint64_t off_bytes)
{
	_cleanup_free_ void *blk = io_alloc(COW_BLK_BYTES);

	if (!blk)
		return -ENOMEM;
	memset(blk, 0, COW_BLK_BYTES);
	return card_write(base, off_bytes, blk, COW_BLK_BYTES);
}

struct last_step {
	struct card *base;
	const struct log_super *pending;
	struct log_super *final;
};

/* Everything but the tags is checkpointed. The old file system may have left something at the place
 * of copy B that looks like a copy. */
static int write_copy_a(void *ctx)
{
	struct last_step *l = ctx;
	int r = 0;

	if (l->pending->copy_off_bytes[1] != l->final->copy_off_bytes[1])
		r = write_zeros(l->base, l->final->copy_off_bytes[1]);
	return r < 0 ? r : super_write_copy(l->base, l->final, 0);
}

static int plan_final(struct card *base, const struct log_super *pending, struct log_super *ret)
{
	struct log_super final;
	int r;

	base->geo.erase_block_bytes = pending->erase_block_bytes;
	base->geo.eb_source = (enum card_eb_source)pending->eb_source;
	r = shrink_plan(base, pending->fs_bytes, &final);
	if (r < 0)
		return r;
	final.revision = pending->revision + 1;
	final.lag = pending->lag;
	memcpy(final.fs_uuid, pending->fs_uuid, sizeof(final.fs_uuid));
	*ret = final;
	return 0;
}

int shrink_forget(struct card *base, const struct log_super *pending)
{
	bool was = base->writable;
	int r, off = 0;

	r = was ? 0 : card_set_writable(base, true);
	if (r == 0)
		r = super_unguard(base);
	if (r == 0)
		r = write_zeros(base, pending->copy_off_bytes[1]);
	if (r == 0)
		r = card_flush(base);
	if (!was)
		off = card_set_writable(base, false);
	return r < 0 ? r : off;
}

static int on_home(void *ctx, uint64_t done_blks, uint64_t total_blks)
{
	const struct commit_options *opt = ctx;

	if (opt->progress)
		opt->progress(opt->progress_ctx, PHASE_CHECKPOINT, done_blks, total_blks);
	return 0;
}

/* The card is writable. */
static int write_home(struct card *base, struct log *log, const struct commit_options *opt,
		      struct shrink_report *rep)
{
	const struct log_super *pending = log_super(log);
	struct log_super final;
	struct last_step last = { .base = base, .pending = pending, .final = &final };
	uint64_t before = log_ledger(log)->checkpoint_blks;
	int r = plan_final(base, pending, &final);

	if (r == 0)
		r = log_recheck(log);
	if (r == 0)
		r = log_prepare(log);
	if (r == 0)
		r = log_checkpoint_shrink(log, on_home, (void *)opt, write_copy_a, &last);
	rep->home_blks = log_ledger(log)->checkpoint_blks - before;
	if (r == 0)
		r = super_write_copy(base, &final, 1);
	if (r == 0 && pending->copy_off_bytes[1] != final.copy_off_bytes[1])
		r = shrink_forget(base, pending);
	if (r == 0)
		rep->super = final;
	return r;
}

static int come_home(struct card *base, struct log *log, const struct commit_options *opt,
		     struct shrink_report *rep)
{
	int r = card_set_writable(base, true), off;

	if (r < 0)
		return r;
	r = write_home(base, log, opt, rep);
	off = card_set_writable(base, false);
	rep->committed = log_shrink_committed(log);
	return r < 0 ? r : off;
}

static int check_maps(struct shrink *s, struct shrink_report *rep)
{
	if (fsmap_knows(s->old) && fsmap_knows(s->new) && !fsmap_alarms(s->old) &&
	    !fsmap_alarms(s->new))
		return 0;
	snprintf(rep->why, sizeof(rep->why), "the file system is of an unknown kind, or not clean");
	return -EUCLEAN;
}

static int open_maps(struct shrink *s, struct shrink_report *rep)
{
	struct blk_reader base = super_reader(s->base);
	struct blk_reader img = { .read = img_read, .ctx = s, .volume_blks = s->new_blks };
	int r = fsmap_open(&s->old, &base);

	if (r == 0)
		r = fsmap_open(&s->new, &img);
	if (r == -EOWNERDEAD)
		snprintf(rep->why, sizeof(rep->why), FSINFO_DIED);
	return r < 0 ? r : check_maps(s, rep);
}

static int run(struct shrink *s, const struct commit_options *opt, struct shrink_report *rep)
{
	struct commit_source src = { .ctx = s,
				     .volume_blks = s->new_blks,
				     .next = img_next,
				     .read_sealed = img_read,
				     .read_committed = img_read_base,
				     .run_sealed = run_new,
				     .run_committed = run_old };
	struct log_super final, pending;
	struct log_open_report opened;
	struct log_index *ix = NULL;
	struct blk_reader base = super_reader(s->base);
	struct fsinfo fs;
	struct log *log;
	int r = fsinfo_probe(&base, &fs);

	if (r < 0)
		return r;
	s->old_blks = round_up_u64(fs.size_bytes, COW_BLK_BYTES) / COW_BLK_BYTES;
	r = shrink_plan(s->base, s->img->fs_bytes, &final);
	s->copy_a_blk = final.copy_off_bytes[0] / COW_BLK_BYTES;
	if (r == 0)
		r = open_maps(s, rep);
	if (r == 0)
		r = place(s, rep);
	if (r == 0) /* all bitmaps have been read by this point */
		r = check_maps(s, rep);
	if (r < 0)
		return r;
	memcpy(final.fs_uuid, fs.uuid, sizeof(final.fs_uuid));
	final.lag = s->img->lag;
	pending = pending_super(s, &final);
	r = log_open(&log, s->base, s->base, &pending, LOG_FRESH, NULL, &opened);
	if (r < 0)
		return r;
	r = commit_run(log, s->base, &src, opt, NULL, NULL, &rep->commit, &ix);
	if (r == 0)
		r = come_home(s->base, log, opt, rep);
	log_index_unref(ix);
	log_close(log);
	return r;
}

static int explain(struct shrink_report *rep, int error)
{
	if (error && !rep->why[0] && error == -EFBIG)
		snprintf(rep->why, sizeof(rep->why),
			 "too much would have to move: the commit needs %s of free blocks, and %s "
			 "are free",
			 FORMAT_SIZE(blk_to_bytes(rep->commit.need_blks)),
			 FORMAT_SIZE(blk_to_bytes(rep->commit.room_blks)));
	else if (error && !rep->why[0])
		snprintf(rep->why, sizeof(rep->why), "%s", strerror(-error));
	return error;
}

int shrink_commit(struct card *base, const struct shrink_image *img,
		  const struct commit_options *opt, struct shrink_report *ret)
{
	struct shrink s = { .base = base,
			    .img = img,
			    .new_blks = round_up_u64(img->fs_bytes, COW_BLK_BYTES) /
					COW_BLK_BYTES };
	int r;

	*ret = (struct shrink_report){ 0 };
	r = run(&s, opt, ret);
	fsmap_close(s.old);
	fsmap_close(s.new);
	return explain(ret, r);
}

/* ---- after a cut ---- */

int shrink_finish(struct card *base, const struct log_super *pending, unsigned flags,
		  const struct commit_options *opt, struct shrink_report *ret)
{
	struct log_open_report opened;
	struct log *log;
	int r = log_open(&log, base, base, pending, flags, NULL, &opened);

	*ret = (struct shrink_report){ 0 };
	if (r < 0)
		return explain(ret, r);
	ret->committed = true;
	if (opened.state >= LOG_BROKEN) {
		r = opened.state == LOG_FOREIGN ? -ESTALE : -EUCLEAN;
		snprintf(ret->why, sizeof(ret->why), "%s", opened.why);
	} else {
		r = come_home(base, log, opt, ret);
	}
	log_close(log);
	return explain(ret, r);
}
