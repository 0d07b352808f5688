/* SPDX-License-Identifier: MIT */
/*
 * How long a commit would take, from what the last ones took. Pure functions.
 *
 * A commit that finds d bytes of dirty data takes fixed + (d + late) / rate. Late is what arrives until the
 * seal, mostly by its sync. All three come from the last SAMPLES commits, and the worst of them
 * counts: cards pause now and then to collect garbage, and a promise of time must hold then, too.
 */
#ifndef COWFS_VOLUME_COMMIT_TIME_H
#define COWFS_VOLUME_COMMIT_TIME_H

#include "base/util.h"

struct wear_table;

#define COMMIT_TIME_SAMPLES 8u

/* All 0: nothing is known. Then 4 MiB/s and 0.3 s are assumed. */
struct commit_times {
	uint64_t bytes_per_s[COMMIT_TIME_SAMPLES]; /* of commits of 1 MiB or more; 0: none */
	uint64_t fixed_ns[COMMIT_TIME_SAMPLES];	   /* of smaller ones */
	uint64_t late_bytes[COMMIT_TIME_SAMPLES];
	unsigned rates, fixed, late; /* number so far */
};

/* A commit of this much dirty data, late_bytes of it late, took ns until it was durable, and wrote
 * written_bytes. One that had less than half of it to write says how fast the card is only if it was
 * slow all the same. */
void commit_time_note(struct commit_times *t, uint64_t dirty_bytes, uint64_t late_bytes,
		      uint64_t written_bytes, uint64_t ns);
/* Before the first commit of a session: was the card slower than is assumed in the last ones of earlier sessions?
 * The table has what was written and how long the card was writable. Not faster: a commit takes more than that. */
void commit_time_remember(struct commit_times *t, const struct wear_table *wear);
/* Of a commit of nothing. */
uint64_t commit_time_fixed_ns(const struct commit_times *t);
uint64_t commit_time_ns(const struct commit_times *t, uint64_t dirty_bytes);
uint64_t commit_time_bytes_per_s(const struct commit_times *t);
uint64_t commit_time_late_bytes(const struct commit_times *t);
/* What can be committed in a time, with what is late; 0: not even an empty commit can. */
uint64_t commit_time_bytes(const struct commit_times *t, uint64_t ns);

#endif
