// SPDX-License-Identifier: MIT
#include "fs/replay.h"

#include <errno.h>
#include <string.h>

#include "base/array.h"
#include "base/bytes.h"
#include "base/crc32c.h"
#include "fs/ext4.h"
#include "fs/extents.h"
#include "fs/reader.h"

#define JBD2_MAGIC_BYTES "\xc0\x3b\x39\x98"

struct replay {
	struct blk_reader r;
	struct fsimage_facts f;
	struct fsimage_move *list;
	size_t n;
	struct extents needed; /* units */
	/* of list: what an earlier replay has not written; NULL: all may be new */
	struct fsimage_move *fresh;
	size_t n_fresh;
	struct reader *reader;
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
	*y = (struct replay){ .r = *r, .f = *f, .list = list, .n = n };
	*ret = y;
	return 0;
}

void replay_close(struct replay *y)
{
	if (!y)
		return;
	free(y->list);
	free(y->fresh);
	extents_clear(&y->needed);
	reader_close(y->reader);
	free(y);
}

void replay_set_reader(struct replay *y, struct reader *x)
{
	y->reader = x;
}

struct reader *replay_take_reader(struct replay *y, struct fsimage_facts *f)
{
	*f = y->f;
	return steal_ptr(y->reader);
}

const struct fsimage_part *replay_part(const struct replay *y)
{
	return &y->f.journal.part;
}

bool replay_aborted(const struct replay *y)
{
	return y->f.journal.error;
}

/* Adds the units of file system blocks, which are not before those added so far. */
static int add_units(struct extents *x, unsigned shift, uint64_t block, uint64_t blocks)
{
	uint64_t blk = block << shift >> COW_BLK_SHIFT,
		 end = round_up_u64((block + blocks) << shift, COW_BLK_BYTES) / COW_BLK_BYTES;

	if (x->n)
		blk = max_u64(blk, x->e[x->n - 1].blk + x->e[x->n - 1].blks);
	return blk < end ? extents_add(x, blk, end - blk) : 0;
}

int replay_set_places(struct replay *y, const struct fsimage_range *places, size_t n)
{
	const struct fsimage_journal *j = &y->f.journal;
	/* behind the tail to the end, and what goes on at the beginning */
	uint64_t end = (uint64_t)j->part.tail + j->part.read, at = 1,
		 wrapped = end > j->log_blocks ? end - j->log_blocks + 1 : 0;
	bool all = y->n && !j->part.read;
	int r = 0;

	for (size_t i = 0; i < n && r == 0; at += places[i++].count) {
		uint64_t last = at + places[i].count, from = max_u64(at, j->part.tail),
			 to = min_u64(last, end), low = min_u64(last, wrapped);

		if (all) {
			r = add_units(&y->needed, y->f.block_shift, places[i].first,
				      places[i].count);
			continue;
		}
		if (low > at)
			r = add_units(&y->needed, y->f.block_shift, places[i].first, low - at);
		if (r == 0 && from < to)
			r = add_units(&y->needed, y->f.block_shift, places[i].first + (from - at),
				      to - from);
	}
	return r;
}

static uint64_t cut_before(uint64_t blk, uint64_t blks, uint64_t at)
{
	return blk < at ? min_u64(blks, at - blk) : blks;
}

bool replay_needs(const struct replay *y, uint64_t blk, uint64_t max_blks, uint64_t *ret_blks)
{
	const uint64_t super[] = { 0, replay_journal_blk(y) };

	*ret_blks = 1;
	if (blk == super[0] || blk == super[1])
		return true;
	*ret_blks = cut_before(blk, max_blks, super[1]);
	for (size_t i = 0; i < y->needed.n; i++) {
		const struct extent_run *e = &y->needed.e[i];

		if (blk >= e->blk && blk - e->blk < e->blks) {
			*ret_blks = min_u64(*ret_blks, e->blk + e->blks - blk);
			return true;
		}
		*ret_blks = cut_before(blk, *ret_blks, e->blk);
	}
	return false;
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
static size_t list_from(const struct fsimage_move *list, size_t n, uint64_t block)
{
	return ARRAY_FIRST(i, n, list[i].block >= block);
}

static uint64_t next_unit(const struct replay *y, const struct fsimage_move *list, size_t n,
			  uint64_t blk)
{
	uint64_t journal_blk = replay_journal_blk(y), next = UINT64_MAX;
	size_t i = list_from(list, n, blk << COW_BLK_SHIFT >> y->f.block_shift);

	if (i < n)
		next = max_u64(blk, list[i].block << y->f.block_shift >> COW_BLK_SHIFT);
	if (blk <= journal_blk)
		next = min_u64(next, journal_blk);
	return blk ? next : 0;
}

uint64_t replay_next(const struct replay *y, uint64_t blk)
{
	return y->fresh ? next_unit(y, y->fresh, y->n_fresh, blk)
			: next_unit(y, y->list, y->n, blk);
}

/* Replaces the blocks, or the part of a block, that the replay writes in this unit. */
static int replace_blocks(const struct replay *y, uint64_t blk, uint8_t *unit)
{
	_Alignas(COW_BLK_BYTES) uint8_t from[COW_BLK_BYTES];
	const unsigned shift = y->f.block_shift;
	const uint64_t pos = blk_to_bytes(blk), end = pos + COW_BLK_BYTES;

	for (size_t i = list_from(y->list, y->n, pos >> shift);
	     i < y->n && y->list[i].block << shift < end; i++) {
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

int replay_mount(const struct blk_reader *r, uint32_t *ret)
{
	static const struct {
		size_t at, bytes;
	} field[] = {
#define FIELD(name)                                                                                \
	{ offsetof(struct ext2_super_block, name), sizeof(((struct ext2_super_block *)0)->name) }
		FIELD(s_uuid),	FIELD(s_hash_seed), FIELD(s_mkfs_time),
		FIELD(s_mtime), FIELD(s_mnt_count), FIELD(s_jnl_blocks)
#undef FIELD
	};
	_Alignas(COW_BLK_BYTES) uint8_t unit[COW_BLK_BYTES];
	int err = r->read(r->ctx, 0, 1, unit);

	*ret = 0;
	for (size_t i = 0; i < ARRAY_SIZE(field) && !err; i++)
		*ret = crc32c(*ret, unit + EXT_SB + field[i].at, field[i].bytes);
	return err;
}

int replay_mark(const struct replay *y, struct replay_mark *ret)
{
	const struct fsimage_part *part = replay_part(y);

	*ret = (struct replay_mark){ .next = part->next, .end = part->end };
	return replay_mount(&y->r, &ret->mount);
}

/* Does this block lie in the part of the journal from its tail to there? It has no second round in that. */
static bool is_before(uint64_t from, uint64_t first, uint64_t end)
{
	return first <= end ? from >= first && from < end : from >= first || from < end;
}

static int keep_fresh(struct replay *y, uint64_t end)
{
	y->fresh = malloc((y->n + 1) * sizeof(*y->fresh));
	if (!y->fresh)
		return -ENOMEM;
	for (size_t i = 0; i < y->n; i++)
		if (!is_before(y->list[i].from & ~FSIMAGE_ESCAPED, replay_part(y)->first, end))
			y->fresh[y->n_fresh++] = y->list[i];
	return 0;
}

int replay_since(struct replay *y, const struct replay_mark *before)
{
	const struct fsimage_part *part = replay_part(y);

	return part->read && (int32_t)(part->sequence - before->next) < 0 &&
			       (int32_t)(part->next - before->next) >= 0
		       ? keep_fresh(y, before->end)
		       : 0;
}

int replay_unit(const struct replay *y, uint64_t blk, uint8_t *unit)
{
	int err = replace_blocks(y, blk, unit);

	if (blk == 0)
		ext4_settle(&y->f, unit);
	if (blk == replay_journal_blk(y))
		journal_empty(y, unit);
	return err;
}

static int replay_read(void *ctx, uint64_t blk, uint64_t blks, void *buf)
{
	const struct replay *y = ctx;
	int err = y->r.read(y->r.ctx, blk, blks, buf);

	for (uint64_t u = blk; !err && (u = next_unit(y, y->list, y->n, u)) - blk < blks; u++)
		err = replay_unit(y, u, (uint8_t *)buf + blk_to_bytes(u - blk));
	return err;
}

struct blk_reader replay_reader(const struct replay *y)
{
	return (struct blk_reader){ replay_read, (void *)y, y->r.volume_blks };
}
