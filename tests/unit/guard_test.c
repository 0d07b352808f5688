/* SPDX-License-Identifier: MIT */
/* The guard of a superblock: on and off again, in one sector, with the checksum right; and packing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/crc32c.h"
#include "fs/guard.h"
#include "rnd.h"

enum { SB = 1024, SUMMED = 1020 };

static uint64_t seed = 1;

static void make_super(uint8_t *blk)
{
	memset(blk, 0, COW_BLK_BYTES);
	for (unsigned i = 0; i < 0x180; i++)
		blk[SB + i] = (uint8_t)rnd_next(&seed);
	memcpy(blk + SB + 0x38, "\x53\xef", 2);
	memcpy(blk + SB + 0x4c, "\1\0\0\0", 4);
	blk[SB + 0x60] &= 0xf7; /* no journal device */
	blk[SB + 0x65] &= 0x0f; /* neither of the two features */
	blk[SB + 0x67] &= 0xbf;
}

static void test_on_and_off(void **state)
{
	static uint8_t blk[COW_BLK_BYTES], was[COW_BLK_BYTES];
	uint32_t owner;

	(void)state;
	for (unsigned n = 0; n < 1000; n++) {
		make_super(blk);
		memcpy(was, blk, sizeof(was));
		assert_true(guard_fits(blk));
		assert_false(guard_is(blk, NULL));
		guard_take(blk);
		assert_memory_equal(blk, was, sizeof(was));
		guard_put(blk, n);
		assert_true(guard_is(blk, &owner));
		assert_int_equal(owner, n);
		assert_false(guard_fits(blk));
		assert_memory_equal(blk, was, SB);
		assert_memory_equal(blk + SB + 512, was + SB + 512, sizeof(was) - SB - 512);
		assert_int_equal(crc32c(0, blk + SB, SUMMED), crc32c(0, was + SB, SUMMED));
		/* no journal, no recovery, no orphans */
		assert_int_equal(blk[SB + 0x5c] & 4, 0);
		assert_int_equal(blk[SB + 0x60] & 4, 0);
		assert_memory_equal(blk + SB + 0xe8, "\0\0\0\0", 4);
		guard_take(blk);
		assert_memory_equal(blk, was, sizeof(was));
	}
}

static void test_does_not_fit(void **state)
{
	static uint8_t blk[COW_BLK_BYTES];
	static const struct {
		unsigned off;
		uint8_t or ;
	} cases[] = { { 0x38, 4 },    { 0x60, 8 },  { 0x65, 0x10 },
		      { 0x67, 0x40 }, { 0x180, 1 }, { 0x193, 1 } };

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		make_super(blk);
		blk[SB + cases[i].off] |= cases[i].or ;
		assert_false(guard_fits(blk));
	}
	make_super(blk);
	blk[SB + 0x4c] = 0;
	assert_false(guard_fits(blk));
}

static void test_packing(void **state)
{
	static uint8_t blk[COW_BLK_BYTES], again[COW_BLK_BYTES], packed[2 * COW_BLK_BYTES];
	size_t n;

	(void)state;
	for (unsigned i = 0; i < 2000; i++) {
		unsigned share = 1 + (unsigned)(rnd_next(&seed) % 300);

		for (unsigned k = 0; k < COW_BLK_BYTES; k++)
			blk[k] = rnd_next(&seed) % 256 < share ? (uint8_t)rnd_next(&seed) : 0;
		n = guard_pack(blk, packed, sizeof(packed));
		assert_true(n > 0);
		assert_true(guard_unpack(packed, n, again));
		assert_memory_equal(blk, again, sizeof(blk));
		assert_int_equal(guard_pack(blk, packed, n), n);
		assert_int_equal(guard_pack(blk, packed, n - 1), 0);
		assert_false(guard_unpack(packed, n - 1, again));
	}
	/* any bytes: refused, or a block */
	for (unsigned i = 0; i < 20000; i++) {
		n = rnd_next(&seed) % sizeof(packed);
		for (size_t k = 0; k < n; k++)
			packed[k] = (uint8_t)rnd_next(&seed);
		(void)guard_unpack(packed, n, again);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_on_and_off),
		cmocka_unit_test(test_does_not_fit),
		cmocka_unit_test(test_packing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
