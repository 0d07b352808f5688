// SPDX-License-Identifier: MIT
#include "files/ext_side.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/array.h"

#define STEPS_PER_BLOCK 16
#define STEPS_MIN (1u << 20)
#define I_BLOCK_BYTES 60
#define XATTR_SYSTEM 7

/* ---- opening and reading ---- */

int ext_side_open(struct ext_side *ret, const struct blk_reader *r)
{
	struct ext_side s = { 0 };
	int err = ext4_open(&s.e, r);

	if (err)
		return err;
	s.fs = s.e->fs;
	s.steps = STEPS_PER_BLOCK * ext2fs_blocks_count(s.fs->super) + STEPS_MIN;
	s.table = malloc(s.fs->blocksize);
	if (!s.table)
		err = -ENOMEM;
	else if (ext2fs_has_feature_journal_needs_recovery(s.fs->super) ||
		 EXT2_INODE_SIZE(s.fs->super) > EXT_INODE_MAX)
		err = -EOPNOTSUPP;
	for (dgrp_t nr = 0; nr < s.fs->group_desc_count && !err; nr++)
		err = ext4_desc_load(s.e, nr);
	if (err)
		ext_side_close(&s);
	else
		*ret = s;
	return err;
}

void ext_side_close(struct ext_side *s)
{
	ext4_close(s->e);
	free(s->table);
	*s = (struct ext_side){ 0 };
}

static int step(struct ext_side *s)
{
	if (!s->steps)
		return -EUCLEAN;
	s->steps--;
	return 0;
}

static bool is_block(const struct ext_side *s, uint64_t block, uint64_t blks)
{
	uint64_t all = ext2fs_blocks_count(s->fs->super);

	return block >= s->fs->super->s_first_data_block && block && block < all &&
	       blks <= all - block;
}

static int read_block(struct ext_side *s, uint64_t block, void *buf)
{
	if (!is_block(s, block, 1))
		return -EUCLEAN;
	return ext4_result(s->e, io_channel_read_blk64(s->fs->io, block, 1, buf));
}

int ext_side_block(struct ext_side *s, uint64_t block, void *buf)
{
	int err = step(s);

	return err ? err : read_block(s, block, buf);
}

/* ---- inodes ---- */

uint64_t ext_side_group_inodes(const struct ext_side *s, dgrp_t nr)
{
	uint64_t all = s->fs->super->s_inodes_per_group;

	if (!ext2fs_has_group_desc_csum(s->fs))
		return all;
	if (ext2fs_bg_flags_test(s->fs, nr, EXT2_BG_INODE_UNINIT))
		return 0;
	return all - min_u64(all, ext2fs_bg_itable_unused(s->fs, nr));
}

static int load_table(struct ext_side *s, uint64_t block)
{
	int err = 0;

	if (block != s->table_block) {
		s->table_block = 0;
		err = read_block(s, block, s->table);
	}
	if (!err)
		s->table_block = block;
	return err;
}

int ext_side_inode(struct ext_side *s, uint32_t ino, const uint8_t **ret)
{
	const struct ext2_super_block *sb = s->fs->super;
	uint64_t size = EXT2_INODE_SIZE(sb), per_group = sb->s_inodes_per_group, rel, block;
	const struct ext2_inode *inode;
	dgrp_t nr;
	int err;

	*ret = NULL;
	if (!ino || ino > sb->s_inodes_count)
		return 0;
	nr = (dgrp_t)((ino - 1) / per_group);
	rel = (ino - 1) % per_group;
	if (rel >= ext_side_group_inodes(s, nr))
		return 0;
	block = ext2fs_inode_table_loc(s->fs, nr) + rel * size / s->fs->blocksize;
	err = load_table(s, block);
	if (err)
		return err;
	inode = (const void *)(s->table + rel * size % s->fs->blocksize);
	if (inode->i_mode && inode->i_links_count)
		*ret = (const uint8_t *)inode;
	return 0;
}

int ext_node_load(struct ext_side *s, uint32_t ino, struct ext_node *ret)
{
	const uint8_t *raw;
	int err = ext_side_inode(s, ino, &raw);

	ret->ino = ino;
	ret->used = false;
	ret->map = (struct ext_map){ 0 };
	memset(ret->raw, 0, sizeof(ret->raw));
	if (err || !raw)
		return err;
	ret->used = true;
	memcpy(ret->raw, raw, EXT2_INODE_SIZE(s->fs->super));
	return ext_map_load(s, ret->raw, &ret->map);
}

void ext_node_clear(struct ext_node *n)
{
	ext_map_clear(&n->map);
	n->used = false;
}

/* ---- maps ---- */

void ext_map_clear(struct ext_map *m)
{
	free(m->p);
	free(m->meta);
	*m = (struct ext_map){ 0 };
}

static int add_piece(struct ext_side *s, struct ext_map *m, struct ext_piece piece)
{
	struct ext_piece *last = m->n ? &m->p[m->n - 1] : NULL, *p;

	if (step(s) || !piece.blks || !is_block(s, piece.pblk, piece.blks) ||
	    (last && piece.lblk < last->lblk + last->blks))
		return -EUCLEAN;
	if (last && last->lblk + last->blks == piece.lblk &&
	    last->pblk + last->blks == piece.pblk && last->unwritten == piece.unwritten) {
		last->blks += piece.blks;
		return 0;
	}
	p = array_grow(m->p, &m->cap, m->n + 1, sizeof(*p));
	if (!p)
		return -ENOMEM;
	m->p = p;
	m->p[m->n++] = piece;
	return 0;
}

/* Reads a block of the map. The caller frees *ret. */
static int load_meta(struct ext_side *s, struct ext_map *m, uint64_t block, void **ret)
{
	void *p = array_grow(m->meta, &m->meta_cap, m->metas + 1, sizeof(*m->meta));

	if (!p)
		return -ENOMEM;
	m->meta = p;
	m->meta[m->metas++] = block;
	*ret = malloc(s->fs->blocksize);
	return *ret ? ext_side_block(s, block, *ret) : -ENOMEM;
}

static int add_extent(struct ext_side *s, struct ext_map *m, const struct ext3_extent *e)
{
	bool unwritten = e->ee_len > EXT_INIT_MAX_LEN;

	return add_piece(
		s, m,
		(struct ext_piece){ .lblk = e->ee_block,
				    .pblk = e->ee_start | (uint64_t)e->ee_start_hi << 32,
				    .blks = unwritten ? e->ee_len - EXT_INIT_MAX_LEN : e->ee_len,
				    .unwritten = unwritten });
}

static int walk_extents(struct ext_side *s, struct ext_map *m, const struct ext3_extent_header *h,
			size_t bytes, unsigned depth)
{
	const struct ext3_extent *e = (const void *)(h + 1);
	const struct ext3_extent_idx *x = (const void *)(h + 1);
	int err = 0;

	if (h->eh_magic != EXT3_EXT_MAGIC || h->eh_depth != depth ||
	    h->eh_entries > (bytes - sizeof(*h)) / sizeof(*e))
		return -EUCLEAN;
	for (unsigned i = 0; i < h->eh_entries && !err; i++) {
		_cleanup_free_ void *buf = NULL;

		if (!depth) {
			err = add_extent(s, m, &e[i]);
			continue;
		}
		err = load_meta(s, m, x[i].ei_leaf | (uint64_t)x[i].ei_leaf_hi << 32, &buf);
		if (!err)
			err = walk_extents(s, m, buf, s->fs->blocksize, depth - 1);
	}
	return err;
}

/* level 0: block has content. first: its logical number, counted on through holes. */
static int walk_indirect(struct ext_side *s, struct ext_map *m, uint32_t block, unsigned level,
			 uint64_t *first)
{
	unsigned shift = (unsigned)EXT2_BLOCK_SIZE_BITS(s->fs->super) - 2;
	_cleanup_free_ void *buf = NULL;
	const uint32_t *b;
	int err;

	if (!block) {
		*first += 1ull << (level * shift);
		return 0;
	}
	if (!level)
		return add_piece(s, m, (struct ext_piece){ (*first)++, block, 1, false });
	err = load_meta(s, m, block, &buf);
	b = buf;
	for (size_t i = 0; i < s->fs->blocksize / 4 && !err; i++)
		err = walk_indirect(s, m, b[i], level - 1, first);
	return err;
}

/* False: a device, a short symbolic link, a file inside its inode. */
static bool has_blocks(const struct ext_side *s, const struct ext2_inode *inode)
{
	/* the library takes blocks of attributes for those of the link */
	if (ext2fs_has_feature_ea_inode(s->fs->super) && LINUX_S_ISLNK(inode->i_mode) &&
	    inode->i_size < I_BLOCK_BYTES)
		return false;
	return ext2fs_inode_has_valid_blocks2(s->fs, (struct ext2_inode *)inode);
}

int ext_map_load(struct ext_side *s, const uint8_t *raw, struct ext_map *ret)
{
	const struct ext2_inode *inode = (const void *)raw;
	const struct ext3_extent_header *h = (const void *)inode->i_block;
	struct ext_map m = { 0 };
	uint64_t first = 0;
	int err = 0;

	*ret = m;
	if (!has_blocks(s, inode))
		return 0;
	if (inode->i_flags & EXT4_EXTENTS_FL) {
		if (!ext4_tree_ok(inode))
			return -EUCLEAN;
		err = walk_extents(s, &m, h, I_BLOCK_BYTES, h->eh_depth);
	} else {
		for (unsigned i = 0; i < EXT2_N_BLOCKS && !err; i++)
			err = walk_indirect(s, &m, inode->i_block[i],
					    i < EXT2_NDIR_BLOCKS ? 0 : i - EXT2_NDIR_BLOCKS + 1,
					    &first);
	}
	if (err)
		ext_map_clear(&m);
	else
		*ret = m;
	return err;
}

uint64_t ext_map_find(const struct ext_map *m, uint64_t lblk, uint64_t *ret_blks)
{
	size_t low = 0, n = m->n;

	while (low < n) { /* the first piece that ends after lblk */
		size_t mid = low + (n - low) / 2;

		if (m->p[mid].lblk + m->p[mid].blks > lblk)
			n = mid;
		else
			low = mid + 1;
	}
	if (low == m->n || m->p[low].lblk > lblk) {
		*ret_blks = low == m->n ? UINT64_MAX - lblk : m->p[low].lblk - lblk;
		return 0;
	}
	*ret_blks = m->p[low].lblk + m->p[low].blks - lblk;
	return m->p[low].unwritten ? 0 : m->p[low].pblk + (lblk - m->p[low].lblk);
}

/* ---- extended attributes inside an inode ---- */

/* Where they begin; 0: there are none. */
static size_t xattrs_at(const uint8_t *raw, size_t size)
{
	const struct ext2_inode_large *l = ext_inode(raw);
	size_t start = EXT2_GOOD_OLD_INODE_SIZE;
	uint32_t magic;

	if (size <= start + sizeof(l->i_extra_isize) || l->i_extra_isize % 4 ||
	    l->i_extra_isize + 4u + sizeof(magic) > size - start)
		return 0;
	start += l->i_extra_isize;
	memcpy(&magic, raw + start, sizeof(magic));
	return magic == EXT2_EXT_ATTR_MAGIC ? start + sizeof(magic) : 0;
}

/*
 * Takes the entry at *at; values lie at base. 1: there is one; 0: the end; -EUCLEAN.
 */
static int next_xattr(const uint8_t *base, size_t bytes, size_t *at, struct ext_xattr *ret)
{
	struct ext2_ext_attr_entry x;
	uint32_t mark;

	if (bytes - *at < sizeof(mark))
		return 0;
	memcpy(&mark, base + *at, sizeof(mark));
	if (!mark)
		return 0;
	if (bytes - *at < sizeof(x))
		return -EUCLEAN;
	memcpy(&x, base + *at, sizeof(x));
	if (EXT2_EXT_ATTR_LEN(x.e_name_len) > bytes - *at)
		return -EUCLEAN;
	*ret = (struct ext_xattr){ .index = x.e_name_index,
				   .name_bytes = x.e_name_len,
				   .name = (const char *)base + *at + sizeof(x),
				   .value = base + x.e_value_offs,
				   .value_bytes = x.e_value_size,
				   .value_ino = x.e_value_inum };
	if (x.e_value_inum)
		ret->value = NULL;
	else if (x.e_value_size &&
		 (x.e_value_offs > bytes || x.e_value_size > bytes - x.e_value_offs))
		return -EUCLEAN;
	*at += EXT2_EXT_ATTR_LEN(x.e_name_len);
	return 1;
}

static bool is_inline_data(const struct ext_xattr *x)
{
	return x->index == XATTR_SYSTEM && x->name_bytes == 4 && !memcmp(x->name, "data", 4);
}

static int add_xattrs(struct ext_xattrs *ret, const uint8_t *base, size_t bytes, size_t at)
{
	struct ext_xattr x;
	int r;

	while ((r = next_xattr(base, bytes, &at, &x)) > 0) {
		void *p;

		if (is_inline_data(&x))
			continue;
		p = array_grow(ret->x, &ret->cap, ret->n + 1, sizeof(x));
		if (!p)
			return -ENOMEM;
		ret->x = p;
		ret->x[ret->n++] = x;
	}
	return r;
}

static int xattr_compare(const void *a, const void *b)
{
	const struct ext_xattr *x = a, *y = b;

	if (x->index != y->index)
		return x->index - y->index;
	if (x->name_bytes != y->name_bytes)
		return x->name_bytes - y->name_bytes;
	return memcmp(x->name, y->name, x->name_bytes);
}

int ext_xattrs_load(struct ext_side *s, const struct ext_node *n, struct ext_xattrs *ret)
{
	size_t size = EXT2_INODE_SIZE(s->fs->super), at = xattrs_at(n->raw, size);
	uint64_t block = ext2fs_file_acl_block(s->fs, (const struct ext2_inode *)n->raw);
	const struct ext2_ext_attr_header *h;
	int err = at ? add_xattrs(ret, n->raw + at, size - at, 0) : 0;

	if (block && !err) {
		ret->block = malloc(s->fs->blocksize);
		err = ret->block ? ext_side_block(s, block, ret->block) : -ENOMEM;
		h = (const void *)ret->block;
		if (!err)
			err = h->h_magic != EXT2_EXT_ATTR_MAGIC
				      ? -EUCLEAN
				      : add_xattrs(ret, ret->block, s->fs->blocksize, sizeof(*h));
	}
	if (ret->n && !err)
		qsort(ret->x, ret->n, sizeof(*ret->x), xattr_compare);
	return err;
}

void ext_xattrs_clear(struct ext_xattrs *x)
{
	free(x->x);
	free(x->block);
	*x = (struct ext_xattrs){ 0 };
}

/* ---- content ---- */

uint64_t ext_node_bytes(const struct ext_node *n)
{
	return EXT2_I_SIZE(ext_inode(n->raw));
}

bool ext_node_is_inside(const struct ext_node *n)
{
	const struct ext2_inode_large *l = ext_inode(n->raw);

	return l->i_flags & EXT4_INLINE_DATA_FL || (!S_ISREG(l->i_mode) && !n->map.n);
}

/* The rest of a file inside its inode, behind i_block: the attribute system.data. */
static int inline_rest(const uint8_t *raw, size_t size, struct ext_xattr *ret)
{
	size_t base = xattrs_at(raw, size), at = 0;
	int r = 0;

	if (base && ext_inode(raw)->i_flags & EXT4_INLINE_DATA_FL)
		while ((r = next_xattr(raw + base, size - base, &at, ret)) > 0)
			if (is_inline_data(ret) && ret->value)
				return 0;
	*ret = (struct ext_xattr){ 0 };
	return r;
}

static int read_inside(struct ext_side *s, const struct ext_node *n, uint64_t lblk, uint8_t *buf)
{
	struct ext_xattr rest;
	int err = inline_rest(n->raw, EXT2_INODE_SIZE(s->fs->super), &rest);

	memset(buf, 0, s->fs->blocksize);
	if (err || lblk)
		return err;
	memcpy(buf, ext_inode(n->raw)->i_block, I_BLOCK_BYTES);
	if (rest.value_bytes > s->fs->blocksize - I_BLOCK_BYTES)
		return -EUCLEAN;
	if (rest.value_bytes)
		memcpy(buf + I_BLOCK_BYTES, rest.value, rest.value_bytes);
	return 0;
}

int ext_node_read(struct ext_side *s, const struct ext_node *n, uint64_t lblk, uint8_t *buf)
{
	uint64_t block, blks;

	if (ext_node_is_inside(n))
		return read_inside(s, n, lblk, buf);
	block = ext_map_find(&n->map, lblk, &blks);
	if (block)
		return ext_side_block(s, block, buf);
	memset(buf, 0, s->fs->blocksize);
	return 0;
}

/* ---- names ---- */

static bool is_dots(const char *name, size_t len)
{
	return name[0] == '.' && (len == 1 || (len == 2 && name[1] == '.'));
}

/* The name of an encrypted file is any bytes; here it is their hexadecimal digits. */
static int call_each(struct ext_side *s, ext_each_name *each, void *ctx, const struct ext_node *dir,
		     const struct ext2_dir_entry *d, size_t len)
{
	int type = ext2fs_has_feature_filetype(s->fs->super) ? ext2fs_dirent_file_type(d)
							     : EXT2_FT_UNKNOWN;
	char hex[2 * EXT2_NAME_LEN + 1];
	struct ext_name n = { .dir = dir->ino,
			      .ino = d->inode,
			      .maybe_dir = type == EXT2_FT_UNKNOWN || type == EXT2_FT_DIR,
			      .name = d->name,
			      .len = len };

	if (!(ext_inode(dir->raw)->i_flags & EXT4_ENCRYPT_FL)) {
		if (!len || memchr(d->name, '/', len) || memchr(d->name, '\0', len))
			return -EUCLEAN;
		return each(ctx, &n);
	}
	for (size_t i = 0; i < len; i++)
		sprintf(hex + 2 * i, "%02x", (uint8_t)d->name[i]);
	n.name = hex;
	n.len = 2 * len;
	return each(ctx, &n);
}

/* The entries of a block, or of a part of an inode. buf: aligned to 4 bytes. */
static int take_entries(struct ext_side *s, const struct ext_node *dir, const uint8_t *buf,
			size_t bytes, ext_each_name *each, void *ctx)
{
	unsigned rec_len;
	int r = 0;

	for (size_t off = 0; off + 8 < bytes && !r; off += rec_len) {
		struct ext2_dir_entry *d = (struct ext2_dir_entry *)(buf + off);
		size_t len = (size_t)ext2fs_dirent_name_len(d);

		if (ext2fs_get_rec_len(s->fs, d, &rec_len) || rec_len < 8 || rec_len % 4 ||
		    rec_len > bytes - off || len > rec_len - 8)
			return -EUCLEAN;
		if (d->inode && !is_dots(d->name, len))
			r = call_each(s, each, ctx, dir, d, len);
	}
	return r;
}

/* i_block begins with the inode number of the parent. */
static int take_inline(struct ext_side *s, const struct ext_node *dir, ext_each_name *each,
		       void *ctx)
{
	struct ext_xattr rest;
	int r = inline_rest(dir->raw, EXT2_INODE_SIZE(s->fs->super), &rest);

	if (!r)
		r = take_entries(s, dir, (const uint8_t *)ext_inode(dir->raw)->i_block + 4,
				 I_BLOCK_BYTES - 4, each, ctx);
	if (!r && (uintptr_t)rest.value % 4)
		return -EUCLEAN;
	return r || !rest.value_bytes
		       ? r
		       : take_entries(s, dir, rest.value, rest.value_bytes, each, ctx);
}

int ext_side_names(struct ext_side *s, const struct ext_node *dir,
		   bool (*skip)(void *ctx, uint64_t lblk, uint64_t pblk), ext_each_name *each,
		   void *ctx)
{
	_cleanup_free_ uint8_t *buf = malloc(s->fs->blocksize);
	int r = buf ? 0 : -ENOMEM;

	if (r || ext_inode(dir->raw)->i_flags & EXT4_INLINE_DATA_FL)
		return r ? r : take_inline(s, dir, each, ctx);
	for (size_t i = 0; i < dir->map.n && !r; i++) {
		const struct ext_piece *p = &dir->map.p[i];

		for (uint64_t b = 0; b < p->blks && !p->unwritten && !r; b++) {
			if (skip && skip(ctx, p->lblk + b, p->pblk + b))
				continue;
			r = ext_side_block(s, p->pblk + b, buf);
			if (!r)
				r = take_entries(s, dir, buf, s->fs->blocksize, each, ctx);
		}
	}
	return r;
}

int ext_side_parent(struct ext_side *s, const struct ext_node *dir, uint32_t *ret)
{
	_cleanup_free_ uint8_t *buf = malloc(s->fs->blocksize);
	const struct ext2_dir_entry *d;
	int err;

	if (!buf)
		return -ENOMEM;
	if (ext_inode(dir->raw)->i_flags & EXT4_INLINE_DATA_FL) {
		*ret = ext_inode(dir->raw)->i_block[0];
		return 0;
	}
	err = ext_node_read(s, dir, 0, buf);
	if (err)
		return err;
	d = (const void *)(buf + 12); /* behind "." */
	if (((const struct ext2_dir_entry *)buf)->rec_len != 12 || ext2fs_dirent_name_len(d) != 2 ||
	    memcmp(d->name, "..", 2))
		return -EUCLEAN;
	*ret = d->inode;
	return 0;
}
