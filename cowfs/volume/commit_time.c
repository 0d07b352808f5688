/* SPDX-License-Identifier: MIT */
#include "volume/commit_time.h"

#include "commit/commit.h" /* the wear table of the log */

#define ASSUMED_BYTES_PER_S (4 * MIB)
#define ASSUMED_FIXED_NS 300000000ull
#define TELLING_BYTES (1 * MIB)
#define WAITED_BYTES_PER_S (128 * KIB) /* slower: the card was writable for something else, too */

uint64_t commit_time_bytes_per_s(const struct commit_times *t)
{
	uint64_t rate = UINT64_MAX;

	for (unsigned i = 0; i < min_u64(t->rates, COMMIT_TIME_SAMPLES); i++)
		rate = min_u64(rate, t->bytes_per_s[i]);
	return t->rates ? rate : ASSUMED_BYTES_PER_S;
}

uint64_t commit_time_fixed_ns(const struct commit_times *t)
{
	uint64_t ns = 0;

	for (unsigned i = 0; i < min_u64(t->fixed, COMMIT_TIME_SAMPLES); i++)
		ns = max_u64(ns, t->fixed_ns[i]);
	return t->fixed ? ns : ASSUMED_FIXED_NS;
}

uint64_t commit_time_late_bytes(const struct commit_times *t)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; i < COMMIT_TIME_SAMPLES; i++)
		bytes = max_u64(bytes, t->late_bytes[i]);
	return bytes;
}

void commit_time_note(struct commit_times *t, uint64_t dirty_bytes, uint64_t late_bytes,
		      uint64_t written_bytes, uint64_t ns)
{
	uint64_t rate;

	t->late_bytes[t->late++ % COMMIT_TIME_SAMPLES] = late_bytes;

	if (dirty_bytes < TELLING_BYTES) {
		t->fixed_ns[t->fixed++ % COMMIT_TIME_SAMPLES] = ns;
		return;
	}
	rate = max_u64((uint64_t)((double)dirty_bytes / (double)max_u64(ns, 1) * 1e9), 1);
	if (written_bytes >= dirty_bytes / 2 || rate < commit_time_bytes_per_s(t))
		t->bytes_per_s[t->rates++ % COMMIT_TIME_SAMPLES] = rate;
}

void commit_time_remember(struct commit_times *t, const struct wear_table *wear)
{
	uint64_t rate = ASSUMED_BYTES_PER_S, n = wear->commit_n;

	for (n -= min_u64(n, COMMIT_TIME_SAMPLES); n < wear->commit_n; n++) {
		const struct wear_commit *c = &wear->commit[(n + 1) % WEAR_COMMITS];
		uint64_t one = c->written_bytes / max_u64(c->writable_ms, 1) * 1000;

		if (c->n == n + 1 && c->written_bytes >= TELLING_BYTES && one >= WAITED_BYTES_PER_S)
			rate = min_u64(rate, one);
	}
	if (rate < ASSUMED_BYTES_PER_S)
		t->bytes_per_s[t->rates++ % COMMIT_TIME_SAMPLES] = rate;
}

uint64_t commit_time_ns(const struct commit_times *t, uint64_t dirty_bytes)
{
	return commit_time_fixed_ns(t) +
	       (uint64_t)((double)(dirty_bytes + commit_time_late_bytes(t)) /
			  (double)commit_time_bytes_per_s(t) * 1e9);
}

uint64_t commit_time_bytes(const struct commit_times *t, uint64_t ns)
{
	uint64_t fixed_ns = commit_time_fixed_ns(t);

	return ns <= fixed_ns ? 0
			      : (uint64_t)((double)(ns - fixed_ns) / 1e9 *
					   (double)commit_time_bytes_per_s(t));
}
