// SPDX-License-Identifier: MIT
/*
 * owners.h for ext2/3/4 through libext2fs.
 *
 * One pass over the inode tables claims blocks for each inode, against the sorted runs. An inode
 * that claims none is forgotten, except for a bit and, for directories, a number. One pass over the
 * directories then finds the names of the remaining inodes and of all directories, and builds paths
 * from them. If only tables were written there is no second pass.
 *
 * With an older state the first pass also compares the changed blocks of the tables with the older ones,
 * inode by inode: a file or directory that differs is one whose inode does, or one that owns a changed
 * block (a write in the same tick of the clock as the one before). Then all names of an inode count.
 *
 * The file system may be mounted and busy. Its metadata is read through the page cache of the
 * device, where ext4 changes it: the content there is newer than what the journal has checkpointed.
 * But nothing holds it still. So this code checks no checksums, doubts every number, and counts and
 * skips an inode that does not parse.
 *
 * The maker of the card may have chosen every byte. This code reads inode tables, directories and
 * bitmaps itself, because the library's own walks of them trust what they read. It uses the library
 * only for accessors and to walk the blocks of one inode. Blocks that are mapped repeatedly could
 * keep these walks busy for years: one budget of steps, which follows from the size, limits them
 * all.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>

#include "base/array.h"
#include "base/io.h"
#include "fs/ext4.h"
#include "fs/owners.h"

#define SCAN_BLOCKS 64
#define PROGRESS_INODES 8192
#define STEPS_PER_BLOCK 4 /* a block of a directory takes two */
#define STEPS_MIN (1u << 20)
#define NO_NAME UINT64_MAX
#define XATTR_SYSTEM 7

/* A name: its place in the pool, and its directory. */
struct name {
	ext2_ino_t ino, parent;
	uint64_t text;	/* offset into the pool, NO_NAME */
	bool encrypted; /* a directory whose names no path can have */
};

struct names {
	struct name *n; /* ascending by ino */
	size_t count, cap;
};

struct scan {
	struct ext4_image *e;
	ext2_filsys fs;
	uint64_t steps; /* number of steps left */
	const struct owners_query *q;
	struct owners *w;
	struct owner own[OWNER_KINDS]; /* the file system's own rows */
	struct names files, dirs;
	struct names more; /* further names, unordered; only with an older state */
	struct ext4_image *old;
	uint8_t *table; /* a block of the older inode tables */
	uint64_t table_block;
	bool table_changed;
	uint8_t *claimed; /* NULL, or a bit per block: a changed one with an owner */
	uint8_t *wanted;  /* a bit per inode: it is in one of the two lists */
	size_t wanted_bytes;
	struct text_pool pool;
	blk64_t *xattr; /* changed blocks of extended attributes, with duplicates */
	size_t xattrs, xattr_cap;
	int err;
};

static uint64_t to_bytes(const struct scan *s, uint64_t block)
{
	uint64_t bytes;

	return __builtin_mul_overflow(block, (uint64_t)s->fs->blocksize, &bytes) ? UINT64_MAX
										 : bytes;
}

/* False: no step is left. */
static bool step(struct scan *s)
{
	if (s->steps)
		s->steps--;
	else
		s->w->complete = false;
	return s->w->complete;
}

/* The blocks of a changed run. */
static uint64_t run_start(const struct scan *s, const struct extent_run *e)
{
	return max_u64(blk_to_bytes(e->blk) / s->fs->blocksize, s->fs->super->s_first_data_block);
}

static uint64_t run_end(const struct scan *s, const struct extent_run *e)
{
	return min_u64((blk_to_bytes(e->blk + e->blks) + s->fs->blocksize - 1) / s->fs->blocksize,
		       ext2fs_blocks_count(s->fs->super));
}

static void claim(const struct scan *s, struct owner *o, uint64_t block, uint64_t count)
{
	const struct extents *x = s->q->all;
	uint64_t end = block + count;

	if (end < block || end > ext2fs_blocks_count(s->fs->super))
		return; /* an invalid value, from an inode that is changing */
	owner_claim(o, s->q, to_bytes(s, block), to_bytes(s, end));
	for (size_t i = s->claimed ? extents_at(x, to_bytes(s, block)) : x->n;
	     i < x->n && run_start(s, &x->e[i]) < end; i++)
		for (uint64_t b = max_u64(block, run_start(s, &x->e[i]));
		     b < min_u64(end, run_end(s, &x->e[i])); b++)
			s->claimed[b / 8] |= (uint8_t)(1 << b % 8);
}

static bool is_claimed(const struct scan *s, uint64_t block)
{
	return s->claimed && s->claimed[block / 8] & 1 << block % 8;
}

static int names_add(struct names *x, ext2_ino_t ino)
{
	return ARRAY_ADD(x->n, x->count, x->cap, (struct name){ .ino = ino, .text = NO_NAME });
}

static struct name *names_find(const struct names *x, ext2_ino_t ino)
{
	size_t at = ARRAY_FIRST(i, x->count, x->n[i].ino >= ino);

	return at < x->count && x->n[at].ino == ino ? &x->n[at] : NULL;
}

/* ---- blocks of an inode ---- */

static int claim_leaf_in_inode(const struct scan *s, struct owner *o,
			       const struct ext3_extent_header *h)
{
	const struct ext3_extent *e = (const struct ext3_extent *)(h + 1);
	unsigned entries = ext2fs_le16_to_cpu(h->eh_entries);

	if (entries > (sizeof(((struct ext2_inode *)0)->i_block) - sizeof(*h)) / sizeof(*e))
		return -EUCLEAN;
	for (unsigned i = 0; i < entries; i++) {
		uint64_t first = ext2fs_le32_to_cpu(e[i].ee_start) |
				 (uint64_t)ext2fs_le16_to_cpu(e[i].ee_start_hi) << 32;
		unsigned len = ext2fs_le16_to_cpu(e[i].ee_len);

		claim(s, o, first, len > EXT_INIT_MAX_LEN ? len - EXT_INIT_MAX_LEN : len);
	}
	return 0;
}

static int claim_tree(struct scan *s, struct owner *o, ext2_ino_t ino, struct ext2_inode *inode)
{
	ext2_extent_handle_t handle;
	struct ext2fs_extent e;
	errcode_t rc = ext2fs_extent_open2(s->fs, ino, inode, &handle);

	if (rc)
		return -EUCLEAN;
	rc = ext2fs_extent_get(handle, EXT2_EXTENT_ROOT, &e);
	while (!rc && step(s)) {
		if (e.e_flags & EXT2_EXTENT_FLAGS_LEAF)
			claim(s, o, e.e_pblk, e.e_len);
		else if (!(e.e_flags & EXT2_EXTENT_FLAGS_SECOND_VISIT))
			claim(s, o, e.e_pblk, 1); /* a block of the tree */
		rc = ext2fs_extent_get(handle, EXT2_EXTENT_NEXT, &e);
	}
	ext2fs_extent_free(handle);
	return ext4_result(s->e, rc == EXT2_ET_EXTENT_NO_NEXT ? 0 : rc) ? -EUCLEAN : 0;
}

struct visit {
	struct scan *s;
	struct owner *o;
};

static int claim_block(ext2_filsys fs, blk64_t *block, e2_blkcnt_t logical, blk64_t ref_blk,
		       int ref_offset, void *ctx)
{
	struct visit *v = ctx;

	(void)fs, (void)logical, (void)ref_blk, (void)ref_offset;
	claim(v->s, v->o, *block, 1);
	return step(v->s) ? 0 : BLOCK_ABORT;
}

static int claim_inode(struct scan *s, struct owner *o, ext2_ino_t ino, struct ext2_inode *inode)
{
	const struct ext3_extent_header *h = (const void *)inode->i_block;
	struct visit v = { s, o };

	if (!ext2fs_inode_has_valid_blocks2(s->fs, inode))
		return 0; /* a device, a short symlink, a file inside its inode */
	if (!ext4_tree_ok(inode))
		return -EUCLEAN;
	if (!(inode->i_flags & EXT4_EXTENTS_FL))
		return ext4_result(s->e, ext2fs_block_iterate3(s->fs, ino, BLOCK_FLAG_READ_ONLY,
							       NULL, claim_block, &v))
			       ? -EUCLEAN
			       : 0;
	return h->eh_depth ? claim_tree(s, o, ino, inode) : claim_leaf_in_inode(s, o, h);
}

static int note_xattr(struct scan *s, struct owner *o, struct ext2_inode *inode)
{
	blk64_t block = ext2fs_file_acl_block(s->fs, inode);
	struct owner probe = { 0 };

	if (!block)
		return 0;
	claim(s, &probe, block, 1);
	if (!probe.bytes)
		return 0;
	if (s->old)
		o->differs |= OWNER_TOUCHED;
	return ARRAY_ADD(s->xattr, s->xattrs, s->xattr_cap, block);
}

static int block_compare(const void *a, const void *b)
{
	const blk64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

/* Files may share a block of extended attributes. */
static void claim_xattrs(struct scan *s)
{
	if (s->xattrs)
		qsort(s->xattr, s->xattrs, sizeof(*s->xattr), block_compare);
	for (size_t i = 0; i < s->xattrs; i++)
		if (!i || s->xattr[i] != s->xattr[i - 1])
			claim(s, &s->own[OWNER_XATTRS], s->xattr[i], 1);
}

/* ---- the inode tables ---- */

/* The number of inodes of a group that were used at some time. */
static uint64_t inodes_of(ext2_filsys fs, dgrp_t nr)
{
	uint64_t all = fs->super->s_inodes_per_group;

	if (!ext2fs_has_group_desc_csum(fs))
		return all;
	if (ext2fs_bg_flags_test(fs, nr, EXT2_BG_INODE_UNINIT))
		return 0;
	return all - min_u64(all, ext2fs_bg_itable_unused(fs, nr));
}

static bool is_own(const struct scan *s, ext2_ino_t ino)
{
	return ino != EXT2_ROOT_INO &&
	       (ino < EXT2_FIRST_INODE(s->fs->super) || ino == s->fs->super->s_orphan_file_inum);
}

static int take_own(struct scan *s, ext2_ino_t ino, struct ext2_inode *inode)
{
	if (ino == EXT2_RESIZE_INO)
		return 0; /* the reserved room for descriptors */
	return claim_inode(
		s, &s->own[ino == s->fs->super->s_journal_inum ? OWNER_JOURNAL : OWNER_OTHER], ino,
		inode);
}

static int want(struct scan *s, struct names *list, ext2_ino_t ino)
{
	s->wanted[ino / 8] |= (uint8_t)(1 << ino % 8);
	return names_add(list, ino);
}

/* ---- the older state ---- */

/* The inode in the older state, or NULL. table_changed: whether its block is a changed one. */
static int load_older(struct scan *s, ext2_ino_t ino, struct ext2_inode **ret)
{
	ext2_filsys fs = s->old->fs;
	uint64_t size = EXT2_INODE_SIZE(fs->super), per_group = fs->super->s_inodes_per_group,
		 rel = (ino - 1) % per_group;
	dgrp_t nr = (dgrp_t)((ino - 1) / per_group);
	uint64_t block = ext2fs_inode_table_loc(s->fs, nr) + rel * size / fs->blocksize;
	int err = 0;

	if (block != s->table_block) {
		struct owner probe = { 0 };

		claim(s, &probe, block, 1);
		s->table_changed = probe.bytes != 0;
		s->table_block = block;
		if (s->table_changed && nr < fs->group_desc_count)
			err = ext4_result(s->old,
					  io_channel_read_blk64(fs->io, block, 1, s->table));
	}
	*ret = NULL;
	if (!err && nr < fs->group_desc_count && rel < inodes_of(fs, nr))
		*ret = (struct ext2_inode *)(s->table + rel * size % fs->blocksize);
	return err;
}

static bool may_differ_in_content(const struct ext2_inode *a, const struct ext2_inode *b)
{
	return memcmp(a->i_block, b->i_block, sizeof(a->i_block)) != 0 || a->i_size != b->i_size ||
	       a->i_size_high != b->i_size_high ||
	       ((a->i_flags ^ b->i_flags) & EXT4_INLINE_DATA_FL);
}

/* o->bytes is known. */
static int compare_older(struct scan *s, struct owner *o, const struct ext2_inode *inode)
{
	struct ext2_inode *older;
	int err = load_older(s, (ext2_ino_t)o->ino, &older);

	if (err || inode->i_flags & EXT4_EA_INODE_FL) { /* its owner differs as well */
		o->differs = 0;
		return err;
	}
	if (o->bytes)
		o->differs |= OWNER_TOUCHED | OWNER_CONTENT;
	if (!s->table_changed) {
		o->differs |= o->differs ? OWNER_SAME : 0;
		return 0;
	}
	if (!older || memcmp(older, inode, EXT2_INODE_SIZE(s->fs->super)) != 0)
		o->differs |= OWNER_TOUCHED;
	if (o->differs && older && older->i_links_count &&
	    older->i_generation == inode->i_generation &&
	    !((older->i_mode ^ inode->i_mode) & LINUX_S_IFMT))
		o->differs |= OWNER_SAME |
			      (may_differ_in_content(older, inode) ? OWNER_CONTENT : 0u);
	return 0;
}

static int take_named(struct scan *s, ext2_ino_t ino, struct ext2_inode *inode)
{
	bool dir = LINUX_S_ISDIR(inode->i_mode) && inode->i_links_count;
	struct owner o = {
		.kind = !inode->i_links_count ? OWNER_DELETED
			: dir		      ? OWNER_DIRECTORY
					      : OWNER_FILE,
		.ino = ino,
		.links = inode->i_links_count,
	};
	int err = 0;

	/* none of the deleted inodes owns blocks */
	if (ext2fs_get_stat_i_blocks(s->fs, inode)) {
		int bad = claim_inode(s, &o, ino, inode);

		s->w->unreadable += bad != 0;
		err = note_xattr(s, &o, inode);
	}
	if (!err && s->old)
		err = o.links ? compare_older(s, &o, inode) : 0;
	if (!err && (dir || (o.links && (s->old ? o.differs : o.bytes))))
		err = want(s, dir ? &s->dirs : &s->files, ino);
	if (!err && dir)
		s->dirs.n[s->dirs.count - 1].encrypted = inode->i_flags & EXT4_ENCRYPT_FL;
	if (s->old && !o.differs) { /* it has no name, or is the value of an attribute */
		s->own[OWNER_OTHER].bytes += o.bytes;
		return err;
	}
	return err ? err : owners_keep(s->w, &o);
}

static void show(const struct scan *s, const char *phase, uint64_t done, uint64_t total)
{
	if (s->q->progress)
		s->q->progress(s->q->ctx, phase, done, total);
}

static int take_inode(struct scan *s, ext2_ino_t ino, struct ext2_inode *inode)
{
	if (!inode->i_mode)
		return 0;
	s->w->looked_at += inode->i_links_count != 0;
	if (!is_own(s, ino))
		return take_named(s, ino, inode);
	(void)take_own(s, ino, inode);
	return 0;
}

static int scan_group(struct scan *s, dgrp_t nr, uint8_t *buf)
{
	ext2_filsys fs = s->fs;
	const uint64_t size = EXT2_INODE_SIZE(fs->super), per_group = fs->super->s_inodes_per_group,
		       n = inodes_of(fs, nr);
	const uint64_t per_read = SCAN_BLOCKS * fs->blocksize / size,
		       table = ext2fs_inode_table_loc(fs, nr);
	int err = 0;

	if (n && (table <= fs->super->s_first_data_block ||
		  table > ext2fs_blocks_count(fs->super) - fs->inode_blocks_per_group)) {
		s->w->unreadable++;
		return 0;
	}
	for (uint64_t i = 0; i < n && !err; i++) {
		ext2_ino_t ino = (ext2_ino_t)(nr * per_group + i + 1);

		if (i % per_read == 0) {
			uint64_t first = i * size / fs->blocksize,
				 blocks = min_u64(SCAN_BLOCKS, fs->inode_blocks_per_group - first);

			err = ext4_result(s->e, io_channel_read_blk64(fs->io, table + first,
								      (int)blocks, buf));
		}
		if (ino % PROGRESS_INODES == 0)
			show(s, "inodes", ino * size, fs->super->s_inodes_count * size);
		if (!err)
			err = take_inode(s, ino, (struct ext2_inode *)(buf + i % per_read * size));
	}
	return err;
}

/* Inodes in changed blocks of a table, and the file system's own. */
static int scan_changed(struct scan *s, dgrp_t nr, uint8_t *buf)
{
	ext2_filsys fs = s->fs;
	const uint64_t size = EXT2_INODE_SIZE(fs->super), per_group = fs->super->s_inodes_per_group,
		       per_block = fs->blocksize / size, n = inodes_of(fs, nr),
		       table = ext2fs_inode_table_loc(fs, nr);
	int err = 0;

	for (uint64_t first = 0; first < n && !err; first += per_block) {
		ext2_ino_t ino = (ext2_ino_t)(nr * per_group + first + 1);
		bool own = ino < EXT2_FIRST_INODE(fs->super) ||
			   fs->super->s_orphan_file_inum - ino < per_block;
		struct owner probe = { 0 };

		claim(s, &probe, table + first / per_block, 1);
		if (!probe.bytes && !own)
			continue;
		err = ext4_result(s->e,
				  io_channel_read_blk64(fs->io, table + first / per_block, 1, buf));
		for (uint64_t i = 0; i < per_block && first + i < n && !err; i++)
			err = take_inode(s, ino + (ext2_ino_t)i,
					 (struct ext2_inode *)(buf + i * size));
	}
	return err;
}

static int scan_inodes(struct scan *s)
{
	_cleanup_free_ uint8_t *buf = malloc((size_t)SCAN_BLOCKS * s->fs->blocksize);
	int err = buf ? 0 : -ENOMEM;

	/* the library reads the descriptors of any group */
	for (dgrp_t nr = 0; nr < s->fs->group_desc_count && !err; nr++)
		err = ext4_desc_load(s->e, nr);
	for (dgrp_t nr = 0; nr < s->fs->group_desc_count && !err; nr++)
		err = scan_group(s, nr, buf);
	return err;
}

/* ---- blocks without an inode ---- */

static void claim_group(struct scan *s, dgrp_t nr)
{
	ext2_filsys fs = s->fs;
	uint64_t old_descs = ext2fs_has_feature_meta_bg(fs->super)
				     ? fs->super->s_first_meta_bg
				     : fs->desc_blocks + fs->super->s_reserved_gdt_blocks;
	struct owner *super = &s->own[OWNER_SUPER];
	blk64_t copy, old_desc, new_desc;
	blk_t used;

	ext2fs_super_and_bgd_loc2(fs, nr, &copy, &old_desc, &new_desc, &used);
	if (copy || !nr)
		claim(s, super, copy, 1);
	if (copy && !nr)
		claim(s, super, 0, 1); /* the boot sector, if blocks have 1 KiB */
	if (old_desc)
		claim(s, super, old_desc, old_descs);
	if (new_desc)
		claim(s, super, new_desc, 1);
	claim(s, &s->own[OWNER_BITMAPS], ext2fs_block_bitmap_loc(fs, nr), 1);
	claim(s, &s->own[OWNER_BITMAPS], ext2fs_inode_bitmap_loc(fs, nr), 1);
	claim(s, &s->own[OWNER_INODES], ext2fs_inode_table_loc(fs, nr), fs->inode_blocks_per_group);
}

static uint64_t claimed_bytes(const struct scan *s)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < s->w->n; i++)
		sum += s->w->o[i].bytes;
	for (unsigned k = 0; k < OWNER_KINDS; k++)
		sum += s->own[k].bytes;
	return sum;
}

static int claim_free(struct scan *s)
{
	const struct extents *x = s->q->all;
	struct ext4_used m = { 0 };
	bool used = true;
	int err = 0;

	if (claimed_bytes(s) >= blk_to_bytes(x->blks))
		return err;
	for (size_t i = 0; i < x->n && !err; i++) {
		uint64_t end = run_end(s, &x->e[i]);

		for (uint64_t block = run_start(s, &x->e[i]); block < end && !err; block++) {
			if (is_claimed(s, block))
				continue;
			err = ext4_is_used(s->e, &m, block, &used);
			if (!err && !used)
				claim(s, &s->own[OWNER_FREE], block, 1);
		}
	}
	ext4_used_clear(&m);
	return err;
}

/* ---- names ---- */

static int take_entry(struct scan *s, ext2_ino_t dir, const struct ext2_dir_entry *d, size_t len)
{
	ext2_ino_t ino = d->inode;
	struct name *n;

	if (ino / 8 >= s->wanted_bytes || !(s->wanted[ino / 8] & 1 << ino % 8))
		return 0;
	n = names_find(&s->files, ino);
	if (n && n->text != NO_NAME && s->old) {
		int err = names_add(&s->more, ino);

		if (err)
			return err;
		n = &s->more.n[s->more.count - 1];
	}
	if (!n)
		n = names_find(&s->dirs, ino);
	if (!n || n->text != NO_NAME)
		return 0; /* one of its names is enough */
	n->parent = dir;
	return text_pool_add(&s->pool, d->name, len, &n->text);
}

/* Is this not a valid name of one component? */
static bool name_lies(const char *name, size_t len)
{
	return !len || memchr(name, '/', len) || memchr(name, '\0', len);
}

static bool is_dots(const char *name, size_t len)
{
	return name[0] == '.' && (len == 1 || (len == 2 && name[1] == '.'));
}

/*
 * Takes the entries of a block, or of an inode that has its entries inside. buf: aligned to 4
 * bytes. -EUCLEAN.
 */
static int take_entries(struct scan *s, ext2_ino_t dir, uint8_t *buf, size_t bytes)
{
	bool encrypted = names_find(&s->dirs, dir)->encrypted;
	size_t off = 0;
	unsigned rec_len;
	int err = 0;

	for (; off + 8 < bytes && !err; off += rec_len) {
		struct ext2_dir_entry *d = (struct ext2_dir_entry *)(buf + off);
		size_t len = (size_t)ext2fs_dirent_name_len(d);

		if (ext2fs_get_rec_len(s->fs, d, &rec_len) || rec_len < 8 || rec_len % 4 ||
		    rec_len > bytes - off || len > rec_len - 8)
			return -EUCLEAN;
		if (!d->inode || is_dots(d->name, len))
			continue;
		if (!encrypted && name_lies(d->name, len))
			return -EUCLEAN;
		err = take_entry(s, dir, d, encrypted ? 0 : len);
	}
	return err;
}

struct dir_walk {
	struct scan *s;
	ext2_ino_t dir;
	uint8_t *buf;
	bool bad;
};

static int take_dir_block(ext2_filsys fs, blk64_t *block, e2_blkcnt_t logical, blk64_t ref_blk,
			  int ref_offset, void *ctx)
{
	struct dir_walk *w = ctx;
	int err = 0;

	(void)ref_blk, (void)ref_offset;
	if (!step(w->s))
		return BLOCK_ABORT;
	if (logical < 0)
		return 0;
	err = ext4_result(w->s->e, io_channel_read_blk64(fs->io, *block, 1, w->buf));
	if (!err)
		err = take_entries(w->s, w->dir, w->buf, fs->blocksize);
	if (err == -ENOMEM)
		w->s->err = err;
	w->bad = w->bad || err;
	return w->s->err ? BLOCK_ABORT : 0;
}

/*
 * The attribute system.data inside the inode: the data that do not fit into i_block. Returns their
 * bytes, 0: none.
 */
static size_t inline_rest(uint8_t *inode, size_t size, uint8_t **ret)
{
	const struct ext2_inode_large *l = (const void *)inode;
	size_t start = EXT2_GOOD_OLD_INODE_SIZE, at;
	uint32_t magic;

	if (size <= start + sizeof(l->i_extra_isize) || l->i_extra_isize % 4 ||
	    l->i_extra_isize + 4u > size - start)
		return 0;
	start += l->i_extra_isize;
	memcpy(&magic, inode + start, 4);
	if (magic != EXT2_EXT_ATTR_MAGIC)
		return 0;
	start += 4;
	for (at = start; size - at >= sizeof(struct ext2_ext_attr_entry);) {
		const struct ext2_ext_attr_entry *x = (const void *)(inode + at);

		if (EXT2_EXT_IS_LAST_ENTRY(x) || EXT2_EXT_ATTR_LEN(x->e_name_len) > size - at)
			return 0;
		if (x->e_name_index == XATTR_SYSTEM && x->e_name_len == 4 &&
		    !memcmp(x + 1, "data", 4)) {
			if (x->e_value_inum || x->e_value_offs % 4 ||
			    x->e_value_offs > size - start ||
			    x->e_value_size > size - start - x->e_value_offs)
				return 0;
			*ret = inode + start + x->e_value_offs;
			return x->e_value_size;
		}
		at += EXT2_EXT_ATTR_LEN(x->e_name_len);
	}
	return 0;
}

/* i_block begins with the inode number of the parent. */
static int take_inline(struct scan *s, ext2_ino_t dir, uint8_t *inode, size_t size)
{
	uint8_t *rest = NULL, *block = inode + offsetof(struct ext2_inode, i_block);
	size_t bytes = inline_rest(inode, size, &rest);
	int err = take_entries(s, dir, block + 4, sizeof(((struct ext2_inode *)0)->i_block) - 4);

	return err || !bytes ? err : take_entries(s, dir, rest, bytes);
}

static int scan_directory(struct scan *s, ext2_ino_t dir, uint8_t *buf)
{
	struct dir_walk w = { .s = s, .dir = dir, .buf = buf };
	struct ext2_inode *inode = (struct ext2_inode *)buf;
	size_t size = EXT2_INODE_SIZE(s->fs->super);
	int err = ext4_result(s->e, ext2fs_read_inode_full(s->fs, dir, inode, (int)size));

	if (err)
		return err;
	if (inode->i_flags & EXT4_INLINE_DATA_FL)
		return take_inline(s, dir, buf, size);
	if (!LINUX_S_ISDIR(inode->i_mode) || !ext4_tree_ok(inode))
		return -EUCLEAN;
	err = ext4_result(s->e, ext2fs_block_iterate3(s->fs, dir, BLOCK_FLAG_READ_ONLY, NULL,
						      take_dir_block, &w));
	if (!err)
		err = w.bad ? -EUCLEAN : 0;
	return s->err ? s->err : err;
}

static int scan_directories(struct scan *s)
{
	_cleanup_free_ uint8_t *buf = malloc(s->fs->blocksize);

	if (!buf)
		return -ENOMEM;
	for (size_t i = 0; i < s->dirs.count && s->w->complete; i++) {
		int err = scan_directory(s, s->dirs.n[i].ino, buf);

		if (err == -ENOMEM)
			return err;
		s->w->unreadable += err != 0;
		if (i % 256 == 0)
			show(s, "names", i * s->fs->blocksize, s->dirs.count * s->fs->blocksize);
	}
	return 0;
}

/* The outermost encrypted directory above n, or n. */
static const struct name *seen_name(const struct scan *s, const struct name *n)
{
	const struct name *ret = n;

	for (size_t deep = 0; n && n->text != NO_NAME && deep < PATH_MAX; deep++) {
		n = names_find(&s->dirs, n->parent);
		if (n && n->encrypted)
			ret = n;
	}
	return ret;
}

/*
 * The length of the path to ino; writes the path before end, unless end is NULL. 0: there is no
 * path.
 */
static size_t path_of(const struct scan *s, const struct name *n, char *end)
{
	size_t len = 0;

	/* directories may form a circle */
	while (len < PATH_MAX && n && n->text != NO_NAME) {
		const char *text = s->pool.text + n->text;
		size_t text_bytes = strlen(text);

		len += text_bytes + 1;
		if (end) {
			memcpy(end - len + 1, text, text_bytes);
			end[-(ptrdiff_t)len] = '/';
		}
		if (n->parent == EXT2_ROOT_INO)
			return len;
		n = names_find(&s->dirs, n->parent);
	}
	return 0;
}

/* n: NULL for the root */
static int make_path(const struct scan *s, struct owner *o, const struct name *n)
{
	const struct name *seen = n ? seen_name(s, n) : NULL;
	bool dir = !n || o->kind == OWNER_DIRECTORY || seen != n;
	size_t len = 0;

	if (seen && seen->ino != EXT2_ROOT_INO) {
		len = path_of(s, seen, NULL);
		s->w->too_long += !len && o->differs & OWNER_SAME;
		if (!len)
			return 0;
	}
	if (seen != n && s->old)
		o->differs |= OWNER_BELOW;
	o->path = malloc(len + 2);
	if (!o->path)
		return -ENOMEM;
	o->path[len] = dir ? '/' : '\0';
	o->path[len + 1] = '\0';
	if (len)
		path_of(s, seen, o->path + len);
	return 0;
}

static int owner_compare(const void *a, const void *b)
{
	const struct owner *x = a, *y = b;

	return x->ino < y->ino ? -1 : x->ino > y->ino;
}

/* The further names of a touched inode. */
static int name_more(struct scan *s)
{
	size_t n = s->w->n; /* ascending by inode */
	int err = 0;

	for (size_t i = 0; i < s->more.count && !err; i++) {
		const struct owner key = { .ino = s->more.n[i].ino };
		const struct owner *first = bsearch(&key, s->w->o, n, sizeof(key), owner_compare);
		struct owner o = first ? *first : key;

		o.path = NULL;
		o.differs &= ~(unsigned)OWNER_BELOW;
		err = make_path(s, &o, &s->more.n[i]);
		if (!err && o.path)
			err = owners_keep(s->w, &o);
		free(o.path);
	}
	return err;
}

static bool any_named(const struct scan *s)
{
	for (size_t i = 0; i < s->w->n; i++)
		if (s->w->o[i].kind == OWNER_FILE || s->w->o[i].kind == OWNER_DIRECTORY)
			return true;
	return false;
}

static int name_owners(struct scan *s)
{
	int err = any_named(s) ? scan_directories(s) : 0;

	for (size_t i = 0; i < s->w->n && !err; i++) {
		struct owner *o = &s->w->o[i];
		const struct names *list = o->kind == OWNER_DIRECTORY ? &s->dirs : &s->files;

		if (o->kind == OWNER_FILE || o->kind == OWNER_DIRECTORY)
			err = make_path(s, o,
					o->ino == EXT2_ROOT_INO
						? NULL
						: names_find(list, (ext2_ino_t)o->ino));
	}
	return err ? err : name_more(s);
}

/* ---- the whole scan ---- */

static int scan_own_blocks(struct scan *s)
{
	for (dgrp_t nr = 0; nr < s->fs->group_desc_count; nr++)
		claim_group(s, nr);
	claim_xattrs(s);
	return claim_free(s);
}

/* How both devices are read */
static void expect(const struct scan *s, int advice)
{
	posix_fadvise(*(const int *)s->e->r.ctx, 0, 0, advice);
	posix_fadvise(*s->q->old_fd, 0, 0, advice);
}

/* Does a changed block differ that no inode in the changed tables has? Blocks may be smaller than what counts as changed. */
static int find_unowned(struct scan *s, uint8_t *buf, bool *ret)
{
	const struct extents *x = s->q->all;
	const size_t n = s->fs->blocksize;
	int err = 0;

	for (size_t i = 0; i < x->n && !err && !*ret; i++)
		for (uint64_t b = run_start(s, &x->e[i]); b < run_end(s, &x->e[i]) && !err && !*ret;
		     b++) {
			if (is_claimed(s, b))
				continue;
			err = ext4_result(s->e, io_channel_read_blk64(s->fs->io, b, 1, buf));
			if (!err)
				err = ext4_result(s->old, io_channel_read_blk64(s->old->fs->io, b,
										1, buf + n));
			*ret = memcmp(buf, buf + n, n) != 0;
		}
	return err;
}

static int find_touched(struct scan *s)
{
	_cleanup_free_ uint8_t *buf = calloc(2, s->fs->blocksize);
	bool unowned = false;
	int err = 0;

	s->claimed = calloc(ext2fs_blocks_count(s->fs->super) / 8 + 1, 1);
	if (!buf || !s->claimed)
		return -ENOMEM;
	expect(s, POSIX_FADV_RANDOM);
	for (dgrp_t nr = 0; nr < s->fs->group_desc_count && !err; nr++)
		err = scan_changed(s, nr, buf);
	if (!err)
		err = scan_own_blocks(s);
	if (!err)
		err = find_unowned(s, buf, &unowned);
	if (err || !unowned)
		return err;
	expect(s, POSIX_FADV_NORMAL);
	owners_clear(s->w);
	s->w->complete = true;
	s->files.count = s->dirs.count = s->xattrs = 0;
	return scan_inodes(s);
}

static int scan_all(struct scan *s)
{
	int err;

	s->wanted_bytes = s->fs->super->s_inodes_count / 8 + 1;
	s->wanted = calloc(s->wanted_bytes, 1);
	if (!s->wanted)
		return -ENOMEM;
	err = s->q->no_names ? find_touched(s) : scan_inodes(s);
	if (!err && s->old) {
		err = s->q->no_names ? 0 : name_owners(s);
		return err ? err : s->w->unreadable || !s->w->complete ? -EUCLEAN : 0;
	}
	if (err)
		return err;
	err = scan_own_blocks(s);
	if (!err)
		err = name_owners(s);
	for (unsigned k = 0; k < OWNER_KINDS && !err; k++) {
		s->own[k].kind = k;
		/* the rest has a row of its own */
		err = k == OWNER_OTHER ? 0 : owners_keep(s->w, &s->own[k]);
	}
	return err ? err : owners_add_rest(s->w, s->q);
}

static int device_read(void *ctx, uint64_t blk, uint64_t blks, void *buf)
{
	return io_pread_full(*(int *)ctx, buf, blk_to_bytes(blks), blk_to_bytes(blk));
}

static int open_image(struct ext4_image **ret, const int *fd)
{
	off_t bytes = lseek(*fd, 0, SEEK_END);
	struct blk_reader r = { device_read, (void *)(uintptr_t)fd,
				(uint64_t)bytes >> COW_BLK_SHIFT };

	return bytes < 0 ? -errno : ext4_open_live(ret, &r);
}

/* mounted: a may be */
static bool same_layout(const ext2_filsys a, const ext2_filsys b, bool mounted)
{
	const struct ext2_super_block *x = a->super, *y = b->super;

	if (a->blocksize != b->blocksize || EXT2_INODE_SIZE(x) != EXT2_INODE_SIZE(y) ||
	    x->s_inodes_per_group != y->s_inodes_per_group ||
	    x->s_blocks_per_group != y->s_blocks_per_group ||
	    x->s_log_cluster_size != y->s_log_cluster_size ||
	    x->s_first_data_block != y->s_first_data_block ||
	    EXT2_FIRST_INODE(x) != EXT2_FIRST_INODE(y) ||
	    a->group_desc_count > b->group_desc_count || /* the inodes of these groups are gone */
	    memcmp(x->s_uuid, y->s_uuid, sizeof(x->s_uuid)) ||
	    (!mounted && ext2fs_has_feature_journal_needs_recovery(a->super)) ||
	    ext2fs_has_feature_journal_needs_recovery(b->super))
		return false;
	for (dgrp_t nr = 0; nr < a->group_desc_count; nr++)
		if (ext2fs_inode_table_loc(a, nr) != ext2fs_inode_table_loc(b, nr))
			return false;
	return true;
}

static int open_older(struct scan *s)
{
	int err = open_image(&s->old, s->q->old_fd);

	for (dgrp_t nr = 0; !err && nr < s->old->fs->group_desc_count; nr++)
		err = ext4_desc_load(s->old, nr);
	for (dgrp_t nr = 0; !err && nr < s->fs->group_desc_count; nr++)
		err = ext4_desc_load(s->e, nr);
	if (!err && !same_layout(s->old->fs, s->fs, s->q->no_names))
		err = -EOPNOTSUPP;
	if (err)
		return err;
	s->table = calloc(1, s->fs->blocksize);
	return s->table ? 0 : -ENOMEM;
}

int owners_ext_fd(struct owners *ret, int fd, const struct owners_query *q)
{
	struct owners w = { .complete = true };
	struct scan s = { .q = q, .w = &w };
	int err = open_image(&s.e, &fd);

	if (err)
		return err;
	s.fs = s.e->fs;
	s.steps = STEPS_PER_BLOCK * ext2fs_blocks_count(s.fs->super) + STEPS_MIN;
	if (q->old_fd)
		err = open_older(&s);
	if (!err)
		err = scan_all(&s);
	ext4_close(s.old);
	ext4_close(s.e);
	free(s.table);
	free(s.wanted);
	free(s.claimed);
	free(s.pool.text);
	free(s.files.n);
	free(s.dirs.n);
	free(s.more.n);
	free(s.xattr);
	if (err)
		owners_clear(&w);
	else
		*ret = w;
	return err;
}

int owners_ext(struct owners *ret, const char *device, const struct owners_query *q)
{
	_cleanup_close_ int fd = open(device, O_RDONLY | O_CLOEXEC);

	return fd < 0 ? -errno : owners_ext_fd(ret, fd, q);
}
