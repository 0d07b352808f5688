/* SPDX-License-Identifier: MIT */
/* The tables of `cowctl measure --tables`, as a document of JSON that text and page are made of. */
#ifndef COWFS_MEASURE_BENCH_RUN_H
#define COWFS_MEASURE_BENCH_RUN_H

#include <json-c/json.h>

#include "measure/bench_fio.h"
#include "measure/bench_target.h"

/* In this order. X(the value, the name) */
#define BENCH_TABLES(X)                                                                            \
	X(BENCH_LINEAR, "linear")                                                                  \
	X(BENCH_SEEK, "seek")                                                                      \
	X(BENCH_RANDOM, "random")                                                                  \
	X(BENCH_MIX, "mix")                                                                        \
	X(BENCH_IOZONE, "iozone")                                                                  \
	X(BENCH_FRAGMENTS, "fragments")

enum bench_table {
#define X(id, name) id,
	BENCH_TABLES(X)
#undef X
		BENCH_TABLE_COUNT
};

/* The disks that the reports compare with: random requests of 4 KiB per second. */
#define BENCH_15K_IOPS 204.0 /* Seagate ST936751SS, 15k SAS: 2.9 ms access and 2 ms latency */
#define BENCH_5400_IOPS 90.0 /* laptop disk, 5400 rpm */

struct bench_run {
	struct bench_target t;
	bool quiet;	 /* no progress */
	unsigned tables; /* 1 << enum bench_table */
	uint64_t seed;
	struct failure *f;

	/* ---- of bench_run.c */
	bool planning; /* nothing is run; steps are counted */
	unsigned step, steps;
	uint64_t read_bytes, written_bytes;
	struct json_object *doc;
};

/* Counts the steps, for the progress. Nothing is read or written. Call it before bench_run. */
void bench_plan(struct bench_run *b);
/*
 * Measures the tables; b->doc gets them. The caller puts b->doc. On failure f says why; -EINTR: a
 * signal arrived.
 */
int bench_run(struct bench_run *b, const char *fio_version) MUST_CHECK;
/* Room that the tables need in a directory, beside the tested file. */
uint64_t bench_extra_bytes(const struct bench_run *b);

/* ---- for the tables' own files ---- */

/*
 * Runs one job, the next step, whose name is shown (a printf text). *ret is undefined while
 * planning. off, len, direct, seed and fd of the job are those of the target unless they are set.
 */
int bench_step(struct bench_run *b, struct fio_job *job, struct fio_result *ret, const char *fmt,
	       ...) PRINTF(4, 5) MUST_CHECK;
/* The figures of a job as JSON, of its reads and writes together. NULL: it has none. */
struct json_object *bench_figures(const struct fio_result *r);
/* The limit of a row in the quick mode; COWFS_BENCH_ROW_MS of the environment in tests. */
uint64_t bench_quick_ms(void);
/* Notes why a table or a part of it has no figures. */
void bench_skip(struct bench_run *b, const char *table, const char *why);
/* bench_fragments.c: file-system fragmentation; only in a directory. */
int bench_fragments(struct bench_run *b) MUST_CHECK;
#define BENCH_FRAGMENTS_BYTES (64 * MIB) /* of its files */

#endif
