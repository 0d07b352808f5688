/* SPDX-License-Identifier: MIT */
/*
 * Finds the cheapest way to write the blocks of a commit that may be written in place, by the
 * profile of the card.
 *
 * The plan never affects atomicity. It decides only which of these blocks go to the log instead
 * (always allowed), and which gaps are written over (only blocks that no generation uses). Costs
 * are those of flash/costs.h. The plan assumes that each unit is closed before its first write,
 * and closed again after its last one.
 *
 *  - A unit with few blocks to write costs a merge. Blocks that go to the log instead are appended
 *    now and written home later, in requests like those in place. What that saves is the merge, if
 *    they share the later one: with blocks of the log that a checkpoint writes to the unit anyway,
 *    or with those of the commits until then. Units that save most per block come first, while the
 *    log has room. If the checkpoint follows at once, only units that it visits anyway go to the
 *    log.
 *  - A card with a shared log (absorb > 1) gathers the blocks of several commits by itself. There
 *    only the last commit of a session, and one that is larger than such a log, fills gaps, and
 *    moves blocks to the log if no checkpoint follows.
 *  - A gap is bridged if one request over it costs less than two, and, on cards where a jump closes
 *    the unit, a merge. A unit that can be filled completely needs no merge.
 */
#ifndef COWFS_COMMIT_PLAN_H
#define COWFS_COMMIT_PLAN_H

#include "fs/extents.h"
#include "flash/costs.h"

struct plan_query {
	const struct card_costs *profile;
	uint64_t disk_off_bytes; /* of block 0 on the disk that has the units */
	uint64_t volume_blks;	 /* no write reaches this block or a later one */
	const struct extents *direct;
	uint64_t log_blks; /* at most this number of them may go to the log */
	bool home_follows; /* a checkpoint comes directly after this commit */
	bool last;	   /* of a session: a shutdown or a detach */
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

/* May gaps be filled at all? last: this is the last commit of a session, or its checkpoint; blks: of
 * the commit. */
bool plan_fills(const struct card_costs *p, bool last, uint64_t blks);
/* Behind writes to so many other units one is closed. 0: not known, or the card gathers small writes. */
unsigned plan_open_units(const struct card_costs *p);
/* For two writes in place with a gap between them: is it cheaper to write over the gap?
 * run_blks: length of the run that ends at the gap; next_blks: of the one behind it. False for a gap
 * that reaches into another unit. */
bool plan_bridges(const struct card_costs *p, uint64_t disk_off_bytes, uint64_t end_blk,
		  uint64_t next_blk, uint64_t run_blks, uint64_t next_blks);
/* Cost of this number of blocks, appended in large requests. */
uint64_t plan_append_ns(const struct card_costs *p, uint64_t blks);

#endif
