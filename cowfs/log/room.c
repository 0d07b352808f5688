/* SPDX-License-Identifier: MIT */
/*
 * Room of the ring for measurements: whole erase blocks that no generation needs.
 *
 * - Before, a record with a copy of the whole wear table becomes the newest. Nothing in any other
 *   erase block is needed from then on, and recovery at any moment chooses this record: it has the
 *   highest floor, and what is written to the room cannot have the ring's uuid.
 * - Heads of segments are overwritten, too. A scan reads such segments as a whole, until
 *   log_scratch_end voids their heads.
 * - The largest room lies at one end of the ring. Open records move the cursor there.
 */
#include <errno.h>
#include <string.h>

#include "base/io.h"
#include "log/rules.h"

/* The larger part, in erase blocks of the ring, of those that are free, or would be if the tail
 * were in the erase block of the cursor. */
static void free_part(const struct log *l, bool tail_moves, uint32_t *ret_first, uint32_t *ret_ebs)
{
	uint32_t ebs = l->super.seg_count / l->segs_per_eb,
		 here = (uint32_t)ring_seg(l, l->newest.lblk) / l->segs_per_eb,
		 tail = tail_moves ? here : (uint32_t)ring_seg(l, l->tail_lblk) / l->segs_per_eb,
		 behind, before;

	/* the last one may be incomplete: it stays as it is */
	if (here >= ebs || tail >= ebs) {
		*ret_ebs = 0;
		return;
	}
	behind = (tail > here ? tail : ebs) - here - 1;
	before = tail > here ? 0 : tail;
	*ret_first = behind >= before ? here + 1 : 0;
	*ret_ebs = behind >= before ? behind : before;
}

static uint64_t eb_bytes(const struct log *l)
{
	return (uint64_t)l->segs_per_eb * l->super.seg_bytes;
}

#define MOVES_MAX 64 /* records; a ring of many small erase blocks is used as it is */

/* Moves the cursor to the erase block from which on most of the ring is free, if enough_bytes are
 * not free without that. */
static int go_to_the_end(struct log *l, uint64_t enough_bytes)
{
	uint32_t ebs = l->super.seg_count / l->segs_per_eb, first, free_ebs = 0;
	int r = 0;

	for (uint32_t i = 0; i < ebs && ebs <= MOVES_MAX && r == 0; i++) {
		free_part(l, true, &first, &free_ebs);
		if (free_ebs * eb_bytes(l) >= enough_bytes || free_ebs + 1 >= ebs)
			break;
		r = record_put_open(l, true);
	}
	return r;
}

/* A record with all of the wear table, and no other one needed. */
static int put_table(struct log *l)
{
	int r;

	if (l->wear.table)
		wear_make_due(l->wear.table);
	r = log_put_tail(l, RECORD_TAIL, 0, CAUSE_MANUAL);
	if (r == 0)
		r = lag_pad(l, 2);
	return r == 0 && l->wear.table && wear_due_bytes(l->wear.table) ? -ENOSPC : r;
}

int log_scratch_begin(struct log *l, uint64_t enough_bytes, struct log_scratch *ret)
{
	uint32_t first = 0, ebs = 0;
	int r;

	if (log_index_blks(l->index) || l->lag.index || l->hold.at.seq || l->spilled ||
	    l->super.state == SUPER_PENDING)
		return -EBUSY;
	r = log_prepare(l);
	l->home_done = true; /* of a virgin log, too */
	if (r == 0)
		r = go_to_the_end(l, enough_bytes);
	if (r == 0)
		r = put_table(l);
	if (r < 0)
		return r;
	free_part(l, false, &first, &ebs);
	if (!ebs)
		return -ENOSPC;
	*ret = (struct log_scratch){ .off_bytes = l->super.ring_off_bytes + first * eb_bytes(l),
				     .bytes = ebs * eb_bytes(l),
				     .first_seg = first * l->segs_per_eb,
				     .segs = ebs * l->segs_per_eb };
	return 0;
}

int log_scratch_end(struct log *l, const struct log_scratch *s, enum record_type type,
		    uint32_t flags)
{
	_cleanup_free_ uint8_t *blk = io_alloc(COW_BLK_BYTES);
	struct wear_ledger totals;
	int r = blk ? 0 : -ENOMEM;

	for (uint32_t i = s->first_seg; i < s->first_seg + s->segs && r == 0; i++) {
		r = rules_ring_write(l, i * l->seg_blks, 1);
		if (r == 0)
			r = record_void_head(l, i, blk);
	}
	if (r == 0)
		r = record_flush(l);
	if (r < 0)
		return r;
	if (l->wear.table) {
		log_totals(l, &totals);
		wear_skip_commit(l->wear.table, &totals);
	}
	return log_put_tail(l, type, flags, CAUSE_MANUAL);
}
