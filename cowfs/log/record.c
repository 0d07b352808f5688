/* SPDX-License-Identifier: MIT */
/*
 * Records: the one block that makes a group count, and the empty ones: open (the first of an
 * epoch), tail, retired.
 */
#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "base/io.h"
#include "log/rules.h"

/* with lag: both candidates, and the record that the older candidate reads back */
enum { SETTLED = 3 };

void epoch_set(struct log *l, enum epoch_state to)
{
	static const unsigned may[] = {
		[EPOCH_DUE] = 1 << EPOCH_DUE | 1 << EPOCH_OPEN | 1 << EPOCH_WAIVED |
			      1 << EPOCH_BROKEN,
		[EPOCH_OPEN] = 1 << EPOCH_ATTEMPT | 1 << EPOCH_DUE,
		[EPOCH_WAIVED] = 1 << EPOCH_OPEN | 1 << EPOCH_DUE,
		[EPOCH_ATTEMPT] = 1 << EPOCH_OPEN | 1 << EPOCH_DUE,
		[EPOCH_BROKEN] = 1 << EPOCH_DUE,
	};

	if (INVARIANT("epoch state", may[l->state] >> to & 1))
		l->state = to;
}

/* ---- records ---- */

int record_flush(struct log *l)
{
	int r = l->base == l->card ? 0 : card_flush(l->base);

	if (r == 0)
		r = card_flush(l->card);
	l->suspect |= r < 0;
	return r;
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
	t->attached_ns += now_ns() - l->opened_ns;
	if (l->wear.table)
		t->visits += wear_visits(l->wear.table);
}

/* Fills the fields common to all records, writes the record to lblk, FLUSH. The stage is empty. */
int record_write(struct log *l, struct log_record *rec, uint64_t lblk)
{
	_cleanup_free_ uint8_t *blk = io_alloc(COW_BLK_BYTES);
	int r = blk ? ring_base_fingerprint(l, &rec->fingerprint) : -ENOMEM;

	if (r < 0)
		return r;
	memcpy(rec->ring_uuid, l->super.ring_uuid, 16);
	rec->lblk = lblk;
	rec->epoch = l->epoch;
	rec->flags |= hold_flags(l);
	lag_floors(l, rec);
	rec->time_s = (uint64_t)time(NULL);
	if (!l->ledger.first_s && rec->time_s >= CLOCK_IS_SET_S)
		l->ledger.first_s = rec->time_s;
	memcpy(rec->identity, l->base->geo.identity, sizeof(rec->identity));
	wearlog_plan_record(l, lblk);
	log_totals(l, &rec->ledger);
	rec->ledger.meta_blks++; /* includes the write and flush of the record itself */
	rec->ledger.write_calls++;
	rec->ledger.written_bytes += COW_BLK_BYTES;
	rec->ledger.flushes += lag_on(l) && l->base != l->card ? 2 : 1;
	wear_stop(&rec->ledger);
	sample_fill_record(l, rec);
	wearlog_fill_record(l, rec, blk);
	guarded_fill_record(l, rec, blk);
	codec_put_record(blk, rec);
	ring_note_sent(l, rec, blk);
	r = rules_record(l, rec);
	if (l->mark) {
		l->mark->last_epoch = rec->epoch;
		l->mark->last_seq = rec->seq;
	}
	if (r == 0)
		r = card_write(l->card, ring_off_bytes(l, lblk), blk, COW_BLK_BYTES);
	rules_record_written(l);
	if (r == 0) /* a card that loses FLUSHes loses as many on the base as on the log */
		r = lag_on(l) ? record_flush(l) : card_flush(l->card);
	if (r == 0)
		r = rules_record_durable(l);
	if (r == 0)
		l->ledger.meta_blks++;
	return r;
}

/* The record is durable: it is N now. */
void record_accept(struct log *l, const struct log_record *rec)
{
	wearlog_settled(l, rec);
	lag_accept(l, rec);
	guarded_accept(l, rec);
	sample_accept(l, rec->sample);
	l->newest = *rec;
	if (l->mark)
		mark_sound(l->mark, rec);
	l->base_known = false;
	if (l->state == EPOCH_WAIVED)
		epoch_set(l, EPOCH_OPEN);
	l->order.pads_due -= l->order.pads_due > 0;
	l->order.copy_pads -= l->order.copy_pads > 0;
	l->cursor = (rec->lblk + 1) % l->ring_blks;
	l->entered_lblk = 0;
}

/* Writes an empty record at the cursor, or in a fresh segment. */
int record_put_empty(struct log *l, struct log_record *rec, bool fresh)
{
	uint64_t lblk = l->entered_lblk ? l->entered_lblk : l->cursor, serial = l->max_serial;
	bool back = rec->type == RECORD_OPEN && rec->prev.seq; /* hold_open_record */
	int r = 0;

	if (fresh && l->newest.seq)
		lblk = ring_fresh_segment(l) * l->seg_blks;
	r = fresh && !ring_fresh_is_free(l) ? -ENOSPC : ring_enter(l, &lblk);
	if (r < 0)
		return r;
	rec->seq = ++l->highest_seq;
	/* with a retired record the base is no longer an image of this log */
	if (rec->type != RECORD_RETIRED)
		rec->flags |= (back ? 0 : l->newest.flags & RECORD_UNREAD);
	if (rec->type != RECORD_CHECKPOINT) {
		rec->start_lblk = lblk;
		r = wearlog_put_blocks(l, rec, &lblk);
		if (r == 0)
			r = ring_enter(l, &lblk);
	}
	if (r == 0)
		r = ring_stage_flush(l);
	/* With lag every record gets two FLUSHes, like a commit. So does a record behind a new
	 * head. If the record were on the card without the head, attach would not see it and
	 * would continue from the record before. The head written next would then reveal it,
	 * newer than the record that attach continued from. */
	if (r == 0 && (lag_on(l) || l->max_serial != serial))
		r = record_flush(l);
	if (r < 0) {
		wearlog_settled(l, NULL);
		epoch_set(l, EPOCH_DUE);
		l->lag.cold = true;
		return r;
	}
	if (rec->type != RECORD_CHECKPOINT && !back)
		rec->prev = record_ptr_of(&l->newest);
	if (!rec->tail_seq)
		rec->tail_seq = rec->seq;
	r = record_write(l, rec, lblk);
	if (r == 0) {
		record_accept(l, rec);
	} else { /* R3: it may be on the card, ahead of the next */
		epoch_set(l, EPOCH_DUE);
		l->suspect = l->lag.cold = true;
		wearlog_settled(l, NULL);
	}
	return r;
}

/* ---- empty records, with lag ---- */

/* Room for one more record, and for those that free the ring: the record that carries the tail,
 * its repetition, and an open record between them. */
bool record_has_room(const struct log *l, uint64_t spare)
{
	uint64_t in_seg = l->cursor % l->seg_blks, here = in_seg ? l->seg_blks - in_seg : 0;

	return here + ring_free_segments(l, l->cursor) * (l->seg_blks - 1) > spare;
}

int record_put_open(struct log *l, bool fresh)
{
	struct log_record rec = { .type = RECORD_OPEN, .tail_seq = lag_tail_seq(l) };

	return record_put_empty(l, &rec, fresh);
}

int log_note(struct log *l)
{
	int r = log_prepare(l);

	if (r == 0 && !record_has_room(l, 3))
		return -ENOSPC;
	if (r == 0)
		r = record_put_open(l, false);
	return r < 0 ? r : lag_pad(l, 1);
}

int lag_pad(struct log *l, unsigned n)
{
	int r = 0;

	while (lag_on(l) && n-- && r == 0) {
		if (!record_has_room(l, 3)) {
			l->lag.alone = true;
			break;
		}
		r = record_put_open(l, false);
	}
	return r;
}

int lag_settle(struct log *l)
{
	int r = 0;

	while (lag_on(l) && l->lag.cold && l->lag.same < SETTLED && record_has_room(l, 3) && r == 0)
		r = record_put_open(l, false);
	if (r == 0)
		l->lag.cold = false;
	return r;
}

int lag_same_image(struct log *l)
{
	return lag_on(l) && l->lag.same < 2 ? lag_pad(l, 2 - l->lag.same) : 0;
}

/* With lag: the newest tail record once more, so that both candidates have it. */
static int repeat_tail(struct log *l)
{
	struct log_record rec = { .type = l->newest.type,
				  .flags = l->newest.flags,
				  .cause = l->newest.cause };

	if (!lag_on(l) || !l->lag.older_seq)
		return 0;
	if (!record_has_room(l, 0)) { /* as with lag 0: the ring is free from here on */
		lag_forget_tail(l);
		return 0;
	}
	rec.tail_seq = lag_tail_seq(l);
	return record_put_empty(l, &rec, false);
}

/* ---- first write of a life ---- */

int record_void_head(struct log *l, uint32_t seg, uint8_t *blk)
{
	struct log_head h = { .seg = seg };
	int r;

	memcpy(h.ring_uuid, l->super.ring_uuid, 16);
	memset(blk, 0, COW_BLK_BYTES);
	codec_put_head(blk, &h);
	r = card_write(l->card, ring_off_bytes(l, seg * l->seg_blks), blk, COW_BLK_BYTES);
	l->ledger.meta_blks += r == 0;
	return r;
}

/* A new ring uuid invalidates every older block of the ring. Void heads say that the ring is
 * empty. */
static int void_ring(struct log *l)
{
	_cleanup_free_ uint8_t *blk = io_alloc(COW_BLK_BYTES);
	int r = blk ? rules_void_ring(l) : -ENOMEM;

	if (r < 0)
		return r;
	if (getrandom(l->super.ring_uuid, 16, 0) != 16)
		return -EIO;
	for (uint32_t i = 0; i < l->super.seg_count; i++) {
		r = record_void_head(l, i, blk);
		if (r < 0)
			return r;
	}
	return card_flush(l->card);
}

/* S1: no copy is in the cache of the card only, whoever wrote it, and however that ended. With lag a FLUSH does not say
 * so, but two records do. */
static int settle_copies(struct log *l)
{
	int r = log_settle(l);

	if (r == 0 && !rules_copies_durable(l))
		r = card_flush(l->card);
	return r < 0 ? r : lag_pad(l, l->order.copy_pads);
}

static int put_copy(struct log *l, unsigned i)
{
	int r = rules_copy(l, i);

	if (r < 0)
		return r;
	r = super_put_copy(l->card, &l->super, i);
	rules_copy_written(l, i);
	return r;
}

/* Half way it is bad. */
static int write_copy(struct log *l, unsigned i)
{
	unsigned bad = i ? SUPER_COPY_B_BAD : SUPER_COPY_A_BAD;
	int r;

	l->super_trouble |= bad;
	r = put_copy(l, i);
	if (r == 0)
		r = card_flush(l->card);
	if (r == 0)
		l->super_trouble &= ~bad;
	return r;
}

/* A copy that is bad comes first: meanwhile the other one is whole. */
static int write_copies(struct log *l)
{
	unsigned first = l->super_trouble & SUPER_COPY_B_BAD ? 1 : 0;
	int r;

	l->super.revision++;
	/* at the future place of copy A, the file system that is being shrunk has other content */
	if (l->super.state == SUPER_PENDING)
		return write_copy(l, 1);
	r = settle_copies(l);
	if (r == 0)
		r = write_copy(l, first);
	if (r == 0)
		r = settle_copies(l);
	return r < 0 ? r : write_copy(l, !first);
}

/* Written last in a new life: a live superblock promises that there is a record. */
int record_write_super(struct log *l)
{
	enum super_state was = l->super.state;
	int r = rules_super(l);

	if (r < 0)
		return r;
	if (was == SUPER_VIRGIN)
		l->super.state = SUPER_LIVE;
	r = write_copies(l);
	if (r < 0) {
		l->super.state = was;
		return r;
	}
	l->ledger.super_blks += was == SUPER_PENDING ? 1 : 2;
	l->super_trouble &= ~(unsigned)SUPER_COPIES_BAD;
	l->super_due = false;
	return 0;
}

void log_mend_super(struct log *l, unsigned trouble)
{
	l->super_trouble = trouble;
}

unsigned log_super_trouble(const struct log *l)
{
	return l->super_trouble;
}

/* Rewrites a torn or rotten copy from the one that was read. Nothing depends on it: a block that
 * refuses the write stays bad and is reported. But a failed flush is an error of the caller. */
static int mend_super(struct log *l)
{
	int r = l->super_trouble & SUPER_COPIES_BAD ? settle_copies(l) : 0;

	/* with lag, in a ring without room for the records: another time */
	if (r < 0 || (lag_on(l) && l->order.copy_pads))
		return r;
	for (unsigned i = 0; i < 2; i++) {
		unsigned bad = i ? SUPER_COPY_B_BAD : SUPER_COPY_A_BAD;

		if (!(l->super_trouble & bad) || put_copy(l, i) < 0)
			continue;
		l->ledger.super_blks++;
		r = card_flush(l->card);
		if (r == 0)
			l->super_trouble &= ~bad;
		if (r == 0 &&
		    (l->super_trouble & SUPER_SHORTENED)) /* now A has the old place of B */
			l->super_trouble ^= SUPER_SHORTENED | SUPER_COPY_A_BAD;
		return r;
	}
	return 0;
}

static int begin_life(struct log *l)
{
	int r = void_ring(l);

	if (r < 0)
		return r;
	l->newest = (struct log_record){ 0 };
	l->cursor = l->highest_seq = l->found_seq = l->max_serial = 0;
	l->super_due = true;
	return 0;
}

static int open_epoch(struct log *l, bool fresh)
{
	struct log_record rec = { .type = RECORD_OPEN };
	uint32_t salt;
	int r;

	if (getrandom(&salt, sizeof(salt), 0) != sizeof(salt))
		return -EIO;
	l->epoch = ((l->epoch >> 32) + 1) << 32 | salt;
	/* if everything is checkpointed, nothing of the log is needed and the tail may move at
	 * once */
	rec.tail_seq = lag_tail_seq(l);
	hold_open_record(l, &rec);
	r = record_put_empty(l, &rec, fresh);
	hold_went_back(l, r == 0);
	if (r == 0)
		r = lag_settle(l);
	if (r == 0)
		epoch_set(l, EPOCH_OPEN);
	return r;
}

static int prepare(struct log *l)
{
	bool fresh = !l->newest.seq || ring_fresh_is_free(l);
	int r = 0;

	if (l->state == EPOCH_BROKEN)
		return -EUCLEAN;
	log_wear_load(l);
	r = log_settle(l);
	if (r == 0)
		r = guarded_repair(l);
	if (r < 0)
		return r;
	if (l->state == EPOCH_OPEN && guarded_wants_copy(l))
		epoch_set(l, EPOCH_DUE);
	if (l->state != EPOCH_DUE && !l->super_due && !hold_feature_is_stale(l))
		return lag_settle(l);
	/* The ring may be full after repeated power cuts within its checkpoint. Each cut took a
	 * fresh segment; the last one is now used further. Its last block is reserved for the
	 * tail record. Without a known failure an open record is only desirable. */
	if (l->state == EPOCH_DUE && !fresh && l->cursor % l->seg_blks % (l->seg_blks - 1) == 0) {
		if (l->doubt || l->hold.going)
			return -ENOSPC;
		epoch_set(l, EPOCH_WAIVED);
		return 0;
	}
	/* not again once there is a record: a superblock that failed half way may already have
	 * this uuid */
	if (l->super.state != SUPER_LIVE && !l->newest.seq)
		r = begin_life(l);
	if (r == 0 && l->state == EPOCH_DUE)
		r = open_epoch(l, fresh);
	else if (r == 0 && l->super.state == SUPER_LIVE && l->newest.seq)
		r = lag_settle(l);
	if (r == 0 && hold_feature_is_stale(l))
		r = hold_set_feature(l, false);
	if (r == 0 && l->super_due)
		r = record_write_super(l);
	return r;
}

int log_prepare(struct log *l)
{
	int r = prepare(l);

	return r == 0 && l->super.state == SUPER_LIVE && !l->super_due ? mend_super(l) : r;
}

int log_set_image(struct log *l, uint32_t image, uint8_t boots)
{
	l->super.image = image;
	l->super.image_boots = boots;
	l->super_due = true;
	return log_prepare(l);
}

int log_set_imported(struct log *l, uint64_t imported_s, uint64_t offered_s)
{
	l->super.imported_s = imported_s;
	l->super.offered_s = offered_s;
	l->super_due = true;
	return log_prepare(l);
}

/* ---- tail, recheck ---- */

/* A retired record has no copy, since the base may change behind it: it is the last write. With lag
 * that of the superblock must count as durable. */
static int unguard_before(struct log *l, enum commit_cause cause)
{
	int r = 0;

	if (l->guarded.state != GUARD_OFF && !l->guarded.copied)
		r = log_put_tail(l, RECORD_TAIL, 0, cause);
	if (r == 0)
		r = guarded_take_off(l);
	return r == 0 && l->guarded.packed_bytes ? lag_pad(l, 2) : r;
}

int log_put_tail(struct log *l, enum record_type type, uint32_t flags, enum commit_cause cause)
{
	struct log_record rec = { .type = type, .flags = flags, .cause = cause };
	int r;

	if (l->state == EPOCH_BROKEN)
		return -EUCLEAN;
	if (l->hold.at.seq)
		return -EBUSY;
	RULE("tail begin", epoch_is_open(l) && l->home_done);
	r = type == RECORD_RETIRED ? unguard_before(l, cause) : 0;
	if (r < 0)
		return r;
	rec.tail_seq = lag_tail_seq(l);
	r = record_put_empty(l, &rec, false);
	return r < 0 ? r : repeat_tail(l);
}

void log_accept_base(struct log *l)
{
	epoch_set(l, EPOCH_DUE);
	l->home_done = true;
	l->newest = (struct log_record){ 0 };
	if (l->wear.table) /* no record leads to the existing copies */
		wear_make_due(l->wear.table);
	l->tail_lblk = l->cursor = 0;
	l->chain_records = 0;
	checkpoint_forget(l);
	lag_begin_anew(l);
}

int log_recheck(struct log *l)
{
	_cleanup_free_ uint8_t *blk = io_alloc(COW_BLK_BYTES);
	struct log_record rec;
	struct log_super super;
	unsigned trouble;
	bool match = true, elsewhere = false;
	int r;

	if (!blk)
		return -ENOMEM;
	if (!l->newest.seq && l->super.state == SUPER_PENDING)
		return 0; /* nothing of it is on the card yet */
	if (!l->newest.seq) {
		r = super_read(l->card, l->super.external ? 0 : l->super.fs_bytes, &super,
			       &trouble);
		if (r == -ENOENT || r == -EBADMSG || r == -ERANGE || r == -EPROTONOSUPPORT)
			return -ESTALE;
		/* a failed first write has drawn a uuid that is not on the card yet */
		if (r == 0 && ((super.state == SUPER_LIVE &&
				memcmp(super.ring_uuid, l->super.ring_uuid, 16)) ||
			       super.created_s != l->super.created_s ||
			       super.log_bytes != l->super.log_bytes || /* a smaller card */
			       memcmp(super.fs_uuid, l->super.fs_uuid, 16)))
			r = -ESTALE;
		if (r == 0)
			r = ring_base_unchanged(l, &match);
		return r < 0 || match ? r : -ESTALE;
	}
	r = ring_read_same(l, record_ptr_of(&l->newest), blk, &rec);
	if (r == -EBADMSG)
		return -ESTALE;
	if (r == 0)
		r = ring_used_elsewhere(l, &elsewhere);
	if (r == 0 && elsewhere)
		return -ESTALE;
	/* after a retired record the base may change until the log is opened */
	if (r == 0 && l->newest.type == RECORD_RETIRED)
		r = ring_base_unchanged(l, &match);
	else if (r == 0 && !(l->flags & LOG_ANY_BASE))
		r = ring_base_matches(l, &l->newest, l->index, &match);
	return r < 0 || match ? r : -ESTALE;
}

int log_read_error(struct log *l, int error)
{
	return (error == -EBADMSG || error == -EUCLEAN) && log_recheck(l) == -ESTALE ? -ESTALE
										     : error;
}
