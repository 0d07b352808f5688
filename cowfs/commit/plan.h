/* SPDX-License-Identifier: MIT */
/*
 * The cheapest way to write the blocks of a commit that could be written in place, by the profile
 * of the card.
 *
 * Never at the price of atomicity: what is decided here is only which of them go to the log instead
 * (always allowed), and over which gaps a write goes on (only blocks that no generation uses).
 * Prices are those of flash/profile.h; what is assumed of the card's state is that each unit is
 * closed when the plan comes to it, and closed again after its last write.
 *
 *  - A unit whose blocks are few costs a merge. To append them to the log costs t_W(1 MiB) * 4 KiB
 *  / 1 MiB each, now and
 *    again when they go home; the merge then is shared with whatever else went into that unit until
 *    the checkpoint. So a unit goes to the log where that is cheaper even twice; once, if the
 *    checkpoint will visit that unit anyway. Those that save most per block first, as far as the
 *    log has room. If the checkpoint follows at once, only units that it visits anyway. - A gap is
 *    bridged where to write it costs less than what the jump over it does: an overhead, and on
 *    cards where a jump closes the unit, a merge. A unit that can be filled as a whole needs no
 *    merge at all.
 */
#ifndef COWFS_COMMIT_PLAN_H
#define COWFS_COMMIT_PLAN_H

#include "fs/extents.h"
#include "flash/profile.h"

struct plan_query {
	const struct flash_profile *profile;
	uint64_t disk_off_bytes; /* of block 0 on the disk whose units these are */
	uint64_t volume_blks;	 /* nothing is written from here on */
	const struct extents *direct;
	uint64_t log_blks; /* so many of them may go to the log */
	bool home_follows; /* a checkpoint comes right behind this commit */
	/* Will a checkpoint write some of these blocks, those of the query apart? NULL: it will
	 * not. */
	bool (*is_visited)(void *ctx, uint64_t blk, uint64_t blks);
	/* Is the content of these blocks of no use to any generation that may be read? NULL: no gap
	 * is */
	int (*is_free)(void *ctx, uint64_t blk, uint64_t blks, bool *ret);
	void *ctx;
};

/* Zero-initialised; plan_clear frees. All lists ascending. */
struct plan {
	struct extents direct, logged; /* the query's blocks, each in one of the two */
	/* direct and the gaps that are bridged: what is written in place */
	struct extents runs;
	uint64_t ns;	/* what the model says that takes, log included */
	uint64_t units; /* that get a write in place */
};

/* -ENOMEM, or what is_free returns. */
int plan_make(struct plan *ret, const struct plan_query *q) MUST_CHECK;
void plan_clear(struct plan *p);

/* Of two writes in place with a gap between them: does it pay to go on over it? written_blks: what
 * the unit has got since it was opened; run_blks: behind the gap. Gaps that reach into another unit
 * never do. */
bool plan_bridges(const struct flash_profile *p, uint64_t disk_off_bytes, uint64_t end_blk,
		  uint64_t next_blk, uint64_t written_blks, uint64_t run_blks);
/* So many blocks, appended in large requests. */
uint64_t plan_append_ns(const struct flash_profile *p, uint64_t blks);

#endif
