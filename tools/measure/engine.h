/* SPDX-License-Identifier: MIT */
/*
 * Measures a card: a schedule of requests (schedule.c), the flash model fitted to their times
 * (fit.c), and the profile that results (result.c).
 *
 * The model (sim/model.h) is a fast function of its parameters. So the recorded requests are
 * replayed through models of many structures (erase block, open units, shared log). A model says
 * for each request how many bytes the card copied and how many units it closed. The copy rate and
 * the constant of a close follow from the times beyond those of linear writes. The structure with
 * the smallest sum of absolute deviations wins. Because the deviations are not squared, single
 * stalls do not decide.
 *
 * A value is determined if two independent phases agree on it:
 * - erase block: short runs across the boundaries that candidates have (PHASE_BOUNDARY), runs of
 *   many lengths (PHASE_LENGTH), several writers at a growing distance (PHASE_STRIDE);
 * - open units: a growing number of distant writers (PHASE_WRITERS), and which run is closed by
 *   the start of another one (PHASE_BOUNDARY and PHASE_LENGTH).
 *
 * The verdict replays all requests through the model with the final profile. A profile plans
 * commits only if the time of each phase is reproduced within VERDICT_PERCENT
 * (VERDICT_SHORT_PERCENT below VERDICT_SHORT_NS), and so is the number of requests for which the
 * card closed a unit. A phase may be off by VERDICT_CLOSES closes, because it may have begun with
 * other units open.
 */
#ifndef COWFS_MEASURE_ENGINE_H
#define COWFS_MEASURE_ENGINE_H

#include <signal.h>

#include "sim/profile.h"
#include "measure/target.h"

#define VERDICT_PERCENT 10
#define VERDICT_SHORT_PERCENT 20
#define VERDICT_SHORT_NS 500000000ull
#define VERDICT_CLOSES 2
#define MEASURE_WORK_BYTES (512 * MIB) /* the part of the area that is used */
#define MEASURE_LEAST_BYTES (8 * MIB)
#define MEASURE_FULL_BYTES (256 * MIB) /* shows erase blocks and writers of any size and number */
#define MEASURE_DISCARD_UNITS 16       /* the least to see what a discard does */
#define MEASURE_LARGE 4		       /* 2, 4, 8, 16 MiB: beyond the table of a profile */
#define MEASURE_SIZES (FLASH_TABLE + MEASURE_LARGE)

#define MEASURE_PHASES(X)                                                                          \
	X(CAPACITY, "capacity")                                                                    \
	X(PRIME, "priming")                                                                        \
	X(WRITE, "linear writes")                                                                  \
	X(READ, "linear reads")                                                                    \
	X(RANDOM_READ, "random reads")                                                             \
	X(ALIGN, "reads across boundaries")                                                        \
	X(FLUSH, "flushes")                                                                        \
	X(WRITERS, "distant writers")                                                              \
	X(BOUNDARY, "runs across boundaries")                                                      \
	X(LENGTH, "runs of many lengths")                                                          \
	X(STRIDE, "writers by distance")                                                           \
	X(IN_UNIT, "random writes in units")                                                       \
	X(SCATTER, "random writes")                                                                \
	X(SCATTER_SIZE, "random writes by size")                                                   \
	X(AGAIN, "linear writes again")                                                            \
	X(DISCARD, "discards")

enum measure_phase {
#define X(id, name) PHASE_##id,
	MEASURE_PHASES(X)
#undef X
		PHASES
};

enum sample_kind { SAMPLE_READ, SAMPLE_WRITE, SAMPLE_FLUSH, SAMPLE_DISCARD };

struct sample {
	uint8_t phase, kind;
	uint64_t off_bytes, len_bytes, ns;
};

struct samples {
	struct sample *at;
	size_t n, room;
};

/* median of absolute deviations beside a middle value; n 0: not measured */
struct figure {
	double value, spread;
	unsigned n;
};

struct json_object;

struct structure {
	uint64_t unit_bytes;
	unsigned open_units, open_random, absorb;
};

struct measure_params {
	uint64_t seed;		      /* of places and data */
	uint64_t limit_ns;	      /* of a phase; 0: one minute */
	uint64_t reported_unit_bytes; /* 0: the device reports none */
	/* NULL, or called often. done and total are bytes written. */
	void (*progress)(void *ctx, const char *phase, uint64_t done_bytes, uint64_t total_bytes);
	void *ctx;
	const volatile sig_atomic_t *stop; /* NULL, or ends the measurement when it is set */
};

struct phase_verdict {
	uint64_t measured_ns, model_ns; /* of writes and flushes */
	unsigned closes;		/* requests for which the card closed a unit */
	/* by the model: all, and those that cost enough to be seen in any case */
	unsigned model_closes, model_sure;
	bool agrees;
};

struct measurement {
	struct measure_params p;
	struct target *t;
	struct samples s;
	uint64_t start_bytes, work_bytes; /* what was used of the area */
	uint64_t written_bytes, plan_bytes, took_ns;
	char why[256]; /* of a failure */

	struct figure write[MEASURE_SIZES], read[MEASURE_SIZES]; /* ns; 4 KiB << i */
	struct figure random_read[FLASH_TABLE + 1];		 /* 512 B, 4 KiB << (i - 1) */
	struct figure random_write[FLASH_TABLE];
	struct figure flush, again;
	uint64_t align_bytes; /* by reads across boundaries; 0: not determined */
	int discard;	      /* 1: empties units, 0: no effect, -1: not determined */

	unsigned writers; /* fast at the same time; 0: not determined */
	struct structure by_boundary, by_length, by_stride, best;
	bool unit_known, open_known, random_known, absorb_known, costs_known;
	bool is_flat; /* no write was slower because of where it was */
	uint64_t copy_bytes_per_s, merge_ns;
	double share; /* of the time beyond linear writes that the model explains, 0 to 1 */

	struct phase_verdict verdict[PHASES];
	bool confirmed;
	char doubt[200]; /* why not */
	struct flash_profile profile;
};

/* The number of bytes that measure_run writes at most in an area of this size. */
uint64_t measure_plan_bytes(uint64_t area_bytes);
/*
 * Measures t, which stays the caller's. On failure m->why has a sentence without the name of the
 * device, and there is no profile. -ENOSPC: the area is too small. -EINTR: stopped. -ENXIO: the
 * card does not have its capacity. -EAGAIN: it became slower. Otherwise errors of the device. The
 * caller calls measure_free in any case.
 */
int measure_run(struct measurement *m, struct target *t, const struct measure_params *p) MUST_CHECK;
void measure_free(struct measurement *m);
const char *measure_phase_name(enum measure_phase phase);

/* ---- between the parts ---- */

/* Time of a linear write by what was measured so far. */
uint64_t fit_linear_ns(const struct measurement *m, uint64_t len_bytes);
/* The best structure by the phases in this mask of 1 << phase. -ENOMEM. */
int fit_boundary(struct measurement *m) MUST_CHECK;
int fit_length(struct measurement *m) MUST_CHECK;
/* All phases together: structure, costs, profile and verdict. -ENOMEM. */
int fit_all(struct measurement *m) MUST_CHECK;

/* ---- result.c */

struct result_names {
	const char *id, *title, *source, *identity; /* of the profile; identity NULL or "": none */
};
/* The result as JSON: {"ID": profile} in the form of profiles.json. The caller puts it. */
struct json_object *result_profile(const struct measurement *m, const struct result_names *names);
/* Figures, experiments and verdict, for --json. The caller puts it. */
struct json_object *result_figures(const struct measurement *m);
void result_print(const struct measurement *m);

/* ---- names.c: a result with its names; the caller puts it */

/* The profile of this very card, which is found by its identity ("": none). */
struct json_object *names_own(const char *device, const char *identity, uint64_t start_bytes,
			      uint64_t end_bytes, const struct measurement *m);
/* The profile of every such card: no identity, serial number, name, place or path. */
struct json_object *names_shared(const char *device, const struct measurement *m);

#endif
