/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "commit/card_time.h"

static struct flash_profile unknown;
static struct wear_table wear;

static int empty(void **state)
{
	(void)state;
	flash_profile_guess(&unknown, 4 * MIB, 4 * GIB);
	wear = (struct wear_table){ 0 };
	return 0;
}

static void committed(uint64_t bytes, uint64_t ms)
{
	uint64_t n = ++wear.commit_n;

	wear.commit[n % WEAR_COMMITS] =
		(struct wear_commit){ .n = n, .written_bytes = bytes, .writable_ms = ms };
}

/* within a factor of percent/100 */
static void within(uint64_t bytes, uint64_t ms, unsigned percent)
{
	uint64_t got = card_time_ns(&wear, &unknown, bytes) / 10000; /* 1/100 ms */

	if (got * percent < ms * 10000 || got * 100 > ms * 100 * percent)
		fail_msg("%llu bytes: %llu.%02llu ms, not %llu", (unsigned long long)bytes,
			 (unsigned long long)got / 100, (unsigned long long)got % 100,
			 (unsigned long long)ms);
}

static void test_nothing(void **state)
{
	(void)state;
	assert_int_equal(card_time_ns(&wear, &unknown, MIB), 0);
	/* entries that the table has lost */
	wear.commit_n = 5;
	assert_int_equal(card_time_ns(&wear, &unknown, MIB), 0);
	/* of another age of the table */
	wear.commit[5 % WEAR_COMMITS].n = 5 + WEAR_COMMITS;
	wear.commit[5 % WEAR_COMMITS].written_bytes = MIB;
	assert_int_equal(card_time_ns(&wear, &unknown, MIB), 0);
}

/* One commit tells how fast the card is beside an unknown one (0.11 s for 1 MiB). */
static void test_one(void **state)
{
	(void)state;
	committed(MIB, 11);
	within(MIB, 11, 110);
	within(32 * MIB, 336, 120);
	within(8 * MIB, 88, 120);
}

/* Two sizes tell both parts, on cards of any speed. */
static void test_two_sizes(void **state)
{
	static const struct {
		uint64_t fixed_ms, mib_ms;
	} card[] = { { 1, 1 }, { 200, 20 }, { 5, 400 }, { 1000, 1 }, { 40, 100 } };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(card); i++) {
		wear = (struct wear_table){ 0 };
		committed(64 * KIB, card[i].fixed_ms + card[i].mib_ms / 16);
		committed(8 * MIB, card[i].fixed_ms + card[i].mib_ms * 8);
		within(8 * KIB, card[i].fixed_ms, 200);
		within(MIB, card[i].fixed_ms + card[i].mib_ms, 150);
		within(40 * MIB, card[i].fixed_ms + card[i].mib_ms * 40, 150);
	}
}

/* A pause of the card, which is the largest time by far, is one of eight. */
static void test_pause(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 8; i++)
		committed((1 + i) * MIB, i == 3 ? 5000 : 20 + 50 * (1 + i));
	within(2 * MIB, 120, 900);
	/* and none of the next eight */
	for (unsigned i = 0; i < 8; i++)
		committed((1 + i) * MIB, 20 + 50 * (1 + i));
	within(2 * MIB, 120, 110);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_nothing, empty),
		cmocka_unit_test_setup(test_one, empty),
		cmocka_unit_test_setup(test_two_sizes, empty),
		cmocka_unit_test_setup(test_pause, empty),
	};

	return cmocka_run_group_tests_name("card_time", tests, NULL, NULL);
}
