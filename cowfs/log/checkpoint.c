/* SPDX-License-Identifier: MIT */
/*
 * Checkpoint: the newest version of every logged block goes home. Its content is in the log,
 * durable, before the first home write; where the same content is at hand in RAM, the log is not
 * read for it.
 *
 * 	checkpoint record | FLUSH | home writes | FLUSH	(log_put_tail:) tail record | FLUSH
 *
 * With lag two empty records come before the tail record, and it is written twice (lag.c).
 *
 * A checkpoint that is stopped (log_content) leaves all this as it is after the FLUSH: the log still
 * covers every block. Commits may come before it continues. Recovery reads the log, so what is home
 * already is noted in memory only (left).
 */
#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "base/crc32c.h"
#include "base/io.h"
#include "fs/guard.h"
#include "fs/shrink_mark.h"
#include "log/rules.h"

/* Writes a second copy of the newest commit record to another segment, before the first home
 * write: a checkpoint that is cut must not depend on one block. */
static int put_checkpoint_begin(struct log *l)
{
	struct log_record rec = l->newest;

	if (rec.type != RECORD_COMMIT)
		return 0;
	rec.type = RECORD_CHECKPOINT;
	rec.flags = 0;
	if (rec.tail_seq == rec.seq)
		rec.tail_seq = 0; /* this record itself */
	return record_put_empty(l, &rec, ring_seg(l, l->cursor) == ring_seg(l, l->newest.lblk));
}

#define NO_BLK UINT64_MAX

/* Blocks on their way to their home location, gathered into long writes. */
struct home {
	struct log *l;
	const struct log_content *content; /* may be NULL */
	uint8_t *buf;			   /* STAGE_BLKS: [blk, blk + blks) */
	uint8_t *old;			   /* the same size, for reading the home blocks */
	uint64_t blk, blks;
	uint64_t own_blks; /* blocks of these that are in the log; the others fill gaps */
	/* length of the current run of consecutive blocks, including those in buf */
	uint64_t written_blks;
	int (*progress)(void *ctx, uint64_t done_blks, uint64_t total_blks);
	void *ctx;
	uint64_t done, total;
	/* written separately (log_checkpoint_shrink, log_unguard); NO_BLK: none */
	uint64_t skip_blk;
	uint64_t guard_blk;	  /* gets the guard; NO_BLK: none */
	uint64_t unit;		  /* of the last block */
	uint64_t end_unit, units; /* of the last write; how many were written */
	uint64_t last_part_blk;	  /* blocks before this one come last */
	bool stopped;
	struct index_list list; /* blocks that are home, if the checkpoint may be stopped */
};

/* The number of units of these blocks, without *end_unit if there are some before; that becomes the last one. */
static uint64_t units_of(const struct home *h, uint64_t blk, uint64_t blks, uint64_t before,
			 uint64_t *end_unit)
{
	uint64_t from = h->l->base->geo.disk_off_bytes + blk_to_bytes(blk),
		 first = from / h->content->unit_bytes,
		 last = (from + blk_to_bytes(blks) - 1) / h->content->unit_bytes,
		 n = last - first + (!before || first != *end_unit);

	*end_unit = last;
	return n;
}

static int home_write(struct home *h)
{
	int r = h->blks ? rules_home_write(h->l, h->blk, h->blks) : 0;

	if (r == 0 && h->blks)
		r = card_write(h->l->base, blk_to_bytes(h->blk), h->buf, blk_to_bytes(h->blks));
	rules_home_written(h->l);
	if (h->blks && h->content && h->content->open_units)
		h->units += units_of(h, h->blk, h->blks, h->units, &h->end_unit);
	if (r == 0) {
		h->l->ledger.checkpoint_blks += h->own_blks;
		h->l->ledger.padded_blks += h->blks - h->own_blks;
	}
	h->blk += h->blks;
	h->blks = h->own_blks = 0;
	return r;
}

/* Buffer place for max_blks from blk on, or for as many as there is room for. The gap before
 * them is written as well if that pays. */
static int home_place(struct home *h, uint64_t blk, uint64_t max_blks, uint8_t **ret,
		      uint64_t *ret_blks)
{
	const struct log_content *c = h->content;
	uint64_t end = h->blk + h->blks;
	bool bridge = h->written_blks && blk > end && c && c->bridge &&
		      c->bridge(c->bridge_ctx, end, blk, h->written_blks, max_blks);
	int r = 0;

	if (bridge && !INVARIANT("R10 gap", !h->l->spilled))
		return -ENOTRECOVERABLE;
	while (bridge && r == 0 && h->blk + h->blks < blk) {
		uint64_t n = min_u64(STAGE_BLKS - h->blks, blk - h->blk - h->blks);

		memset(h->buf + blk_to_bytes(h->blks), 0, blk_to_bytes(n));
		h->blks += n;
		h->written_blks += n;
		if (h->blks == STAGE_BLKS)
			r = home_write(h);
	}
	if (r == 0 && (h->blk + h->blks != blk || h->blks == STAGE_BLKS))
		r = home_write(h);
	if (h->blk + h->blks != blk) {
		h->blk = blk;
		h->written_blks = 0;
	}
	*ret_blks = min_u64(STAGE_BLKS - h->blks, max_blks);
	*ret = h->buf + blk_to_bytes(h->blks);
	return r;
}

static void home_placed(struct home *h, uint64_t blks)
{
	h->blks += blks;
	h->own_blks += blks;
	h->written_blks += blks;
}

static int home_zeros(struct home *h, uint64_t blk, uint64_t blks)
{
	uint8_t *buf;
	uint64_t n;

	for (uint64_t i = 0; i < blks; i += n) {
		int r = home_place(h, blk + i, blks - i, &buf, &n);

		if (r < 0)
			return r;
		memset(buf, 0, blk_to_bytes(n));
		home_placed(h, n);
	}
	return 0;
}

/*
 * Zeros that are on the base already are not written: most come from lazy inode tables and
 * discards. Never after a failure (R8): a read may then show a write that the card loses at the
 * next power cut. Nor on a card that was ever trimmed: such a block may read zero now, and as
 * something else later.
 */
static int write_zeros_home(struct home *h, uint64_t blk, uint64_t blks)
{
	struct log *l = h->l;
	bool reads = !l->suspect && !l->ledger.trims;
	uint64_t i = 0, end;
	int r = reads ? card_read(l->base, blk_to_bytes(blk), h->old, blk_to_bytes(blks)) : 0;

	if (r == -EIO) { /* what the card cannot read is written */
		reads = false;
		r = 0;
	}
	for (; r == 0 && i < blks; i = end) {
		if (reads && bytes_all_zero(h->old + blk_to_bytes(i), COW_BLK_BYTES)) {
			end = i + 1;
			continue;
		}
		for (end = i + 1; end < blks; end++)
			if (reads && bytes_all_zero(h->old + blk_to_bytes(end), COW_BLK_BYTES))
				break;
		r = home_zeros(h, blk + i, end - i);
	}
	return r;
}

/* What takes the place of lost content: zeroes. For a superblock the older one, from which the file system's checker can go on. */
static int substitute(struct log *l, uint64_t blk, uint8_t *buf)
{
	static const uint64_t may[] = GUARD_BLKS;
	int r;

	for (size_t i = 0; i < ARRAY_SIZE(may); i++)
		if (blk == may[i]) {
			r = card_read(l->base, blk_to_bytes(blk), buf, COW_BLK_BYTES);
			guard_take(buf);
			return r;
		}
	memset(buf, 0, COW_BLK_BYTES);
	return 0;
}

static int read_alone(struct log *l, const struct log_content *c, uint64_t blk, uint8_t *buf)
{
	int r = log_index_read(l->index, blk, 1, buf);

	if (!io_lost(r))
		return r;
	if (c && c->give_up && c->give_up(c->give_up_ctx, blk))
		return substitute(l, blk, buf);
	l->lost = true;
	l->lost_blk = blk;
	return r;
}

static int read_each(struct log *l, const struct log_content *c, uint64_t blk, uint64_t n,
		     uint8_t *buf)
{
	int r = 0;

	for (uint64_t k = 0; k < n && r == 0; k++)
		r = read_alone(l, c, blk + k, buf + blk_to_bytes(k));
	return r;
}

/* Reads n blocks of a data extent, from its i-th on. */
static int read_logged(struct log *l, const struct log_content *c, const struct index_entry *e,
		       uint64_t i, uint64_t n, uint8_t *buf)
{
	uint64_t same = 0;
	int r;

	/* RAM may have an older or newer version than the log, of a block that the commit left
	 * out because it was free */
	if (c && c->read && c->read(c->ctx, e->blk + i, n, buf))
		while (same < n &&
		       crc32c_back(buf + blk_to_bytes(same), COW_BLK_BYTES) == e->crc[i + same])
			same++;
	r = same == n ? 0 : log_index_read(l->index, e->blk + i, n, buf);
	return io_lost(r) ? read_each(l, c, e->blk + i, n, buf) : r;
}

bool log_lost(const struct log *l, uint64_t *ret_blk)
{
	*ret_blk = l->lost_blk;
	return l->lost;
}

/* Reads the generation that is in the log. */
static int read_next(void *ctx, uint64_t blk, uint64_t blks, void *buf)
{
	struct home *h = ctx;
	struct index_entry e = { 0 };
	uint8_t *to = buf;
	int r = 0;

	for (size_t i; blks && r == 0; blk++, blks--, to += COW_BLK_BYTES) {
		for (i = 0; log_index_extent(h->l->index, i, &e) && e.blk + e.blks <= blk;)
			i++;
		if (!log_index_extent(h->l->index, i, &e) || e.blk > blk)
			r = card_read(h->l->base, blk_to_bytes(blk), to, COW_BLK_BYTES);
		else if (e.kind == INDEX_ZERO)
			memset(to, 0, COW_BLK_BYTES);
		else
			r = read_logged(h->l, h->content, &e, blk - e.blk, 1, to);
	}
	return r;
}

/* Its superblock, and where that is. */
static int find_next(struct home *h, uint64_t *ret_blk, uint8_t *buf)
{
	struct blk_reader next = ring_base_reader(h->l, read_next, h);
	int r = guard_find(&next, ret_blk);

	return r < 0 ? r : read_next(h, *ret_blk, 1, buf);
}

static bool may_stop(const struct home *h)
{
	return h->content && h->content->stop;
}

/* Does the checkpoint stop before this block? If not: the number of blocks up to the end of its
 * unit. At least one unit is written, so that each checkpoint comes nearer to the end. */
static bool stops_at(struct home *h, uint64_t blk, uint64_t *ret_blks)
{
	uint64_t off, unit, unit_bytes;
	bool next;

	*ret_blks = UINT64_MAX;
	if (!may_stop(h))
		return false;
	unit_bytes = h->content->unit_bytes;
	off = h->l->base->geo.disk_off_bytes + blk_to_bytes(blk);
	unit = off / unit_bytes;
	next = h->done && unit != h->unit;
	h->unit = unit;
	*ret_blks = max_u64((unit_bytes - off % unit_bytes) / COW_BLK_BYTES, 1);
	return next && h->content->stop(h->content->stop_ctx);
}

static int write_home(struct home *h, const struct index_entry *e)
{
	uint64_t n, max;

	for (uint64_t i = 0; i < e->blks; i += n) {
		uint64_t blk = e->blk + i;
		uint8_t *buf;
		int r;

		n = 1;
		if (blk == h->skip_blk)
			continue;
		h->stopped = stops_at(h, blk, &max);
		if (h->stopped)
			return 0;
		max = min_u64(max, min_u64(e->blks - i, h->skip_blk - blk));
		if (e->kind == INDEX_ZERO) {
			n = min_u64(STAGE_BLKS, max);
			r = write_zeros_home(h, blk, n);
		} else {
			r = home_place(h, blk, max, &buf, &n);
			if (r == 0)
				r = read_logged(h->l, h->content, e, i, n, buf);
			if (r == 0 && h->guard_blk - blk < n)
				guarded_put(h->l, buf + blk_to_bytes(h->guard_blk - blk));
			if (r == 0)
				home_placed(h, n);
		}
		if (r == 0 && may_stop(h))
			r = index_list_add(&h->list, INDEX_HOME, blk, n, 0, NULL);
		if (r < 0)
			return r;
		h->done += n;
		if (h->progress && h->progress(h->ctx, h->done, h->total))
			return -ECANCELED;
	}
	return 0;
}

/*
 * The card has closed the erase block of the newest record: one that is appended there makes it copy what stands
 * before, and erase twice. So the tail record begins an erase block, if one is free. The head comes before the
 * FLUSH of the home writes. Returns the place behind it; 0: none.
 */
static int leave_segment(const struct home *h, uint64_t *ret_lblk)
{
	struct log *l = h->l;
	uint64_t lblk = ring_fresh_segment(l) * l->seg_blks;
	int r;

	*ret_lblk = l->entered_lblk;
	if (l->base != l->card || !h->units || h->units < h->content->open_units || h->stopped ||
	    l->entered_lblk || !ring_fresh_is_free(l))
		return 0;
	r = ring_enter(l, &lblk);
	*ret_lblk = lblk;
	return r < 0 ? r : ring_stage_flush(l);
}

/*
 * The unit of the superblock comes last. Behind the tail record it is written once more, to take the guard away: a
 * card that keeps two units open has it open still. Returns where that part ends; 0: all is in order, because the
 * guard stays, or the card keeps all units of this checkpoint open, or only one.
 */
static uint64_t find_last_part(const struct home *h, const struct log_index *todo)
{
	const struct log_content *c = h->content;
	uint64_t into = h->l->base->geo.disk_off_bytes, units = 0, end_unit = 0;
	struct index_entry e;

	if (h->skip_blk == NO_BLK || !c || !c->unguards || c->open_units < 2)
		return 0;
	for (size_t i = 0; log_index_extent(todo, i, &e); i++)
		units += units_of(h, e.blk, e.blks, units, &end_unit);
	if (units < c->open_units)
		return 0;
	return h->skip_blk +
	       (c->unit_bytes - (into + blk_to_bytes(h->skip_blk)) % c->unit_bytes) / COW_BLK_BYTES;
}

/* Leaves the blocks of this part of a pass; false: none. */
static bool clip_to_part(const struct home *h, int part, struct index_entry *e)
{
	uint64_t end = h->last_part_blk, n = end > e->blk ? min_u64(end - e->blk, e->blks) : 0;

	if (part) {
		e->blks = n;
	} else {
		e->blk += n;
		e->lblk += n;
		e->blks -= n;
		e->crc = e->crc ? e->crc + n : NULL;
	}
	return e->blks;
}

/* Writes every block home that only the log has, until it is stopped; FLUSH. */
static int write_all_home(struct home *h)
{
	struct log *l = h->l;
	const struct log_index *todo = l->left ? l->left : l->index;
	struct index_entry e;
	uint64_t entered_lblk = l->entered_lblk;
	int r = 0;

	h->old = h->buf + STAGE_BLKS * COW_BLK_BYTES;
	h->last_part_blk = find_last_part(h, todo);
	h->total = log_index_blks(todo) - (h->skip_blk != NO_BLK);
	for (int part = 0; part < 2; part++)
		for (size_t i = 0; r == 0 && !h->stopped && log_index_extent(todo, i, &e); i++)
			if (clip_to_part(h, part, &e))
				r = write_home(h, &e);
	if (r == 0)
		r = home_write(h);
	if (r == 0)
		r = leave_segment(h, &entered_lblk);
	if (r == 0)
		r = card_flush(l->base);
	if (r < 0 && entered_lblk != l->entered_lblk) {
		/* the head may be on the card, ahead of the next record */
		epoch_set(l, EPOCH_DUE);
		l->lag.cold = true;
	} else {
		l->entered_lblk = entered_lblk;
	}
	return r;
}

/* What was written home is durable: takes it out of what is left. */
static int note_home(struct home *h)
{
	struct log *l = h->l;
	struct log_index *left;
	int r = index_list_overlay(&left, l->left ? l->left : l->index, &h->list, l->base, l->card,
				   l->super.ring_off_bytes);

	if (r < 0)
		return r;
	log_index_unref(l->left);
	l->left = left;
	return -EINTR;
}

void checkpoint_forget(struct log *l)
{
	log_index_unref(l->left);
	l->left = NULL;
}

/* next: a buffer for the block of the guard. */
static int everything_home(struct home *h, uint8_t *next)
{
	struct log *l = h->l;
	uint64_t blk = 0;
	int r = put_checkpoint_begin(l);

	if (r == 0) /* L4 */
		r = lag_same_image(l);
	if (r == 0)
		r = find_next(h, &blk, next);
	if (r == 0 && guarded_fits(l, blk, next))
		h->guard_blk = blk;
	if (h->guard_blk != NO_BLK)
		r = guarded_before_home(l);
	if (l->guarded.state != GUARD_OFF && h->guard_blk == l->guarded.blk)
		h->skip_blk = blk;
	else if (r == 0)
		r = guarded_leave(l);
	if (r == 0) {
		sample_forget_logged(l);
		r = write_all_home(h);
	}
	if (r == 0 && h->stopped)
		r = note_home(h);
	if (r == 0)
		r = guarded_home(l, blk, next);
	if (r == 0)
		r = sample_home(l, h->content);
	/* the record on the card has the fingerprint of the previous base. If the tail
	 * record fails, only the index can prove that this base is the right one */
	if (r == 0)
		r = ring_base_fingerprint(l, &l->newest.fingerprint);
	return r == 0 ? lag_pad(l, 2) : r; /* L4 */
}

int log_checkpoint(struct log *l, const struct log_content *content,
		   int (*progress)(void *ctx, uint64_t done_blks, uint64_t total_blks), void *ctx,
		   struct log_index **ret_index)
{
	_cleanup_free_ uint8_t *buf = io_alloc_raw(2 * STAGE_BLKS * COW_BLK_BYTES),
			       *next = io_alloc(COW_BLK_BYTES);
	struct log_index *empty = log_index_empty();
	struct home h = { .l = l,
			  .content = content,
			  .buf = buf,
			  .progress = progress,
			  .ctx = ctx,
			  .skip_blk = NO_BLK,
			  .guard_blk = NO_BLK };
	struct index_entry e;
	int r = buf && next && empty ? 0 : -ENOMEM;

	l->lost = false;
	if (r == 0 && l->state == EPOCH_BROKEN)
		r = -EUCLEAN;
	if (r == 0 && l->hold.at.seq) /* H1 */
		r = -EBUSY;
	if (r == 0 && !INVARIANT("checkpoint begin", epoch_is_open(l)))
		r = -ENOTRECOVERABLE;
	if (r == 0 && log_index_extent(l->index, 0, &e))
		r = everything_home(&h, next);
	else if (r == 0)
		rules_home_empty(l);
	index_list_clear(&h.list);
	if (r < 0) {
		if (!(r == -EINTR && h.stopped)) {
			l->suspect = true;
			checkpoint_forget(l);
		}
		log_index_unref(empty);
		return r;
	}
	if (h.done || l->left)
		l->ledger.checkpoints++;
	checkpoint_forget(l);
	l->home_done = true;
	log_index_unref(l->index);
	l->index = empty;
	*ret_index = log_index_ref(empty);
	return 0;
}

/* ---- the checkpoint of a shrink ---- */

static int put_block0(struct log *l, const uint8_t *blk0)
{
	int r = rules_home_write(l, 0, 1);

	if (r == 0)
		r = card_write(l->base, 0, blk0, COW_BLK_BYTES);
	rules_home_written(l);
	if (r == 0)
		l->ledger.checkpoint_blks++;
	return r < 0 ? r : card_flush(l->base);
}

static int put_guarded(struct log *l, uint8_t *blk0)
{
	if (guard_fits(blk0))
		guard_put(blk0, guarded_owner(l));
	return put_block0(l, blk0);
}

/*
 * Gives block 0 on the base the content of the log, but with tags and the guard. First the old
 * superblock gets the tags, and then the guard. Each is one sector, so the write is done or not.
 * The new superblock follows in a write of its own. Its two sectors may be torn, and each of the
 * tags matches one version of the first; both have the guard. Garbage from these writes can only be
 * in this block. It stays garbage until the tags are there: the sector with the magic comes last.
 */
static int tag_home(struct log *l, const uint8_t *new0, uint8_t *blk0)
{
	struct shrink_marks tags = { 0 };
	bool has_old, tagged, guarded;
	int r = card_read(l->base, 0, blk0, COW_BLK_BYTES);

	if (r < 0)
		return r;
	guarded = guard_is(blk0, NULL);
	guard_take(blk0);
	tagged = shrink_mark_look(blk0, l->super.ring_uuid) == SHRINK_MARK_MATCH;
	has_old = shrink_mark_is_ext(blk0);
	if (tagged)
		tags = shrink_mark_get(blk0);
	else if (has_old)
		shrink_mark_make(blk0, l->super.ring_uuid, tags.of_old);
	shrink_mark_make(new0, l->super.ring_uuid, tags.of_new);
	if (has_old && !tagged) {
		shrink_mark_put(blk0, &tags);
		r = put_block0(l, blk0);
		l->home = r < 0 ? l->home : HOME_VOUCHES;
	} else if (!has_old) {
		memcpy(blk0, new0, COW_BLK_BYTES);
		shrink_mark_put(blk0, &tags);
		memset(blk0 + 1024, 0, 512);
		r = put_block0(l, blk0);
	}
	if (r == 0 && has_old && !guarded && guard_fits(blk0))
		r = put_guarded(l, blk0);
	if (r < 0)
		return r;
	memcpy(blk0, new0, COW_BLK_BYTES);
	shrink_mark_put(blk0, &tags);
	return put_guarded(l, blk0);
}

/* Everything else is home: takes the guard away, and then the tags, a sector each. */
static int untag_home(struct log *l, const uint8_t *new0, uint8_t *tagged0)
{
	int r = 0;

	if (guard_is(tagged0, NULL)) {
		guard_take(tagged0);
		r = put_block0(l, tagged0);
	}
	return r < 0 ? r : put_block0(l, new0);
}

int log_checkpoint_shrink(struct log *l,
			  int (*progress)(void *ctx, uint64_t done_blks, uint64_t total_blks),
			  void *ctx, int (*before_last)(void *ctx), void *last_ctx)
{
	_cleanup_free_ uint8_t *buf = io_alloc_raw(2 * STAGE_BLKS * COW_BLK_BYTES),
			       *new0 = io_alloc(2 * COW_BLK_BYTES);
	struct home h = {
		.l = l, .buf = buf, .progress = progress, .ctx = ctx, .guard_blk = NO_BLK
	}; /* .skip_blk: block 0 */
	struct index_entry e;
	int r = buf && new0 ? 0 : -ENOMEM;

	if (r == 0 &&
	    !INVARIANT("checkpoint begin", epoch_is_open(l) && l->super.state == SUPER_PENDING))
		r = -ENOTRECOVERABLE;
	/* a smaller file system has another superblock, so block 0 is in the log */
	if (r == 0 && (l->state == EPOCH_BROKEN || !log_index_extent(l->index, 0, &e) || e.blk ||
		       e.kind == INDEX_ZERO))
		r = -EUCLEAN;
	if (r == 0)
		r = log_index_read(l->index, 0, 1, new0);
	if (r == 0)
		r = put_checkpoint_begin(l);
	if (r == 0)
		r = tag_home(l, new0, new0 + COW_BLK_BYTES);
	if (r == 0)
		r = write_all_home(&h);
	if (r == 0)
		r = before_last(last_ctx);
	if (r == 0)
		r = untag_home(l, new0, new0 + COW_BLK_BYTES);
	l->suspect |= r < 0;
	return r;
}
