/* SPDX-License-Identifier: MIT */
/* The guard of a superblock: on and off again, in one sector, with the checksum right; and packing. */
#include "test.h"
#include "base/bytes.h"
#include "base/crc32c.h"
#include "fs/guard.h"

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

/* at: where the superblock is */
static void on_and_off(uint8_t *blk, uint32_t owner, size_t at)
{
	static uint8_t was[COW_BLK_BYTES];
	uint32_t is;

	memcpy(was, blk, sizeof(was));
	assert_true(guard_fits(blk));
	assert_false(guard_is(blk, NULL));
	guard_take(blk);
	assert_memory_equal(blk, was, sizeof(was));
	guard_put(blk, owner);
	assert_true(guard_is(blk, &is));
	assert_int_equal(is, owner);
	assert_false(guard_fits(blk));
	assert_memory_equal(blk, was, at);
	assert_memory_equal(blk + at + 512, was + at + 512, sizeof(was) - at - 512);
}

TEST(test_on_and_off)
{
	static uint8_t blk[COW_BLK_BYTES], was[COW_BLK_BYTES];

	for (unsigned n = 0; n < 1000; n++) {
		make_super(blk);
		memcpy(was, blk, sizeof(was));
		on_and_off(blk, n, SB);
		assert_int_equal(crc32c(0, blk + SB, SUMMED), crc32c(0, was + SB, SUMMED));
		/* no journal, no recovery, no orphans */
		assert_int_equal(blk[SB + 0x5c] & 4, 0);
		assert_int_equal(blk[SB + 0x60] & 4, 0);
		assert_memory_equal(blk + SB + 0xe8, "\0\0\0\0", 4);
		guard_take(blk);
		assert_memory_equal(blk, was, sizeof(was));
	}
}

TEST(test_does_not_fit)
{
	static uint8_t blk[COW_BLK_BYTES];
	static const struct {
		unsigned off;
		uint8_t or ;
	} cases[] = { { 0x38, 4 },    { 0x60, 8 },  { 0x65, 0x10 },
		      { 0x67, 0x40 }, { 0x180, 1 }, { 0x193, 1 } };

	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		make_super(blk);
		blk[SB + cases[i].off] |= cases[i].or ;
		assert_false(guard_fits(blk));
	}
	make_super(blk);
	blk[SB + 0x4c] = 0;
	assert_false(guard_fits(blk));
	make_super(blk);
	blk[SB + 0x194] = 1; /* s_error_count lies behind it */
	assert_true(guard_fits(blk));
}

/* ---- xfs and btrfs: the same bytes but for one sector, with a checksum of their own ---- */

static void make_xfs(uint8_t *blk, unsigned sector_bytes)
{
	memset(blk, 0, COW_BLK_BYTES);
	for (unsigned i = 0; i < 264; i++)
		blk[i] = (uint8_t)rnd_next(&seed);
	memcpy(blk, "XFSB", 4);
	blk[101] = 0xa5;
	blk[102] = (uint8_t)(sector_bytes >> 8);
	blk[103] = 0;
	blk[212] &= 0xbf; /* neither of the two features */
	blk[220] &= 0xbf;
	le_set(blk, 224, 4, 0);
	le_set(blk, 224, 4, crc32c(0, blk, sector_bytes));
}

static void make_btrfs(uint8_t *blk)
{
	for (unsigned i = 0; i < COW_BLK_BYTES; i++)
		blk[i] = (uint8_t)rnd_next(&seed);
	memset(blk, 0, 32);
	le_set(blk, 48, 8, 65536);
	memcpy(blk + 64, "_BHRfS_M", 8);
	blk[187] &= 0xbf; /* without the feature */
	le_set(blk, 196, 2, 0);
	le_set(blk, 0, 4, crc32c(0, blk + 32, COW_BLK_BYTES - 32));
}

TEST(test_xfs)
{
	static uint8_t blk[COW_BLK_BYTES], was[COW_BLK_BYTES];
	static const unsigned bits[] = { 212, 220 };

	for (unsigned n = 0; n < 1000; n++) {
		unsigned sector = 512u << n % 4;
		uint32_t sum;

		make_xfs(blk, sector);
		memcpy(was, blk, sizeof(was));
		assert_int_equal(guard_blk(blk), 0);
		on_and_off(blk, n, 0);
		assert_int_equal(blk[212], was[212] | 0x40);
		assert_int_equal(blk[220], was[220] | 0x40);
		sum = (uint32_t)le_at(blk, 224, 4);
		le_set(blk, 224, 4, 0);
		assert_int_equal(sum, crc32c(0, blk, sector));
		guard_take(blk);
		assert_memory_equal(blk, was, sizeof(was));
	}
	for (unsigned i = 0; i < 2; i++) { /* a feature that is there already */
		make_xfs(blk, 512);
		blk[bits[i]] |= 0x40;
		le_set(blk, 224, 4, 0);
		le_set(blk, 224, 4, crc32c(0, blk, 512));
		assert_false(guard_fits(blk));
		guard_take(blk);
	}
	make_xfs(blk, 512);
	blk[9] ^= 1; /* a wrong checksum */
	assert_false(guard_fits(blk));
	make_xfs(blk, 512);
	blk[496] = 1;
	le_set(blk, 224, 4, 0);
	le_set(blk, 224, 4, crc32c(0, blk, 512));
	assert_false(guard_fits(blk));
	make_xfs(blk, 512);
	blk[101] = 0xa4; /* version 4 has no checksum */
	assert_false(guard_fits(blk));
	make_xfs(blk, 512);
	blk[102] = 0x20; /* sectors of 8 KiB */
	assert_false(guard_fits(blk));
}

TEST(test_btrfs)
{
	static uint8_t blk[COW_BLK_BYTES], was[COW_BLK_BYTES];
	static const unsigned bad[] = { 4, 31, 48, 64, 187, 196, 4095 };

	for (unsigned n = 0; n < 1000; n++) {
		make_btrfs(blk);
		memcpy(was, blk, sizeof(was));
		assert_int_equal(guard_blk(blk), 16);
		on_and_off(blk, n, 0);
		assert_int_equal(blk[187], was[187] | 0x40);
		assert_int_equal(le_at(blk, 96, 8), 0); /* no log tree */
		assert_int_equal(le_at(blk, 0, 4), crc32c(0, blk + 32, COW_BLK_BYTES - 32));
		/* another sector was torn off */
		blk[2000] ^= 1;
		guard_take(blk);
		blk[2000] ^= 1;
		assert_memory_equal(blk, was, sizeof(was));
	}
	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++) {
		make_btrfs(blk);
		blk[bad[i]] ^= 0x40;
		if (bad[i] >= 32 && bad[i] < 4095)
			le_set(blk, 0, 4, crc32c(0, blk + 32, COW_BLK_BYTES - 32));
		assert_false(guard_fits(blk));
	}
	make_btrfs(blk);
	assert_true(guard_fits(blk));
}

/* mkfs.nilfs2 wrote it: its checksum is not ours. */
TEST(test_nilfs2)
{
	static const unsigned bad[] = { 16, 271, 480, 491 };
	static uint8_t vol[4 * COW_BLK_BYTES], blk[COW_BLK_BYTES], was[COW_BLK_BYTES];
	char path[] = "/tmp/guard_test.XXXXXX", command[128];
	int fd = mkstemp(path), made;

	assert_true(fd >= 0);
	snprintf(command, sizeof(command), "truncate -s 64M %s && mkfs.nilfs2 -q -K -B 256 %s",
		 path, path);
	made = system(command);
	unlink(path);
	if (made)
		skip();
	assert_int_equal(read(fd, vol, sizeof(vol)), sizeof(vol));
	close(fd);
	memcpy(blk, vol, sizeof(blk));
	memcpy(was, vol, sizeof(was));
	assert_int_equal(guard_blk(blk), 0);
	assert_true(guard_fits(blk));
	guard_put(blk, 7);
	assert_memory_equal(blk, was, SB);
	assert_memory_equal(blk + SB + 512, was + SB + 512, sizeof(was) - SB - 512);
	assert_int_equal(blk[SB + 271], was[SB + 271] | 0x40);
	guard_take(blk);
	assert_memory_equal(blk, was, sizeof(was));
	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++) {
		memcpy(blk, was, sizeof(blk));
		blk[SB + bad[i]] ^= 0x40;
		assert_false(guard_fits(blk));
	}
}

/* In a read of a volume each block that may have it is found, and no other. */
TEST(test_take_all)
{
	static uint8_t vol[18 * COW_BLK_BYTES], was[sizeof(vol)];

	make_super(vol);
	make_btrfs(vol + blk_to_bytes(16));
	memcpy(was, vol, sizeof(was));
	guard_put(vol, 1);
	guard_put(vol + blk_to_bytes(16), 1);
	guard_take_all(1, 15, vol + blk_to_bytes(1));
	assert_true(guard_is(vol, NULL) && guard_is(vol + blk_to_bytes(16), NULL));
	guard_take_all(16, 2, vol + blk_to_bytes(16));
	assert_true(guard_is(vol, NULL));
	assert_memory_equal(vol + COW_BLK_BYTES, was + COW_BLK_BYTES, sizeof(vol) - COW_BLK_BYTES);
	guard_put(vol + blk_to_bytes(16), 1);
	guard_take_all(0, 18, vol);
	assert_memory_equal(vol, was, sizeof(vol));
}

TEST(test_packing)
{
	static uint8_t blk[COW_BLK_BYTES], again[COW_BLK_BYTES], packed[2 * COW_BLK_BYTES];
	size_t n;

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
