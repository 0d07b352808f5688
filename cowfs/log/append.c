/* SPDX-License-Identifier: MIT */
/*
 * Writing the log: room, segments, groups, records, checkpoints.
 *
 * Order of a commit, and why (docs/FORMAT.md has the argument):
 *	direct blocks, payload, descriptors | FLUSH | record | FLUSH
 * A readable record says that all it speaks of is durable. Until the record is durable nothing that the newest
 * generation uses was written: direct targets are free in it, and the ring space used is behind the cursor.
 *
 * Reserve: three erase blocks' worth of segments are never filled by payload, so that an open record (R3), a
 * checkpoint-begin and a tail record always find a fresh segment.
 */
#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "base/crc32c.h"
#include "base/io.h"
#include "log/ring.h"

#define RESERVE_EBS 3u

/* ---- room ---- */

static uint64_t fresh_segment(const struct log *l)
{
	uint64_t seg = l->newest.seq ? ring_seg(l, l->newest.lblk) + 1 : 0;

	return round_up_u64(seg, l->segs_per_eb) % l->super.seg_count;
}

static uint64_t free_segments(const struct log *l, uint64_t cursor);

/* The way to the next erase block may skip segments; all of them must be free. */
static bool fresh_is_free(const struct log *l)
{
	uint64_t next = ring_seg(l, l->newest.lblk) + 1, skip = round_up_u64(next, l->segs_per_eb) - next;

	return !l->newest.seq || free_segments(l, next % l->super.seg_count * l->seg_blks) > skip;
}

static uint64_t cursor_if_open(const struct log *l)
{
	return l->need_open && l->newest.seq && fresh_is_free(l) ? fresh_segment(l) * l->seg_blks : l->cursor;
}

/* Segments that are wholly free when the cursor is at `cursor`; one that begins at the cursor counts. */
static uint64_t free_segments(const struct log *l, uint64_t cursor)
{
	uint64_t n = l->super.seg_count, first, tail;

	if (!l->newest.seq)
		return n - ring_seg(l, cursor);
	first = cursor % l->seg_blks ? ring_seg(l, cursor) + 1 : ring_seg(l, cursor);
	tail = ring_seg(l, l->tail_lblk);
	/* the cursor never stands in front of the tail in the tail's own segment, so equal means full circle only
	 * when the segment at hand is busy */
	return (tail + n - first % n) % n;
}

static uint64_t room_at(const struct log *l, uint64_t cursor)
{
	uint64_t segs = free_segments(l, cursor), reserve = RESERVE_EBS * l->segs_per_eb;
	uint64_t here = cursor % l->seg_blks ? l->seg_blks - cursor % l->seg_blks : 0;

	if (segs < reserve)
		return 0;
	return here + (segs - reserve) * (l->seg_blks - 1);
}

uint64_t log_room_blks(const struct log *l)
{
	return room_at(l, cursor_if_open(l));
}

uint64_t log_capacity_blks(const struct log *l)
{
	/* one segment holds the newest record */
	return (l->super.seg_count - 1 - RESERVE_EBS * l->segs_per_eb) * (l->seg_blks - 1);
}

uint64_t log_meta_blks(const struct log *l, uint64_t logged_blks, uint64_t direct_blks, uint64_t extents)
{
	/* an extent is split where payload leaves a segment and where a descriptor block is full */
	uint64_t splits = logged_blks / (l->seg_blks - 1) + 1;
	uint64_t bytes = (logged_blks + direct_blks) * 4 + (extents + splits) * DESC_EXTENT_BYTES;
	uint64_t per_blk = COW_BLK_BYTES - DESC_HEADER_BYTES - 2 * DESC_EXTENT_BYTES;

	return bytes / per_blk + 1 + 1;
}

/* ---- the stage: consecutive ring blocks gathered to large writes ---- */

static int stage_flush(struct log *l)
{
	unsigned n = l->stage_blks;

	l->stage_blks = 0;
	return n ? card_write(l->card, ring_off_bytes(l, l->stage_lblk), l->stage, blk_to_bytes(n)) : 0;
}

static int stage_put(struct log *l, uint64_t lblk, const void *data, uint64_t blks)
{
	while (blks) {
		uint64_t n;

		if (l->stage_blks && (l->stage_lblk + l->stage_blks != lblk || l->stage_blks == STAGE_BLKS)) {
			int r = stage_flush(l);

			if (r < 0)
				return r;
		}
		if (!l->stage_blks)
			l->stage_lblk = lblk;
		n = min_u64(blks, STAGE_BLKS - l->stage_blks);
		memcpy(l->stage + blk_to_bytes(l->stage_blks), data, blk_to_bytes(n));
		l->stage_blks += (unsigned)n;
		data = (const uint8_t *)data + blk_to_bytes(n);
		lblk += n;
		blks -= n;
	}
	return 0;
}

/* The position for the next block of a group at or behind *lblk: opens the segment if it stands at one's start. */
static int enter_segment(struct log *l, uint64_t *lblk)
{
	uint8_t *blk;
	struct log_head h = { .epoch = l->epoch, .seg = (uint32_t)ring_seg(l, *lblk) };
	int r;

	if (*lblk % l->seg_blks)
		return 0;
	if (l->newest.seq && !free_segments(l, *lblk))
		return -ENOSPC;
	blk = io_alloc(COW_BLK_BYTES);
	if (!blk)
		return -ENOMEM;
	memcpy(h.ring_uuid, l->super.ring_uuid, 16);
	h.serial = ++l->max_serial;
	h.last = (struct record_ptr){ l->newest.seq, l->newest.epoch, l->newest.lblk };
	codec_put_head(blk, &h);
	r = stage_put(l, *lblk, blk, 1);
	free(blk);
	l->ledger.meta_blks++;
	*lblk += 1;
	return r;
}

/* ---- records ---- */

static int flush_both(struct log *l)
{
	int r = l->base == l->card ? 0 : card_flush(l->base);

	return r < 0 ? r : card_flush(l->card);
}

void log_totals(const struct log *l, struct wear_ledger *t)
{
	const struct card_account *a = &l->card->account, *b = &l->base->account;
	bool two = l->base != l->card;

	*t = l->ledger;
	t->write_calls += a->write_calls + (two ? b->write_calls : 0);
	t->written_bytes += a->written_bytes + (two ? b->written_bytes : 0);
	t->flushes += a->flushes + (two ? b->flushes : 0);
	t->writable_ns += a->writable_ns + (two ? b->writable_ns : 0);
	if (l->card->writable)
		t->writable_ns += now_ns() - l->card->writable_since_ns;
}

/* Fills what every record has in common, writes it to lblk, FLUSH. The stage is empty. */
static int write_record(struct log *l, struct log_record *rec, uint64_t lblk)
{
	_cleanup_free_ uint8_t *blk = io_alloc(COW_BLK_BYTES);
	int r;

	if (!blk)
		return -ENOMEM;
	memcpy(rec->ring_uuid, l->super.ring_uuid, 16);
	rec->lblk = lblk;
	rec->epoch = l->epoch;
	rec->floor_seq = rec->seq;
	rec->fallback_seq = l->newest.seq;
	rec->time_s = (uint64_t)time(NULL);
	memcpy(rec->identity, l->base->geo.identity, sizeof(rec->identity));
	log_totals(l, &rec->ledger);
	rec->ledger.meta_blks++; /* the record's own write and flush are in it */
	rec->ledger.write_calls++;
	rec->ledger.written_bytes += COW_BLK_BYTES;
	rec->ledger.flushes++;
	codec_put_record(blk, rec);
	r = card_write(l->card, ring_off_bytes(l, lblk), blk, COW_BLK_BYTES);
	if (r == 0)
		r = card_flush(l->card);
	if (r == 0)
		l->ledger.meta_blks++;
	return r;
}

/* The record is durable: it is N now. */
static void accept_record(struct log *l, const struct log_record *rec)
{
	l->newest = *rec;
	if (rec->tail_seq == rec->seq) {
		l->tail_lblk = rec->start_lblk;
		l->chain_records = 0;
	}
	l->chain_records++;
	l->cursor = (rec->lblk + 1) % l->ring_blks;
}

/* An empty record at the cursor, or in a fresh segment. */
static int put_empty(struct log *l, struct log_record *rec, bool fresh)
{
	uint64_t lblk = fresh && l->newest.seq ? fresh_segment(l) * l->seg_blks : l->cursor;
	int r = fresh && !fresh_is_free(l) ? -ENOSPC : enter_segment(l, &lblk);

	if (r < 0)
		return r;
	r = stage_flush(l);
	if (r < 0) {
		l->need_open = true;
		return r;
	}
	rec->seq = ++l->highest_seq;
	if (rec->type != RECORD_CHECKPOINT) {
		rec->start_lblk = lblk;
		rec->prev = (struct record_ptr){ l->newest.seq, l->newest.epoch, l->newest.lblk };
		rec->fingerprint = l->newest.fingerprint;
	}
	if (!rec->tail_seq)
		rec->tail_seq = rec->seq;
	r = write_record(l, rec, lblk);
	if (r == 0)
		accept_record(l, rec);
	else
		l->need_open = true; /* R3: it may have reached the card, ahead of where the next commit would lie */
	return r;
}

/* ---- first write of a life ---- */

/* A new ring uuid makes every older block of the ring a stranger; void heads say that nothing is in it. */
static int void_ring(struct log *l)
{
	_cleanup_free_ uint8_t *blk = io_alloc(COW_BLK_BYTES);
	int r;

	if (!blk)
		return -ENOMEM;
	if (getrandom(l->super.ring_uuid, 16, 0) != 16)
		return -EIO;
	for (uint32_t i = 0; i < l->super.seg_count; i++) {
		struct log_head h = { .seg = i };

		memcpy(h.ring_uuid, l->super.ring_uuid, 16);
		memset(blk, 0, COW_BLK_BYTES);
		codec_put_head(blk, &h);
		r = card_write(l->card, ring_off_bytes(l, i * l->seg_blks), blk, COW_BLK_BYTES);
		if (r < 0)
			return r;
		l->ledger.meta_blks++;
	}
	r = card_flush(l->card);
	if (r < 0)
		return r;
	l->newest = (struct log_record){ 0 };
	l->cursor = l->highest_seq = l->max_serial = 0;
	return 0;
}

int log_prepare(struct log *l)
{
	struct log_record rec = { .type = RECORD_OPEN };
	bool fresh = !l->newest.seq || fresh_is_free(l);
	uint32_t salt;
	int r = 0;

	if (l->broken)
		return -EUCLEAN;
	/* The record that was chosen may be in the card's cache only: the last session's flush failed, and the power
	 * stayed. Heads and records to come say that it is durable. */
	if (!l->settled)
		r = flush_both(l);
	if (r < 0)
		return r;
	l->settled = true;
	if (!l->need_open)
		return 0;
	/* A full ring, and power cut after power cut within its checkpoint: each took a fresh segment, now they go on
	 * in the last one. Its last block is the tail record's: without a known failure an open record is a wish only. */
	if (!fresh && l->cursor % l->seg_blks % (l->seg_blks - 1) == 0) {
		l->need_open = l->doubt;
		return l->doubt ? -ENOSPC : 0;
	}
	/* not again once there is a record: a super record that failed half way may already tell this uuid */
	if (l->super.state != SUPER_LIVE && !l->newest.seq)
		r = void_ring(l);
	if (r < 0)
		return r;
	if (getrandom(&salt, sizeof(salt), 0) != sizeof(salt))
		return -EIO;
	l->epoch = ((l->epoch >> 32) + 1) << 32 | salt;
	/* nothing of the log is needed if all is home; then the tail may move at once */
	rec.tail_seq = !l->newest.seq || l->home_done ? 0 : l->newest.tail_seq;
	r = put_empty(l, &rec, fresh);
	if (r == 0 && l->super.state != SUPER_LIVE) {
		/* last: a live super record promises that there is a record */
		enum super_state was = l->super.state;

		l->super.state = SUPER_LIVE;
		r = super_write(l->card, &l->super);
		if (r < 0)
			l->super.state = was;
		else
			l->ledger.super_blks += 2;
	}
	if (r == 0)
		l->need_open = false;
	return r;
}

/* ---- a commit ---- */

static int desc_block(struct attempt *a)
{
	if (a->desc_blks == a->cap_desc) {
		size_t cap = a->cap_desc ? a->cap_desc * 2 : 4;
		uint8_t *p = io_alloc(cap * COW_BLK_BYTES);

		if (!p)
			return -ENOMEM;
		if (a->desc)
			memcpy(p, a->desc, a->desc_blks * COW_BLK_BYTES);
		free(a->desc);
		a->desc = p;
		a->cap_desc = cap;
	}
	desc_start(&a->writer, a->desc + a->desc_blks++ * COW_BLK_BYTES);
	return 0;
}

static int put_extent(struct log *l, struct desc_extent e)
{
	struct attempt *a = &l->at;

	while (e.blks) {
		uint32_t n = a->desc_blks ? desc_put(&a->writer, &e) : 0;
		int r;

		if (!n) {
			if (a->desc_blks)
				desc_seal(&a->writer, l->super.ring_uuid, l->epoch, a->seq, (uint32_t)a->desc_blks - 1);
			r = desc_block(a);
			if (r < 0)
				return r;
			continue;
		}
		e.blk += n;
		e.lblk += n;
		e.crc = e.crc ? e.crc + n : NULL;
		e.blks -= n;
	}
	return 0;
}

static int note(struct log *l, enum desc_type type, uint64_t blk, uint64_t blks, uint64_t lblk, const uint32_t *crc)
{
	static const enum index_kind kind[] = { [DESC_LOGGED] = INDEX_DATA,
						[DESC_ZERO] = INDEX_ZERO,
						[DESC_DIRECT] = INDEX_HOME };
	int r = index_list_add(&l->at.list, kind[type], blk, blks, lblk, crc);

	for (uint64_t i = 0; i < blks && r == 0;) {
		struct desc_extent e = { .type = type, .blk = blk + i, .lblk = lblk + i, .crc = crc ? crc + i : NULL };

		e.blks = (uint32_t)min_u64(blks - i, UINT32_MAX);
		r = put_extent(l, e);
		i += e.blks;
	}
	return r;
}

static void attempt_clear(struct attempt *a)
{
	index_list_clear(&a->list);
	free(a->desc);
	*a = (struct attempt){ 0 };
}

int log_begin(struct log *l)
{
	if (l->broken)
		return -EUCLEAN;
	if (l->need_open || l->at.active)
		return -EINVAL;
	attempt_clear(&l->at);
	l->stage_blks = 0;
	l->at.active = true;
	l->at.seq = ++l->highest_seq; /* R2: counted even if it fails */
	l->at.head_lblk = l->cursor;
	return 0;
}

static void crc_blocks(const void *data, uint64_t blks, uint32_t *crc)
{
	for (uint64_t i = 0; i < blks; i++)
		crc[i] = crc32c(0, (const uint8_t *)data + blk_to_bytes(i), COW_BLK_BYTES);
}

int log_add_logged(struct log *l, uint64_t blk, uint64_t blks, const void *data)
{
	struct attempt *a = &l->at;
	uint32_t crc[STAGE_BLKS];

	if (!a->active || blks > STAGE_BLKS)
		return -EINVAL;
	crc_blocks(data, blks, crc);
	for (uint64_t i = 0; i < blks;) {
		uint64_t n;
		int r = enter_segment(l, &a->head_lblk);

		if (r < 0)
			return r;
		if (!a->start_lblk)
			a->start_lblk = a->head_lblk;
		n = min_u64(blks - i, l->seg_blks - a->head_lblk % l->seg_blks);
		r = stage_put(l, a->head_lblk, (const uint8_t *)data + blk_to_bytes(i), n);
		if (r == 0)
			r = note(l, DESC_LOGGED, blk + i, n, a->head_lblk, crc + i);
		if (r < 0)
			return r;
		a->head_lblk = (a->head_lblk + n) % l->ring_blks;
		i += n;
	}
	a->logged_blks += blks;
	return 0;
}

int log_add_zero(struct log *l, uint64_t blk, uint64_t blks)
{
	if (!l->at.active)
		return -EINVAL;
	l->at.zero_blks += blks;
	return note(l, DESC_ZERO, blk, blks, 0, NULL);
}

int log_add_direct(struct log *l, uint64_t blk, uint64_t blks, const void *data)
{
	uint32_t crc[STAGE_BLKS];

	if (!l->at.active || blks > STAGE_BLKS)
		return -EINVAL;
	crc_blocks(data, blks, crc);
	l->at.direct_blks += blks;
	return note(l, DESC_DIRECT, blk, blks, 0, crc);
}

/* Puts one block of log metadata behind the group. */
static int put_meta(struct log *l, const void *blk, uint64_t *ret_lblk)
{
	struct attempt *a = &l->at;
	int r = enter_segment(l, &a->head_lblk);

	if (r < 0)
		return r;
	if (!a->start_lblk)
		a->start_lblk = a->head_lblk;
	*ret_lblk = a->head_lblk;
	a->head_lblk = (a->head_lblk + 1) % l->ring_blks;
	l->ledger.meta_blks++;
	return stage_put(l, *ret_lblk, blk, 1);
}

static int put_descriptors(struct log *l, struct log_record *rec)
{
	struct attempt *a = &l->at;

	if (a->desc_blks)
		desc_seal(&a->writer, l->super.ring_uuid, l->epoch, a->seq, (uint32_t)a->desc_blks - 1);
	for (size_t i = 0; i < a->desc_blks; i++) {
		uint8_t *blk = a->desc + i * COW_BLK_BYTES;
		uint64_t lblk;
		int r = put_meta(l, blk, &lblk);

		if (r < 0)
			return r;
		if (i == 0)
			rec->desc_lblk = lblk;
		rec->desc_crc = crc32c(rec->desc_crc, blk, COW_BLK_BYTES);
	}
	rec->desc_blks = (uint32_t)a->desc_blks;
	return 0;
}

int log_end(struct log *l, enum commit_cause cause, uint32_t flags, const struct fs_fingerprint *fp,
	    struct log_index **ret_index)
{
	struct attempt *a = &l->at;
	struct log_record rec = { .type = RECORD_COMMIT, .cause = cause, .flags = flags, .seq = a->seq };
	struct log_index *ix = NULL;
	int r;

	if (!a->active)
		return -EINVAL;
	r = put_descriptors(l, &rec);
	if (r == 0)
		r = enter_segment(l, &a->head_lblk);
	if (r == 0)
		r = stage_flush(l);
	if (r == 0) /* memory before the point of no return */
		r = index_list_overlay(&ix, l->index, &a->list, l->card, l->super.ring_off_bytes);
	if (r == 0)
		r = flush_both(l);
	if (r < 0)
		goto fail;
	rec.start_lblk = a->start_lblk ? a->start_lblk : a->head_lblk;
	rec.prev = (struct record_ptr){ l->newest.seq, l->newest.epoch, l->newest.lblk };
	rec.tail_seq = l->home_done ? rec.seq : l->newest.tail_seq;
	rec.desc_epoch = l->epoch;
	rec.desc_seq = a->seq;
	rec.direct_blks = a->direct_blks;
	rec.logged_blks = a->logged_blks;
	rec.zero_blks = a->zero_blks;
	if (fp)
		rec.fingerprint = *fp;
	l->ledger.commits++;
	l->ledger.direct_blks += a->direct_blks;
	l->ledger.logged_blks += a->logged_blks;
	l->ledger.zero_blks += a->zero_blks;
	r = write_record(l, &rec, a->head_lblk);
	if (r < 0) {
		l->ledger.commits--; /* log_abort counts the blocks */
		l->ledger.direct_blks -= a->direct_blks;
		l->ledger.logged_blks -= a->logged_blks;
		l->ledger.zero_blks -= a->zero_blks;
		goto fail;
	}
	accept_record(l, &rec);
	l->home_done = !a->logged_blks && !a->zero_blks && l->home_done;
	l->doubt = false;
	log_index_unref(l->index);
	l->index = ix;
	*ret_index = log_index_ref(ix);
	attempt_clear(a);
	return 0;
fail:
	log_index_unref(ix);
	return r;
}

void log_abort(struct log *l)
{
	/* its direct and log writes reached the card and count, whatever became of them */
	l->ledger.direct_blks += l->at.direct_blks;
	l->ledger.logged_blks += l->at.logged_blks;
	l->ledger.commits_failed++;
	attempt_clear(&l->at);
	l->stage_blks = 0;
	l->need_open = true;
	l->doubt = true;
}

bool log_doubt(const struct log *l)
{
	return l->doubt;
}

/* ---- checkpoint ---- */

/* R: a second copy of the newest commit in another segment, before the first home write: a checkpoint cut half way
 * must not hang on one block. */
static int put_checkpoint_begin(struct log *l)
{
	struct log_record rec = l->newest;

	if (rec.type != RECORD_COMMIT)
		return 0;
	rec.type = RECORD_CHECKPOINT;
	rec.flags = 0;
	if (rec.tail_seq == rec.seq)
		rec.tail_seq = 0; /* itself */
	return put_empty(l, &rec, ring_seg(l, l->cursor) == ring_seg(l, l->newest.lblk));
}

static int write_home(struct log *l, const struct index_entry *e, uint8_t *buf,
		      int (*progress)(void *ctx, uint64_t done_blks, uint64_t total_blks), void *ctx, uint64_t *done)
{
	uint64_t total = log_index_data_blks(l->index) + log_index_zero_blks(l->index);

	for (uint64_t i = 0; i < e->blks; i += STAGE_BLKS) {
		uint64_t n = min_u64(STAGE_BLKS, e->blks - i);
		int r = 0;

		if (e->kind == INDEX_DATA)
			r = log_index_read(l->index, e->blk + i, n, buf);
		else
			memset(buf, 0, blk_to_bytes(n));
		if (r == 0)
			r = card_write(l->base, blk_to_bytes(e->blk + i), buf, blk_to_bytes(n));
		if (r < 0)
			return r;
		l->ledger.checkpoint_blks += n;
		*done += n;
		if (progress && progress(ctx, *done, total))
			return -ECANCELED;
	}
	return 0;
}

int log_checkpoint(struct log *l, int (*progress)(void *ctx, uint64_t done_blks, uint64_t total_blks), void *ctx,
		   struct log_index **ret_index)
{
	_cleanup_free_ uint8_t *buf = io_alloc(STAGE_BLKS * COW_BLK_BYTES);
	struct log_index *empty = log_index_empty();
	struct index_entry e;
	uint64_t done = 0;
	int r = buf && empty ? 0 : -ENOMEM;

	if (l->broken)
		r = -EUCLEAN;
	if (l->need_open || l->at.active)
		r = r ? r : -EINVAL;
	if (r == 0 && log_index_extent(l->index, 0, &e)) {
		r = put_checkpoint_begin(l);
		for (size_t i = 0; r == 0 && log_index_extent(l->index, i, &e); i++)
			r = write_home(l, &e, buf, progress, ctx, &done);
		if (r == 0)
			r = card_flush(l->base);
	}
	if (r < 0) {
		log_index_unref(empty);
		return r;
	}
	if (done)
		l->ledger.checkpoints++;
	l->home_done = true;
	log_index_unref(l->index);
	l->index = empty;
	*ret_index = log_index_ref(empty);
	return 0;
}

int log_put_tail(struct log *l, enum record_type type, uint32_t flags, enum commit_cause cause,
		 const struct fs_fingerprint *fp)
{
	struct log_record rec = { .type = type, .flags = flags, .cause = cause };
	int r;

	if (l->broken)
		return -EUCLEAN;
	if (l->need_open || l->at.active || !l->home_done)
		return -EINVAL;
	if (fp)
		l->newest.fingerprint = *fp; /* travels on with every empty record until the next commit */
	r = put_empty(l, &rec, false);
	return r;
}

int log_recheck(struct log *l)
{
	_cleanup_free_ uint8_t *blk = io_alloc(COW_BLK_BYTES);
	struct log_record rec;
	struct log_super super;
	unsigned trouble;
	int r;

	if (!blk)
		return -ENOMEM;
	if (!l->newest.seq) {
		r = super_read(l->card, l->super.external ? 0 : l->super.fs_bytes, &super, &trouble);
		if (r < 0 && r != -EIO)
			return -ESTALE;
		/* a first write that failed has drawn a uuid which the card does not know yet */
		if (r == 0 && ((super.state == SUPER_LIVE && memcmp(super.ring_uuid, l->super.ring_uuid, 16)) ||
			       super.created_s != l->super.created_s || memcmp(super.fs_uuid, l->super.fs_uuid, 16)))
			r = -ESTALE;
		return r;
	}
	r = ring_read_record(l, l->newest.lblk, blk, &rec);
	if (r == -EBADMSG)
		return -ESTALE;
	return r < 0 || (rec.seq == l->newest.seq && rec.epoch == l->newest.epoch) ? r : -ESTALE;
}

/* ---- accessors ---- */

const struct log_super *log_super(const struct log *l)
{
	return &l->super;
}

struct wear_ledger *log_ledger(struct log *l)
{
	return &l->ledger;
}

bool log_rests(const struct log *l, enum record_type type, uint32_t flags)
{
	return !l->need_open && l->newest.type == type && (l->newest.flags & flags) == flags;
}

struct card *log_card(const struct log *l)
{
	return l->card;
}

const struct log_record *log_newest(const struct log *l)
{
	return &l->newest;
}

struct log_index *log_index_of(struct log *l)
{
	return log_index_ref(l->index);
}

uint64_t log_chain_records(const struct log *l)
{
	return l->chain_records;
}
