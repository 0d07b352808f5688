/* SPDX-License-Identifier: MIT */
#include "fs/guard.h"

#include <string.h>

#include "base/bytes.h"
#include "base/crc32c.h"
#include "fs/ext4.h"
#include "fs/fs_ops.h"
#include "fs/xfs_image.h"

#define MAGIC 0x44526743u /* "CgRD" */

/* One kind of superblock. All functions take its block. */
struct kind {
	bool (*is)(const uint8_t *blk); /* has it the magic number? */
	bool (*fits)(const uint8_t *blk);
	void (*put)(uint8_t *blk, uint32_t owner);
	bool (*has)(const uint8_t *blk, uint32_t *owner);
	void (*take)(uint8_t *blk);
};

/* ---- ext: the feature "read-only", for kernels, and an unknown one of ro_compat, for tools ---- */

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

/* bytes_all_zero takes multiples of 8 bytes */
static bool is_unused(const uint8_t *p, size_t len_bytes)
{
	for (size_t i = 0; i < len_bytes; i++)
		if (p[i])
			return false;
	return true;
}

static void put(uint8_t *sb, size_t off, uint32_t v)
{
	le_set(sb, off, 4, v);
}

static bool is_ext(const uint8_t *sb)
{
	return (get(sb, AT_SB_MAGIC) & 0xffff) == EXT2_SUPER_MAGIC && get(sb, AT_REV);
}

static bool ext_is(const uint8_t *blk)
{
	return is_ext(blk + EXT_SB);
}

static bool ext_fits(const uint8_t *blk)
{
	const uint8_t *sb = blk + EXT_SB;

	return !(get(sb, AT_RO_COMPAT) & (RO_READONLY | RO_UNKNOWN)) &&
	       !(get(sb, AT_INCOMPAT) & EXT3_FEATURE_INCOMPAT_JOURNAL_DEV) &&
	       is_unused(sb + AT_MAGIC, AT_END - AT_MAGIC);
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

static void ext_put(uint8_t *blk, uint32_t owner)
{
	uint8_t *sb = blk + EXT_SB;
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

static bool ext_has(const uint8_t *blk, uint32_t *owner)
{
	const uint8_t *sb = blk + EXT_SB;
	const uint32_t both = RO_READONLY | RO_UNKNOWN;

	*owner = get(sb, AT_OWNER);
	return get(sb, AT_MAGIC) == MAGIC && (get(sb, AT_RO_COMPAT) & both) == both;
}

static void ext_take(uint8_t *blk)
{
	uint8_t *sb = blk + EXT_SB;
	uint32_t had = get(sb, AT_HIDDEN);

	put(sb, AT_RO_COMPAT, get(sb, AT_RO_COMPAT) & ~(RO_READONLY | RO_UNKNOWN));
	put(sb, AT_LAST_ORPHAN, get(sb, AT_ORPHAN));
	for (size_t i = 0; i < ARRAY_SIZE(hidden); i++)
		if (had >> i & 1)
			put(sb, hidden[i].off, get(sb, hidden[i].off) | hidden[i].bit);
	memset(sb + AT_MAGIC, 0, AT_END - AT_MAGIC);
}

/*
 * ---- xfs: an unknown feature of ro_compat, and one of log_incompat ----
 *
 * The second one forbids to replay the log: a mount with "ro" alone would do so, on the base, and write
 * the superblock without the guard. With "norecovery" Linux mounts it.
 */

enum {
	XLOG_HEADER = 0xfeedbabe, /* of a record in the log, */
	XLOG_LEN = 12,		  /* and the bytes behind it */
	XFS_BLOCK_BYTES = 4,
	XFS_LOG_START = 48, /* number of a block: that of its group, and that within it */
	XFS_GROUP_BLOCKS = 84,
	XFS_LOG_BLOCKS = 96,
	XFS_GROUP_LOG = 124, /* bits of the latter */
	XFS_VERSION = 100,   /* the last byte: 101, low half */
	XFS_SECTOR = 102,
	XFS_RO_COMPAT = 212, /* the byte of the bit: the first one, big-endian */
	XFS_LOG_INCOMPAT = 220,
	XFS_CRC = 224,
	/* the end of the smallest sector, which no version uses */
	XFS_MAGIC = 496,
	XFS_OWNER = 500,
	XFS_WAS = 504, /* sb_crc: a sector may be torn off from others that it covers */
	XFS_END = 512,
	XFS_UNKNOWN = 0x40,
};

static uint32_t xfs_sector(const uint8_t *blk)
{
	return (uint32_t)be_at(blk, XFS_SECTOR, 2);
}

static void xfs_seal(uint8_t *blk)
{
	put(blk, XFS_CRC, 0);
	put(blk, XFS_CRC, crc32c(0, blk, xfs_sector(blk)));
}

static bool xfs_is(const uint8_t *blk)
{
	return !memcmp(blk, "XFSB", 4) && (be_at(blk, XFS_VERSION, 2) & 0xf) == 5 &&
	       pow2_between(xfs_sector(blk), 512, COW_BLK_BYTES);
}

static bool xfs_fits(const uint8_t *blk)
{
	return !((blk[XFS_RO_COMPAT] | blk[XFS_LOG_INCOMPAT]) & XFS_UNKNOWN) &&
	       is_unused(blk + XFS_MAGIC, XFS_END - XFS_MAGIC) &&
	       xfs_crc_ok(blk, xfs_sector(blk), XFS_CRC);
}

static void xfs_put(uint8_t *blk, uint32_t owner)
{
	blk[XFS_RO_COMPAT] |= XFS_UNKNOWN;
	blk[XFS_LOG_INCOMPAT] |= XFS_UNKNOWN;
	put(blk, XFS_MAGIC, MAGIC);
	put(blk, XFS_OWNER, owner);
	put(blk, XFS_WAS, get(blk, XFS_CRC));
	xfs_seal(blk);
}

static bool xfs_has(const uint8_t *blk, uint32_t *owner)
{
	*owner = get(blk, XFS_OWNER);
	return get(blk, XFS_MAGIC) == MAGIC &&
	       blk[XFS_RO_COMPAT] & blk[XFS_LOG_INCOMPAT] & XFS_UNKNOWN;
}

static void xfs_take(uint8_t *blk)
{
	blk[XFS_RO_COMPAT] &= (uint8_t)~XFS_UNKNOWN;
	blk[XFS_LOG_INCOMPAT] &= (uint8_t)~XFS_UNKNOWN;
	put(blk, XFS_CRC, get(blk, XFS_WAS));
	memset(blk + XFS_MAGIC, 0, XFS_END - XFS_MAGIC);
}

/*
 * ---- btrfs: an unknown feature of compat_ro ----
 *
 * Only the first copy of the superblock. Kernels mount by no other one, and a program that uses
 * another one was told to.
 */

enum {
	/* of the checksum's 32 bytes CRC32C needs four; no program looks at the others */
	BTRFS_CSUM = 0,
	BTRFS_MAGIC = 4,
	BTRFS_OWNER = 8,
	BTRFS_LOG = 12, /* log_root, hidden */
	BTRFS_WAS = 20, /* the checksum, as of xfs */
	BTRFS_SUMMED = 32,
	BTRFS_BYTENR = 48,
	BTRFS_SB_MAGIC = 64,
	BTRFS_LOG_ROOT = 96,
	BTRFS_RO_COMPAT = 180 + 7, /* the byte of the bit: the last one */
	BTRFS_CSUM_TYPE = 196,
	BTRFS_UNKNOWN = 0x40,
};

static uint32_t btrfs_sum(const uint8_t *blk)
{
	return crc32c(0, blk + BTRFS_SUMMED, COW_BLK_BYTES - BTRFS_SUMMED);
}

static bool btrfs_is(const uint8_t *blk)
{
	return !memcmp(blk + BTRFS_SB_MAGIC, "_BHRfS_M", 8) &&
	       le_at(blk, BTRFS_BYTENR, 8) == BTRFS_UNIT * COW_BLK_BYTES &&
	       !le_at(blk, BTRFS_CSUM_TYPE, 2);
}

static bool btrfs_fits(const uint8_t *blk)
{
	return !(blk[BTRFS_RO_COMPAT] & BTRFS_UNKNOWN) &&
	       is_unused(blk + BTRFS_MAGIC, BTRFS_SUMMED - BTRFS_MAGIC) &&
	       get(blk, BTRFS_CSUM) == btrfs_sum(blk);
}

static void btrfs_put(uint8_t *blk, uint32_t owner)
{
	put(blk, BTRFS_MAGIC, MAGIC);
	put(blk, BTRFS_OWNER, owner);
	put(blk, BTRFS_WAS, get(blk, BTRFS_CSUM));
	memcpy(blk + BTRFS_LOG, blk + BTRFS_LOG_ROOT, 8);
	memset(blk + BTRFS_LOG_ROOT, 0, 8);
	blk[BTRFS_RO_COMPAT] |= BTRFS_UNKNOWN;
	put(blk, BTRFS_CSUM, btrfs_sum(blk));
}

static bool btrfs_has(const uint8_t *blk, uint32_t *owner)
{
	*owner = get(blk, BTRFS_OWNER);
	return get(blk, BTRFS_MAGIC) == MAGIC && blk[BTRFS_RO_COMPAT] & BTRFS_UNKNOWN;
}

static void btrfs_take(uint8_t *blk)
{
	memcpy(blk + BTRFS_LOG_ROOT, blk + BTRFS_LOG, 8);
	put(blk, BTRFS_CSUM, get(blk, BTRFS_WAS));
	memset(blk + BTRFS_MAGIC, 0, BTRFS_SUMMED - BTRFS_MAGIC);
	blk[BTRFS_RO_COMPAT] &= (uint8_t)~BTRFS_UNKNOWN;
}

/*
 * ---- nilfs2: an unknown feature of compat_ro ----
 *
 * It forbids a roll-forward as well; with "norecovery" Linux mounts it. The second superblock lies in the
 * last 4 KiB of the device, where that of the log is.
 */

enum {
	NILFS_SB = 1024,
	NILFS_BYTES = 8, /* that the checksum covers */
	NILFS_SEED = 12,
	NILFS_SUM = 16,
	NILFS_RO_COMPAT = 264 + 7, /* the byte of the bit: the last one */
	/* the end of the first sector, which no version uses */
	NILFS_MAGIC = 480,
	NILFS_OWNER = 484,
	NILFS_WAS = 488, /* s_sum */
	NILFS_END = 492,
	NILFS_UNKNOWN = 0x40,
};

/* CRC-32, without the inversions */
static uint32_t crc32_le(uint32_t crc, const uint8_t *p, size_t len_bytes)
{
	while (len_bytes--) {
		crc ^= *p++;
		for (unsigned i = 0; i < 8; i++)
			crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
	}
	return crc;
}

static uint32_t nilfs_sum(const uint8_t *sb)
{
	static const uint8_t none[4];
	uint32_t crc = crc32_le(get(sb, NILFS_SEED), sb, NILFS_SUM);

	crc = crc32_le(crc, none, sizeof(none));
	return crc32_le(crc, sb + NILFS_SUM + 4, le_at(sb, NILFS_BYTES, 2) - NILFS_SUM - 4);
}

static bool nilfs_is(const uint8_t *blk)
{
	struct supers s = { 0 };
	struct fsinfo f = { 0 };

	memcpy(s.head, blk, COW_BLK_BYTES);
	return fs_ops(FS_NILFS2)->probe(&s, &f);
}

static bool nilfs_fits(const uint8_t *blk)
{
	const uint8_t *sb = blk + NILFS_SB;

	return le_at(sb, NILFS_BYTES, 2) > NILFS_RO_COMPAT &&
	       !(sb[NILFS_RO_COMPAT] & NILFS_UNKNOWN) &&
	       is_unused(sb + NILFS_MAGIC, NILFS_END - NILFS_MAGIC) &&
	       get(sb, NILFS_SUM) == nilfs_sum(sb);
}

static void nilfs_put(uint8_t *blk, uint32_t owner)
{
	uint8_t *sb = blk + NILFS_SB;

	put(sb, NILFS_MAGIC, MAGIC);
	put(sb, NILFS_OWNER, owner);
	put(sb, NILFS_WAS, get(sb, NILFS_SUM));
	sb[NILFS_RO_COMPAT] |= NILFS_UNKNOWN;
	put(sb, NILFS_SUM, nilfs_sum(sb));
}

static bool nilfs_has(const uint8_t *blk, uint32_t *owner)
{
	const uint8_t *sb = blk + NILFS_SB;

	*owner = get(sb, NILFS_OWNER);
	return get(sb, NILFS_MAGIC) == MAGIC && sb[NILFS_RO_COMPAT] & NILFS_UNKNOWN;
}

static void nilfs_take(uint8_t *blk)
{
	uint8_t *sb = blk + NILFS_SB;

	sb[NILFS_RO_COMPAT] &= (uint8_t)~NILFS_UNKNOWN;
	put(sb, NILFS_SUM, get(sb, NILFS_WAS));
	memset(sb + NILFS_MAGIC, 0, NILFS_END - NILFS_MAGIC);
}

/* ---- all kinds ---- */

/* In the order of the probes, except that btrfs is not in block 0. NULL: none. */
static const struct kind *kind_of(const uint8_t *blk)
{
	static const struct kind kinds[] = {
		{ btrfs_is, btrfs_fits, btrfs_put, btrfs_has, btrfs_take },
		{ ext_is, ext_fits, ext_put, ext_has, ext_take },
		{ xfs_is, xfs_fits, xfs_put, xfs_has, xfs_take },
		{ nilfs_is, nilfs_fits, nilfs_put, nilfs_has, nilfs_take },
	};

	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
		if (kinds[i].is(blk))
			return &kinds[i];
	return NULL;
}

int guard_find(const struct blk_reader *r, uint64_t *ret_blk)
{
	struct fsinfo fs;
	int err = fsinfo_probe_super(r, &fs);

	if (!err)
		*ret_blk = fs.kind == FS_BTRFS ? BTRFS_UNIT : 0;
	return err;
}

uint64_t guard_blk(const uint8_t blk[COW_BLK_BYTES])
{
	return btrfs_is(blk) ? BTRFS_UNIT : 0;
}

bool guard_fits(const uint8_t blk[COW_BLK_BYTES])
{
	const struct kind *k = kind_of(blk);

	return k && k->fits(blk);
}

void guard_put(uint8_t blk[COW_BLK_BYTES], uint32_t owner)
{
	kind_of(blk)->put(blk, owner);
}

bool guard_is(const uint8_t blk[COW_BLK_BYTES], uint32_t *ret_owner)
{
	const struct kind *k = kind_of(blk);
	uint32_t owner;

	return k && k->has(blk, ret_owner ? ret_owner : &owner);
}

bool guard_leaves_open(const uint8_t super[COW_BLK_BYTES], uint64_t *ret_blk, uint64_t *ret_blks)
{
	uint64_t start, in_group, group, bytes = be_at(super, XFS_BLOCK_BYTES, 4);

	if (!xfs_is(super) || !pow2_between(bytes, 512, 65536))
		return false;
	start = be_at(super, XFS_LOG_START, 8);
	in_group = start & ((UINT64_C(1) << super[XFS_GROUP_LOG] % 64) - 1);
	group = start >> super[XFS_GROUP_LOG] % 64;
	start = (group * be_at(super, XFS_GROUP_BLOCKS, 4) + in_group) * bytes;
	*ret_blk = start / COW_BLK_BYTES;
	*ret_blks = (be_at(super, XFS_LOG_BLOCKS, 4) * bytes + start % COW_BLK_BYTES) /
		    COW_BLK_BYTES;
	return true;
}

bool guard_may_clear(const uint8_t content[COW_BLK_BYTES])
{
	for (const uint8_t *s = content; s < content + COW_BLK_BYTES; s += 512)
		if (be_at(s, 0, 4) == XLOG_HEADER && !be_at(s, XLOG_LEN, 4))
			return true;
	return false;
}

void guard_take(uint8_t blk[COW_BLK_BYTES])
{
	if (guard_is(blk, NULL))
		kind_of(blk)->take(blk);
}

void guard_take_all(uint64_t first_blk, uint64_t blks, uint8_t *buf)
{
	static const uint64_t may[] = GUARD_BLKS;

	for (size_t i = 0; i < ARRAY_SIZE(may); i++)
		if (may[i] - first_blk < blks)
			guard_take(buf + blk_to_bytes(may[i] - first_blk));
}

/* ---- packing: pairs of a number of zeroes and a number of bytes, which follow ---- */

enum { RUN_MAX = 255, GAP_MIN = 3 };

size_t guard_pack(const uint8_t blk[COW_BLK_BYTES], uint8_t *to, size_t room)
{
	size_t n = 0;

	for (size_t i = 0; i < COW_BLK_BYTES;) {
		size_t zeroes = 0, bytes = 0, gap = 0;

		while (i < COW_BLK_BYTES && zeroes < RUN_MAX && !blk[i]) {
			zeroes++;
			i++;
		}
		while (i + bytes < COW_BLK_BYTES && bytes < RUN_MAX && gap < GAP_MIN) {
			gap = blk[i + bytes] ? 0 : gap + 1;
			bytes++;
		}
		bytes -= gap;
		if (room < 2 + bytes || n > room - 2 - bytes)
			return 0;
		to[n++] = (uint8_t)zeroes;
		to[n++] = (uint8_t)bytes;
		memcpy(to + n, blk + i, bytes);
		n += bytes;
		i += bytes;
	}
	return n;
}

bool guard_unpack(const uint8_t *from, size_t bytes, uint8_t blk[COW_BLK_BYTES])
{
	size_t at = 0, n = 0;

	memset(blk, 0, COW_BLK_BYTES);
	while (bytes - n >= 2) {
		size_t zeroes = from[n], run = from[n + 1];

		n += 2;
		if (run > bytes - n || zeroes + run > COW_BLK_BYTES - at)
			return false;
		memcpy(blk + at + zeroes, from + n, run);
		at += zeroes + run;
		n += run;
	}
	return n == bytes && at == COW_BLK_BYTES;
}
