/* SPDX-License-Identifier: MIT */
/* The flash model: against published figures (flash_rows.h), then the rules of model.h, then
 * profiles. */
#include "test.h"
#include "sim/model.h"
#include "volume/card_profile.h"
#include "flash_rows.h"
#include "flash_model.h"

/* ---- rules ---- */

static struct flash_profile p;
static struct flash_model *m;

/* A model of p as it is now. */
static void remake(unsigned flags)
{
	flash_model_free(m);
	m = new_model(&p, 0, flags);
}

static int one_toy(void **state)
{
	p = toy();
	remake(0);
	return 0;
}

static int freed(void **state)
{
	flash_model_free(m);
	m = NULL;
	return 0;
}

#define MS 1000000ull
#define T_W(len) (900000 + (len)*1000000000ull / (100 * MIB))
#define MERGE(new) ((MIB - (new)) * 1000000000ull / (10 * MIB) + 5 * MS)

TEST(test_merges, one_toy, freed)
{
	/* two units stay open at no cost, a third closes the older one */
	assert_int_equal(flash_model_write(m, 0, 64 * KIB, 0), T_W(64 * KIB));
	assert_int_equal(flash_model_write(m, MIB, 4 * KIB, 0), T_W(4 * KIB));
	/* and the next write makes unit 0 the younger one */
	assert_int_equal(flash_model_write(m, 64 * KIB, 64 * KIB, 0), T_W(64 * KIB));
	assert_int_equal(flash_model_write(m, 2 * MIB, 4 * KIB, 0), T_W(4 * KIB) + MERGE(4 * KIB));
	assert_int_equal(stats(m).partial_merges, 1);
	assert_int_equal(stats(m).erases, 1);
	assert_int_equal(stats(m).copied_bytes, MIB - 4 * KIB);
	/* a jump makes unit 0 random; the next random one closes it */
	assert_int_equal(flash_model_write(m, 512 * KIB, 4 * KIB, 0), T_W(4 * KIB));
	assert_int_equal(flash_model_write(m, 2 * MIB + 8 * KIB, 4 * KIB, 0),
			 T_W(4 * KIB) + MERGE(132 * KIB));
	assert_int_equal(stats(m).full_merges, 1);
	assert_int_equal(stats(m).erases, 3);
	/* a block written twice counts once */
	assert_int_equal(flash_model_write(m, 2 * MIB + 8 * KIB, 4 * KIB, 0), T_W(4 * KIB));
	assert_int_equal(flash_model_settle(m), MERGE(8 * KIB));
	assert_int_equal(stats(m).programmed_bytes, stats(m).written_bytes + stats(m).copied_bytes);
}

TEST(test_switch, one_toy, freed)
{
	uint64_t ns = 0;

	for (unsigned i = 0; i < 64; i++) /* four units, linear */
		ns += flash_model_write(m, i * 64 * KIB, 64 * KIB, 0);
	assert_int_equal(ns, 64 * T_W(64 * KIB));
	assert_int_equal(stats(m).switch_merges, 4);
	assert_int_equal(stats(m).erases, 4);
	assert_int_equal(stats(m).copied_bytes, 0);
	/* pushed out by units that it does not continue into */
	assert_int_equal(flash_model_write(m, 10 * MIB, 4 * KIB, 0), T_W(4 * KIB));
	assert_int_equal(flash_model_write(m, 20 * MIB, 4 * KIB, 0), T_W(4 * KIB) + 5 * MS);

	remake(0); /* a whole unit, out of order */
	flash_model_write(m, 512 * KIB, 512 * KIB, 0);
	assert_int_equal(flash_model_write(m, 0, 512 * KIB, 0), T_W(512 * KIB) + 5 * MS);
	assert_int_equal(stats(m).full_merges, 1);
	assert_int_equal(stats(m).erases, 2);

	p.open_random = 0; /* a jump closes */
	remake(0);
	flash_model_write(m, 0, 64 * KIB, 0);
	assert_int_equal(flash_model_write(m, 512 * KIB, 4 * KIB, 0),
			 T_W(4 * KIB) + MERGE(64 * KIB));
}

/* Rewritten in place until the log of the unit is full */
TEST(test_rewrites, one_toy, freed)
{
	for (unsigned i = 0; i < MIB / FOUR; i++)
		assert_int_equal(flash_model_write(m, 0, FOUR, 0), T_W(FOUR));
	assert_int_equal(stats(m).erases, 0);
	assert_int_equal(flash_model_write(m, 0, FOUR, 0), T_W(FOUR) + MERGE(FOUR));
	assert_int_equal(stats(m).erases, 2);
}

/* A log of 512 blocks that units share */
TEST(test_absorb, one_toy, freed)
{
	uint64_t ns = 0;
	unsigned i;

	p.absorb = 2;
	remake(0);
	for (i = 0; i < 512; i++) /* 9 blocks of units 1 to 32, 8 of the others */
		assert_int_equal(
			flash_model_write(m, (1 + i % 60) * MIB + (1 + i / 60) * 8 * KIB, FOUR, 0),
			T_W(FOUR));
	assert_int_equal(stats(m).erases, 512 * FOUR / MIB);
	/* full: unit 1 makes room for 9 */
	for (; i < 512 + 10; i++)
		assert_int_equal(flash_model_write(m, 61 * MIB + i * 8 * KIB % MIB, FOUR, 0),
				 T_W(FOUR) + (i == 512 || i == 521 ? MERGE(0) : 0));
	assert_int_equal(stats(m).absorbed_writes, 522);
	assert_int_equal(stats(m).full_merges, 2);
	assert_int_equal(stats(m).erases, 4);
	/* blocks without content take no room, and need no merge */
	flash_model_discard(m, 0, 64 * MIB);
	assert_int_equal(flash_model_settle(m), 0);
	/* a stream that stays in one unit pays each time that it has filled the log */
	flash_model_reset(m);
	for (i = 0; i < 5120; i++)
		flash_model_write(m, 5 * MIB + (i * 37 % 128) * 8 * KIB, FOUR, 0);
	assert_int_equal(stats(m).full_merges, 9);

	/* streams are distinguished from scattered writes, several at a time: 60 KiB of each are in
	 * the log */
	remake(0);
	for (i = 0; i < 256; i++)
		for (unsigned k = 0; k < 2; k++)
			ns += flash_model_write(m, (50 + 2 * k) * MIB + i * FOUR, FOUR, 0);
	assert_int_equal(ns, 512 * T_W(FOUR));
	assert_int_equal(stats(m).absorbed_writes, 30);
	assert_int_equal(stats(m).switch_merges, 2);
	/* nothing in the log; two whole units are pushed out */
	assert_int_equal(flash_model_settle(m), 10 * MS);
	/* a large write is not scattered, nor is a whole unit */
	flash_model_write(m, 10 * MIB, 516 * KIB, 0);
	flash_model_write(m, 20 * MIB, MIB, 0);
	assert_int_equal(stats(m).absorbed_writes, 30);
	check_conservation(m, 1);
}

TEST(test_reads, one_toy, freed)
{
	assert_int_equal(flash_model_read(m, 8 * MIB, FOUR), 2000000);
	assert_int_equal(flash_model_read(m, 8 * MIB + FOUR, FOUR), T_W(FOUR));
	assert_int_equal(flash_model_read(m, 8 * MIB, 64 * KIB),
			 2000000 + T_W(64 * KIB) - T_W(FOUR));
	assert_int_equal(flash_model_read(m, 64 * MIB - FOUR, MIB), 2000000); /* cut at the end */
	assert_int_equal(flash_model_read(m, 64 * MIB, FOUR), 0);
	assert_int_equal(stats(m).reads, 4);
	assert_int_equal(stats(m).read_bytes, 3 * FOUR + 64 * KIB);
	assert_int_equal(stats(m).longest_ns, 2000000 + T_W(64 * KIB) - T_W(FOUR));
}

TEST(test_sync, one_toy, freed)
{
	p.sync_ns = 3 * MS;
	p.alloc_ns = MS;
	remake(0);
	assert_int_equal(flash_model_flush(m), 0); /* nothing written */
	flash_model_write(m, 0, FOUR, 0);
	assert_int_equal(flash_model_flush(m), 3 * MS);
	assert_int_equal(flash_model_flush(m), 0);
	assert_int_equal(flash_model_write(m, FOUR, FOUR, FLASH_SYNC), T_W(FOUR) + 3 * MS);
	assert_int_equal(flash_model_write(m, 2 * FOUR, FOUR, FLASH_SYNC | FLASH_ALLOC),
			 T_W(FOUR) + 4 * MS);
	assert_int_equal(flash_model_flush(m), 0);
	assert_int_equal(stats(m).flushes, 4);
	flash_model_wait(m, 7 * MS);
	assert_int_equal(stats(m).clock_ns, 3 * T_W(FOUR) + 17 * MS);
	assert_int_equal(stats(m).busy_ns, 3 * T_W(FOUR) + 10 * MS);
}

TEST(test_fresh_and_discard, one_toy, freed)
{
	remake(FLASH_FRESH);
	p.open_units = 1;
	flash_model_write(m, 0, FOUR, 0);
	assert_int_equal(flash_model_settle(m), 5 * MS); /* nothing to copy */
	flash_model_write(m, FOUR, FOUR, 0);
	assert_int_equal(flash_model_settle(m), MERGE(FOUR));
	flash_model_discard(m, FOUR, MIB - FOUR); /* not the whole unit */
	flash_model_write(m, FOUR, FOUR, 0);
	assert_int_equal(flash_model_settle(m), MERGE(FOUR));
	flash_model_write(m, FOUR, FOUR, 0);
	flash_model_discard(m, 0, MIB);
	assert_int_equal(flash_model_settle(m), 0);
	flash_model_write(m, FOUR, FOUR, 0);
	assert_int_equal(flash_model_settle(m), 5 * MS);
	assert_int_equal(stats(m).discards, 2);
	check_conservation(m, 0);
}

/* A block-mapped unit needs no copy once no block of it is valid, however it came to this. */
TEST(test_discard_in_parts, one_toy, freed)
{
	p.open_units = 1;
	flash_model_discard(m, 100, FOUR); /* touches two blocks, and has none */
	flash_model_discard(m, FOUR, MIB - FOUR);
	flash_model_write(m, MIB - FOUR, FOUR, 0);
	assert_int_equal(flash_model_settle(m), MERGE(FOUR)); /* block 0 is valid */
	flash_model_discard(m, 0, FOUR);
	flash_model_write(m, MIB - FOUR, FOUR, 0);
	assert_int_equal(flash_model_settle(m), 5 * MS);
	/* what was discarded while the unit is open is not copied */
	flash_model_write(m, 0, MIB, 0);
	flash_model_write(m, 0, 8 * KIB, 0);
	flash_model_discard(m, 8 * KIB, MIB - 8 * KIB);
	assert_int_equal(flash_model_settle(m), 5 * MS);
	/* and one of which nothing is left is not closed */
	flash_model_write(m, 0, FOUR, 0);
	flash_model_discard(m, 0, 8 * KIB);
	assert_int_equal(flash_model_settle(m), 0);
	check_conservation(m, 0);
}

/* A page-mapped card copies valid blocks, and erases for what it copies. */
TEST(test_discard_page_mapped, one_toy, freed)
{
	struct flash_stats st;

	p.absorb = 2;
	remake(0);
	for (unsigned unit = 0; unit < 4; unit++) /* a quarter of the blocks stay valid */
		for (unsigned i = 0; i < 256; i += 4)
			flash_model_discard(m, unit * MIB + i * FOUR, 3 * FOUR);
	for (unsigned unit = 0; unit < 4; unit++)
		flash_model_write(m, unit * MIB + 8 * KIB, FOUR, 0);
	flash_model_settle(m);
	st = stats(m);
	assert_int_equal(st.full_merges, 4);
	assert_int_equal(st.copied_bytes, 4 * (MIB / 4 + FOUR)); /* with the one from the log */
	assert_int_equal(st.programmed_bytes, st.copied_bytes + 4 * FOUR);
	assert_int_equal(st.erases, 1);
	/* and so does a stream in a unit of its own */
	flash_model_write(m, 5 * MIB, MIB / 2 + FOUR, 0);
	flash_model_discard(m, 5 * MIB + 600 * KIB, 300 * KIB);
	flash_model_settle(m);
	assert_int_equal(stats(m).copied_bytes - st.copied_bytes, MIB / 2 - FOUR - 300 * KIB);
}

TEST(test_discard_takes_time, one_toy, freed)
{
	p.discard_us = 2000;
	remake(0);
	assert_int_equal(flash_model_discard(m, 0, 4 * MIB), 8 * MS);
	assert_int_equal(flash_model_discard(m, MIB - FOUR, 2 * FOUR), 4 * MS);
	assert_int_equal(flash_model_discard(m, 100, FOUR - 100), 0);
	assert_int_equal(stats(m).clock_ns, 12 * MS);
	assert_int_equal(stats(m).longest_ns, 8 * MS);
}

TEST(test_cheat_and_front, one_toy, freed)
{
	uint64_t small = 0, large = 0;

	p.cheat_bytes = 4 * MIB;
	p.front_bytes = 2 * MIB;
	p.front_write = p.front_read = (struct flash_speed){ .affine = true, .bytes_per_s = MIB };
	remake(0);
	assert_int_equal(flash_model_write(m, MIB + 8 * KIB, MIB / 2, 0), 500 * MS);
	assert_int_equal(flash_model_read(m, MIB, MIB), 1000 * MS);
	for (unsigned i = 0; i < 4000; i++) /* until all of it is in the cache */
		flash_model_write(m, 8 * MIB + rnd(900) * FOUR, FOUR, 0);
	for (unsigned i = 0; i < 4000; i++)
		small = max_u64(small, flash_model_write(m, 8 * MIB + rnd(900) * FOUR, FOUR, 0));
	for (unsigned i = 0; i < 4000; i++)
		large += flash_model_write(m, 8 * MIB + rnd(10000) * FOUR, FOUR, 0);
	assert_int_equal(small, T_W(FOUR));
	assert_true(large / 4000 > MERGE(FOUR) / 2);
	check_conservation(m, 1);
}

static uint64_t hammer(unsigned n, struct flash_stats *ret)
{
	remake(0);
	for (unsigned i = 0; i < n; i++) /* two units in turn, a third one to push them out */
		flash_model_write(m, (i % 3) * MIB + 512 * KIB, FOUR, 0);
	*ret = stats(m);
	return flash_model_unit_erases(m, 1);
}

TEST(test_wear, one_toy, freed)
{
	struct flash_stats none, zone, dynamic, global;
	uint64_t caused;

	p.spare_ppm = 60000; /* 3 of 64 */
	p.zone_bytes = 16 * MIB;
	p.wear = FLASH_WEAR_NONE;
	caused = hammer(3000, &none);
	assert_int_equal(none.hottest_erases, none.worst_erases);
	assert_in_range(caused, none.erases / 3 - 2, none.erases / 3 + 2);
	p.wear = FLASH_WEAR_ZONE;
	hammer(3000, &zone);
	p.wear = FLASH_WEAR_DYNAMIC;
	hammer(3000, &dynamic);
	p.wear = FLASH_WEAR_GLOBAL;
	hammer(3000, &global);
	assert_int_equal(none.erases, dynamic.erases);
	assert_true(none.worst_erases > zone.worst_erases);
	assert_true(zone.worst_erases > dynamic.worst_erases);
	assert_true(dynamic.worst_erases > 2 * global.worst_erases);
	assert_true(global.worst_erases >= global.erases / 67);
	assert_true(global.copied_bytes > dynamic.copied_bytes);
}

TEST(test_worn_out, one_toy, freed)
{
	static const enum flash_wear modes[] = { FLASH_WEAR_NONE, FLASH_WEAR_ZONE,
						 FLASH_WEAR_DYNAMIC, FLASH_WEAR_GLOBAL };

	for (size_t k = 0; k < ARRAY_SIZE(modes); k++) {
		struct flash_stats st;
		unsigned n = 0;

		p.wear = modes[k];
		p.zone_bytes = 16 * MIB;
		p.spare_ppm = 60000;
		p.erase_limit = 100;
		remake(0);
		while (!stats(m).read_only && n < 10000000)
			flash_model_write(m, (n++ % 3) * MIB + 512 * KIB, FOUR, 0);
		st = stats(m);
		assert_true(st.read_only);
		assert_true(st.bad_units > 0);
		assert_in_range(st.worst_erases, 75, 127);
		flash_model_write(m, 0, MIB, 0);
		assert_int_equal(stats(m).programmed_bytes, st.programmed_bytes);
		assert_int_equal(stats(m).erases, st.erases);
	}
}

TEST(test_disk, one_toy, freed)
{
	uint64_t blks, ns = 0;

	p = *profile("hdd-wd7500ayys");
	remake(0);
	blks = flash_model_size_bytes(m) / FOUR;
	for (unsigned i = 0; i < 20000; i++)
		ns += flash_model_read(m, rnd(blks) * FOUR, FOUR);
	assert_near((double)ns / 20000 / 1e6, 8.9 + 4.2, 2);
	/* the next track, the other end, and no seek at all; rates at both edges */
	flash_model_read(m, 0, FOUR);
	assert_near((double)flash_model_read(m, MIB, FOUR) / 1e6, 0.6 + 4.2, 10);
	flash_model_read(m, 0, FOUR);
	assert_near((double)flash_model_read(m, (blks - 1) * FOUR, FOUR) / 1e6, 12.0 + 4.2, 2);
	flash_model_read(m, 0, FOUR);
	assert_near((double)flash_model_read(m, FOUR, 85000000) / 1e9, 1, 1);
	flash_model_read(m, (blks - 30000) * FOUR, FOUR);
	assert_near((double)flash_model_read(m, (blks - 29999) * FOUR, 60000000) / 1e9, 1, 1);
	assert_int_equal(stats(m).erases, 0);
}

/* Four toys: the time of one request, and the time of all of them side by side */
TEST(test_array, one_toy, freed)
{
	uint64_t one = MS / 10; /* of the bridge; the time of a member is added */

	p.members = 4, p.chunk_bytes = 64 * KIB, p.bridge_ns = one, p.raid_level = 5;
	remake(0);
	assert_int_equal(flash_model_read(m, 0, FOUR), one + 2 * MS);
	/* four at once; and a row of three chunks is one chunk of each member */
	assert_int_equal(flash_model_read(m, MIB + MIB / 2, 192 * KIB),
			 one + 2 * MS + T_W(64 * KIB) - T_W(FOUR));
	/* old data and parity, then new data and parity */
	assert_int_equal(flash_model_write(m, 12 * MIB, FOUR, 0), 2 * one + 2 * MS + T_W(FOUR));
	assert_int_equal(stats(m).programmed_bytes, 2 * FOUR);
	assert_int_equal(flash_model_write(m, 192 * KIB, 192 * KIB, 0), one + T_W(64 * KIB));
	assert_int_equal(stats(m).programmed_bytes, 2 * FOUR + 4 * 64 * KIB);
	assert_int_equal(stats(m).written_bytes, FOUR + 192 * KIB);

	p.raid_level = 10;
	remake(0);
	for (unsigned i = 0; i < 8; i++) /* one pair, which takes turns */
		flash_model_read(m, (2 * i + 1) * 128 * KIB, FOUR);
	assert_int_equal(stats(m).clock_ns, 8 * (one + 2 * MS));
	assert_int_equal(stats(m).busy_ns, 4 * (one + 2 * MS));
	flash_model_reset(m);
	assert_int_equal(flash_model_write(m, 0, FOUR, 0), one + T_W(FOUR));
	assert_int_equal(stats(m).programmed_bytes, 2 * FOUR);

	p.raid_level = 0;
	p.bus_bytes_per_s = MIB;
	remake(0);
	assert_int_equal(flash_model_write(m, 0, MIB, 0), 1000 * MS); /* the bus */
	assert_int_equal(stats(m).programmed_bytes, MIB);
}

/* A clone continues as its original; so does a copy for estimates, and it leaves the original
 * alone. */
TEST(test_clone)
{
	static const char *const ids[] = { "lexar-300x-8g", "sandisk-ultra-4g", "samsung-raid5-4",
					   "hdd-wd7500ayys", "transcend-ts8gcf266-mft" };

	for (size_t k = 0; k < ARRAY_SIZE(ids); k++) {
		struct flash_model *of = new_model(profile(ids[k]), GIB, 0), *c, *est;
		struct flash_stats before, a, b;
		uint64_t ns[3] = { 0 };

		for (unsigned i = 0; i < 3000; i++)
			flash_model_write(of, rnd(GIB / FOUR) * FOUR, FOUR * (1 + i % 5), 0);
		assert_int_equal(flash_model_clone(&c, of), 0);
		est = new_model(profile(ids[k]), GIB, FLASH_NO_WEAR);
		assert_int_equal(flash_model_copy(est, of), 0);
		assert_int_equal(flash_model_copy(of, est), -EINVAL);
		before = stats(of);
		for (unsigned t = 0; t < 3; t++) {
			struct flash_model *to = t == 0 ? est : t == 1 ? c : of;

			if (t == 1)
				assert_memory_equal(&before,
						    &(struct flash_stats[]){ stats(of) }[0],
						    sizeof(before));
			rnd_begin(7);
			for (unsigned i = 0; i < 3000; i++)
				ns[t] += flash_model_write(to, rnd(GIB / FOUR) * FOUR,
							   FOUR * (1 + i % 5), 0);
			ns[t] += flash_model_settle(to);
		}
		assert_int_equal(ns[0], ns[1]);
		assert_int_equal(ns[1], ns[2]);
		a = stats(c), b = stats(of);
		assert_memory_equal(&a, &b, sizeof(a));
		flash_model_free(of), flash_model_free(c), flash_model_free(est);
	}
}

/* Random requests of all kinds to each profile: the account stays complete. */
TEST(test_conservation)
{
	for (size_t k = 0; k < flash_profiles_count(profiles); k++) {
		const struct flash_profile *of = flash_profiles_at(profiles, k);
		struct flash_model *any = new_model(of, 512 * MIB, k % 2 ? FLASH_FRESH : 0);
		uint64_t blks = flash_model_size_bytes(any) / FOUR, ns = 0;

		for (unsigned i = 0; i < 20000; i++) {
			uint64_t at = rnd(blks) * FOUR, len = FOUR << rnd(12);

			switch (rnd(16)) {
			case 0:
				flash_model_discard(any, at, len);
				break;
			case 1:
				ns += flash_model_flush(any);
				break;
			case 2:
				ns += flash_model_read(any, at, len);
				break;
			case 3:
				for (unsigned j = 0; j < 20; j++, at += len)
					ns += flash_model_write(any, at, len, 0);
				break;
			default:
				ns += flash_model_write(any, at, len, rnd(4));
			}
		}
		assert_int_equal(stats(any).clock_ns, ns);
		if (of->class == FLASH_CARD && !of->append_bytes)
			assert_true(stats(any).programmed_bytes >= stats(any).written_bytes);
		check_conservation(any, of->members); /* part of a shared log each */
		flash_model_free(any);
	}
}

TEST_GROUP(open_profiles, close_profiles)
