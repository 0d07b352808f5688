/* SPDX-License-Identifier: MIT */
/* Models of the published profiles. Behind cmocka.h. */
#ifndef COWFS_TESTS_FLASH_MODEL_H
#define COWFS_TESTS_FLASH_MODEL_H

#include "test.h"
#include "sim/model.h"
#include "volume/card_profile.h"
#include "flash_rows.h"

#define FOUR 4096u

static struct flash_profiles *profiles;

static inline const struct flash_profile *profile(const char *id)
{
	const struct flash_profile *p = flash_profiles_find(profiles, id);

	if (!p)
		fail_msg("no profile %s", id);
	return p;
}

static inline struct flash_model *new_model(const struct flash_profile *p, uint64_t size_bytes,
					    unsigned flags)
{
	struct flash_model *m;

	rnd_state = 1;
	assert_int_equal(flash_model_new(&m, p, size_bytes, flags), 0);
	return m;
}

static inline struct flash_stats stats(const struct flash_model *m)
{
	struct flash_stats st;

	flash_model_stats(m, &st);
	return st;
}

static inline double per_s(uint64_t n, uint64_t ns)
{
	return (double)n * 1e9 / (double)ns;
}

/* After any operations, once everything is closed, each programmed byte was erased before. */
static inline void check_conservation(struct flash_model *m, uint64_t slack_units)
{
	const struct flash_profile *p = flash_model_profile(m);
	struct flash_stats st;

	if (p->class == FLASH_DISK)
		return;
	flash_model_settle(m);
	st = stats(m);
	if ((st.erases + slack_units) * p->unit_bytes < st.programmed_bytes)
		fail_msg("%s: %llu erases of %llu bytes for %llu programmed", p->id,
			 (unsigned long long)st.erases, (unsigned long long)p->unit_bytes,
			 (unsigned long long)st.programmed_bytes);
	assert_true(st.programmed_bytes >= st.copied_bytes);
}

/* ---- the published experiments ---- */

/* flashbench's experiment: several units are written in turn, each block by block to its end; the
 * second pass counts */
static inline double open_units(const char *id, uint64_t block, unsigned units)
{
	const struct flash_profile *p = profile(id);
	struct flash_model *m = new_model(p, 0, 0);
	uint64_t bytes = 0, ns;

	for (unsigned pass = 0; pass < 2; pass++) {
		flash_model_reset(m);
		bytes = 0;
		for (uint64_t at = 0; at < p->unit_bytes; at += block)
			for (unsigned u = 0; u < units; u++, bytes += block)
				flash_model_write(m, (10 + 12 * u) * p->unit_bytes + at, block, 0);
	}
	ns = stats(m).clock_ns;
	check_conservation(m, units);
	flash_model_free(m);
	return per_s(bytes, ns) / 1e6;
}

static inline double array(const char *id, enum row_what what)
{
	const struct flash_profile *p = profile(id);
	struct flash_model *m = new_model(p, 0, 0);
	bool is_linear = what == ARRAY_LINEAR || what == ARRAY_LINEAR_READ;
	uint64_t n = 20000, blks = flash_model_size_bytes(m) / FOUR, ns, block = FOUR;

	if (is_linear) {
		n = 1000;
		block = (p->members - 1) * p->chunk_bytes * 8;
	}
	for (uint64_t i = 0; i < n; i++) {
		uint64_t at = is_linear ? i * block : rnd(blks) * FOUR;

		if (what == ARRAY_LINEAR || what == ARRAY_WRITE)
			flash_model_write(m, at, block, 0);
		else
			flash_model_read(m, at, block);
	}
	ns = what == ARRAY_READ || what == ARRAY_WRITE ? stats(m).busy_ns : stats(m).clock_ns;
	check_conservation(m, 0);
	flash_model_free(m);
	return is_linear ? per_s(n * block, ns) / 1e6 : per_s(n, ns);
}

static inline void assert_near(double got, double want, double percent)
{
	if (got < want * (1 - percent / 100) || got > want * (1 + percent / 100))
		fail_msg("%g is not within %g %% of %g", got, percent, want);
}

/* ---- rules ---- */

/* 1 MiB units, 1 ms for 4 KiB, 10 ms a MiB linear, 100 ms to copy one, 5 ms a close */
static inline struct flash_profile toy(void)
{
	struct flash_profile p = { .id = "toy",
				   .class = FLASH_CARD,
				   .has_write = true,
				   .capacity_bytes = 64 * MIB,
				   .page_bytes = 4096,
				   .unit_bytes = MIB,
				   .open_units = 2,
				   .open_random = 1,
				   .copy_bytes_per_s = 10 * MIB,
				   .merge_ns = 5000000,
				   .absorb = 1,
				   .members = 1,
				   .random_read_ns = 2000000 };

	p.write = p.read = (struct flash_speed){ .affine = true,
						 .overhead_ns = 900000,
						 .bytes_per_s = 100 * MIB };
	return p;
}

/* ---- the profile of a device ---- */

static inline int open_profiles(void **state)
{
	char why[256];

	if (flash_profiles_open(&profiles, NULL, why, sizeof(why)) == 0)
		return 0;
	fprintf(stderr, "%s\n", why);
	return -1;
}

static inline int close_profiles(void **state)
{
	flash_profiles_close(profiles);
	return 0;
}

#endif
