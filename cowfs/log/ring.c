/* SPDX-License-Identifier: MIT */
/*
 * The arithmetic of the ring: room, segments, and the stage that gathers consecutive blocks into
 * large writes.
 *
 * Reserve: payload never fills the segments of the last three erase blocks, so that an open
 * record (R3), a checkpoint-begin record and a tail record always find a fresh segment.
 */
#include "log/rules.h"

#include <errno.h>
#include <ext2fs/ext2fs.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>

#include "base/io.h"

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif

/* ---- room ---- */

uint64_t ring_fresh_segment(const struct log *l)
{
	uint64_t seg = l->newest.seq ? ring_seg(l, l->newest.lblk) + 1 : 0;

	return round_up_u64(seg, l->segs_per_eb) % l->super.seg_count;
}

/* Reaching the next erase block may skip segments; all of them must be free. */
bool ring_fresh_is_free(const struct log *l)
{
	uint64_t next = ring_seg(l, l->newest.lblk) + 1,
		 skip = round_up_u64(next, l->segs_per_eb) - next;

	return !l->newest.seq ||
	       ring_free_segments(l, next % l->super.seg_count * l->seg_blks) > skip;
}

static uint64_t cursor_if_open(const struct log *l)
{
	return epoch_is_due(l) && l->newest.seq && ring_fresh_is_free(l)
		       ? ring_fresh_segment(l) * l->seg_blks
		       : l->cursor;
}

/* Number of wholly free segments for this cursor; a segment that begins at the cursor counts. */
uint64_t ring_free_segments(const struct log *l, uint64_t cursor)
{
	uint64_t n = l->super.seg_count, first, tail;

	if (!l->newest.seq)
		return n - ring_seg(l, cursor);
	first = cursor % l->seg_blks ? ring_seg(l, cursor) + 1 : ring_seg(l, cursor);
	tail = ring_seg(l, l->tail_lblk);
	/* the cursor never stands before the tail in the segment of the tail, so equal means a
	 * full circle only if the current segment is busy */
	return (tail + n - first % n) % n;
}

static uint64_t room_at(const struct log *l, uint64_t cursor)
{
	uint64_t segs = ring_free_segments(l, cursor), reserve = RING_RESERVE_EBS * l->segs_per_eb;
	uint64_t here = cursor % l->seg_blks ? l->seg_blks - cursor % l->seg_blks : 0;

	if (segs < reserve)
		return 0;
	return here + (segs - reserve) * (l->seg_blks - 1);
}

void log_begin_fresh(struct log *l, uint64_t units, unsigned open_units, uint64_t need_blks)
{
	uint64_t lblk = ring_fresh_segment(l) * l->seg_blks;
	bool left;

	units += l->guarded.mark > l->order.record_mark;
	left = units >= open_units || !l->order.record_mark; /* or the session before has left it */
	if (!left || l->base != l->card || !l->newest.seq || !ring_fresh_is_free(l) ||
	    room_at(l, lblk) < need_blks)
		return;
	l->at.head_lblk = lblk;
}

uint64_t log_room_blks(const struct log *l)
{
	return room_at(l, cursor_if_open(l));
}

static uint64_t capacity_blks(const struct log_super *s, uint64_t segs_per_eb, bool lag)
{
	/* one segment holds the newest record; with lag another one may hold the record before */
	uint64_t kept = 1 + lag + RING_RESERVE_EBS * segs_per_eb;

	return (s->seg_count - min_u64(kept, s->seg_count)) * (s->seg_bytes / COW_BLK_BYTES - 1);
}

uint64_t log_capacity_blks(const struct log *l)
{
	if (log_holds(l, NULL)) /* no checkpoint makes room */
		return log_room_blks(l);
	return capacity_blks(&l->super, l->segs_per_eb, lag_on(l));
}

uint64_t super_capacity_blks(const struct log_super *s)
{
	return capacity_blks(s, max_u64(1, s->erase_block_bytes / s->seg_bytes), s->lag);
}

uint64_t log_meta_blks(const struct log *l, uint64_t logged_blks, uint64_t direct_blks,
		       uint64_t extents)
{
	/* an extent is split where payload leaves a segment, and where a descriptor block is
	 * full */
	uint64_t splits = logged_blks / (l->seg_blks - 1) + 1;
	uint64_t bytes = (logged_blks + direct_blks) * 4 + (extents + splits) * DESC_EXTENT_BYTES;
	uint64_t per_blk = COW_BLK_BYTES - DESC_HEADER_BYTES - 2 * DESC_EXTENT_BYTES;

	return bytes / per_blk + 1 + 1 + guarded_extra_blks(l);
}

/* ---- the stage: gathers consecutive ring blocks into large writes ---- */

int ring_stage_flush(struct log *l)
{
	unsigned n = l->stage_blks;
	int r;

	l->stage_blks = 0;
	if (!n)
		return 0;
	r = rules_ring_write(l, l->stage_lblk, n);
	if (r == 0)
		r = card_write(l->card, ring_off_bytes(l, l->stage_lblk), l->stage,
			       blk_to_bytes(n));
	rules_ring_written(l, l->stage_lblk, n);
	return r;
}

int ring_stage_put(struct log *l, uint64_t lblk, const void *data, uint64_t blks)
{
	while (blks) {
		uint64_t n;

		if (l->stage_blks &&
		    (l->stage_lblk + l->stage_blks != lblk || l->stage_blks == STAGE_BLKS)) {
			int r = ring_stage_flush(l);

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

void log_relax(struct log *l)
{
	/* Linux before 5.18 refuses this */
	madvise(l->stage, STAGE_BLKS * COW_BLK_BYTES, MADV_DONTNEED_LOCKED);
}

/* Finds the place of the next block of a group at or after *lblk. Opens the segment if *lblk is
 * its start. */
int ring_enter(struct log *l, uint64_t *lblk)
{
	uint8_t *blk;
	struct log_head h = { .epoch = l->epoch, .seg = (uint32_t)ring_seg(l, *lblk) };
	int r;

	if (*lblk % l->seg_blks)
		return 0;
	if (l->newest.seq && !ring_free_segments(l, *lblk))
		return -ENOSPC;
	blk = io_alloc(COW_BLK_BYTES);
	if (!blk)
		return -ENOMEM;
	memcpy(h.ring_uuid, l->super.ring_uuid, 16);
	l->entered_lblk = 0;
	h.serial = ++l->max_serial;
	h.last = record_ptr_of(&l->newest);
	h.fallback_seq = lag_oldest_seq(l);
	codec_put_head(blk, &h);
	r = ring_stage_put(l, *lblk, blk, 1);
	free(blk);
	l->ledger.meta_blks++;
	*lblk += 1;
	return r;
}

/* ---- accessors ---- */

const struct log_super *log_super(const struct log *l)
{
	return &l->super;
}

/* The input is random, so the hash needs no key or salt. */
void log_public_id(const struct log *l, uint8_t ret[16])
{
	static const uint8_t none[16];
	const uint8_t *uuid = l->super.ring_uuid;
	uint8_t hash[EXT2FS_SHA512_LENGTH] = { 0 };

	if (memcmp(uuid, none, sizeof(none)))
		ext2fs_sha512(uuid, sizeof(none), hash);
	memcpy(ret, hash, 16);
}

struct wear_ledger *log_ledger(struct log *l)
{
	return &l->ledger;
}

bool log_wants_open(const struct log *l)
{
	return epoch_is_due(l) || (log_older_unknown(l) && l->lag.same < 3);
}

bool log_shrink_committed(const struct log *l)
{
	return l->home != HOME_PLAIN;
}

bool log_rests(const struct log *l, enum record_type type, uint32_t flags)
{
	return !epoch_is_due(l) && l->newest.type == type && (l->newest.flags & flags) == flags &&
	       !(l->super_trouble & SUPER_COPIES_BAD);
}

void log_need_reader(struct log *l, bool needed)
{
	l->needs_reader = needed;
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

/* ---- reads while the log is opened ---- */

static volatile sig_atomic_t cancelled;

void log_cancel_open(void)
{
	cancelled = 1;
}

int ring_spend(struct log *l, enum ring_place where, uint64_t blks)
{
	uint64_t *left;

	if (!l->opening)
		return 0;
	if (cancelled)
		return -EINTR;
	left = where == IN_RING ? &l->opening->ring_blks : &l->opening->base_blks;
	if (blks > *left)
		return -E2BIG;
	*left -= blks;
	return 0;
}
