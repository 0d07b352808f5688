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
 */
#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "base/io.h"
#include "log/rules.h"

static void forget(struct log *l)
{
	log_index_unref(l->hold.index);
	l->hold = (struct hold){ 0 };
}

void hold_close(struct log *l)
{
	forget(l);
}

int hold_set(struct log *l, const struct log_record *h, struct log_index *index)
{
	forget(l);
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
	if (l->hold.at.seq && ret)
		*ret = (struct log_hold){ .seq = l->hold.at.seq,
					  .generation = l->hold.generation,
					  .time_s = l->hold.time_s,
					  .cause = l->hold.cause,
					  .ending = l->hold.ending };
	return l->hold.at.seq;
}

struct log_index *log_hold_index(const struct log *l)
{
	return l->hold.index ? log_index_ref(l->hold.index) : NULL;
}

/* An older cowfs would break the hold: it must not touch the ring. With lag the last write of a copy may not
 * be durable: two records come before the other copy is written. */
int hold_set_feature(struct log *l, bool on)
{
	int r = lag_pad(l, 2);

	if (r < 0)
		return r;
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
	uint32_t flags = (l->newest.flags & RECORD_OF_IMAGE) | RECORD_HELD;
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

	if (l->hold.at.seq)
		return -EEXIST;
	if (l->super.state == SUPER_PENDING || l->spilled || l->undecided)
		return -EBUSY;
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
	struct log_record rec = { .type = RECORD_OPEN };
	int r;

	if (!l->hold.at.seq)
		return -ENOENT;
	r = log_prepare(l);
	if (r == 0 && !l->hold.ending) {
		rec.tail_seq = lag_tail_seq(l);
		l->hold.ending = true;
		r = record_put_empty(l, &rec, false);
		l->hold.ending = r == 0;
	}
	if (r == 0)
		r = lag_pad(l, 2);
	if (r < 0)
		return r;
	forget(l);
	l->home_done = !log_index_data_blks(l->index) && !log_index_zero_blks(l->index);
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

int log_go_back(struct log *l)
{
	struct log_record rec = { .type = RECORD_OPEN };
	bool fresh;
	uint32_t salt;
	int r;

	if (!l->hold.at.seq || l->hold.ending)
		return -ENOENT;
	r = check_payload(l);
	if (r == 0)
		r = log_prepare(l);
	if (r == 0 && getrandom(&salt, sizeof(salt), 0) != sizeof(salt))
		r = -EIO;
	if (r < 0)
		return r;
	/* behind the newest record, which counts until this one is durable */
	fresh = ring_fresh_is_free(l);
	if (!fresh && l->cursor % l->seg_blks % (l->seg_blks - 1) == 0)
		return -ENOSPC;
	l->epoch = ((l->epoch >> 32) + 1) << 32 | salt;
	rec.prev = l->hold.at;
	rec.tail_seq = l->hold.tail_seq;
	rec.flags = l->hold.flags & RECORD_OF_IMAGE;
	l->hold.ending = true;
	r = record_put_empty(l, &rec, fresh);
	if (r < 0) {
		l->hold.ending = false;
		return r;
	}
	/* memory still has the generation that was left */
	epoch_set(l, EPOCH_DUE);
	epoch_set(l, EPOCH_BROKEN);
	return 0;
}
