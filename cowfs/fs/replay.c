// SPDX-License-Identifier: MIT
#include "fs/replay.h"

#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "base/crc32c.h"
#include "fs/ext4.h"

#define JBD2_MAGIC_BYTES "\xc0\x3b\x39\x98"
/* the superblock of the journal: big-endian, 1 KiB */
#define JSB_BYTES 1024

enum { JSB_TYPE = 4, JSB_SEQUENCE = 24, JSB_START = 28, JSB_INCOMPAT = 40, JSB_CHECKSUM = 252 };
enum { JSB_V2 = 4, JSB_CSUM_V2_OR_V3 = 24 };

struct replay {
	struct blk_reader r;
	struct fsimage_facts f;
	struct fsimage_move *list;
	size_t n;
};

void ext4_settle(const struct fsimage_facts *f, uint8_t *unit)
{
	uint8_t *sb = unit + EXT_SB;
	uint64_t incompat = SB_GET(sb, s_feature_incompat),
		 ro_compat = SB_GET(sb, s_feature_ro_compat);

	SB_SET(sb, s_feature_incompat, incompat & ~(uint64_t)EXT3_FEATURE_INCOMPAT_RECOVER);
	if (!f->counts_err && !f->orphans)
		SB_SET(sb, s_feature_ro_compat,
		       ro_compat & ~(uint64_t)EXT4_RO_COMPAT_ORPHAN_PRESENT);
	if (!f->counts_err) {
		SB_SET(sb, s_free_blocks_count, f->free_blocks);
		if (incompat & EXT4_FEATURE_INCOMPAT_64BIT)
			SB_SET(sb, s_free_blocks_hi, f->free_blocks >> 32);
		SB_SET(sb, s_free_inodes_count, f->free_inodes);
	}
	if (ro_compat & EXT4_FEATURE_RO_COMPAT_METADATA_CSUM)
		SB_SET(sb, s_checksum,
		       ~crc32c(0, sb, offsetof(struct ext2_super_block, s_checksum)));
}

int replay_new(struct replay **ret, const struct blk_reader *r, const struct fsimage_facts *f,
	       struct fsimage_move *list, size_t n)
{
	struct replay *y = malloc(sizeof(*y));

	if (!y) {
		free(list);
		return -ENOMEM;
	}
	*y = (struct replay){ *r, *f, list, n };
	*ret = y;
	return 0;
}

void replay_close(struct replay *y)
{
	if (y)
		free(y->list);
	free(y);
}

const struct fsimage_move *replay_list(const struct replay *y, size_t *ret_n)
{
	*ret_n = y->n;
	return y->list;
}

uint64_t replay_journal_blk(const struct replay *y)
{
	return y->f.journal.sb_block << y->f.block_shift >> COW_BLK_SHIFT;
}

/* The first entry from this block on. */
static size_t list_from(const struct replay *y, uint64_t block)
{
	size_t low = 0, n = y->n;

	while (low < n) {
		size_t mid = low + (n - low) / 2;

		if (y->list[mid].block < block)
			low = mid + 1;
		else
			n = mid;
	}
	return low;
}

uint64_t replay_next(const struct replay *y, uint64_t blk)
{
	uint64_t journal_blk = replay_journal_blk(y), next = UINT64_MAX;
	size_t i = list_from(y, blk << COW_BLK_SHIFT >> y->f.block_shift);

	if (i < y->n)
		next = max_u64(blk, y->list[i].block << y->f.block_shift >> COW_BLK_SHIFT);
	if (blk <= journal_blk)
		next = min_u64(next, journal_blk);
	return blk ? next : 0;
}

/* Replaces the blocks, or the part of a block, that the replay writes in this unit. */
static int unit_replay(const struct replay *y, uint64_t blk, uint8_t *unit)
{
	_Alignas(COW_BLK_BYTES) uint8_t from[COW_BLK_BYTES];
	const unsigned shift = y->f.block_shift;
	const uint64_t pos = blk_to_bytes(blk), end = pos + COW_BLK_BYTES;

	for (size_t i = list_from(y, pos >> shift); i < y->n && y->list[i].block << shift < end;
	     i++) {
		uint64_t block = y->list[i].block << shift,
			 there = (y->list[i].from & ~FSIMAGE_ESCAPED) << shift;
		uint64_t skip = pos > block ? pos - block : 0; /* of a block larger than a unit */
		size_t len = (size_t)min_u64((1ull << shift) - skip, COW_BLK_BYTES);
		uint8_t *to = unit + (block + skip - pos);
		int err = y->r.read(y->r.ctx, (there + skip) >> COW_BLK_SHIFT, 1, from);

		if (err)
			return err;
		memcpy(to, from + (there + skip) % COW_BLK_BYTES, len);
		if (y->list[i].from & FSIMAGE_ESCAPED && !skip)
			memcpy(to, JBD2_MAGIC_BYTES, 4);
	}
	return 0;
}

static void journal_empty(const struct replay *y, uint8_t *unit)
{
	uint8_t *s = unit + (y->f.journal.sb_block << y->f.block_shift) % COW_BLK_BYTES;

	be_set(s, JSB_SEQUENCE, 4, y->f.journal.sequence);
	be_set(s, JSB_START, 4, 0);
	if (be_at(s, JSB_TYPE, 4) == JSB_V2 && be_at(s, JSB_INCOMPAT, 4) & JSB_CSUM_V2_OR_V3) {
		be_set(s, JSB_CHECKSUM, 4, 0);
		be_set(s, JSB_CHECKSUM, 4, (uint32_t)~crc32c(0, s, JSB_BYTES));
	}
}

static int replay_read(void *ctx, uint64_t blk, uint64_t blks, void *buf)
{
	const struct replay *y = ctx;
	int err = y->r.read(y->r.ctx, blk, blks, buf);

	for (uint64_t u = blk; !err && (u = replay_next(y, u)) - blk < blks; u++) {
		uint8_t *unit = (uint8_t *)buf + blk_to_bytes(u - blk);

		err = unit_replay(y, u, unit);
		if (u == 0)
			ext4_settle(&y->f, unit);
		if (u == replay_journal_blk(y))
			journal_empty(y, unit);
	}
	return err;
}

struct blk_reader replay_reader(const struct replay *y)
{
	return (struct blk_reader){ replay_read, (void *)y, y->r.volume_blks };
}
