/* SPDX-License-Identifier: MIT */
#include "fs/guard.h"

#include <string.h>

#include "base/bytes.h"
#include "base/crc32c.h"
#include "fs/ext4.h"

#define EXT_SB 1024u
#define MAGIC 0x44526743u      /* "CgRD" */
#define RO_READONLY 0x1000u    /* of ro_compat: the kernel mounts read-only */
#define RO_UNKNOWN 0x40000000u /* of ro_compat: no kernel and no tool has it */

/* the fields of snapshots: s_snapshot_inum, _id, _r_blocks_count (8 bytes), _list */
enum {
	AT_MAGIC = 0x180,
	AT_OWNER = 0x184,
	AT_HIDDEN = 0x188,
	AT_ORPHAN = 0x18c,
	AT_FILL = 0x190,
	AT_END = 0x194
};

/* hidden features, as bits of AT_HIDDEN */
static const struct {
	size_t off;
	uint32_t bit;
} hidden[] = {
	{ offsetof(struct ext2_super_block, s_feature_compat), EXT3_FEATURE_COMPAT_HAS_JOURNAL },
	{ offsetof(struct ext2_super_block, s_feature_compat), EXT4_COMPAT_ORPHAN_FILE },
	{ offsetof(struct ext2_super_block, s_feature_incompat), EXT3_FEATURE_INCOMPAT_RECOVER },
	{ offsetof(struct ext2_super_block, s_feature_ro_compat), EXT4_RO_COMPAT_ORPHAN_PRESENT },
};

enum {
	AT_SB_MAGIC = offsetof(struct ext2_super_block, s_magic),
	AT_REV = offsetof(struct ext2_super_block, s_rev_level),
	AT_INCOMPAT = offsetof(struct ext2_super_block, s_feature_incompat),
	AT_RO_COMPAT = offsetof(struct ext2_super_block, s_feature_ro_compat),
	AT_LAST_ORPHAN = offsetof(struct ext2_super_block, s_last_orphan),
	SUMMED = offsetof(struct ext2_super_block, s_checksum),
};

_Static_assert(offsetof(struct ext2_super_block, s_snapshot_inum) == AT_MAGIC,
	       "the superblock's layout");
_Static_assert(offsetof(struct ext2_super_block, s_snapshot_list) + 4 == AT_END,
	       "the superblock's layout");
_Static_assert(AT_END <= 512, "one sector");

static uint32_t get(const uint8_t *sb, size_t off)
{
	return (uint32_t)le_at(sb, off, 4);
}

static void put(uint8_t *sb, size_t off, uint32_t v)
{
	le_set(sb, off, 4, v);
}

static bool is_ext(const uint8_t *sb)
{
	return (get(sb, AT_SB_MAGIC) & 0xffff) == EXT2_SUPER_MAGIC && get(sb, AT_REV);
}

bool guard_fits(const uint8_t blk0[COW_BLK_BYTES])
{
	const uint8_t *sb = blk0 + EXT_SB;

	return is_ext(sb) && !(get(sb, AT_RO_COMPAT) & (RO_READONLY | RO_UNKNOWN)) &&
	       !(get(sb, AT_INCOMPAT) & EXT3_FEATURE_INCOMPAT_JOURNAL_DEV) &&
	       bytes_all_zero(sb + AT_MAGIC, AT_END - AT_MAGIC);
}

/* Sets the four bytes at AT_FILL so that the CRC of the superblock becomes sum. A CRC is linear:
 * each of the 32 bits flips some bits of it, and together they reach every value. */
static void fill_up(uint8_t *sb, uint32_t sum)
{
	uint32_t flips[32], bits[32], fill = 0, want;

	put(sb, AT_FILL, 0);
	want = crc32c(0, sb, SUMMED);
	for (unsigned i = 0; i < 32; i++) {
		put(sb, AT_FILL, UINT32_C(1) << i);
		flips[i] = crc32c(0, sb, SUMMED) ^ want;
		bits[i] = UINT32_C(1) << i;
	}
	want ^= sum;
	for (unsigned i = 0; i < 32; i++) {
		uint32_t lead = flips[i] & -flips[i];

		for (unsigned k = 0; k < 32; k++)
			if (k != i && flips[k] & lead) {
				flips[k] ^= flips[i];
				bits[k] ^= bits[i];
			}
		if (want & lead) {
			want ^= flips[i];
			fill ^= bits[i];
		}
	}
	put(sb, AT_FILL, fill);
}

void guard_put(uint8_t blk0[COW_BLK_BYTES], uint32_t owner)
{
	uint8_t *sb = blk0 + EXT_SB;
	uint32_t sum = crc32c(0, sb, SUMMED), had = 0;

	for (size_t i = 0; i < ARRAY_SIZE(hidden); i++) {
		uint32_t mask = get(sb, hidden[i].off);

		had |= mask & hidden[i].bit ? UINT32_C(1) << i : 0;
		put(sb, hidden[i].off, mask & ~hidden[i].bit);
	}
	put(sb, AT_MAGIC, MAGIC);
	put(sb, AT_OWNER, owner);
	put(sb, AT_HIDDEN, had);
	put(sb, AT_ORPHAN, get(sb, AT_LAST_ORPHAN));
	put(sb, AT_LAST_ORPHAN, 0);
	put(sb, AT_RO_COMPAT, get(sb, AT_RO_COMPAT) | RO_READONLY | RO_UNKNOWN);
	fill_up(sb, sum);
}

bool guard_is(const uint8_t blk0[COW_BLK_BYTES], uint32_t *ret_owner)
{
	const uint8_t *sb = blk0 + EXT_SB;
	const uint32_t both = RO_READONLY | RO_UNKNOWN;

	if (ret_owner)
		*ret_owner = get(sb, AT_OWNER);
	return is_ext(sb) && get(sb, AT_MAGIC) == MAGIC && (get(sb, AT_RO_COMPAT) & both) == both;
}

void guard_take(uint8_t blk0[COW_BLK_BYTES])
{
	uint8_t *sb = blk0 + EXT_SB;
	uint32_t had = get(sb, AT_HIDDEN);

	if (!guard_is(blk0, NULL))
		return;
	put(sb, AT_RO_COMPAT, get(sb, AT_RO_COMPAT) & ~(RO_READONLY | RO_UNKNOWN));
	put(sb, AT_LAST_ORPHAN, get(sb, AT_ORPHAN));
	for (size_t i = 0; i < ARRAY_SIZE(hidden); i++)
		if (had >> i & 1)
			put(sb, hidden[i].off, get(sb, hidden[i].off) | hidden[i].bit);
	memset(sb + AT_MAGIC, 0, AT_END - AT_MAGIC);
}

/* ---- packing: pairs of a number of zeroes and a number of bytes, which follow ---- */

enum { RUN_MAX = 255, GAP_MIN = 3 };

size_t guard_pack(const uint8_t blk0[COW_BLK_BYTES], uint8_t *to, size_t room)
{
	size_t n = 0;

	for (size_t i = 0; i < COW_BLK_BYTES;) {
		size_t zeroes = 0, bytes = 0, gap = 0;

		while (i < COW_BLK_BYTES && zeroes < RUN_MAX && !blk0[i]) {
			zeroes++;
			i++;
		}
		while (i + bytes < COW_BLK_BYTES && bytes < RUN_MAX && gap < GAP_MIN) {
			gap = blk0[i + bytes] ? 0 : gap + 1;
			bytes++;
		}
		bytes -= gap;
		if (room < 2 + bytes || n > room - 2 - bytes)
			return 0;
		to[n++] = (uint8_t)zeroes;
		to[n++] = (uint8_t)bytes;
		memcpy(to + n, blk0 + i, bytes);
		n += bytes;
		i += bytes;
	}
	return n;
}

bool guard_unpack(const uint8_t *from, size_t bytes, uint8_t blk0[COW_BLK_BYTES])
{
	size_t at = 0, n = 0;

	memset(blk0, 0, COW_BLK_BYTES);
	while (bytes - n >= 2) {
		size_t zeroes = from[n], run = from[n + 1];

		n += 2;
		if (run > bytes - n || zeroes + run > COW_BLK_BYTES - at)
			return false;
		memcpy(blk0 + at + zeroes, from + n, run);
		at += zeroes + run;
		n += run;
	}
	return n == bytes && at == COW_BLK_BYTES;
}
