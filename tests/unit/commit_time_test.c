/* SPDX-License-Identifier: MIT */
#include "test.h"
#include "log/wear.h"
#include "volume/commit_time.h"

#define MS 1000000ull
#define SECOND (1000 * MS)

/* but for rounding */
static void about(uint64_t n, uint64_t expected)
{
	assert_in_range(n, expected - expected / 1000, expected + expected / 1000);
}

TEST(test_nothing_known)
{
	const struct commit_times t = { 0 };

	assert_int_equal(commit_time_ns(&t, 0), 300 * MS);
	assert_int_equal(commit_time_ns(&t, 8 * MIB), 2300 * MS);
	assert_int_equal(commit_time_bytes_per_s(&t), 4 * MIB);
	assert_int_equal(commit_time_bytes(&t, 2300 * MS), 8 * MIB);
	assert_int_equal(commit_time_bytes(&t, 300 * MS), 0);
	assert_int_equal(commit_time_bytes(&t, 0), 0);
}

/* The worst of the last eight counts, and the ninth replaces the first. */
TEST(test_worst)
{
	struct commit_times t = { 0 };

	commit_time_note(&t, 0, 0, 4096, 900 * MS);
	commit_time_note(&t, 10 * MIB, 0, 10 * MIB, 10 * SECOND);
	for (unsigned i = 0; i < COMMIT_TIME_SAMPLES - 1; i++) {
		commit_time_note(&t, 64 * KIB, 0, 64 * KIB, 50 * MS);
		commit_time_note(&t, 10 * MIB, 0, 10 * MIB, SECOND);
		assert_int_equal(commit_time_ns(&t, 10 * MIB), 900 * MS + 10 * SECOND);
	}
	commit_time_note(&t, 64 * KIB, 0, 64 * KIB, 50 * MS);
	commit_time_note(&t, 10 * MIB, 0, 10 * MIB, SECOND);
	assert_int_equal(commit_time_ns(&t, 10 * MIB), 50 * MS + SECOND);
	assert_int_equal(commit_time_bytes(&t, 50 * MS + SECOND), 10 * MIB);
}

/* A commit that found most blocks unchanged says nothing about writes, unless it was slow. */
TEST(test_little_written)
{
	struct commit_times t = { 0 };

	commit_time_note(&t, 100 * MIB, 0, 1 * MIB, SECOND);
	assert_int_equal(commit_time_ns(&t, 4 * MIB), 1300 * MS);
	commit_time_note(&t, 10 * MIB, 0, 1 * MIB, 10 * SECOND);
	assert_int_equal(commit_time_ns(&t, 4 * MIB), 4300 * MS);
}

/* What arrives until the freeze has to be written, too. */
TEST(test_late)
{
	struct commit_times t = { 0 };

	commit_time_note(&t, 4 * MIB, 3 * MIB, 4 * MIB, SECOND);
	assert_int_equal(commit_time_ns(&t, MIB), 300 * MS + SECOND);
	assert_int_equal(commit_time_bytes(&t, 300 * MS + SECOND), 4 * MIB);
	assert_int_equal(commit_time_late_bytes(&t), 3 * MIB);
	for (unsigned i = 0; i < COMMIT_TIME_SAMPLES; i++)
		commit_time_note(&t, 4 * MIB, 0, 4 * MIB, SECOND);
	assert_int_equal(commit_time_bytes(&t, 300 * MS + SECOND), 4 * MIB);
	assert_int_equal(commit_time_late_bytes(&t), 0);
}

/* Of an earlier session only the speed is known, and only of commits that tell it, if it was slow. */
TEST(test_earlier_session)
{
	static struct wear_table w;
	struct commit_times t = { 0 };

	commit_time_remember(&t, &w);
	w.commit_n = 10;
	w.commit[2] = (struct wear_commit){ .n = 2, .written_bytes = MIB, .writable_ms = 1000 };
	w.commit[3] = (struct wear_commit){ .n = 3, .written_bytes = INT64_MAX, .writable_ms = 0 };
	w.commit[4] =
		(struct wear_commit){ .n = 4, .written_bytes = MIB, .writable_ms = INT64_MAX };
	w.commit[5] =
		(struct wear_commit){ .n = 5, .written_bytes = 8 * MIB, .writable_ms = 90000 };
	w.commit[6] =
		(struct wear_commit){ .n = 6, .written_bytes = 80 * MIB, .writable_ms = 1000 };
	w.commit[7] = (struct wear_commit){ .n = 7, .written_bytes = 64 * KIB, .writable_ms = 300 };
	w.commit[8] = (struct wear_commit){ .n = 72, .written_bytes = MIB, .writable_ms = 1000 };
	commit_time_remember(&t, &w);
	assert_int_equal(commit_time_ns(&t, 8 * MIB), 2300 * MS);
	assert_int_equal(t.rates, 0);
	w.commit[9] = (struct wear_commit){ .n = 9, .written_bytes = 2 * MIB, .writable_ms = 1000 };
	w.commit[10] =
		(struct wear_commit){ .n = 10, .written_bytes = 6 * MIB, .writable_ms = 2000 };
	commit_time_remember(&t, &w);
	about(commit_time_ns(&t, 8 * MIB), 4300 * MS);
	for (unsigned i = 0; i < COMMIT_TIME_SAMPLES; i++)
		commit_time_note(&t, 80 * MIB, 0, 80 * MIB, SECOND);
	assert_int_equal(commit_time_ns(&t, 80 * MIB), 1300 * MS);
}

/* The two functions are inverse, and nothing overflows. */
TEST(test_extremes)
{
	struct commit_times t = { 0 };

	commit_time_note(&t, 1 * MIB, 0, 1 * MIB, UINT64_MAX);
	assert_true(commit_time_ns(&t, 0) > 0);
	assert_true(commit_time_bytes(&t, SECOND) < MIB);
	commit_time_note(&t, UINT64_MAX, 0, UINT64_MAX, 0);
	assert_true(commit_time_bytes(&t, 600 * SECOND) < MIB);
}
