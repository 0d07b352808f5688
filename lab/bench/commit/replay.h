/* SPDX-License-Identifier: MIT */
/*
 * A trace replayed by several systems on a card that exists as a model of its time and wear
 * (sim/model.h).
 *
 *	overlay.c	the content of an overlay in RAM between two commit points, and its merge by
 *			other systems
 *	cowfs.c		the same with libcowfs: classify, plan, log, checkpoint
 *	cuts.c		power cuts within a replay
 *	replay.c	the program: profiles, systems, one line of JSON each
 */
#ifndef COWFS_TESTS_BENCH_REPLAY_H
#define COWFS_TESTS_BENCH_REPLAY_H

#include "card/card.h"
#include "sim/model.h"
#include "trace_read.h"

#define REQUEST_BYTES (1u * MIB) /* as in recordings: the largest that a host sends */

/* ---- replay.c ---- */

struct trace {
	const char *name; /* NAME of NAME.trace, NAME.data and NAME.base */
	struct flash_trace *t;
	uint64_t volume_bytes, records, next;
};

/* The next record; false at the end. An error in the trace ends the program. */
bool trace_next(struct trace *t, struct flash_trace_record *ret);
/* True if trace_next has returned the last record. */
static inline bool trace_at_end(const struct trace *t)
{
	return t->next == t->records;
}

void die(const char *fmt, ...) PRINTF(1, 2) __attribute__((noreturn));

/* ---- cuts.c ---- */

struct cuts_counts {
	uint64_t cuts, found_new;
};

/* For a simulated card; cuts after every N-th of its writes (every). */
struct cuts *cuts_new(struct card *card, uint64_t volume_bytes, uint64_t every);
/* From now on a cut must find one of these two images (or the one, if they are the same). They stay
 * caller-owned, and must not change until cuts_end. */
void cuts_begin(struct cuts *c, const uint8_t *before, const uint8_t *after);
void cuts_end(struct cuts *c);
struct cuts_counts cuts_free(struct cuts *c);

/* ---- results ---- */

struct result {
	/* since the start, settled at the end; settling is not a request, so longest_ns is without
	 * it */
	struct flash_stats stats;
	uint64_t read_ns; /* on its clock */
	uint64_t risk_ns; /* time in which a cut leaves neither the old nor the new state */
	uint64_t commits;
	/* blocks that differ at commit points and are used, over all commits; 0: unknown */
	uint64_t payload_bytes;
	uint64_t commit_ns; /* cowfs: without checkpoints that follow a commit */
	uint64_t commit_bytes;
	/* units that contain the blocks of all commits, counted once per commit */
	uint64_t home_units;
	/* minimum time to write them home: linear, and a merge for each unit that is not whole */
	uint64_t bound_ns;
	/* minimum of a system that is atomic and writes everything home at each commit: blocks that
	 * the committed file system uses are written twice, the first time to a log; each unit that
	 * is not filled costs one merge, and there are two flushes */
	uint64_t atomic_ns, atomic_erases;
	uint64_t logged_blks, direct_blks, checkpoint_blks, meta_blks;
	/* cowfs: checkpoints between two commits, of checkpoint_blks */
	uint64_t idles, idle_ns, idle_blks;
	/* cowfs: rests between two commits, and over all of them: blocks that exist in the log only,
	 * and records that a start would read */
	uint64_t rests, waiting_blks, most_waiting_blks, chain_records;
	/* cowfs: trims, and blocks that they discarded */
	uint64_t trims, trimmed_blks;
	struct cuts_counts cuts;
};

/* Settles the model and takes its stats. */
void result_settle(struct result *r, struct flash_model *m);

/* ---- overlay.c ---- */

/* Blocks of 4 KiB that were written since the last commit point, and the order of the first writes
 * to chunks. */
struct overlay {
	uint64_t blks;
	uint64_t *dirty;
	uint64_t dirty_blks;
	unsigned chunk_blks;
	uint32_t *order; /* chunks */
	uint64_t n_order, room;
	uint64_t *touched;
};

void overlay_init(struct overlay *o, uint64_t volume_bytes, unsigned chunk_blks);
void overlay_free(struct overlay *o);
void overlay_write(struct overlay *o, uint64_t off_bytes, uint64_t len_bytes);
void overlay_clear(struct overlay *o);
/* Next run of dirty blocks at or after *blk; false: none. */
bool overlay_next(const struct overlay *o, uint64_t *blk, uint64_t *ret_blks);

/* In place, by block number, as cowloop's merge. */
void merge_block_order(const struct overlay *o, struct flash_model *m);
/* As dm-snapshot merges a persistent exception store. */
void merge_dm_snapshot(const struct overlay *o, struct flash_model *m);

/* ---- cowfs.c ---- */

struct cowfs_options {
	uint64_t log_bytes; /* 0: as cowctl prepare chooses */
	bool verify;	    /* the volume is read after the last commit and compared */
	bool verbose;
	uint64_t cuts_every; /* 0: no power cuts */
	/* commits are planned by this one, not by that of the card; no_plan: by none */
	const struct flash_profile *plan;
	bool no_plan;
	/* a checkpoint after each commit that leaves this part of the log full, or more */
	bool idle;
	uint64_t idle_percent;
	uint64_t every; /* only every N-th commit point counts; 0: each */
	bool trim;	/* once a week of the trace's time, behind a commit */
};

/* each: a commit at each commit point; otherwise one at the last. home: the last one is that of a
 * detach, which writes everything home; otherwise that of a shutdown, which leaves blocks in the
 * log. Card and model are new. */
void cowfs_replay(struct trace *t, const struct flash_profile *p, bool each, bool home,
		  const struct cowfs_options *opt, struct result *ret);
uint64_t cowfs_card_bytes(const struct flash_profile *p, uint64_t volume_bytes, uint64_t log_bytes);

#endif
