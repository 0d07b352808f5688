/* SPDX-License-Identifier: MIT */
/*
 * Finds the cheapest way to write the blocks of a commit that may be written in place, by the
 * profile of the card.
 *
 * The plan never affects atomicity. It decides only which of these blocks go to the log instead
 * (always allowed), and which gaps are written over (only blocks that no generation uses). Costs
 * are those of flash/profile.h. The plan assumes that each unit is closed before its first write,
 * and closed again after its last one.
 *
 *  - A unit with few blocks to write costs a merge. Appending these blocks to the log costs
 *    t_W(1 MiB) * 4 KiB / 1 MiB each, now and again when they are written home. Then everything
 *    else that went into the unit before the checkpoint shares the merge. So a unit goes to the log
 *    if appending twice is cheaper, or once, if the checkpoint visits the unit anyway. Units that
 *    save most per block come first, while the log has room. If the checkpoint follows at once,
 *    only units that it visits anyway go to the log.
 *  - A gap is bridged if writing it costs less than the jump over it: an overhead, and, on cards
 *    where a jump closes the unit, a merge. A unit that can be filled completely needs no merge.
 */
#ifndef COWFS_COMMIT_PLAN_H
#define COWFS_COMMIT_PLAN_H

#include "fs/extents.h"
#include "flash/profile.h"

struct plan_query {
	const struct flash_profile *profile;
	uint64_t disk_off_bytes; /* of block 0 on the disk that has the units */
	uint64_t volume_blks;	 /* no write reaches this block or a later one */
	const struct extents *direct;
	uint64_t log_blks; /* at most this number of them may go to the log */
	bool home_follows; /* a checkpoint comes directly after this commit */
	/* Will a checkpoint write some of these blocks, apart from those of the query? NULL: no. */
	bool (*is_visited)(void *ctx, uint64_t blk, uint64_t blks);
	/* Is the content of these blocks unused in every generation that may be read? NULL: no gap
	 * is bridged */
	int (*is_free)(void *ctx, uint64_t blk, uint64_t blks, bool *ret);
	void *ctx;
};

/* Zero-initialised; plan_clear frees. All lists ascending. */
struct plan {
	struct extents direct, logged; /* the blocks of the query, each in exactly one list */
	/* direct and the bridged gaps: everything that is written in place */
	struct extents runs;
	uint64_t ns;	/* duration in the model, including the log */
	uint64_t units; /* units with a write in place */
};

/* -ENOMEM, or what is_free returns. */
int plan_make(struct plan *ret, const struct plan_query *q) MUST_CHECK;
void plan_clear(struct plan *p);

/* For two writes in place with a gap between them: is it cheaper to write over the gap?
 * written_blks: blocks written to the unit since it was opened; run_blks: blocks after the gap.
 * False for a gap that reaches into another unit. */
bool plan_bridges(const struct flash_profile *p, uint64_t disk_off_bytes, uint64_t end_blk,
		  uint64_t next_blk, uint64_t written_blks, uint64_t run_blks);
/* Cost of this number of blocks, appended in large requests. */
uint64_t plan_append_ns(const struct flash_profile *p, uint64_t blks);

#endif
