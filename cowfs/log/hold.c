/* SPDX-License-Identifier: MIT */
/*
 * A generation that is held: it stays complete while newer ones are committed, and the log can go
 * back to it. docs/FORMAT.md, "A held generation", has the rules.
 *
 * Records from the held one (H) on have a flag. H is the oldest of the uninterrupted run of records
 * with this flag that ends with the newest one. While H is held there is no checkpoint, so that no
 * block that H reads at home changes, and the tail stays. H is a commit of its own, without blocks
 * but the superblock, so that the log has something, and the superblock has the guard.
 *
 * With lag the record that ends the hold may be lost: nothing is written home before two more
 * records are durable.
 *
 * Going back is a flag of the newest record. Whoever opens the log then finds H as the newest
 * generation, and the first record of that session has H as the record that it builds on.
 */
#include <errno.h>
#include <string.h>

#include "base/io.h"
#include "log/rules.h"

void hold_forget(struct log *l)
{
	log_index_unref(l->hold.index);
	l->hold = (struct hold){ 0 };
}

int hold_set(struct log *l, const struct log_record *h, struct log_index *index)
{
	hold_forget(l);
	l->hold = (struct hold){ .at = { h->seq, h->epoch, h->lblk },
				 .tail_seq = h->tail_seq,
				 .flags = h->flags,
				 .generation = h->ledger.commits,
				 .time_s = h->time_s,
				 .cause = h->cause,
				 .index = index };
	/* the tail must not pass H, even if nothing waits in the log */
	l->home_done = false;
	return index ? 0 : -ENOMEM;
}

bool log_holds(const struct log *l, struct log_hold *ret)
{
	bool holds = l->hold.at.seq && !l->hold.going;

	if (holds && ret)
		*ret = (struct log_hold){ .seq = l->hold.at.seq,
					  .generation = l->hold.generation,
					  .time_s = l->hold.time_s,
					  .cause = l->hold.cause,
					  .back = l->hold.back,
					  .trial = l->hold.boots,
					  .boots = l->hold.boots ? l->hold.boots - 1 : 0 };
	return holds;
}

struct log_index *log_hold_index(const struct log *l)
{
	return log_holds(l, NULL) ? log_index_ref(l->hold.index) : NULL;
}

/* An older cowfs would break the hold: it must not touch the ring. */
int hold_set_feature(struct log *l, bool on)
{
	l->super.incompat &= ~LOG_INCOMPAT_HELD;
	l->super.incompat |= on ? LOG_INCOMPAT_HELD : 0;
	l->super_due = true;
	return record_write_super(l);
}

bool hold_feature_is_stale(const struct log *l)
{
	return l->super.state == SUPER_LIVE && l->super.incompat & LOG_INCOMPAT_HELD &&
	       !l->hold.at.seq;
}

static int put_held(struct log *l, struct log_index **ret_index)
{
	uint32_t flags = (l->newest.flags & RECORD_UNREAD) | RECORD_HELD;
	int r = log_begin(l);

	if (r < 0)
		return r;
	r = log_end(l, CAUSE_MANUAL, flags, ret_index);
	if (r < 0) {
		log_abort(l);
		return r;
	}
	return hold_set(l, &l->newest, log_index_ref(l->index));
}

int log_hold(struct log *l, struct log_index **ret_index)
{
	int r;

	if (log_holds(l, NULL))
		return -EEXIST;
	if (l->super.state == SUPER_PENDING || l->spilled)
		return -EBUSY;
	l->super.offered_s = 0; /* of a trial that has failed */
	r = log_prepare(l);
	if (r == 0 && log_meta_blks(l, 0, 0, 1) > log_room_blks(l))
		r = -ENOSPC;
	if (r == 0)
		r = hold_set_feature(l, true);
	if (r < 0) {
		/* the next write of the superblock takes it away */
		l->super.incompat &= ~LOG_INCOMPAT_HELD;
		return r;
	}
	/* the feature of a hold that was not made goes with the next job that writes */
	r = put_held(l, ret_index);
	/* L1: a candidate does not read back what its own blocks replace, and those of H are needed */
	return r == 0 ? lag_pad(l, 2) : r;
}

int log_release(struct log *l)
{
	int r;

	if (!log_holds(l, NULL))
		return -ENOENT;
	r = log_prepare(l);
	if (r == 0 && !l->hold.ending) {
		l->hold.ending = true;
		r = record_put_open(l, false);
		l->hold.ending = r == 0;
	}
	if (r == 0)
		r = lag_pad(l, 2);
	if (r < 0)
		return r;
	hold_forget(l);
	l->super.imported_s = max_u64(l->super.imported_s, l->super.offered_s);
	l->super.offered_s = 0;
	l->home_done = !log_index_blks(l->index);
	return hold_set_feature(l, false);
}

/* All that H reads from the log. */
static int check_payload(struct log *l)
{
	_cleanup_free_ uint8_t *buf = io_alloc(COW_BLK_BYTES);
	struct index_entry e;
	int r = buf ? 0 : -ENOMEM;

	for (size_t i = 0; r == 0 && log_index_extent(l->hold.index, i, &e); i++)
		for (uint64_t k = 0; e.kind != INDEX_ZERO && k < e.blks && r == 0; k++)
			r = log_index_read(l->hold.index, e.blk + k, 1, buf);
	return r;
}

static bool holds_firmly(const struct log *l)
{
	return l->hold.at.seq && !l->hold.ending && !l->hold.going;
}

/* A record with what memory says about the hold. With lag the card may lose it: two more make it durable. */
static int put_order(struct log *l, bool back, unsigned boots)
{
	const struct hold was = l->hold;
	int r = log_prepare(l);

	/* behind it comes the record that goes back, and the tail of that */
	if (r == 0 && !record_has_room(l, 3))
		r = -ENOSPC;
	if (r < 0)
		return r;
	l->hold.back = back;
	l->hold.boots = boots;
	r = record_put_open(l, false);
	if (r == 0)
		r = lag_pad(l, 2);
	if (r < 0) { /* it may be on the card: the next record has what memory has */
		l->hold.back = was.back;
		l->hold.boots = was.boots;
	}
	return r;
}

int log_go_back(struct log *l, bool on)
{
	int r = holds_firmly(l) ? 0 : -ENOENT;

	if (r == 0 && on)
		r = check_payload(l);
	return r == 0 ? put_order(l, on, l->hold.boots) : r;
}

int log_try(struct log *l, unsigned boots)
{
	return holds_firmly(l) ? put_order(l, false, boots + 1) : -ENOENT;
}

int log_put_order(struct log *l, const struct log_hold *h)
{
	return holds_firmly(l) ? put_order(l, h->back, h->trial ? h->boots + 1 : 0) : -ENOENT;
}

uint32_t hold_flags(const struct log *l)
{
	if (!l->hold.at.seq || l->hold.ending)
		return 0;
	return RECORD_HELD | (l->hold.back ? (uint32_t)RECORD_BACK : 0) |
	       (uint32_t)l->hold.boots << RECORD_BOOTS_SHIFT;
}

void hold_open_record(struct log *l, struct log_record *rec)
{
	if (!l->hold.going)
		return;
	rec->prev = l->hold.at;
	rec->flags = l->hold.flags & RECORD_UNREAD;
	l->hold.ending = true;
}

void hold_went_back(struct log *l, bool durable)
{
	if (l->hold.going && durable)
		hold_forget(l);
}
