/* SPDX-License-Identifier: MIT */
/*
 * A commit's group in the ring.
 *
 * Order, and why (docs/FORMAT.md has the argument):
 * 	direct blocks, payload, descriptors | FLUSH | record | FLUSH
 * A readable record says that all it speaks of is durable. Until the record is durable nothing that
 * the newest generation uses was written: direct targets are free in it, and the ring space used is
 * behind the cursor.
 */
#include <errno.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/io.h"
#include "log/escape.h"
#include "log/rules.h"

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
				desc_seal(&a->writer, l->super.ring_uuid, l->epoch, a->seq,
					  (uint32_t)a->desc_blks - 1);
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

static int note(struct log *l, enum desc_type type, uint64_t blk, uint64_t blks, uint64_t lblk,
		const uint32_t *crc)
{
	int r = index_list_add(&l->at.list, ring_index_kind(type), blk, blks, lblk, crc);

	for (uint64_t i = 0; i < blks && r == 0;) {
		struct desc_extent e = {
			.type = type, .blk = blk + i, .lblk = lblk + i, .crc = crc ? crc + i : NULL
		};

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

void log_set_mark(struct log *l, struct log_mark *to)
{
	l->mark = to;
	if (to) {
		to->last_epoch = l->epoch;
		to->last_seq = l->highest_seq;
		mark_sound(to, &l->newest);
	}
}

/* A death between two of these stores leaves none. */
void mark_sound(struct log_mark *m, const struct log_record *rec)
{
	m->sound_seq = 0;
	m->sound_epoch = rec->epoch;
	m->sound_seq = rec->seq;
}

bool log_is_beyond(const struct log *l, const struct log_mark *mark)
{
	return l->newest.seq > mark->last_seq || l->newest.epoch > mark->last_epoch;
}

bool log_reached(const struct log *l, const struct log_mark *mark)
{
	return mark->seq && l->newest.seq == mark->seq && l->newest.epoch == mark->epoch &&
	       l->newest.type == RECORD_COMMIT;
}

/* What was found may be in the cache of the card only: the last session ended by an error, and the power stayed on. The
 * next heads, records and answers declare it durable. */
int log_settle(struct log *l)
{
	int r = l->settled ? 0 : record_flush(l);

	l->settled |= r == 0;
	return r;
}

int log_begin(struct log *l)
{
	int r;

	if (l->state == EPOCH_BROKEN)
		return -EUCLEAN;
	RULE("attempt begin", l->state == EPOCH_OPEN && !l->super_due);
	r = guarded_begin(l);
	if (r < 0)
		return r;
	attempt_clear(&l->at);
	l->stage_blks = 0;
	if (l->mark)
		l->mark->seq = 0;
	epoch_set(l, EPOCH_ATTEMPT);
	l->at.seq = ++l->highest_seq; /* R2: counted even if the attempt fails */
	l->at.head_lblk = l->cursor;
	return 0;
}

static void crc_of_blocks(uint64_t blks, const uint8_t *data, uint32_t *crc)
{
	for (uint64_t i = 0; i < blks; i++)
		crc[i] = crc32c_back(data + blk_to_bytes(i), COW_BLK_BYTES);
}

/* Escapes: no content enters the ring that a scan could take for a block of the log. */
static int put_payload(struct log *l, uint64_t lblk, const uint8_t *data, uint64_t blks)
{
	uint8_t escaped[COW_BLK_BYTES];
	uint64_t from = 0;
	int r = 0;

	for (uint64_t i = 0; i < blks && r == 0; i++) {
		if (!escape_needed(data + blk_to_bytes(i)))
			continue;
		memcpy(escaped, data + blk_to_bytes(i), sizeof(escaped));
		escape_put(escaped);
		r = ring_stage_put(l, lblk + from, data + blk_to_bytes(from), i - from);
		if (r == 0)
			r = ring_stage_put(l, lblk + i, escaped, 1);
		from = i + 1;
	}
	return r == 0 ? ring_stage_put(l, lblk + from, data + blk_to_bytes(from), blks - from) : r;
}

int log_add_logged(struct log *l, uint64_t blk, uint64_t blks, const void *data)
{
	struct attempt *a = &l->at;
	uint32_t crc[STAGE_BLKS];

	RULE("attempt", l->state == EPOCH_ATTEMPT && blks <= STAGE_BLKS);
	crc_of_blocks(blks, data, crc);
	for (uint64_t i = 0; i < blks;) {
		uint64_t n;
		int r = ring_enter(l, &a->head_lblk);

		if (r < 0)
			return r;
		if (!a->start_lblk)
			a->start_lblk = a->head_lblk;
		n = min_u64(blks - i, l->seg_blks - a->head_lblk % l->seg_blks);
		r = put_payload(l, a->head_lblk, (const uint8_t *)data + blk_to_bytes(i), n);
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
	RULE("attempt", l->state == EPOCH_ATTEMPT);
	l->at.zero_blks += blks;
	return note(l, DESC_ZERO, blk, blks, 0, NULL);
}

int log_add_spilled(struct log *l, uint64_t blk, uint64_t blks, uint64_t to_blk, const void *data)
{
	uint32_t crc[STAGE_BLKS];
	int r;

	/* one spill at a time: before its tail, nothing may target the blocks of an older one
	 * (R10) */
	RULE("attempt", l->state == EPOCH_ATTEMPT && blks <= STAGE_BLKS);
	RULE("H1 spill", !l->hold.at.seq);
	r = log_may_write(l, to_blk, blks);
	crc_of_blocks(blks, data, crc);
	if (r == 0)
		r = card_write(l->base, blk_to_bytes(to_blk), data, blk_to_bytes(blks));
	if (r < 0)
		return r;
	l->at.logged_blks += blks;
	l->at.spilled_blks += blks;
	return note(l, DESC_SPILLED, blk, blks, to_blk, crc);
}

int log_add_direct(struct log *l, uint64_t blk, uint64_t blks, const void *data)
{
	uint32_t crc[STAGE_BLKS];

	RULE("attempt", l->state == EPOCH_ATTEMPT && blks <= STAGE_BLKS);
	crc_of_blocks(blks, data, crc);
	sample_note_direct(l, blk, blks, data, crc);
	l->at.direct_blks += blks;
	return note(l, DESC_DIRECT, blk, blks, 0, crc);
}

/* Puts one block of log metadata after the group. */
static int put_meta(struct log *l, const void *blk, uint64_t *ret_lblk)
{
	struct attempt *a = &l->at;
	int r = ring_enter(l, &a->head_lblk);

	if (r < 0)
		return r;
	if (!a->start_lblk)
		a->start_lblk = a->head_lblk;
	*ret_lblk = a->head_lblk;
	a->head_lblk = (a->head_lblk + 1) % l->ring_blks;
	l->ledger.meta_blks++;
	return ring_stage_put(l, *ret_lblk, blk, 1);
}

static int put_descriptors(struct log *l, struct log_record *rec)
{
	struct attempt *a = &l->at;

	if (a->desc_blks)
		desc_seal(&a->writer, l->super.ring_uuid, l->epoch, a->seq,
			  (uint32_t)a->desc_blks - 1);
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

static void count_commit(struct wear_ledger *w, const struct attempt *a, enum commit_cause cause)
{
	w->commits++;
	w->cause_commits[cause - 1]++;
	w->direct_blks += a->direct_blks;
	w->logged_blks += a->logged_blks;
	w->zero_blks += a->zero_blks;
	w->spilled_blks += a->spilled_blks;
}

/* The record failed: undoes the commit's counters, because log_abort counts the blocks. What the
 * write of the record counted stays. */
static void uncount_commit(struct wear_ledger *w, const struct wear_ledger *before)
{
	w->commits = before->commits;
	memcpy(w->cause_commits, before->cause_commits, sizeof(w->cause_commits));
	w->direct_blks = before->direct_blks;
	w->logged_blks = before->logged_blks;
	w->zero_blks = before->zero_blks;
	w->spilled_blks = before->spilled_blks;
}

/* What the log will have in memory: allocated before the record, after which nothing may fail. */
struct next {
	struct log_index *ix, *left, *direct;
};

static void next_free(struct next *n)
{
	log_index_unref(n->direct);
	log_index_unref(n->left);
	log_index_unref(n->ix);
}

static int next_new(struct log *l, struct next *ret)
{
	struct attempt *a = &l->at;
	int r = index_list_overlay(&ret->ix, l->index, &a->list, l->base, l->card,
				   l->super.ring_off_bytes);

	if (r == 0 && l->left)
		r = index_list_overlay(&ret->left, l->left, &a->list, l->base, l->card,
				       l->super.ring_off_bytes);
	return r == 0 ? lag_direct_set(l, &ret->direct) : r;
}

/* Everything that the record names, and a FLUSH behind it. */
static int end_payload(struct log *l, struct log_record *rec, struct next *next)
{
	struct attempt *a = &l->at;
	int r = guarded_log_first(l);

	if (r == 0)
		r = put_descriptors(l, rec);
	if (r == 0)
		r = wearlog_put_blocks(l, rec, &a->head_lblk);
	if (r == 0 && !a->start_lblk)
		a->start_lblk = rec->wear.lblk;
	if (r == 0)
		r = ring_enter(l, &a->head_lblk);
	if (r == 0)
		r = ring_stage_flush(l);
	if (r == 0)
		r = next_new(l, next);
	return r == 0 ? record_flush(l) : r;
}

static void fill_record(const struct log *l, struct log_record *rec)
{
	const struct attempt *a = &l->at;

	rec->start_lblk = a->start_lblk ? a->start_lblk : a->head_lblk;
	rec->prev = record_ptr_of(&l->newest);
	rec->tail_seq = lag_tail_seq(l);
	rec->tail_seq = rec->tail_seq ? rec->tail_seq : rec->seq;
	rec->desc_epoch = l->epoch;
	rec->desc_seq = a->seq;
	rec->direct_blks = a->direct_blks;
	rec->logged_blks = a->logged_blks;
	rec->zero_blks = a->zero_blks;
}

/* The record, durable. */
static int end_record(struct log *l, struct log_record *rec)
{
	struct wear_ledger before = l->ledger;
	int r;

	count_commit(&l->ledger, &l->at, rec->cause);
	if (l->mark) {
		l->mark->epoch = l->epoch;
		l->mark->seq = rec->seq;
	}
	r = record_write(l, rec, l->at.head_lblk);
	if (r < 0)
		uncount_commit(&l->ledger, &before);
	return r;
}

/* The generation is on the card. Takes next. */
static void end_accept(struct log *l, const struct log_record *rec, struct next *next)
{
	struct attempt *a = &l->at;

	epoch_set(l, EPOCH_OPEN);
	record_accept(l, rec);
	if (l->mark)
		l->mark->newest = rec->seq;
	lag_note_direct(l, next->direct);
	l->spilled |= a->spilled_blks > 0;
	l->lag.spilled |= a->spilled_blks > 0;
	l->home_done = !rec->logged_blks && !a->zero_blks && l->home_done;
	l->doubt = false;
	log_index_unref(l->index);
	l->index = next->ix;
	log_index_unref(l->left);
	l->left = next->left;
	attempt_clear(a);
}

int log_end(struct log *l, enum commit_cause cause, uint32_t flags, struct log_index **ret_index)
{
	struct log_record rec = {
		.type = RECORD_COMMIT, .cause = cause, .flags = flags, .seq = l->at.seq
	};
	struct next next = { 0 };
	int r;

	RULE("attempt",
	     l->state == EPOCH_ATTEMPT && cause >= CAUSE_MANUAL && cause <= CAUSE_RECOVER);
	r = end_payload(l, &rec, &next);
	if (r == 0) {
		fill_record(l, &rec);
		r = end_record(l, &rec);
	}
	if (r < 0) {
		next_free(&next);
		return r;
	}
	end_accept(l, &rec, &next);
	*ret_index = log_index_ref(l->index);
	return 0;
}

void log_abort(struct log *l)
{
	/* the direct and log writes of the attempt reached the card, so they count */
	l->ledger.direct_blks += l->at.direct_blks;
	l->ledger.logged_blks += l->at.logged_blks;
	l->ledger.spilled_blks += l->at.spilled_blks;
	l->ledger.commits_failed++;
	attempt_clear(&l->at);
	wearlog_settled(l, NULL);
	guarded_failed(l);
	l->stage_blks = 0;
	epoch_set(l, EPOCH_DUE);
	l->doubt = l->suspect = l->lag.cold = true;
	/* L5: its record may be on the card, behind those that have one image */
	l->lag.same = 0;
	checkpoint_forget(l);
}

bool log_spilled(const struct log *l)
{
	return l->spilled;
}

bool log_doubt(const struct log *l)
{
	return l->doubt;
}
