/* SPDX-License-Identifier: MIT */
/*
 * Copies of the wear table in the ring.
 *
 * Every record is a block of which more than half is unused: that room carries, first, the items
 * that are due, with their present values, and then others, the oldest copies first. A group gets blocks of
 * copies in front of its record only for what is due and does not fit. No flush and no visit to an erase block is
 * made for it alone.
 *
 * W1  What has changed is due: it is copied before or in the next record, so what a durable record says is
 *     exact. Behind a record that failed everything is due.
 * W2  What was not copied in the last two erase blocks of the ring is due.
 *     What a group may overwrite lies further ahead (ring.c keeps three in reserve), so the records
 *     that survive a cut have a copy of every item, and walking back from the newest finds it. (Not
 *     along their `prev`: a checkpoint record leaves out the commit that it is a copy of.)
 * W3  Nothing depends on it. A copy that is damaged or gone costs its items what they have counted
 *     since an older one.
 * W4  An older one is found wherever it lies: where the walk ends early, or something of it cannot
 *     be read, the last eight erase blocks of the ring are read, and every record
 *     in them that is of this ledger gives what it has.
 */
#include <errno.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/io.h"
#include "log/scan.h"

enum {
	ITEM_BYTES = 10, /* of a unit with high counters */
	SHARE = 8,	 /* the units take at most this part (1/SHARE) of an erase block */
	/* room for what a record has yet to add about its own group: ring units, day, commit */
	RECORD_SPARE = 256,
	WALK_MAX = 1024,
	READ_TRIES = 3,
	DUE_EBS = 2,
	SEARCH_EBS = 8,
	/* limit of the search: this many laps are read block by block, whatever the records
	 * refer to */
	LOAD_LAPS = 4,
};

static uint64_t eb_blks(const struct log *l)
{
	return l->segs_per_eb * l->seg_blks;
}

static struct wear_geometry geometry_of(const struct wear_ref *f)
{
	return (struct wear_geometry){ .eb_blks = f->eb_blks,
				       .unit_blks = f->unit_blks,
				       .units = { f->units[0], f->units[1] },
				       .first_unit = { f->first_unit[0], f->first_unit[1] } };
}

static bool same_geometry(const struct wear_geometry *a, const struct wear_geometry *b)
{
	return a->eb_blks == b->eb_blks && a->unit_blks == b->unit_blks &&
	       a->units[0] == b->units[0] && a->units[1] == b->units[1] &&
	       a->first_unit[0] == b->first_unit[0] && a->first_unit[1] == b->first_unit[1];
}

static void plan(const struct log *l, struct wear_geometry *ret)
{
	const struct card_geometry *b = &l->base->geo, *c = &l->card->geo;
	uint64_t max_units = eb_blks(l) * COW_BLK_BYTES / (SHARE * ITEM_BYTES);

	wear_plan(ret, l->super.erase_block_bytes, max_units, b->disk_off_bytes, b->size_bytes,
		  c->disk_off_bytes, l->card == l->base ? 0 : c->size_bytes);
}

/* ---- counting ---- */

static void count(void *ctx, struct card *c, uint64_t off_bytes, size_t len_bytes)
{
	struct log *l = ctx;

	if (!len_bytes)
		wear_new_window(l->wear.table);
	else if (l->wear.planned)
		l->wear.planned = false;
	else
		wear_count(l->wear.table, c != l->base,
			   (c->geo.disk_off_bytes + off_bytes) / COW_BLK_BYTES,
			   len_bytes / COW_BLK_BYTES);
}

void wearlog_plan_record(struct log *l, uint64_t lblk)
{
	if (!l->wear.table)
		return;
	count(l, l->card, ring_off_bytes(l, lblk), COW_BLK_BYTES);
	l->wear.planned = true;
}

/* ---- finding it ---- */

static uint64_t search_blks(const struct log *l)
{
	return min_u64(SEARCH_EBS * eb_blks(l), l->ring_blks);
}

/* A read that failed once may succeed the second time. */
static int read_block(struct log *l, uint64_t lblk, uint8_t *buf)
{
	int r = -EIO;

	if (!l->wear.load_blks)
		return -E2BIG;
	l->wear.load_blks--;
	for (int i = 0; i < READ_TRIES && r < 0; i++)
		r = card_read(l->card, ring_off_bytes(l, lblk), buf, COW_BLK_BYTES);
	return r;
}

static bool is_record(const struct log *l, uint64_t lblk, const uint8_t *blk,
		      struct log_record *ret)
{
	return codec_get_record(blk, l->super.ring_uuid, ret) == 0 &&
	       verify_record_place(l, ret, lblk);
}

static bool of_table(const struct log_record *rec, const struct wear *w)
{
	struct wear_geometry geo = geometry_of(&rec->wear);

	return same_geometry(&geo, &wear_table_of(w)->geo);
}

static uint64_t blks_between(const struct log *l, uint64_t from_lblk, uint64_t to_lblk)
{
	return (to_lblk + l->ring_blks - from_lblk % l->ring_blks) % l->ring_blks;
}

/* false: some copy was unreadable or invalid */
static bool merge_record(struct log *l, struct wear *w, const struct log_record *rec,
			 const uint8_t *blk, uint8_t *buf)
{
	uint64_t lblk = rec->wear.lblk;
	uint32_t age_blks = (uint32_t)blks_between(l, rec->wear.blks ? lblk : rec->lblk,
						   l->newest.lblk);
	bool whole = wear_merge(w, blk + RECORD_WEAR_OFF, rec->wear.bytes, age_blks);

	for (uint32_t i = 0; i < min_u64(rec->wear.blks, WEARLOG_MAX_BLKS) && ring_valid(l, lblk);
	     i++, lblk = ring_next(l, lblk)) {
		size_t len;

		/* a block of another attempt at this place does not belong to this record */
		if (read_block(l, lblk, buf) < 0 ||
		    codec_get_wear(buf, l->super.ring_uuid, rec->epoch, rec->seq, i, &len) < 0 ||
		    !wear_merge(w, buf + WEAR_BLK_OFF, len, age_blks))
			whole = false;
	}
	return whole;
}

/* Walks back from record `rec`, newest first, until every item is found. false: something on the
 * way was missing, and it may have had a later copy of an item. */
static bool walk(struct log *l, struct wear *w, const struct log_record *rec, uint8_t *buf)
{
	struct record_ptr at = record_ptr_of(rec);
	uint8_t *blk = buf + COW_BLK_BYTES;
	bool whole = true;

	for (unsigned n = 0; n < WALK_MAX && wear_missing(w) && at.seq; n++) {
		struct log_record r;

		if (!ring_valid(l, at.lblk) || read_block(l, at.lblk, blk) < 0 ||
		    !is_record(l, at.lblk, blk, &r) || r.seq != at.seq || r.epoch != at.epoch ||
		    !of_table(&r, w))
			return false;
		whole &= merge_record(l, w, &r, blk, buf);
		at = r.wear.prev;
	}
	return whole && !wear_missing(w);
}

/* Is neither of another card whose ring was copied to this one, nor of a ledger that started
 * from zero. */
static bool same_ledger(const struct log_record *a, const struct log_record *b)
{
	return !strcmp(a->identity, b->identity) &&
	       (!a->ledger.first_s || !b->ledger.first_s || a->ledger.first_s == b->ledger.first_s);
}

/* Merges every record from lblk back, in the last erase blocks of the ring. */
static void search(struct log *l, struct wear *w, uint64_t lblk, uint8_t *buf)
{
	uint64_t left = search_blks(l), end = lblk + 1;

	while (left && wear_missing(w)) {
		uint64_t n = min_u64(min_u64(STAGE_BLKS, end), left);
		bool readable = card_read(l->card, ring_off_bytes(l, end - n), l->stage,
					  blk_to_bytes(n)) == 0;

		for (uint64_t at = end; at-- > end - n;) {
			uint8_t *blk = l->stage + blk_to_bytes(at - (end - n));
			struct log_record r;

			if ((readable || read_block(l, at, blk) == 0) &&
			    is_record(l, at, blk, &r) && of_table(&r, w) &&
			    same_ledger(&r, &l->wear.head))
				(void)merge_record(l, w, &r, blk, buf);
		}
		left -= n;
		end -= n;
		end = end ? end : l->ring_blks;
	}
}

/* Gathers everything that the card still has of a table of this geometry. false: a part was not
 * read, or is missing. */
static bool gather(struct log *l, struct wear *w, uint8_t *buf)
{
	const struct log_record *head = &l->wear.head;
	bool whole = walk(l, w, head, buf);

	if (head->lblk != l->newest.lblk && l->newest.seq)
		whole &= walk(l, w, &l->newest, buf);
	if (wear_missing(w))
		search(l, w, head->lblk, buf);
	return whole;
}

static bool sane(const struct wear_geometry *g)
{
	return g->eb_blks && g->unit_blks >= g->eb_blks &&
	       (uint64_t)g->units[0] + g->units[1] <= WEAR_MAX_UNITS;
}

static bool find(struct log *l, struct wear *w, uint8_t *buf)
{
	struct wear_geometry geo = geometry_of(&l->wear.head.wear);
	struct wear *old;
	bool whole;

	if (of_table(&l->wear.head, w))
		return gather(l, w, buf);
	/* another geometry: the device or its partition was changed */
	if (!sane(&geo) || wear_new(&old, &geo) < 0)
		return false;
	whole = gather(l, old, buf);
	wear_take_over(w, old);
	wear_free(old);
	return whole;
}

/* The write behind the newest record (guarded.c, G4) belongs to the same day and commit. */
static void count_unguarded(struct log *l, struct wear *w)
{
	struct wear_ledger before = l->ledger;

	guarded_count(&before, UINT64_MAX);
	wear_since(w, &before);
	wear_count(w, 0, l->base->geo.disk_off_bytes / COW_BLK_BYTES + l->guarded.taken_blk, 1);
	wear_new_window(w);
	wear_note(w, &l->ledger, l->newest.time_s, RECORD_TAIL, l->newest.cause);
	l->ledger.visits -= wear_visits(w); /* log_totals adds those of the table */
}

void log_wear_load(struct log *l)
{
	_cleanup_free_ uint8_t *buf = NULL;
	struct wear_geometry geo;
	bool leads = false; /* the newest record leads to all that was found */
	struct wear *w;

	if (l->wear.loaded)
		return;
	l->wear.loaded = true;
	plan(l, &geo);
	buf = io_alloc(2 * COW_BLK_BYTES);
	if (!buf || wear_new(&w, &geo) < 0)
		return;
	l->wear.load_blks = LOAD_LAPS * search_blks(l);
	if (l->wear.head.seq) {
		bool had = l->wear.head.wear.unit_blks, whole = had && find(l, w, buf);

		l->ledger.table_losses += had && !whole;
		leads = whole && l->wear.head.lblk == l->newest.lblk && of_table(&l->newest, w);
	}
	if (!leads)
		wear_make_due(w);
	wear_since(w, &l->ledger);
	if (l->guarded.taken)
		count_unguarded(l, w);
	l->wear.lblk = l->newest.lblk;
	if (leads)
		l->wear.last = record_ptr_of(&l->newest);
	l->wear.table = w;
	l->base->wrote = l->card->wrote = count;
	l->base->wrote_ctx = l->card->wrote_ctx = l;
}

const struct wear_table *log_wear(const struct log *l)
{
	return l->wear.table ? wear_table_of(l->wear.table) : NULL;
}

void wearlog_close(struct log *l)
{
	if (!l->wear.table)
		return;
	l->base->wrote = l->card->wrote = NULL;
	wear_free(l->wear.table);
	l->wear.table = NULL;
}

/* ---- copies ---- */

/* The next copies come to lblk. */
static void go_to(struct log *l, uint64_t lblk)
{
	wear_grow_older(l->wear.table, blks_between(l, l->wear.lblk, lblk), DUE_EBS * eb_blks(l));
	l->wear.lblk = lblk;
}

/* of a record, for copies */
static size_t record_room(const struct log *l, const struct log_record *rec)
{
	return RECORD_WEAR_ROOM - guarded_copy_bytes(l, rec->type);
}

/* After one more block, is there still room for the record, and is the reserve whole? */
static bool has_room(const struct log *l, uint64_t lblk)
{
	uint64_t in_seg = lblk % l->seg_blks, reserve = RING_RESERVE_EBS * l->segs_per_eb;
	uint64_t segs = ring_free_segments(l, lblk);

	return segs > reserve || (segs == reserve && in_seg && l->seg_blks - in_seg >= 2);
}

int wearlog_put_blocks(struct log *l, struct log_record *rec, uint64_t *lblk)
{
	_cleanup_free_ uint8_t *blk = NULL;
	struct wear *w = l->wear.table;

	rec->wear.lblk = rec->wear.blks = rec->wear.crc = 0;
	/* the ring of a shrink serves one commit and disappears with it */
	if (!w || l->super.state == SUPER_PENDING)
		return 0;
	go_to(l, *lblk);
	blk = io_alloc(COW_BLK_BYTES);
	for (uint32_t i = 0; blk && i < WEARLOG_MAX_BLKS && has_room(l, *lblk) &&
			     wear_due_bytes(w) + RECORD_SPARE > record_room(l, rec);
	     i++) {
		int r = ring_enter(l, lblk);
		size_t len;

		if (r < 0)
			return r;
		memset(blk, 0, COW_BLK_BYTES);
		len = wear_encode(w, blk + WEAR_BLK_OFF, WEAR_BLK_ROOM);
		codec_put_wear(blk, l->super.ring_uuid, l->epoch, rec->seq, i, len);
		r = ring_stage_put(l, *lblk, blk, 1);
		if (r < 0)
			return r; /* what was staged before may be lost with it */
		rec->wear.lblk = i ? rec->wear.lblk : *lblk;
		rec->wear.blks = i + 1;
		rec->wear.crc = crc32c(rec->wear.crc, blk, COW_BLK_BYTES);
		*lblk = (*lblk + 1) % l->ring_blks;
		l->ledger.meta_blks++;
	}
	return 0;
}

/* Of the only descriptor block, if it fits beside what is due. */
static size_t desc_copy_bytes(const struct log *l, const struct log_record *rec)
{
	size_t due = l->wear.table ? wear_due_bytes(l->wear.table) : 0, bytes;

	if (rec->type != RECORD_COMMIT || l->at.desc_blks != 1)
		return 0;
	bytes = codec_desc_copy_bytes(l->at.writer.pos);
	return due + bytes <= record_room(l, rec) ? bytes : 0;
}

static void fill_wear(struct log *l, struct log_record *rec, uint8_t *blk)
{
	struct wear *w = l->wear.table;
	const struct wear_geometry *g;

	if (!w) {
		rec->wear = (struct wear_ref){ 0 };
		return;
	}
	/* it copies a commit record, whose blocks are not its own */
	if (rec->type == RECORD_CHECKPOINT)
		rec->wear.lblk = rec->wear.blks = rec->wear.crc = 0;
	wear_note(w, &rec->ledger, rec->time_s, rec->type, rec->cause);
	go_to(l, rec->lblk);
	rec->wear.bytes = (uint32_t)wear_encode(w, blk + RECORD_WEAR_OFF,
						record_room(l, rec) - desc_copy_bytes(l, rec));
	g = &wear_table_of(w)->geo;
	rec->wear.prev = l->wear.last;
	rec->wear.eb_blks = g->eb_blks;
	rec->wear.unit_blks = g->unit_blks;
	memcpy(rec->wear.units, g->units, sizeof(rec->wear.units));
	memcpy(rec->wear.first_unit, g->first_unit, sizeof(rec->wear.first_unit));
}

void wearlog_fill_record(struct log *l, struct log_record *rec, uint8_t *blk)
{
	fill_wear(l, rec, blk);
	if (rec->type == RECORD_COMMIT && l->at.desc_blks == 1 &&
	    codec_desc_copy_bytes(l->at.writer.pos) <= RECORD_WEAR_ROOM - rec->wear.bytes)
		codec_put_desc_copy(blk, rec->wear.bytes, l->at.desc, l->at.writer.pos);
}

void wearlog_settled(struct log *l, const struct log_record *rec)
{
	if (!l->wear.table)
		return;
	l->wear.planned = false;
	if (rec)
		l->wear.last = record_ptr_of(rec);
	else
		wear_make_due(l->wear.table);
}
