/* SPDX-License-Identifier: MIT */
/*
 * cowctl measure on models with a virtual clock: the published cards with write data, invented
 * ones, and cards unlike the model. COWFS_MEASURE_CARDS: number of invented cards (default 12).
 */
#include "test.h"
#include <json-c/json.h>

#include "flash_model.h"
#include "measure_card.h"

#define START (640 * MIB + 60 * KIB) /* no multiple of any erase block */
#define SPEED_PERCENT 10

static void measure(struct measurement *m, const struct flash_profile *p, const struct odd *odd,
		    uint64_t seed, int want)
{
	struct measure_params params = { .seed = seed };
	uint64_t area = min_u64(GIB, p->capacity_bytes - START - MIB);
	struct target *t = model_target(p, odd, START, round_down_u64(area, MIB), seed * 31 + 1);
	int e;

	assert_non_null(t);
	t->disk_off_bytes = seed % 3 * 4 * MIB + seed % 2 * 32 * KIB;
	t->size_bytes -= round_up_u64(t->disk_off_bytes, MIB);
	e = measure_run(m, t, &params);
	if (e != want)
		fail_msg("%s: %d instead of %d: %s", p->id, e, want, m->why);
	if (e == 0)
		assert_true(m->written_bytes <= m->plan_bytes);
	m->t = NULL;
	target_close(t);
}

static void same_speed(const struct flash_profile *p, const char *what, double got, double want)
{
	if (got < want * (1 - SPEED_PERCENT / 100.0) || got > want * (1 + SPEED_PERCENT / 100.0))
		fail_msg("%s: %s: %.0f, not within %d %% of %.0f", p->id, what, got, SPEED_PERCENT,
			 want);
}

/* Returns whether the profile may plan. */
static bool compare(const struct measurement *m, const struct flash_profile *p)
{
	const struct flash_profile *q = &m->profile;

	print_message(
		"%-28s unit %6llu KiB%s open %u%s/%u%s absorb %u%s copy %.1f of %.1f MB/s, close %.1f "
		"of %.1f ms, %.0f s, %llu MiB: %s%s\n",
		p->id, (unsigned long long)(m->best.unit_bytes / KIB), m->unit_known ? "" : "?",
		m->best.open_units, m->open_known ? "" : "?", m->best.open_random,
		m->random_known ? "" : "?", m->best.absorb, m->absorb_known ? "" : "?",
		(double)q->copy_bytes_per_s / 1e6, (double)p->copy_bytes_per_s / 1e6,
		(double)q->merge_ns / 1e6, (double)p->merge_ns / 1e6, (double)m->took_ns / 1e9,
		(unsigned long long)(m->written_bytes / MIB),
		m->confirmed ? "plans" : "no plan: ", m->doubt);
	/* exactly, or it says that it cannot */
	if (m->unit_known && m->best.unit_bytes != p->unit_bytes)
		fail_msg("%s: erase block %llu, not %llu", p->id,
			 (unsigned long long)m->best.unit_bytes, (unsigned long long)p->unit_bytes);
	if (m->open_known && m->best.open_units != p->open_units)
		fail_msg("%s: %u open units, not %u", p->id, m->best.open_units, p->open_units);
	if (m->random_known && m->best.open_random != p->open_random)
		fail_msg("%s: %u of them random, not %u", p->id, m->best.open_random,
			 p->open_random);
	for (uint64_t s = COW_BLK_BYTES; s <= MIB; s *= 2) {
		same_speed(p, "linear write", (double)flash_write_ns(q, s),
			   (double)flash_write_ns(p, s));
		same_speed(p, "linear read", (double)flash_read_ns(q, s),
			   (double)flash_read_ns(p, s));
	}
	same_speed(p, "random read", (double)q->random_read_ns, (double)p->random_read_ns);
	if (m->confirmed && m->absorb_known)
		same_speed(p, "random write", (double)flash_random_write_ns(q, COW_BLK_BYTES),
			   (double)flash_random_write_ns(p, COW_BLK_BYTES));
	return m->confirmed;
}

/* The text of a profile means the same profile. */
static void round_trip(const struct measurement *m)
{
	const struct result_names names = { "mine", "a title", "a source", "a card" };
	struct json_object *o = result_profile(m, &names);
	char path[] = "/tmp/cowfs-measured-XXXXXX", why[512];
	int fd = mkstemp(path);
	struct flash_profiles *ps;
	const struct flash_profile *p;

	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(json_object_to_file(path, o), 0);
	json_object_put(o);
	if (flash_profiles_open(&ps, path, why, sizeof(why)) < 0)
		fail_msg("%s", why);
	unlink(path);
	p = flash_profiles_find(ps, "mine");
	assert_non_null(p);
	assert_true(p->has_write);
	assert_true(p->unconfirmed == !m->confirmed);
	assert_int_equal(p->unit_bytes, m->profile.unit_bytes);
	assert_int_equal(p->open_units, m->profile.open_units);
	assert_int_equal(p->open_random, m->profile.open_random);
	assert_int_equal(p->absorb, m->profile.absorb);
	for (uint64_t s = COW_BLK_BYTES; s <= 2 * MIB; s *= 2) {
		assert_near((double)flash_write_ns(p, s), (double)flash_write_ns(&m->profile, s),
			    0.1);
		assert_near((double)flash_read_ns(p, s), (double)flash_read_ns(&m->profile, s),
			    0.1);
	}
	assert_near((double)flash_random_write_ns(p, COW_BLK_BYTES),
		    (double)flash_random_write_ns(&m->profile, COW_BLK_BYTES), 0.1);
	assert_near((double)p->sync_ns + 1000, (double)m->profile.sync_ns + 1000, 0.5);
	flash_profiles_close(ps);
}

/* ---- published cards ---- */

TEST(test_published)
{
	static struct measurement m;
	unsigned n = 0;

	for (size_t i = 0; i < flash_profiles_count(profiles); i++) {
		const struct flash_profile *p = flash_profiles_at(profiles, i);

		if (!p->has_write || p->members > 1 || p->append_bytes)
			continue;
		measure(&m, p, NULL, i, 0);
		assert_true(compare(&m, p));
		assert_true(m.unit_known && m.open_known && m.random_known && m.costs_known);
		round_trip(&m);
		assert_int_equal(m.discard, p->unit_bytes > 16 * MIB ? -1 : 1);
		measure_free(&m);
		n++;
	}
	assert_true(n >= 12);
}

/* ---- invented cards ---- */

static void invent(struct flash_profile *p, uint64_t seed)
{
	static const uint16_t kib[] = { 256,  384,  512,  1024, 1536,  2048,
					3072, 4096, 6144, 8192, 12288, 16384 };
	uint64_t *w = p->write.table_ns, *r = p->read.table_ns;

	rnd_state = seed * 977;
	*p = (struct flash_profile){ .class = FLASH_CARD,
				     .has_write = true,
				     .capacity_bytes = 4 * GIB,
				     .page_bytes = 4096,
				     .wear = FLASH_WEAR_DYNAMIC,
				     .spare_ppm = 30000,
				     .members = 1 };
	snprintf(p->id, sizeof(p->id), "invented-%llu", (unsigned long long)seed);
	p->unit_bytes = kib[rnd(ARRAY_SIZE(kib))] * KIB;
	p->open_units = (unsigned)(1 + rnd(9));
	p->open_random = (unsigned)(rnd(3) ? 1 + rnd(p->open_units) : 0);
	p->absorb = (unsigned)(rnd(2) ? 1 : 8 + rnd(100));
	if (p->absorb > 1 && !p->open_random)
		p->open_random = 1;
	p->copy_bytes_per_s = (5 + rnd(50)) * 1000000;
	p->merge_ns = rnd(2) * rnd(60) * 1000000;
	p->sync_ns = (int64_t)(rnd(2) * rnd(15) * 1000000);
	w[0] = 300000 + rnd(2000000);
	r[0] = 150000 + rnd(500000);
	for (unsigned i = 1; i < FLASH_TABLE; i++) {
		w[i] = w[i - 1] + w[i - 1] * rnd(90) / 100;
		r[i] = r[i - 1] + r[i - 1] * (20 + rnd(70)) / 100;
	}
	p->random_read_ns = r[0] + rnd(500000);
}

TEST(test_invented)
{
	static struct measurement m;
	const char *text = getenv("COWFS_MEASURE_CARDS");
	unsigned n = text ? (unsigned)atoi(text) : 12, known = 0, plans = 0;

	for (unsigned i = 1; i <= n; i++) {
		struct flash_profile p;
		struct odd odd = { .noise = i % 3 == 0 ? 0.08 : 0 };

		invent(&p, i);
		measure(&m, &p, &odd, i, 0);
		plans += compare(&m, &p);
		known += m.unit_known && m.open_known;
		measure_free(&m);
	}
	print_message("%u of %u with erase block and open units, %u plan\n", known, n, plans);
	assert_true(known * 4 >= n * 3);
	assert_true(plans * 4 >= n * 3);
}

/* ---- cards that are unlike the model ---- */

/* Each write takes the same time anywhere: there is no erase block to be found. */
TEST(test_ssd)
{
	struct odd odd = { .constant_ns = 200000 };
	static struct measurement m;

	measure(&m, profile("lexar-300x-8g"), &odd, 1, 0);
	compare(&m, &m.profile);
	assert_true(m.is_flat && !m.unit_known && !m.open_known && m.confirmed);
	assert_true(flash_merge_ns(&m.profile, 0) < 1000000);
	measure_free(&m);
}

TEST(test_stalls)
{
	struct odd odd = { .stall_every_bytes = 300 * KIB, .stall_ns = 150000000 };
	static struct measurement m;

	measure(&m, profile("lexar-300x-8g"), &odd, 2, 0);
	assert_true(!m.unit_known || m.best.unit_bytes == 2 * MIB);
	assert_false(m.confirmed);
	assert_true(*m.doubt);
	measure_free(&m);
}

TEST(test_spikes)
{
	struct odd odd = { .noise = 0.1, .spikes = 0.005, .spike_ns = 40000000 };
	static struct measurement m;

	for (unsigned seed = 1; seed <= 3; seed++) {
		measure(&m, profile("x-flashbench-readme"), &odd, seed, 0);
		compare(&m, profile("x-flashbench-readme"));
		measure_free(&m);
	}
}

/* Reads across a boundary of erase blocks take longer: the third method, which writes nothing. */
TEST(test_align)
{
	struct odd odd = { .boundary_ns = 150000, .noise = 0.02 };
	static struct measurement m;

	measure(&m, profile("lexar-300x-8g"), &odd, 1, 0);
	assert_int_equal(m.align_bytes, 2 * MIB);
	measure_free(&m);
	odd.boundary_ns = 0;
	measure(&m, profile("lexar-300x-8g"), &odd, 1, 0);
	assert_int_equal(m.align_bytes, 0);
	measure_free(&m);
}

/* So much noise that little can be said: nothing wrong may be said. */
TEST(test_noise)
{
	static const struct odd odds[] = {
		{ .noise = 0.5 },
		{ .noise = 0.2, .spikes = 0.05, .spike_ns = 60000000 },
		{ .noise = 0.3, .stall_every_bytes = 4 * MIB, .stall_ns = 100000000 },
		{ .constant_ns = 300000, .noise = 0.3, .spikes = 0.02, .spike_ns = 50000000 },
	};
	static struct measurement m;
	unsigned wrong = 0;

	for (unsigned seed = 6; seed < 14; seed++) {
		struct flash_profile p;

		invent(&p, 100 + seed);
		measure(&m, &p, &odds[seed % 4], seed, 0);
		print_message("%s: unit %llu KiB%s of %llu, open %u%s of %u, %s%s\n", p.id,
			      (unsigned long long)(m.best.unit_bytes / KIB),
			      m.unit_known ? "" : "?", (unsigned long long)(p.unit_bytes / KIB),
			      m.best.open_units, m.open_known ? "" : "?", p.open_units,
			      m.confirmed ? "plans" : "no plan: ", m.doubt);
		wrong += m.unit_known &&
			 (odds[seed % 4].constant_ns || m.best.unit_bytes != p.unit_bytes);
		wrong += m.open_known && m.best.open_units != p.open_units;
		measure_free(&m);
	}
	assert_int_equal(wrong, 0);
}

/* ---- bad input ---- */

TEST(test_bad)
{
	static const struct {
		struct odd odd;
		int e;
		const char *why;
	} cases[] = {
		{ { .no_writes = true }, -EROFS, "a write at" },
		{ { .dies_after_bytes = 600 * MIB }, -EIO, "a write at" },
		{ { .hot_after_bytes = 620 * MIB }, -EAGAIN, "it may be hot" },
		{ { .real_bytes = GIB }, -ENXIO, "lies about its capacity" },
		{ { .real_bytes = 256 * MIB }, -ENXIO, "lies about its capacity" },
		{ { .real_bytes = 700 * MIB + 36 * KIB }, -ENXIO, "lies about its capacity" },
		{ { .lost_behind = START + 300 * MIB }, -ENXIO, "does not keep its data" },
	};
	static struct measurement m;

	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		measure(&m, profile("lexar-300x-8g"), &cases[i].odd, i, cases[i].e);
		if (!strstr(m.why, cases[i].why))
			fail_msg("case %u: %s", i, m.why);
		assert_false(m.confirmed);
		measure_free(&m);
	}
}

TEST(test_area)
{
	static struct measurement m;
	struct measure_params params = { .seed = 1 };
	struct target *t = model_target(profile("lexar-300x-8g"), NULL, GIB, 4 * MIB, 1);

	assert_int_equal(measure_run(&m, t, &params), -ENOSPC);
	measure_free(&m);
	/* a card that wraps inside of the area: nothing lies below it */
	((struct model_target *)t)->odd.real_bytes = 512 * MIB;
	t->start_bytes = 0;
	t->end_bytes = GIB;
	assert_int_equal(measure_run(&m, t, &params), -ENXIO);
	assert_non_null(strstr(m.why, "appeared at 512 MiB"));
	measure_free(&m);
	/* at any size, on a card that is measured from its start */
	for (uint64_t real = 600 * MIB; real < 7 * GIB; real += 1234567 * KIB / 4 * 4) {
		((struct model_target *)t)->odd.real_bytes = round_down_u64(real, COW_BLK_BYTES);
		((struct model_target *)t)->written_bytes = 0;
		((struct model_target *)t)->tags = 0;
		t->end_bytes = 7 * GIB;
		assert_int_equal(measure_run(&m, t, &params), -ENXIO);
		measure_free(&m);
	}
	((struct model_target *)t)->odd.real_bytes = 0;
	((struct model_target *)t)->written_bytes = 0;
	((struct model_target *)t)->tags = 0;
	t->start_bytes = GIB;
	t->end_bytes = GIB + 4 * MIB;
	/* never outside of the area */
	assert_int_equal(target_write(t, GIB - COW_BLK_BYTES, NULL, COW_BLK_BYTES), -EINVAL);
	assert_int_equal(target_write(t, GIB + 4 * MIB, NULL, COW_BLK_BYTES), -EINVAL);
	t->end_bytes = GIB + 64 * MIB;
	assert_int_equal(measure_run(&m, t, &params), 0);
	assert_true(m.unit_known && m.best.unit_bytes == 2 * MIB);
	measure_free(&m);
	target_close(t);
}

/* The room of a log: what a small area cannot tell is said to be unknown, and never wrong. */
TEST(test_small_areas)
{
	static const unsigned mib[] = { 8, 28, 64 };
	static struct measurement m;
	struct measure_params params = { .seed = 1 };

	for (size_t i = 0; i < flash_profiles_count(profiles); i++) {
		const struct flash_profile *p = flash_profiles_at(profiles, i);

		if (!p->has_write || p->members > 1 || p->append_bytes)
			continue;
		for (unsigned k = 0; k < ARRAY_SIZE(mib); k++) {
			struct target *t = model_target(p, NULL, GIB, mib[k] * MIB, 1);

			assert_non_null(t);
			assert_int_equal(measure_run(&m, t, &params), 0);
			print_message("%u MiB: ", mib[k]);
			(void)compare(&m, p);
			measure_free(&m);
			target_close(t);
		}
	}
}

/* ---- the check of the capacity ---- */

static volatile sig_atomic_t stopped;

static void stop_when_primed(void *ctx, const char *phase, uint64_t done, uint64_t total)
{
	stopped = !strcmp(phase, "priming");
}

/* What another area still holds says nothing about the capacity. */
TEST(test_other_area)
{
	static struct measurement m;
	struct measure_params params = { .seed = 1,
					 .progress = stop_when_primed,
					 .stop = &stopped };
	struct target *t = model_target(profile("lexar-300x-8g"), NULL, GIB, GIB, 1);

	assert_int_equal(measure_run(&m, t, &params), -EINTR);
	measure_free(&m);
	((struct model_target *)t)->written_bytes = 0;
	t->start_bytes = 3 * GIB;
	t->end_bytes = 4 * GIB;
	assert_int_equal(measure_run(&m, t, &params), -EINTR);
	measure_free(&m);
	target_close(t);
}

/* A card that wraps gets back what lay outside of the area, also when it is stopped at once. */
TEST(test_stopped)
{
	static struct measurement m;
	static const unsigned char zeros[COW_BLK_BYTES];
	unsigned char back[COW_BLK_BYTES];
	struct odd odd = { .real_bytes = 256 * MIB };
	struct measure_params params = { .seed = 1, .stop = &stopped };
	struct target *t = model_target(profile("lexar-300x-8g"), &odd, GIB, 64 * MIB, 1);

	stopped = 1;
	assert_int_equal(measure_run(&m, t, &params), -EINTR);
	assert_true(m.written_bytes > 0);
	measure_free(&m);
	assert_true(target_read(t, 64 * MIB - COW_BLK_BYTES, back, sizeof(back)) >= 0);
	assert_memory_equal(back, zeros, sizeof(back));
	target_close(t);
}

TEST_GROUP(open_profiles, close_profiles)
