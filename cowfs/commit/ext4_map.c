// SPDX-License-Identifier: MIT
/*
 * Which 4 KiB units of an image are used, free, or jbd2 log: the fsmap of fsinfo.h for ext2/3/4.
 *
 * "Free" is the claim that loses data when it is wrong. Invariants:
 * I1 a block is free only by a clear bit of a group whose descriptor and bitmap checksums match
 *    (where the file system has them) and whose bitmap covers its own superblock copy and tables;
 * I2 a BLOCK_UNINIT group is computed as the kernel's ext4_init_block_bitmap does, plus the
 *    tables that other members of its flex group may have here; a damaged descriptor among them
 *    spoils the group;
 * I3 a journal block is one that the inode maps between the journal's superblock and its s_maxlen,
 *    that the bitmap says is used, and that belongs to an empty log: a full one is content;
 * I4 and the inode is believed only if all that it maps, blocks of its tree included, lies inside of
 *    the file system, once each, and nowhere in superblocks, descriptors, bitmaps and inode tables.
 *    If these are not all known (a damaged descriptor), no block is a journal block.
 */
#include <errno.h>
#include <string.h>

#include "base/array.h"
#include "commit/ext4.h"

#define LRU_GROUPS 16 /* a commit asks in ascending order */
#define JOURNAL_MAX_META 65536 /* a 4 GiB log in 1 KiB indirect blocks has 16 K of them */
#define JOURNAL_MAX_RANGES 65536
#define JOURNAL_MAX_GDT_BYTES (16 * MIB) /* 32 TiB in 4 KiB blocks: more is not looked through */

struct range {
	uint64_t first, count; /* blocks of the file system, not units */
};

struct group {
	bool valid, bad; /* bad: every block of it counts as used */
	dgrp_t nr;
	uint64_t used_at;
	uint8_t *bits; /* one per cluster, as on the card */
};

struct fsmap {
	struct ext4_image *e; /* NULL: every unit is used */
	bool knows;
	unsigned alarms;
	uint64_t volume_blks, clock;
	struct range *log;
	size_t log_ranges;
	uint32_t log_sequence; /* of the next transaction, if the log is empty */
	struct group *last, groups[LRU_GROUPS];
};

/* ---- what is nobody's but the file system's ---- */

#define META_RANGES 4

/* The bitmaps and the inode table of a group whose descriptor is loaded. How many. */
static size_t tables_of(ext2_filsys fs, dgrp_t nr, struct range ret[META_RANGES])
{
	ret[0] = (struct range){ext2fs_block_bitmap_loc(fs, nr), 1};
	ret[1] = (struct range){ext2fs_inode_bitmap_loc(fs, nr), 1};
	ret[2] = (struct range){ext2fs_inode_table_loc(fs, nr), fs->inode_blocks_per_group};
	return 3;
}

/* The copies of superblock and descriptors in a group, with the room for more of them. How many. */
static size_t supers_of(ext2_filsys fs, dgrp_t nr, struct range ret[META_RANGES])
{
	uint64_t old_descs = ext2fs_has_feature_meta_bg(fs->super)
				     ? fs->super->s_first_meta_bg
				     : fs->desc_blocks + fs->super->s_reserved_gdt_blocks;
	blk64_t super, old_desc, new_desc;
	size_t n = 0;
	blk_t used;

	ext2fs_super_and_bgd_loc2(fs, nr, &super, &old_desc, &new_desc, &used);
	if (super || !nr)
		ret[n++] = (struct range){super, 1};
	if (!nr) /* the boot sector, where it is not in the superblock's block */
		ret[n++] = (struct range){0, 1};
	if (old_desc)
		ret[n++] = (struct range){old_desc, old_descs};
	if (new_desc)
		ret[n++] = (struct range){new_desc, 1};
	return n;
}

/* ---- journal ---- */

struct log_walk {
	struct range *ranges;
	size_t n, cap;
	uint64_t meta[JOURNAL_MAX_META], metas, log_blocks, data;
	int err;
};

static int log_add(struct log_walk *w, uint64_t block)
{
	struct range *last = w->n ? &w->ranges[w->n - 1] : NULL;
	void *bigger;

	if (last && last->first + last->count == block) {
		last->count++;
		return 0;
	}
	if (w->n == JOURNAL_MAX_RANGES)
		return -EUCLEAN;
	bigger = array_grow(w->ranges, &w->cap, w->n + 1, sizeof(*w->ranges));
	if (!bigger)
		return -ENOMEM;
	w->ranges = bigger;
	w->ranges[w->n++] = (struct range){block, 1};
	return 0;
}

/* the counts bound the time that a hostile tree of blocks can take */
static int log_visit(ext2_filsys fs, blk64_t *block, e2_blkcnt_t logical, blk64_t ref_blk,
		     int ref_offset, void *ctx)
{
	struct log_walk *w = ctx;

	(void)fs, (void)ref_blk, (void)ref_offset;
	if (logical < 0) {
		if (w->metas < JOURNAL_MAX_META)
			w->meta[w->metas++] = *block;
		else
			w->err = -EUCLEAN;
	} else if ((uint64_t)logical >= w->log_blocks) {
		return BLOCK_ABORT; /* past s_maxlen: not log; comes in ascending order */
	} else if (++w->data > w->log_blocks) {
		w->err = -EUCLEAN;
	} else if (logical) {
		w->err = log_add(w, *block);
	}
	return w->err ? BLOCK_ABORT : 0;
}

static int range_compare(const void *a, const void *b)
{
	const struct range *x = a, *y = b;

	return x->first < y->first ? -1 : x->first > y->first;
}

static const struct range *range_find(const struct range *ranges, size_t n, uint64_t block)
{
	size_t low = 0;

	while (low < n) { /* to the first one that starts after block */
		size_t mid = low + (n - low) / 2;

		if (ranges[mid].first > block)
			n = mid;
		else
			low = mid + 1;
	}
	if (!low || block - ranges[low - 1].first >= ranges[low - 1].count)
		return NULL;
	return &ranges[low - 1];
}

/* Does one of the ranges, sorted and apart, meet another one? */
static bool ranges_meet(const struct range *ranges, size_t n, const struct range *other)
{
	size_t low = 0, high = n;
	uint64_t end;

	if (__builtin_add_overflow(other->first, other->count, &end))
		end = UINT64_MAX;
	while (low < high) { /* to the first one that ends behind the start of the other */
		size_t mid = low + (high - low) / 2;

		if (ranges[mid].first + ranges[mid].count > other->first)
			high = mid;
		else
			low = mid + 1;
	}
	return low < n && ranges[low].first < end;
}

/* -EUCLEAN: something of the file system's own lies in them. *sure false: it cannot be told. */
static int ranges_are_content(struct ext4_image *e, const struct range *ranges, size_t n, bool *sure)
{
	ext2_filsys fs = e->fs;
	int err;

	*sure = (uint64_t)fs->desc_blocks * fs->blocksize <= JOURNAL_MAX_GDT_BYTES;
	if (!*sure)
		return 0;
	for (dgrp_t nr = 0; nr < fs->group_desc_count; nr++) {
		struct range own[2 * META_RANGES];
		size_t owns;

		err = ext4_desc_load(e, nr);
		*sure = err != -EUCLEAN;
		if (err)
			return *sure ? err : 0;
		owns = supers_of(fs, nr, own);
		owns += tables_of(fs, nr, own + owns);
		for (size_t i = 0; i < owns; i++)
			if (ranges_meet(ranges, n, &own[i]))
				return -EUCLEAN;
	}
	return 0;
}

/* I4. -EUCLEAN: the inode maps what cannot be a journal. */
static int log_check(struct ext4_image *e, const struct log_walk *w, uint64_t sb_block, bool *sure)
{
	_cleanup_free_ struct range *all = NULL;
	size_t n = w->n + w->metas + 1;

	/* logical block 0 is the one that is not in the ranges; all others must be mapped */
	if (w->data != w->log_blocks)
		return -EUCLEAN;
	all = malloc(n * sizeof(*all));
	if (!all)
		return -ENOMEM;
	memcpy(all, w->ranges, w->n * sizeof(*all));
	for (size_t i = 0; i < w->metas; i++)
		all[w->n + i] = (struct range){w->meta[i], 1};
	all[n - 1] = (struct range){sb_block, 1};
	qsort(all, n, sizeof(*all), range_compare);
	for (size_t i = 1; i < n; i++)
		if (all[i].first < all[i - 1].first + all[i - 1].count)
			return -EUCLEAN;
	if (all[n - 1].first + all[n - 1].count > ext2fs_blocks_count(e->fs->super))
		return -EUCLEAN;
	return ranges_are_content(e, all, n, sure);
}

static int log_load(struct fsmap *m)
{
	_cleanup_free_ struct log_walk *w = NULL;
	struct ext4_journal j;
	bool sure = false;
	int err = ext4_journal(m->e, &j);

	if (err)
		return err;
	if (j.start)
		m->alarms |= FSMAP_NEEDS_RECOVERY;
	w = calloc(1, sizeof(*w));
	if (!w)
		return -ENOMEM;
	w->log_blocks = j.log_blocks;
	err = ext4_result(m->e, ext2fs_block_iterate3(m->e->fs, j.ino, BLOCK_FLAG_READ_ONLY, NULL,
						      log_visit, w));
	if (!err)
		err = w->err;
	if (!err)
		err = log_check(m->e, w, j.sb_block, &sure);
	if (err || !sure) {
		free(w->ranges);
		return err;
	}
	qsort(w->ranges, w->n, sizeof(*w->ranges), range_compare);
	m->log = w->ranges;
	m->log_ranges = w->n;
	m->log_sequence = j.sequence;
	return 0;
}

/* ---- groups ---- */

static uint64_t group_first(ext2_filsys fs, dgrp_t nr)
{
	return ext2fs_group_first_block2(fs, nr);
}

/* Calls for the bits of those clusters of [first, first + count) that lie in group nr. */
static bool group_covers(ext2_filsys fs, struct group *g, uint64_t first, uint64_t count, bool set)
{
	uint64_t start = group_first(fs, g->nr), end;

	if (__builtin_add_overflow(first, count, &end))
		end = UINT64_MAX;
	end = min_u64(end, start + fs->super->s_blocks_per_group);
	first = max_u64(first, start);
	for (uint64_t b = first; b < end; b++) {
		uint64_t bit = (b - start) >> fs->cluster_ratio_bits;

		if (set)
			g->bits[bit / 8] |= (uint8_t)(1 << bit % 8);
		else if (!(g->bits[bit / 8] & 1 << bit % 8))
			return false;
	}
	return true;
}

/* The bitmaps and the inode table of group owner, as far as they lie in g; own or not. */
static bool tables_cover(ext2_filsys fs, struct group *g, dgrp_t owner, bool set)
{
	struct range tables[META_RANGES];
	size_t n = tables_of(fs, owner, tables);

	for (size_t i = 0; i < n; i++)
		if (!group_covers(fs, g, tables[i].first, tables[i].count, set))
			return false;
	return true;
}

static void supers_mark(ext2_filsys fs, struct group *g)
{
	struct range supers[META_RANGES];
	size_t n = supers_of(fs, g->nr, supers);

	for (size_t i = 0; i < n; i++)
		group_covers(fs, g, supers[i].first, supers[i].count, true);
}

static int group_compute(struct ext4_image *e, struct group *g)
{
	ext2_filsys fs = e->fs;
	uint64_t flex = ext2fs_has_feature_flex_bg(fs->super)
				? 1ull << fs->super->s_log_groups_per_flex
				: 1;
	uint64_t first = round_down_u64(g->nr, flex);

	memset(g->bits, 0, fs->blocksize);
	supers_mark(fs, g);
	for (uint64_t i = first; i < min_u64(first + flex, fs->group_desc_count); i++) {
		int err = ext4_desc_load(e, (dgrp_t)i);

		if (err)
			return err;
		tables_cover(fs, g, (dgrp_t)i, true);
	}
	return 0;
}

static int group_read(struct ext4_image *e, struct group *g)
{
	ext2_filsys fs = e->fs;
	uint64_t loc = ext2fs_block_bitmap_loc(fs, g->nr);
	blk64_t super;
	int err;

	if (loc <= fs->super->s_first_data_block || loc >= ext2fs_blocks_count(fs->super))
		return -EUCLEAN;
	err = ext4_result(e, io_channel_read_blk64(fs->io, loc, 1, g->bits));
	if (err)
		return err;
	if (!ext2fs_block_bitmap_csum_verify(fs, g->nr, (char *)g->bits,
					     (int)(fs->super->s_clusters_per_group / 8)))
		return -EUCLEAN;
	/* a bitmap without checksum that is zeroed or not a bitmap shows here */
	ext2fs_super_and_bgd_loc2(fs, g->nr, &super, NULL, NULL, NULL);
	if ((super && !group_covers(fs, g, super, 1, false)) || !tables_cover(fs, g, g->nr, false))
		return -EUCLEAN;
	return 0;
}

static int group_decode(struct ext4_image *e, struct group *g)
{
	int err = ext4_desc_load(e, g->nr);

	if (err)
		return err;
	if (!g->bits)
		g->bits = malloc(e->fs->blocksize);
	if (!g->bits)
		return -ENOMEM;
	if (ext2fs_has_group_desc_csum(e->fs) &&
	    ext2fs_bg_flags_test(e->fs, g->nr, EXT2_BG_BLOCK_UNINIT))
		return group_compute(e, g);
	return group_read(e, g);
}

static int group_get(struct fsmap *m, dgrp_t nr, const struct group **ret)
{
	struct group *g = m->last, *oldest = m->groups;
	int err;

	if (!g || !g->valid || g->nr != nr) {
		for (g = m->groups; g < m->groups + LRU_GROUPS; g++) {
			if (g->valid && g->nr == nr)
				break;
			if (g->used_at < oldest->used_at)
				oldest = g;
		}
	}
	if (g == m->groups + LRU_GROUPS) {
		g = oldest;
		g->valid = false;
		g->nr = nr;
		err = group_decode(m->e, g);
		if (err && err != -EUCLEAN)
			return err;
		g->bad = err;
		g->valid = true;
		if (g->bad)
			m->alarms |= FSMAP_BAD_CHECKSUM;
	}
	g->used_at = ++m->clock;
	m->last = g;
	*ret = g;
	return 0;
}

/* ---- the map ---- */

static int block_use(struct fsmap *m, uint64_t block, enum blk_use *ret)
{
	ext2_filsys fs = m->e->fs;
	const struct group *g;
	uint64_t rel, bit;
	bool log, used;
	int err;

	*ret = USE_USED;
	/* block 0 whatever the bitmap says: the boot sector; and s_first_data_block is 0 or 1 */
	if (!block || block >= ext2fs_blocks_count(fs->super))
		return 0;
	rel = block - fs->super->s_first_data_block;
	err = group_get(m, (dgrp_t)(rel / fs->super->s_blocks_per_group), &g);
	if (err || g->bad)
		return err;
	bit = rel % fs->super->s_blocks_per_group >> fs->cluster_ratio_bits;
	used = g->bits[bit / 8] & 1 << bit % 8;
	log = range_find(m->log, m->log_ranges, block);
	if (used && log && !(m->alarms & FSMAP_NEEDS_RECOVERY))
		*ret = USE_JOURNAL;
	else if (!used && !log)
		*ret = USE_FREE;
	return 0;
}

int fsmap_use(struct fsmap *m, uint64_t blk, enum blk_use *ret)
{
	enum blk_use use, part;
	uint64_t first, parts;
	unsigned shift;
	int err;

	if (!m->e || blk >= m->volume_blks) {
		*ret = USE_USED;
		return 0;
	}
	shift = EXT2_BLOCK_SIZE_BITS(m->e->fs->super);
	first = blk_to_bytes(blk) >> shift;
	parts = shift < COW_BLK_SHIFT ? 1u << (COW_BLK_SHIFT - shift) : 1;
	err = block_use(m, first, &use);
	for (uint64_t i = 1; !err && i < parts && use != USE_USED; i++) {
		err = block_use(m, first + i, &part);
		if (part != use)
			use = USE_USED;
	}
	if (!err)
		*ret = use;
	return err;
}

/* How many bits from this one on, below end, are like it. */
static uint64_t bits_alike(const uint8_t *bits, uint64_t bit, uint64_t end)
{
	const bool set = bits[bit / 8] & 1 << bit % 8;
	uint64_t pos = bit;

	while (pos < end) {
		if (pos % 8 == 0 && end - pos >= 8 && bits[pos / 8] == (set ? 0xff : 0))
			pos += 8;
		else if (!(bits[pos / 8] & 1 << pos % 8) == !set)
			pos++;
		else
			break;
	}
	return pos - bit;
}

/* The first place behind block where the journal begins or ends. */
static uint64_t log_edge(const struct fsmap *m, uint64_t block)
{
	size_t low = 0, n = m->log_ranges;

	while (low < n) { /* to the first one that ends after block */
		size_t mid = low + (n - low) / 2;

		if (m->log[mid].first + m->log[mid].count > block)
			n = mid;
		else
			low = mid + 1;
	}
	if (low == m->log_ranges)
		return UINT64_MAX;
	return m->log[low].first > block ? m->log[low].first : m->log[low].first + m->log[low].count;
}

/* How many blocks from this one of the last group on have the same use, for certain. */
static uint64_t blocks_alike(const struct fsmap *m, uint64_t block)
{
	ext2_filsys fs = m->e->fs;
	uint64_t start = group_first(fs, m->last->nr), end, bit, clusters;

	end = min_u64(start + fs->super->s_blocks_per_group, ext2fs_blocks_count(fs->super));
	if (m->last->bad)
		return end - block;
	end = min_u64(end, log_edge(m, block));
	bit = (block - start) >> fs->cluster_ratio_bits;
	clusters = ((end - 1 - start) >> fs->cluster_ratio_bits) + 1;
	return min_u64(end, start + ((bit + bits_alike(m->last->bits, bit, clusters)) << fs->cluster_ratio_bits)) - block;
}

int fsmap_run(struct fsmap *m, uint64_t blk, uint64_t max_blks, enum blk_use *ret, uint64_t *ret_blks)
{
	enum blk_use use, next;
	uint64_t block, n = 0;
	unsigned shift;
	int err = fsmap_use(m, blk, &use);

	if (!err && max_blks > 1 && !m->e) {
		n = max_blks - 1;
	} else if (!err && max_blks > 1 && blk < m->volume_blks) {
		/* a unit may be made of blocks of several uses: the run is of those behind it */
		shift = EXT2_BLOCK_SIZE_BITS(m->e->fs->super);
		block = blk_to_bytes(blk + 1) >> shift;
		if (shift <= COW_BLK_SHIFT && m->last && block < ext2fs_blocks_count(m->e->fs->super)) {
			err = block_use(m, block, &next);
			if (!err && next == use)
				n = min_u64(blocks_alike(m, block) >> (COW_BLK_SHIFT - shift), max_blks - 1);
		}
	}
	if (err)
		return err;
	*ret = use;
	*ret_blks = 1 + n;
	return 0;
}

/* Is all of the unit in the log? */
static bool unit_in_log(const struct fsmap *m, uint64_t blk)
{
	unsigned shift = EXT2_BLOCK_SIZE_BITS(m->e->fs->super);
	uint64_t first = blk_to_bytes(blk) >> shift, end = max_u64(blk_to_bytes(blk + 1) >> shift, first + 1);

	for (; first < end; first++)
		if (!range_find(m->log, m->log_ranges, first))
			return false;
	return true;
}

/* Transaction numbers wrap. */
static bool log_goes_on(const struct fsmap *m, const struct fsmap *before)
{
	return before && before->e && before->log && !(before->alarms & FSMAP_NEEDS_RECOVERY) &&
	       (int32_t)(m->log_sequence - before->log_sequence) >= 0;
}

int fsmap_run_after(struct fsmap *m, const struct fsmap *before, uint64_t blk, uint64_t max_blks, enum blk_use *ret,
		    uint64_t *ret_blks)
{
	enum blk_use use;
	uint64_t n, same = 1;
	int err = fsmap_run(m, blk, max_blks, &use, &n);

	if (err)
		return err;
	if (use == USE_JOURNAL && !log_goes_on(m, before)) {
		use = USE_USED;
	} else if (use == USE_JOURNAL) {
		bool was_log = unit_in_log(before, blk);

		while (same < n && unit_in_log(before, blk + same) == was_log)
			same++;
		n = same;
		use = was_log ? USE_JOURNAL : USE_USED;
	}
	*ret = use;
	*ret_blks = n;
	return 0;
}

static int map_open_ext(struct fsmap *m, const struct blk_reader *r, const struct fsinfo *f)
{
	int err = ext4_open(&m->e, r);

	if (err == -EUCLEAN)
		m->alarms |= FSMAP_BAD_CHECKSUM;
	else if (err == -EOPNOTSUPP)
		m->knows = false;
	if (err == -EUCLEAN || err == -EOPNOTSUPP)
		return 0;
	if (!err && f->has_journal && !f->external_journal) {
		err = log_load(m);
		if (err == -EUCLEAN) {
			m->alarms |= FSMAP_BAD_CHECKSUM;
			err = 0;
		}
	}
	return err;
}

int fsmap_open(struct fsmap **ret, const struct blk_reader *r)
{
	struct fsinfo f;
	struct fsmap *m;
	int err = fsinfo_probe_super(r, &f);

	if (err)
		return err;
	m = calloc(1, sizeof(*m));
	if (!m)
		return -ENOMEM;
	m->knows = f.kind == FS_EXT;
	m->volume_blks = r->volume_blks;
	m->alarms = (f.error_flag ? FSMAP_ERROR_FLAG : 0) |
		    (f.needs_recovery ? FSMAP_NEEDS_RECOVERY : 0);
	if (f.kind == FS_EXT)
		err = map_open_ext(m, r, &f);
	if (err) {
		fsmap_close(m);
		return err;
	}
	*ret = m;
	return 0;
}

void fsmap_close(struct fsmap *m)
{
	if (!m)
		return;
	for (size_t i = 0; i < LRU_GROUPS; i++)
		free(m->groups[i].bits);
	free(m->log);
	ext4_close(m->e);
	free(m);
}

void fsmap_assume_empty_journal(struct fsmap *m)
{
	m->alarms &= ~(unsigned)FSMAP_NEEDS_RECOVERY;
}

bool fsmap_knows(const struct fsmap *m)
{
	return m->knows;
}

unsigned fsmap_alarms(const struct fsmap *m)
{
	return m->alarms;
}
