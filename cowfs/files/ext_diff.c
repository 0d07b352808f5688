// SPDX-License-Identifier: MIT
/*
 * 1. Inodes that differ: compare the changed blocks of the inode tables.
 * 2. Blocks that changed although no inode did (a write in the same tick of the clock as the last
 *    commit): all changed blocks that none of these inodes, no table and no bitmap owns, and that
 *    are in use. Only if there is one, look for its owner in all inodes.
 * 3. Directories among these inodes: compare their changed blocks, name by name.
 * 4. Compare the other inodes: content only where the blocks differ.
 * 5. Find the names of those that differ and kept their name.
 */
#include "files/ext_diff.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/array.h"
#include "files/ext_compare.h"
#include "files/ext_live.h"
#include "files/ext_names.h"

#define LIVE_MISSES 32 /* in a row: the caches are cold */

struct found {
	uint32_t ino;
	uint32_t names; /* that it keeps, and that are not found yet */
	unsigned what;
	bool dir, same;	    /* a directory in the new state; the same file in both */
	bool names_changed; /* a directory */
};

struct ext_scan {
	struct ext_pair x;
	struct found *f; /* ascending by ino */
	size_t n, cap;
	uint8_t *is_found; /* a bit per inode */
	struct ext4_used old_used;
	struct ext_names old_names, new_names;
	struct ext_entries gone, added; /* added: ascending by ino once it is complete */
	struct ext_node *a, *b;		/* for one comparison */
	uint64_t names_left;
	const struct ext_live_source *live; /* NULL: none */
	const struct diff_progress *progress;
	struct diff_names gone_names, added_names;
	struct diff *ret;
};

/* done and total: numbers of blocks */
static void show(const struct ext_scan *s, const char *phase, uint64_t done, uint64_t total)
{
	uint64_t size = s->x.new_side.fs->blocksize;

	if (s->progress && s->progress->show)
		s->progress->show(s->progress->ctx, phase, done * size, total * size);
}

/* ---- 1. inodes that differ ---- */

static bool same_layout(const ext2_filsys a, const ext2_filsys b)
{
	const struct ext2_super_block *x = a->super, *y = b->super;
	dgrp_t groups = a->group_desc_count;

	if (a->blocksize != b->blocksize || EXT2_INODE_SIZE(x) != EXT2_INODE_SIZE(y) ||
	    x->s_inodes_per_group != y->s_inodes_per_group ||
	    x->s_blocks_per_group != y->s_blocks_per_group ||
	    x->s_log_cluster_size != y->s_log_cluster_size ||
	    x->s_first_data_block != y->s_first_data_block ||
	    EXT2_FIRST_INODE(x) != EXT2_FIRST_INODE(y) ||
	    a->group_desc_count > b->group_desc_count || /* the inodes of these groups are gone */
	    ext2fs_has_feature_filetype(a->super) != ext2fs_has_feature_filetype(b->super) ||
	    memcmp(x->s_uuid, y->s_uuid, sizeof(x->s_uuid)))
		return false;
	for (dgrp_t nr = 0; nr < groups; nr++)
		if (ext2fs_inode_table_loc(a, nr) != ext2fs_inode_table_loc(b, nr))
			return false;
	return true;
}

static bool is_named(const struct ext_scan *s, uint32_t ino)
{
	const struct ext2_super_block *sb = s->x.new_side.fs->super;

	return ino == EXT2_ROOT_INO ||
	       (ino >= EXT2_FIRST_INODE(sb) && ino != sb->s_orphan_file_inum);
}

static int add_found(struct ext_scan *s, uint32_t ino)
{
	struct found *p = array_grow(s->f, &s->cap, s->n + 1, sizeof(*p));

	if (!p)
		return -ENOMEM;
	s->f = p;
	s->f[s->n++] = (struct found){ .ino = ino };
	s->is_found[ino / 8] |= (uint8_t)(1 << ino % 8);
	return 0;
}

static bool is_found(const struct ext_scan *s, uint32_t ino)
{
	return s->is_found[ino / 8] & 1 << ino % 8;
}

static int find_inode(struct ext_scan *s, uint32_t ino)
{
	const uint8_t *a, *b;
	int err = ext_side_inode(&s->x.old_side, ino, &a);

	if (!err)
		err = ext_side_inode(&s->x.new_side, ino, &b);
	if (err || !is_named(s, ino) || (!a && !b) ||
	    (a && b && !memcmp(a, b, EXT2_INODE_SIZE(s->x.new_side.fs->super))))
		return err;
	if ((a && ext_inode(a)->i_flags & EXT4_EA_INODE_FL) ||
	    (b && ext_inode(b)->i_flags & EXT4_EA_INODE_FL))
		return 0; /* the value of an attribute: its owner changed as well */
	return add_found(s, ino);
}

static int find_in_group(struct ext_scan *s, dgrp_t nr)
{
	ext2_filsys fs = s->x.new_side.fs;
	uint64_t table = ext2fs_inode_table_loc(fs, nr), per_group = fs->super->s_inodes_per_group,
		 per_block = fs->blocksize / EXT2_INODE_SIZE(fs->super);
	int err = 0;

	for (uint64_t b = 0; b < fs->inode_blocks_per_group && !err; b++) {
		if (!ext_changed_has(&s->x.changed, table + b))
			continue;
		for (uint64_t i = b * per_block; i < min_u64((b + 1) * per_block, per_group); i++)
			if (!err)
				err = find_inode(s, (uint32_t)(nr * per_group + i + 1));
	}
	ext_changed_claim(&s->x.changed, table, fs->inode_blocks_per_group);
	return err;
}

static int find_inodes(struct ext_scan *s)
{
	dgrp_t groups = s->x.new_side.fs->group_desc_count;
	int err = 0;

	for (dgrp_t nr = 0; nr < groups && !err; nr++) {
		show(s, "inodes", nr * s->x.new_side.fs->inode_blocks_per_group,
		     groups * s->x.new_side.fs->inode_blocks_per_group);
		err = find_in_group(s, nr);
	}
	return err;
}

/* ---- 2. changed blocks whose owner did not change ---- */

static void claim_clusters(struct ext_scan *s, uint64_t block, uint64_t blks)
{
	uint64_t ratio = 1ull << s->x.new_side.fs->cluster_ratio_bits,
		 first = round_down_u64(block, ratio);

	ext_changed_claim(&s->x.changed, first, round_up_u64(block + blks, ratio) - first);
}

static void claim_map(struct ext_scan *s, const struct ext_map *m)
{
	for (size_t i = 0; i < m->n; i++)
		claim_clusters(s, m->p[i].pblk, m->p[i].blks);
	for (size_t i = 0; i < m->metas; i++)
		claim_clusters(s, m->meta[i], 1);
}

static void claim_group(struct ext_scan *s, dgrp_t nr)
{
	ext2_filsys fs = s->x.new_side.fs;
	struct ext_changed *c = &s->x.changed;
	uint64_t old_descs = ext2fs_has_feature_meta_bg(fs->super)
				     ? fs->super->s_first_meta_bg
				     : fs->desc_blocks + fs->super->s_reserved_gdt_blocks;
	blk64_t copy, old_desc, new_desc;
	blk_t used;

	ext2fs_super_and_bgd_loc2(fs, nr, &copy, &old_desc, &new_desc, &used);
	if (copy)
		ext_changed_claim(c, copy, 1);
	if (old_desc)
		ext_changed_claim(c, old_desc, old_descs);
	if (new_desc)
		ext_changed_claim(c, new_desc, 1);
	ext_changed_claim(c, ext2fs_block_bitmap_loc(fs, nr), 1);
	ext_changed_claim(c, ext2fs_inode_bitmap_loc(fs, nr), 1);
}

/*
 * Files may share a block of attributes. The number of these files in it changes in place, its
 * attributes do not. If they differ nevertheless, all these files must be compared.
 */
static int claim_xattrs(struct ext_scan *s, uint64_t block)
{
	size_t size = s->x.new_side.fs->blocksize, head = sizeof(struct ext2_ext_attr_header);
	_cleanup_free_ uint8_t *buf = malloc(2 * size);
	bool used;
	int err;

	if (!buf)
		return -ENOMEM;
	if (!ext_changed_unclaimed(&s->x.changed, block, 1))
		return 0;
	err = ext4_is_used(s->x.old_side.e, &s->old_used, block, &used);
	if (!err)
		err = ext_side_block(&s->x.new_side, block, buf);
	if (!err && used && ((struct ext2_ext_attr_header *)buf)->h_refcount > 1)
		err = ext_side_block(&s->x.old_side, block, buf + size);
	else
		used = false;
	if (!err && (!used || !memcmp(buf + head, buf + size + head, size - head)))
		claim_clusters(s, block, 1);
	return err;
}

/* Claims the blocks of an inode. special: one without a name. */
static int claim_inode(struct ext_scan *s, uint32_t ino)
{
	struct ext_node *n = s->b;
	uint64_t xattrs;
	int err = ext_node_load(&s->x.new_side, ino, n);

	if (err || !n->used)
		return err;
	claim_map(s, &n->map);
	xattrs = ext2fs_file_acl_block(s->x.new_side.fs, (const struct ext2_inode *)n->raw);
	if (xattrs)
		err = claim_xattrs(s, xattrs);
	ext_node_clear(n);
	return err;
}

static int claim_known(struct ext_scan *s)
{
	ext2_filsys fs = s->x.new_side.fs;
	int err = 0;

	ext_changed_claim(&s->x.changed, 0, fs->super->s_first_data_block + 1);
	if (ext2fs_has_feature_mmp(fs->super))
		ext_changed_claim(&s->x.changed, fs->super->s_mmp_block, 1);
	for (dgrp_t nr = 0; nr < fs->group_desc_count; nr++)
		claim_group(s, nr);
	for (uint32_t ino = 1; ino < EXT2_FIRST_INODE(fs->super) && !err; ino++)
		if (ino != EXT2_ROOT_INO && ino != EXT2_RESIZE_INO)
			err = claim_inode(s, ino);
	if (!err && fs->super->s_orphan_file_inum)
		err = claim_inode(s, fs->super->s_orphan_file_inum);
	for (size_t i = 0; i < s->n && !err; i++)
		err = claim_inode(s, s->f[i].ino);
	return err;
}

/* Claims blocks that are free in the new state. Is one left? */
static int any_unclaimed(struct ext_scan *s, bool *ret)
{
	const struct ext_changed *c = &s->x.changed;
	struct ext4_used m = { 0 };
	int err = 0;

	*ret = false;
	for (size_t i = 0; i < c->runs.n && !err; i++)
		for (uint64_t k = 0; k < c->runs.e[i].blks && !err; k++) {
			bool used = false;

			if (ext_changed_is_claimed(c, c->before[i] + k))
				continue;
			err = ext4_is_used(s->x.new_side.e, &m, c->runs.e[i].blk + k, &used);
			*ret = *ret || used;
			if (!used)
				ext_changed_claim(&s->x.changed, c->runs.e[i].blk + k, 1);
		}
	ext4_used_clear(&m);
	return err;
}

static bool owns_unclaimed(const struct ext_scan *s, const uint8_t *raw, const struct ext_map *m)
{
	const struct ext_changed *c = &s->x.changed;
	uint64_t xattrs = ext2fs_file_acl_block(s->x.new_side.fs, (const struct ext2_inode *)raw);

	for (size_t i = 0; i < m->n; i++)
		if (ext_changed_unclaimed(c, m->p[i].pblk, m->p[i].blks))
			return true;
	for (size_t i = 0; i < m->metas; i++)
		if (ext_changed_unclaimed(c, m->meta[i], 1))
			return true;
	return xattrs && ext_changed_unclaimed(c, xattrs, 1);
}

static int look_at_owner(struct ext_scan *s, uint32_t ino)
{
	_cleanup_free_ uint8_t *copy = NULL;
	struct ext_map m = { 0 };
	const uint8_t *raw;
	int err = ext_side_inode(&s->x.new_side, ino, &raw);

	if (err || !raw || !is_named(s, ino) || is_found(s, ino) ||
	    ext_inode(raw)->i_flags & EXT4_EA_INODE_FL)
		return err;
	copy = malloc(EXT2_INODE_SIZE(s->x.new_side.fs->super));
	if (!copy)
		return -ENOMEM;
	memcpy(copy, raw, EXT2_INODE_SIZE(s->x.new_side.fs->super));
	err = ext_map_load(&s->x.new_side, copy, &m);
	if (!err && owns_unclaimed(s, copy, &m))
		err = add_found(s, ino);
	ext_map_clear(&m);
	return err;
}

static int found_compare(const void *a, const void *b)
{
	const struct found *x = a, *y = b;

	return x->ino < y->ino ? -1 : x->ino > y->ino;
}

static int find_owners(struct ext_scan *s)
{
	ext2_filsys fs = s->x.new_side.fs;
	bool any;
	int err = claim_known(s);

	if (!err)
		err = any_unclaimed(s, &any);
	if (err || !any)
		return err;
	for (dgrp_t nr = 0; nr < fs->group_desc_count && !err; nr++) {
		uint64_t n = ext_side_group_inodes(&s->x.new_side, nr);

		show(s, "owners", nr * fs->inode_blocks_per_group,
		     fs->group_desc_count * fs->inode_blocks_per_group);
		for (uint64_t i = 0; i < n && !err; i++)
			err = look_at_owner(
				s,
				(uint32_t)(nr * (uint64_t)fs->super->s_inodes_per_group + i + 1));
	}
	if (s->n)
		qsort(s->f, s->n, sizeof(*s->f), found_compare);
	return err;
}

/* ---- 3. names that came and went ---- */

struct list_names {
	struct ext_names *names;
	struct ext_entries list;
	const struct ext_scan *s;
	const struct ext_map *other; /* NULL: take all blocks */
};

static int take_name(void *ctx, const struct ext_name *n)
{
	struct list_names *l = ctx;

	return ext_names_keep(l->names, &l->list, n);
}

/* Both states have this block in the same place. */
static bool is_common(void *ctx, uint64_t lblk, uint64_t pblk)
{
	struct list_names *l = ctx;
	uint64_t blks;

	return l->other && ext_map_find(l->other, lblk, &blks) == pblk &&
	       !ext_changed_has(&l->s->x.changed, pblk);
}

static bool is_dir(const struct ext_node *n)
{
	return n->used && S_ISDIR(ext_inode(n->raw)->i_mode);
}

static bool is_same(const struct ext_node *a, const struct ext_node *b)
{
	return a->used && b->used &&
	       ext_inode(a->raw)->i_generation == ext_inode(b->raw)->i_generation &&
	       !((ext_inode(a->raw)->i_mode ^ ext_inode(b->raw)->i_mode) & S_IFMT);
}

static int text_order(const struct ext_names *x, const struct ext_entry *a,
		      const struct ext_names *y, const struct ext_entry *b)
{
	int order = strcmp(ext_names_text(x, a), ext_names_text(y, b));

	return order ? order : a->ino < b->ino ? -1 : a->ino > b->ino;
}

static int entry_by_text(const void *a, const void *b, void *ctx)
{
	return text_order(ctx, a, ctx, b);
}

static int push(struct ext_entries *x, const struct ext_entry *e)
{
	void *p = array_grow(x->e, &x->cap, x->n + 1, sizeof(*e));

	if (!p)
		return -ENOMEM;
	x->e = p;
	x->e[x->n++] = *e;
	return 0;
}

static int compare_lists(struct ext_scan *s, struct list_names *a, struct list_names *b)
{
	size_t i = 0, k = 0;
	int err = 0;

	if (a->list.n)
		qsort_r(a->list.e, a->list.n, sizeof(*a->list.e), entry_by_text, a->names);
	if (b->list.n)
		qsort_r(b->list.e, b->list.n, sizeof(*b->list.e), entry_by_text, b->names);
	while ((i < a->list.n || k < b->list.n) && !err) {
		int order = i == a->list.n ? 1
			    : k == b->list.n
				    ? -1
				    : text_order(a->names, &a->list.e[i], b->names, &b->list.e[k]);

		if (order < 0)
			err = push(&s->gone, &a->list.e[i]);
		else if (order > 0)
			err = push(&s->added, &b->list.e[k]);
		i += order <= 0;
		k += order >= 0;
	}
	return err;
}

static int compare_dir(struct ext_scan *s, struct found *f)
{
	struct list_names old_list = { .names = &s->old_names, .s = s },
			  new_list = { .names = &s->new_names, .s = s };
	size_t before = s->gone.n + s->added.n;
	int err = 0;

	if (is_same(s->a, s->b)) {
		old_list.other = &s->b->map;
		new_list.other = &s->a->map;
	}
	if (is_dir(s->a))
		err = ext_side_names(&s->x.old_side, s->a, is_common, take_name, &old_list);
	if (is_dir(s->b) && !err)
		err = ext_side_names(&s->x.new_side, s->b, is_common, take_name, &new_list);
	/* another directory has other names, even if they read the same */
	if (!err && !is_same(s->a, s->b)) {
		for (size_t i = 0; i < old_list.list.n && !err; i++)
			err = push(&s->gone, &old_list.list.e[i]);
		for (size_t i = 0; i < new_list.list.n && !err; i++)
			err = push(&s->added, &new_list.list.e[i]);
	} else if (!err) {
		err = compare_lists(s, &old_list, &new_list);
	}
	free(old_list.list.e);
	free(new_list.list.e);
	f->names_changed = s->gone.n + s->added.n > before;
	return err;
}

/* ---- 4. what differs ---- */

static int load_both(struct ext_scan *s, uint32_t old_ino, uint32_t new_ino)
{
	int err = ext_node_load(&s->x.old_side, old_ino, s->a);

	return err ? err : ext_node_load(&s->x.new_side, new_ino, s->b);
}

static void clear_both(struct ext_scan *s)
{
	ext_node_clear(s->a);
	ext_node_clear(s->b);
}

static int compare_one(struct ext_scan *s, struct found *f)
{
	int err = load_both(s, f->ino, f->ino);

	if (!err && (is_dir(s->a) || is_dir(s->b)))
		err = compare_dir(s, f);
	f->dir = is_dir(s->b);
	f->same = is_same(s->a, s->b);
	if (f->same && !err)
		err = ext_compare(&s->x, s->a, s->b, &f->what);
	if (f->dir && f->names_changed)
		f->what &= ~(unsigned)DIFF_TIME;
	if (s->b->used && s->a->used && (!f->same || f->what))
		f->names = f->dir ? 1 : ext_inode(s->b->raw)->i_links_count;
	clear_both(s);
	return err;
}

static int compare_all(struct ext_scan *s)
{
	int err = 0;

	for (size_t i = 0; i < s->n && !err; i++) {
		if (i % 64 == 0)
			show(s, "files", i, s->n);
		err = compare_one(s, &s->f[i]);
	}
	return err;
}

static struct found *find_found(const struct ext_scan *s, uint32_t ino)
{
	struct found key = { .ino = ino };

	return s->n ? bsearch(&key, s->f, s->n, sizeof(key), found_compare) : NULL;
}

/* A diff_compare */
static int compare_names(void *ctx, struct diff_name *old_name, struct diff_name *new_name,
			 unsigned *ret_what)
{
	struct ext_scan *s = ctx;
	uint32_t old_ino = (uint32_t)old_name->ino, new_ino = (uint32_t)new_name->ino;
	struct found *f = find_found(s, new_ino);
	int err = load_both(s, old_ino, new_ino);

	if (!err && (!s->a->used || !s->b->used))
		err = -EUCLEAN;
	if (!err)
		err = ext_compare(&s->x, s->a, s->b, ret_what);
	if (!err && is_dir(s->b) && (old_ino != new_ino || (f && (!f->same || f->names_changed))))
		*ret_what &= ~(unsigned)DIFF_TIME;
	clear_both(s);
	return err;
}

/* ---- 5. names that stayed ---- */

/* The file of a name, with its path, for diff_match. Takes path. */
static int add_name(struct ext_side *side, struct diff_names *list, uint32_t ino, char *path)
{
	struct diff_name n = { .ino = ino, .path = path };
	const uint8_t *raw;
	int err = ext_side_inode(side, ino, &raw);

	if (err || !raw) {
		free(path);
		return err ? err : -EUCLEAN;
	}
	n.gen = ext_inode(raw)->i_generation;
	n.type = ext_inode(raw)->i_mode & S_IFMT;
	n.size_bytes = S_ISDIR(n.type) ? 0 : EXT2_I_SIZE(ext_inode(raw));
	return diff_names_add(list, n);
}

/* Adds a file under the name that both states have, with its new path. Takes path. */
static int add_changed(struct ext_scan *s, const struct found *f, char *path)
{
	const uint8_t *a, *b;
	int err = ext_side_inode(&s->x.old_side, f->ino, &a);

	if (!err)
		err = ext_side_inode(&s->x.new_side, f->ino, &b);
	if (err || !a || !b) {
		free(path);
		return err ? err : -EUCLEAN;
	}
	return diff_add_changed(s->ret, ext_inode(b)->i_mode & S_IFMT, f->what, path,
				f->dir ? 0 : EXT2_I_SIZE(ext_inode(a)),
				f->dir ? 0 : EXT2_I_SIZE(ext_inode(b)));
}

/* Any user can make a path that is too long for the list; the other files are still compared. */
static int leave_out(struct ext_scan *s)
{
	s->ret->too_long++;
	return 0;
}

/* A name that both states have: its directory may have another path in the old one. */
static int add_kept(struct ext_scan *s, const struct ext_entry *e)
{
	const char *text = ext_names_text(&s->new_names, e);
	const struct found *f = find_found(s, e->ino);
	struct ext_name n = { .dir = e->dir, .ino = e->ino, .name = text, .len = strlen(text) };
	char *path;
	int err;

	if (f->same) {
		err = ext_names_path(&s->new_names, e, &path);
		if (err == -ENAMETOOLONG)
			return leave_out(s);
		return err ? err : add_changed(s, f, path);
	}
	err = ext_names_keep(&s->old_names, &s->gone, &n);
	return err ? err : push(&s->added, e);
}

static int entry_by_ino(const void *a, const void *b)
{
	const struct ext_entry *x = a, *y = b;

	return x->ino < y->ino ? -1 : x->ino > y->ino;
}

static size_t first_added(const struct ext_scan *s, uint32_t ino)
{
	size_t low = 0, n = s->added.n;

	while (low < n) {
		size_t mid = low + (n - low) / 2;

		if (s->added.e[mid].ino < ino)
			low = mid + 1;
		else
			n = mid;
	}
	return low;
}

static bool is_added(const struct ext_scan *s, const struct ext_name *n)
{
	for (size_t i = first_added(s, n->ino); i < s->added.n && s->added.e[i].ino == n->ino;
	     i++) {
		const char *text = ext_names_text(&s->new_names, &s->added.e[i]);

		if (s->added.e[i].dir == n->dir && strlen(text) == n->len &&
		    !memcmp(text, n->name, n->len))
			return true;
	}
	return false;
}

/* A directory has one name, which its parent has. */
static int keep_dir(struct ext_scan *s, const struct found *f, struct ext_entries *kept)
{
	struct ext_entry e;
	char *path;
	int err;

	if (f->ino == EXT2_ROOT_INO) {
		path = strdup("");
		return path ? add_changed(s, f, path) : -ENOMEM;
	}
	err = ext_names_dir(&s->new_names, f->ino, &e);
	return err ? err : push(kept, &e);
}

/* Counts the names that are to be found; those of directories are found at once. */
static int count_names(struct ext_scan *s, struct ext_entries *kept)
{
	int err = 0;

	if (s->added.n)
		qsort(s->added.e, s->added.n, sizeof(*s->added.e), entry_by_ino);
	for (size_t i = 0; i < s->n && !err; i++) {
		struct found *f = &s->f[i];
		size_t k = first_added(s, f->ino);

		for (; f->names && k < s->added.n && s->added.e[k].ino == f->ino; k++)
			f->names--;
		if (f->dir && f->names) {
			f->names = 0;
			err = keep_dir(s, f, kept);
		}
		s->names_left += f->names;
	}
	return err;
}

enum { ALL_FOUND = 1 };

struct kept {
	struct ext_scan *s;
	struct ext_entries list;
};

/* Paths follow later: a scan lists a directory before it has its own name in every case. */
static int look_at_name(void *ctx, const struct ext_name *n)
{
	struct kept *k = ctx;
	struct ext_scan *s = k->s;
	struct found *f;
	int err;

	if (!is_found(s, n->ino))
		return 0;
	f = find_found(s, n->ino);
	if (!f || !f->names || is_added(s, n))
		return 0;
	err = ext_names_keep(&s->new_names, &k->list, n);
	f->names--;
	s->names_left--;
	return err ? err : s->names_left ? 0 : ALL_FOUND;
}

/* Files with one name to find, for a question to the caches of the mounted file system. */
struct ask_live {
	struct found *f[EXT_LIVE_IDS];
	struct ext_live_id id[EXT_LIVE_IDS];
	uint32_t n;
	struct ext_live_names names;
};

/* Collects files from *i on. */
static int collect_live(struct ext_scan *s, struct ask_live *a, size_t *i)
{
	int err = 0;

	for (a->n = 0; *i < s->n && a->n < EXT_LIVE_IDS && !err; ++*i) {
		const uint8_t *raw;

		if (s->f[*i].names != 1)
			continue;
		err = ext_side_inode(&s->x.new_side, s->f[*i].ino, &raw);
		if (err || !raw)
			continue;
		a->f[a->n] = &s->f[*i];
		a->id[a->n++] = (struct ext_live_id){ s->f[*i].ino, ext_inode(raw)->i_generation };
	}
	return err;
}

/* misses: without a name, the last ones in a row */
static int ask_live(struct ext_scan *s, struct ask_live *a, struct kept *k, unsigned *misses)
{
	int err;

	a->names = (struct ext_live_names){ 0 };
	s->live->find(s->live->ctx, a->id, a->n, &a->names);
	err = ext_live_learn(&s->new_names, &a->names);
	for (uint32_t of = 0, i = 0; of < a->names.answered && !err; of++) {
		struct ext_name n = { .ino = a->f[of]->ino };

		++*misses;
		if (i >= a->names.n || a->names.name[i].of != of)
			continue;
		n.dir = a->names.name[i].dir;
		n.name = a->names.name[i].name;
		n.len = strlen(n.name);
		*misses = 0;
		err = look_at_name(k, &n) == -ENOMEM ? -ENOMEM : 0;
		while (i < a->names.n && a->names.name[i].of == of)
			i++;
	}
	return err;
}

static int ask_live_all(struct ext_scan *s, struct kept *k)
{
	_cleanup_free_ struct ask_live *a = malloc(sizeof(*a));
	unsigned misses = 0;
	int err = a ? 0 : -ENOMEM;

	for (size_t i = 0; i < s->n && misses < LIVE_MISSES && !err;) {
		err = collect_live(s, a, &i);
		if (err || !a->n)
			break;
		err = ask_live(s, a, k, &misses);
		if (a->names.answered < a->n)
			i = (size_t)(a->f[a->names.answered] - s->f);
	}
	return err;
}

/* As if each directory had one block. */
static void show_names(void *ctx, uint64_t done)
{
	const struct ext_scan *s = ctx;
	ext2_filsys fs = s->x.new_side.fs;
	uint64_t all = 0;

	for (dgrp_t nr = 0; nr < fs->group_desc_count; nr++)
		all += ext2fs_bg_used_dirs_count(fs, nr);
	show(s, "names", done, max_u64(done, all));
}

static int find_kept(struct ext_scan *s)
{
	struct kept k = { .s = s };
	int err = count_names(s, &k.list);

	if (!err && s->live)
		err = ask_live_all(s, &k);
	if (!err && s->names_left) {
		err = ext_names_scan(&s->new_names, look_at_name, &k, show_names, s);
		err = err == ALL_FOUND ? 0 : err;
	}
	for (size_t i = 0; i < k.list.n && !err; i++)
		err = add_kept(s, &k.list.e[i]);
	free(k.list.e);
	return err;
}

/* ---- all of it ---- */

static int add_entries(struct ext_scan *s, struct ext_names *x, const struct ext_entries *list,
		       struct diff_names *ret)
{
	int err = 0;

	for (size_t i = 0; i < list->n && !err; i++) {
		char *path;

		err = ext_names_path(x, &list->e[i], &path);
		if (err == -ENAMETOOLONG)
			err = leave_out(s);
		else if (!err)
			err = add_name(x->s, ret, list->e[i].ino, path);
	}
	return err;
}

static int scan(struct ext_scan *s)
{
	int err = find_inodes(s);

	if (!err)
		err = find_owners(s);
	if (!err)
		err = compare_all(s);
	if (!err)
		err = find_kept(s);
	if (!err)
		err = add_entries(s, &s->old_names, &s->gone, &s->gone_names);
	if (!err)
		err = add_entries(s, &s->new_names, &s->added, &s->added_names);
	return err ? err : diff_match(s->ret, &s->gone_names, &s->added_names, compare_names, s);
}

static int open_pair(struct ext_scan *s, const struct blk_reader *old_state,
		     const struct blk_reader *new_state, const struct extents *changed)
{
	int err = ext_side_open(&s->x.old_side, old_state);

	if (!err)
		err = ext_side_open(&s->x.new_side, new_state);
	if (!err && !same_layout(s->x.old_side.fs, s->x.new_side.fs))
		err = -EOPNOTSUPP;
	/* the cache has a name as a program wrote it, perhaps in other letters */
	if (!err && ext2fs_has_feature_casefold(s->x.new_side.fs->super))
		s->live = NULL;
	if (!err)
		err = ext_changed_init(&s->x.changed, changed, &s->x.new_side);
	if (!err)
		err = ext_names_init(&s->old_names, &s->x.old_side);
	if (!err)
		err = ext_names_init(&s->new_names, &s->x.new_side);
	if (err)
		return err;
	s->is_found = calloc(s->x.new_side.fs->super->s_inodes_count / 8 + 1, 1);
	s->a = calloc(1, sizeof(*s->a));
	s->b = calloc(1, sizeof(*s->b));
	return s->is_found && s->a && s->b ? 0 : -ENOMEM;
}

int ext_diff(struct diff *ret, const struct blk_reader *old_state,
	     const struct blk_reader *new_state, const struct extents *changed,
	     const struct ext_live_source *live, const struct diff_progress *progress)
{
	struct ext_scan s = { .live = live, .progress = progress, .ret = ret };
	int err = open_pair(&s, old_state, new_state, changed);

	if (!err)
		err = scan(&s);
	if (s.a && s.b)
		clear_both(&s);
	diff_names_clear(&s.gone_names);
	diff_names_clear(&s.added_names);
	ext_names_clear(&s.old_names);
	ext_names_clear(&s.new_names);
	ext_changed_clear(&s.x.changed);
	ext4_used_clear(&s.old_used);
	ext_side_close(&s.x.old_side);
	ext_side_close(&s.x.new_side);
	free(s.gone.e);
	free(s.added.e);
	free(s.f);
	free(s.is_found);
	free(s.a);
	free(s.b);
	return err;
}
