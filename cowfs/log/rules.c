/* SPDX-License-Identifier: MIT */
/*
 * Checks rules of docs/FORMAT.md before each write, as invariants. They use what the cards were
 * really asked to write (struct card, writes and durable_writes), not what the rest of log/
 * assumes.
 */
#include "log/rules.h"

static bool all_durable(const struct card *c)
{
	return card_is_durable(c, c->writes);
}

static bool newest_is_durable(const struct log *l)
{
	return card_is_durable(l->card, l->order.record_mark);
}

/* Does the range lie between the cursor and the segment of the tail? True as well if no block is
 * known to be busy. */
static bool is_free(const struct log *l, uint64_t lblk, uint64_t blks)
{
	uint64_t end = round_down_u64(l->tail_lblk, l->seg_blks) + l->ring_blks - l->cursor;

	if (!l->newest.seq)
		return true;
	return (lblk + l->ring_blks - l->cursor) % l->ring_blks + blks <= end % l->ring_blks;
}

int rules_ring_write(const struct log *l, uint64_t lblk, uint64_t blks)
{
	RULE("ring bounds", lblk < l->ring_blks && blks <= l->ring_blks - lblk);
	RULE("R9 ring", is_free(l, lblk, blks));
	return 0;
}

void rules_ring_written(struct log *l, uint64_t lblk, uint64_t blks)
{
	if (round_up_u64(lblk, l->seg_blks) < lblk + blks)
		l->order.head_mark = l->card->writes;
}

int rules_void_ring(const struct log *l)
{
	RULE("new life", !l->newest.seq);
	RULE("new life", !log_index_blks(l->index));
	return 0;
}

/* Does this record move the tail? A checkpoint record may have itself as its tail, but it is a
 * copy. */
static bool passes(const struct log *l, const struct log_record *rec)
{
	return l->newest.seq && rec->tail_seq > l->newest.tail_seq &&
	       rec->type != RECORD_CHECKPOINT;
}

static int check_numbers(const struct log *l, const struct log_record *rec)
{
	const struct log_record *n = &l->newest;

	RULE("R2 seq", rec->seq == l->highest_seq && rec->seq > n->seq);
	RULE("R3 open", rec->type == RECORD_OPEN || !epoch_is_due(l));
	RULE("R3 epoch", rec->epoch >> 32 >= n->epoch >> 32);
	RULE("R3 chain", rec->type == RECORD_OPEN || rec->seq == n->seq + 1 || !n->seq ||
				 l->state == EPOCH_WAIVED);
	RULE("tail order", rec->tail_seq <= rec->seq && rec->tail_seq >= n->tail_seq);
	RULE("floor order", rec->fallback_seq <= rec->floor_seq && rec->floor_seq <= rec->seq);
	/* on a card that was tampered with, n may have any fallback that is not above its seq */
	RULE("R7 fallback", rec->fallback_seq >= min_u64(n->fallback_seq, n->floor_seq));
	return 0;
}

static int check_lag(const struct log *l, const struct log_record *rec)
{
	if (!lag_on(l) || !l->newest.seq)
		return 0;
	RULE("L-fallback", !l->lag.older_seq || rec->fallback_seq <= l->lag.older_seq);
	if (l->lag.alone)
		return 0;
	RULE("L1 floor", rec->floor_seq <= l->newest.seq);
	RULE("L4 tail", !passes(l, rec) || !l->order.pads_due);
	return 0;
}

int rules_record(const struct log *l, const struct log_record *rec)
{
	int r = check_numbers(l, rec);

	if (r == 0)
		r = check_lag(l, rec);
	if (r < 0)
		return r;
	RULE("ring bounds", ring_valid(l, rec->lblk));
	RULE("R9 ring", is_free(l, rec->lblk, 1));
	RULE("settled", l->base->account.flushes && l->card->account.flushes);
	RULE("order head", card_is_durable(l->card, l->order.head_mark));
	RULE("order payload", (rec->type != RECORD_COMMIT && !lag_on(l)) ||
				      (all_durable(l->card) && all_durable(l->base)));
	RULE("G1 guard", rec->type != RECORD_COMMIT || !guarded_is_due(l));
	RULE("G1 guard", rec->type != RECORD_COMMIT || card_is_durable(l->base, l->guarded.mark));
	/* H1: the tail stays, and H2: no record that has it takes the flag away before the hold ends */
	RULE("H1 tail", !l->hold.at.seq || rec->tail_seq == l->hold.tail_seq);
	RULE("H1 run", !l->hold.at.seq || l->hold.ending || rec->flags & RECORD_HELD);
	RULE("H4 back", rec->type != RECORD_OPEN || rec->prev.seq == l->newest.seq ||
				(l->hold.going && rec->epoch >> 32 > l->newest.epoch >> 32));
	RULE("H4 back", !l->hold.going || rec->prev.seq == l->hold.at.seq);
	RULE("R9 tail", !passes(l, rec) || l->home_done);
	RULE("R9 home", !passes(l, rec) || card_is_durable(l->base, l->order.home_mark));
	return 0;
}

void rules_record_written(struct log *l)
{
	l->order.record_mark = l->card->writes;
}

int rules_record_durable(const struct log *l)
{
	RULE("order record", newest_is_durable(l));
	return 0;
}

int rules_super(const struct log *l)
{
	RULE("order super", l->newest.seq && !epoch_is_due(l) && newest_is_durable(l));
	return 0;
}

bool rules_copies_durable(const struct log *l)
{
	return card_is_durable(l->card, l->order.copy_mark[0]) &&
	       card_is_durable(l->card, l->order.copy_mark[1]);
}

int rules_copy(const struct log *l, unsigned i)
{
	const unsigned other = i ? SUPER_COPY_A_BAD : SUPER_COPY_B_BAD;

	if (l->super.state == SUPER_PENDING)
		return 0;
	RULE("settled", l->card->account.flushes);
	RULE("S1 copies", card_is_durable(l->card, l->order.copy_mark[!i]));
	RULE("S1 copies", !lag_on(l) || l->lag.alone || !l->order.copy_pads);
	RULE("S1 copies", !(l->super_trouble & other));
	return 0;
}

void rules_copy_written(struct log *l, unsigned i)
{
	l->order.copy_mark[i] = l->card->writes;
	l->order.copy_pads = lag_on(l) ? 2 : 0;
}

void rules_lost(struct log *l)
{
	if (!card_is_durable(l->base, l->order.home_mark))
		l->order.home_mark = UINT64_MAX;
}

void rules_home_empty(struct log *l)
{
	l->order.home_mark = 0;
}

int log_may_write(const struct log *l, uint64_t blk, uint64_t blks)
{
	uint64_t volume_blks = l->super.fs_bytes / COW_BLK_BYTES, n, ring_blk, end_blk;
	bool held = false;

	RULE("direct attempt", l->state == EPOCH_ATTEMPT);
	RULE("order record", newest_is_durable(l));
	RULE("direct bounds", blk && blk <= volume_blks && blks <= volume_blks - blk);
	RULE("direct guard", !l->guarded.packed_bytes || l->guarded.blk - blk >= blks);
	ring_blk = l->super.ring_off_bytes / COW_BLK_BYTES;
	end_blk = ring_blk + l->ring_blks;
	RULE("direct log", l->super.external || blk >= end_blk || blk + blks <= ring_blk);
	RULE("R10 spill", !l->spilled);
	for (uint64_t i = 0; i < blks; i += n) {
		n = log_held_run(l, blk + i, blks - i, &held);
		RULE("L3 held", !held);
	}
	return 0;
}

int rules_guard_write(const struct log *l, bool off)
{
	RULE("order record", newest_is_durable(l));
	RULE("G2 copy", guarded_is_covered(l));
	RULE("G3 home", !off || (l->guarded.copied && !log_index_blks(l->index)));
	RULE("G3 home", !off || card_is_durable(l->base, l->order.home_mark));
	return 0;
}

int rules_home_write(const struct log *l, uint64_t blk, uint64_t blks)
{
	uint64_t volume_blks = l->super.fs_bytes / COW_BLK_BYTES;

	RULE("home attempt", epoch_is_open(l));
	RULE("H1 home", !l->hold.at.seq);
	RULE("home bounds", blk <= volume_blks && blks <= volume_blks - blk);
	RULE("order checkpoint", l->newest.type != RECORD_COMMIT);
	RULE("order record", newest_is_durable(l));
	RULE("L4 candidates", !lag_on(l) || l->lag.alone || !l->lag.older_seq || l->lag.same >= 2);
	return 0;
}

void rules_home_written(struct log *l)
{
	l->order.home_mark = l->base->writes;
	l->order.pads_due = 2;
}
