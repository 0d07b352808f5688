/* SPDX-License-Identifier: MIT */
#include "volume/commit_time.h"

#define ASSUMED_BYTES_PER_S (4 * MIB)
#define ASSUMED_FIXED_NS 300000000ull
#define TELLING_BYTES (1 * MIB)

static uint64_t rate_of(const struct commit_times *t)
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

static uint64_t rate_of_one(uint64_t bytes, uint64_t ns)
{
	return max_u64((uint64_t)((double)bytes / (double)max_u64(ns, 1) * 1e9), 1);
}

static void note_rate(struct commit_times *t, uint64_t bytes, uint64_t ns)
{
	t->bytes_per_s[t->rates++ % COMMIT_TIME_SAMPLES] = rate_of_one(bytes, ns);
}

void commit_time_note(struct commit_times *t, uint64_t dirty_bytes, uint64_t late_bytes,
		      uint64_t written_bytes, uint64_t ns)
{
	t->late_bytes[t->late++ % COMMIT_TIME_SAMPLES] = late_bytes;

	if (dirty_bytes < TELLING_BYTES) {
		t->fixed_ns[t->fixed++ % COMMIT_TIME_SAMPLES] = ns;
		return;
	}
	/* what it would have taken for little data is not the card's speed */
	ns -= min_u64(commit_time_fixed_ns(t), ns / 2);
	if (written_bytes >= dirty_bytes / 2 || rate_of_one(dirty_bytes, ns) < rate_of(t))
		note_rate(t, dirty_bytes, ns);
}

void commit_time_remember(struct commit_times *t, const struct wear_table *wear)
{
	uint64_t bytes = 0, ns = 0, n = wear->commit_n;

	for (n -= min_u64(n, COMMIT_TIME_SAMPLES); n < wear->commit_n; n++) {
		const struct wear_commit *c = &wear->commit[(n + 1) % WEAR_COMMITS];

		if (c->n == n + 1 && c->written_bytes >= TELLING_BYTES) {
			bytes += c->written_bytes;
			ns += c->writable_ms * 1000000;
		}
	}
	if (bytes && ns)
		note_rate(t, bytes, ns);
}

uint64_t commit_time_ns(const struct commit_times *t, uint64_t dirty_bytes)
{
	return commit_time_fixed_ns(t) +
	       (uint64_t)((double)(dirty_bytes + commit_time_late_bytes(t)) / (double)rate_of(t) *
			  1e9);
}

uint64_t commit_time_bytes(const struct commit_times *t, uint64_t ns)
{
	uint64_t fixed_ns = commit_time_fixed_ns(t);

	return ns <= fixed_ns ? 0 : (uint64_t)((double)(ns - fixed_ns) / 1e9 * (double)rate_of(t));
}
