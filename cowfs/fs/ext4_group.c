// SPDX-License-Identifier: MIT
/*
 * The answers of libext2fs for the map of fsmap.c: the ranges of the journal, and the bitmap of a
 * group, each checked against the rest of the file system. The invariants I1 to I4 are those of
 * fsmap.c.
 */
#include <errno.h>
#include <string.h>

#include "base/array.h"
#include "fs/ext4.h"

/* each group needs a look at every member of its flex group; larger ones count as used */
#define FLEX_MAX_GROUPS 16384
#define JOURNAL_MAX_META 65536 /* a 4 GiB log in 1 KiB indirect blocks has 16 K of them */
#define JOURNAL_MAX_RANGES 65536
#define JOURNAL_MAX_GDT_BYTES (16 * MIB) /* 32 TiB in 4 KiB blocks: more is not searched */

/* Where the bits of a group go. */
struct group {
	dgrp_t nr;
	uint8_t *bits; /* one per cluster, as on the card */
};

/* ---- the file system's own blocks ---- */

#define META_RANGES 4

/*
 * Gets the bitmaps and the inode table of a group whose descriptor is loaded. Returns their number.
 */
static size_t tables_of(ext2_filsys fs, dgrp_t nr, struct fsimage_range ret[META_RANGES])
{
	ret[0] = (struct fsimage_range){ ext2fs_block_bitmap_loc(fs, nr), 1 };
	ret[1] = (struct fsimage_range){ ext2fs_inode_bitmap_loc(fs, nr), 1 };
	ret[2] = (struct fsimage_range){ ext2fs_inode_table_loc(fs, nr),
					 fs->inode_blocks_per_group };
	return 3;
}

/*
 * Gets the copies of superblock and descriptors in a group, with the reserved room for more
 * descriptors. Returns their number.
 */
static size_t supers_of(ext2_filsys fs, dgrp_t nr, struct fsimage_range ret[META_RANGES])
{
	uint64_t old_descs = ext2fs_has_feature_meta_bg(fs->super)
				     ? fs->super->s_first_meta_bg
				     : fs->desc_blocks + fs->super->s_reserved_gdt_blocks;
	blk64_t super, old_desc, new_desc;
	size_t n = 0;
	blk_t used;

	ext2fs_super_and_bgd_loc2(fs, nr, &super, &old_desc, &new_desc, &used);
	if (super || !nr)
		ret[n++] = (struct fsimage_range){ super, 1 };
	if (!nr) /* the boot sector, unless it is in the superblock's block */
		ret[n++] = (struct fsimage_range){ 0, 1 };
	if (old_desc)
		ret[n++] = (struct fsimage_range){ old_desc, old_descs };
	if (new_desc)
		ret[n++] = (struct fsimage_range){ new_desc, 1 };
	return n;
}

/* ---- journal ---- */

struct log_walk {
	struct fsimage_range *ranges;
	size_t n, cap;
	uint64_t meta[JOURNAL_MAX_META], metas, log_blocks, data;
	int err;
};

static int log_add(struct log_walk *w, uint64_t block)
{
	struct fsimage_range *last = w->n ? &w->ranges[w->n - 1] : NULL;

	if (last && last->first + last->count == block) {
		last->count++;
		return 0;
	}
	if (w->n == JOURNAL_MAX_RANGES)
		return -EUCLEAN;
	return ARRAY_ADD(w->ranges, w->n, w->cap, (struct fsimage_range){ block, 1 });
}

/* the counts limit the time that a hostile tree of blocks can take */
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
		return BLOCK_ABORT; /* past s_maxlen: not log; blocks come in ascending order */
	} else if (++w->data > w->log_blocks) {
		w->err = -EUCLEAN;
	} else if (logical) {
		w->err = log_add(w, *block);
	}
	return w->err ? BLOCK_ABORT : 0;
}

static int range_compare(const void *a, const void *b)
{
	const struct fsimage_range *x = a, *y = b;

	return x->first < y->first ? -1 : x->first > y->first;
}

/* Does one of the ranges, which are sorted and disjoint, overlap another one? */
static bool ranges_meet(const struct fsimage_range *ranges, size_t n,
			const struct fsimage_range *other)
{
	size_t at = ARRAY_FIRST(i, n, ranges[i].first + ranges[i].count > other->first);
	uint64_t end;

	if (__builtin_add_overflow(other->first, other->count, &end))
		end = UINT64_MAX;
	return at < n && ranges[at].first < end;
}

/*
 * -EUCLEAN: the ranges contain some of the file system's own blocks. *sure false: cannot be
 * determined.
 */
static int ranges_are_content(struct ext4_image *e, const struct fsimage_range *ranges, size_t n,
			      bool *sure)
{
	ext2_filsys fs = e->fs;
	int err;

	*sure = (uint64_t)fs->desc_blocks * fs->blocksize <= JOURNAL_MAX_GDT_BYTES;
	if (!*sure)
		return 0;
	for (dgrp_t nr = 0; nr < fs->group_desc_count; nr++) {
		struct fsimage_range own[2 * META_RANGES];
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

/* I4. -EUCLEAN: what the inode maps cannot be a journal. */
static int log_check(struct ext4_image *e, const struct log_walk *w, uint64_t sb_block, bool *sure)
{
	_cleanup_free_ struct fsimage_range *all = NULL;
	size_t n = w->n + w->metas + 1;

	/* only logical block 0 is not in the ranges; all others must be mapped */
	if (w->data != w->log_blocks)
		return -EUCLEAN;
	all = malloc(n * sizeof(*all));
	if (!all)
		return -ENOMEM;
	memcpy(all, w->ranges, w->n * sizeof(*all));
	for (size_t i = 0; i < w->metas; i++)
		all[w->n + i] = (struct fsimage_range){ w->meta[i], 1 };
	all[n - 1] = (struct fsimage_range){ sb_block, 1 };
	qsort(all, n, sizeof(*all), range_compare);
	for (size_t i = 1; i < n; i++)
		if (all[i].first < all[i - 1].first + all[i - 1].count)
			return -EUCLEAN;
	if (all[n - 1].first + all[n - 1].count > ext2fs_blocks_count(e->fs->super))
		return -EUCLEAN;
	return ranges_are_content(e, all, n, sure);
}

int ext4_log_places(struct ext4_image *e, const struct fsimage_journal *j,
		    struct fsimage_range **ret, size_t *ret_n)
{
	_cleanup_free_ struct log_walk *w = calloc(1, sizeof(*w));
	bool sure = false;
	int err;

	if (!w)
		return -ENOMEM;
	w->log_blocks = j->log_blocks;
	err = ext4_result(
		e, ext2fs_block_iterate3(e->fs, j->ino, BLOCK_FLAG_READ_ONLY, NULL, log_visit, w));
	if (!err)
		err = w->err;
	if (!err)
		err = log_check(e, w, j->sb_block, &sure);
	if (err || !sure) {
		free(w->ranges);
		w->ranges = NULL;
		w->n = 0;
	}
	if (err)
		return err;
	*ret = w->ranges;
	*ret_n = w->n;
	return 0;
}

int ext4_log_ranges(struct ext4_image *e, const struct fsimage_journal *j,
		    struct fsimage_range **ret, size_t *ret_n)
{
	int err = ext4_log_places(e, j, ret, ret_n);

	if (!err && *ret_n)
		qsort(*ret, *ret_n, sizeof(**ret), range_compare);
	return err;
}

/* ---- groups ---- */

static uint64_t group_first(ext2_filsys fs, dgrp_t nr)
{
	return ext2fs_group_first_block2(fs, nr);
}

/* Sets or checks the bits of those clusters of [first, first + count) that lie in group nr. */
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

/*
 * The same for the bitmaps and the inode table of group owner, as far as they lie in g; owner may
 * be another group.
 */
static bool tables_cover(ext2_filsys fs, struct group *g, dgrp_t owner, bool set)
{
	struct fsimage_range tables[META_RANGES];
	size_t n = tables_of(fs, owner, tables);

	for (size_t i = 0; i < n; i++)
		if (!group_covers(fs, g, tables[i].first, tables[i].count, set))
			return false;
	return true;
}

static void supers_mark(ext2_filsys fs, struct group *g)
{
	struct fsimage_range supers[META_RANGES];
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

	if (flex > FLEX_MAX_GROUPS) {
		memset(g->bits, 0xff, fs->blocksize);
		return 0;
	}
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
	if (!e->live &&
	    !ext2fs_block_bitmap_csum_verify(fs, g->nr, (char *)g->bits,
					     (int)(fs->super->s_clusters_per_group / 8)))
		return -EUCLEAN;
	/* this detects a bitmap without checksum that is zeroed or is not a bitmap */
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
	if (ext2fs_has_group_desc_csum(e->fs) &&
	    ext2fs_bg_flags_test(e->fs, g->nr, EXT2_BG_BLOCK_UNINIT))
		return group_compute(e, g);
	return group_read(e, g);
}

int ext4_group_bits(struct ext4_image *e, dgrp_t nr, uint8_t *ret)
{
	return group_decode(e, &(struct group){ .nr = nr, .bits = ret });
}

int ext4_is_used(struct ext4_image *e, struct ext4_used *m, uint64_t block, bool *ret)
{
	const struct ext2_super_block *sb = e->fs->super;
	uint64_t rel = block - sb->s_first_data_block, bit;
	dgrp_t nr = (dgrp_t)(rel / sb->s_blocks_per_group);
	int err;

	*ret = true;
	if (block < sb->s_first_data_block || nr >= e->fs->group_desc_count)
		return 0;
	if (!m->bits && !(m->bits = malloc(e->fs->blocksize)))
		return -ENOMEM;
	if (!m->loaded || m->nr != nr) {
		err = ext4_group_bits(e, nr, m->bits);
		if (err && err != -EUCLEAN)
			return err;
		m->nr = nr;
		m->loaded = true;
		m->bad = err;
	}
	bit = rel % sb->s_blocks_per_group >> e->fs->cluster_ratio_bits;
	*ret = m->bad || m->bits[bit / 8] & 1 << bit % 8;
	return 0;
}

void ext4_used_clear(struct ext4_used *m)
{
	free(m->bits);
	*m = (struct ext4_used){ 0 };
}
