/* SPDX-License-Identifier: MIT */
/*
 * A trace replayed by several systems on a card that exists as a model of its time and wear (flash/model.h).
 *
 *	trace.c		reads a trace
 *	card.c		the card: contents in memory, each request priced by the model
 *	overlay.c	what an overlay in RAM holds between two commit points, and what systems of others make of it
 *	cowfs.c		the same with libcowfs: classify, plan, log, checkpoint
 *	replay.c	the program: profiles, systems, one line of JSON each
 */
#ifndef COWFS_TESTS_BENCH_REPLAY_H
#define COWFS_TESTS_BENCH_REPLAY_H

#include "card/card.h"
#include "flash/model.h"
#include "trace.h"

#define REQUEST_BYTES (1u * MIB) /* as recordings have them: the largest that a host sends */

/* ---- trace.c ---- */

struct record {
	uint64_t time_ns, off_bytes, data;
	uint32_t len_bytes;
	uint8_t op;
};

struct trace {
	const char *name;
	uint64_t volume_bytes, records;
	const uint8_t *map; /* the file */
	size_t map_bytes;
	const uint8_t *data;
	size_t data_bytes;
	int base_fd; /* -1: none */
};

void trace_open(struct trace *t, const char *name, bool contents); /* ends the program if it cannot */
void trace_close(struct trace *t);
struct record trace_at(const struct trace *t, uint64_t i);
const void *trace_data(const struct trace *t, const struct record *r); /* NULL: zeroes */

/* ---- card.c ---- */

/* The whole card, of size_bytes, with what the trace starts from at its beginning. base_fd -1: no contents at all, and reads are not
 * allowed. */
struct card *bench_card_new(struct flash_model *model, uint64_t size_bytes, int base_fd, uint64_t base_bytes);

/* ---- results ---- */

struct result {
	struct flash_stats stats; /* since the start, settled at the end */
	uint64_t read_ns;	  /* of its clock */
	uint64_t risk_ns;	  /* in which a cut leaves neither the old nor the new state */
	uint64_t commits;
	uint64_t payload_bytes; /* blocks that differ at commit points and are used, of all commits; 0: not known */
	uint64_t commit_ns;	/* cowfs: without checkpoints that follow a commit */
	uint64_t commit_bytes;
	uint64_t home_units;	/* units that the blocks of all commits live in, counted once for each commit */
	uint64_t bound_ns;	/* what bringing them home takes at least: linear, and a merge for each of them that is not whole */
	uint64_t logged_blks, direct_blks, checkpoint_blks, meta_blks;
};

/* ---- overlay.c ---- */

/* Blocks of 4 KiB that were written since the last commit point, and the order in which chunks were first touched. */
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
	uint64_t log_bytes; /* 0: as cowctl format chooses */
	bool verify;	    /* the volume is read after the last commit and compared */
	bool verbose;
};

/* each: a commit at each commit point; else one at the last. Card and model are new. *ret is what a shutdown leaves, with the log
 * holding what is not home; *ret_home what it comes to when all is brought home, as by a detach. */
void cowfs_replay(const struct trace *t, const struct flash_profile *p, bool each, const struct cowfs_options *opt,
		  struct result *ret, struct result *ret_home);
uint64_t cowfs_card_bytes(const struct flash_profile *p, uint64_t volume_bytes, uint64_t log_bytes);

void die(const char *fmt, ...) PRINTF(1, 2) __attribute__((noreturn));

#endif
