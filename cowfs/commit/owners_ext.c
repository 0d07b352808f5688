// SPDX-License-Identifier: MIT
/*
 * owners.h for ext2/3/4 through libext2fs.
 *
 * One pass over the inode tables claims blocks for each inode, against the sorted runs; what claims none is forgotten
 * but for a bit and, of directories, a number. One pass over the directories then finds the names of those that are left, and of
 * all directories, from which paths are put together. If only tables were written there is no second pass.
 *
 * The file system may be mounted and busy. Its metadata is read through the page cache of the device, where ext4
 * changes it: what lies there is newer than what the journal has brought home. But nothing holds it still, so checksums are
 * not looked at, every number is taken with doubt, and an inode that does not parse is counted and passed over.
 */
#include <errno.h>
#include <ext2fs/ext2fs.h>
#include <string.h>

#include "base/array.h"
#include "commit/owners.h"

#define SCAN_BLOCKS 64
#define PROGRESS_INODES 8192
#define PATH_DEPTH 4096
#define NO_NAME UINT64_MAX

/* A name: where it stands, and in which directory. */
struct name {
	ext2_ino_t ino, parent;
	uint64_t text; /* offset into the pool, NO_NAME */
};

struct names {
	struct name *n; /* ascending by ino */
	size_t count, cap;
};

struct scan {
	ext2_filsys fs;
	const struct owners_query *q;
	struct owners *w;
	struct owner own[OWNER_KINDS]; /* the file system's own rows */
	struct names files, dirs;
	uint8_t *wanted; /* a bit per inode: it is in one of the two lists */
	size_t wanted_bytes;
	char *pool;
	size_t pool_bytes, pool_cap;
	blk64_t *xattr; /* changed blocks of extended attributes, with repetitions */
	size_t xattrs, xattr_cap;
	int err;
};

static uint64_t to_bytes(const struct scan *s, uint64_t block)
{
	uint64_t bytes;

	return __builtin_mul_overflow(block, (uint64_t)s->fs->blocksize, &bytes) ? UINT64_MAX : bytes;
}

static void claim(const struct scan *s, struct owner *o, uint64_t block, uint64_t count)
{
	uint64_t end = block + count;

	if (end < block || end > ext2fs_blocks_count(s->fs->super))
		return; /* nonsense of an inode in motion */
	owner_claim(o, s->q, to_bytes(s, block), to_bytes(s, end));
}

static int names_add(struct names *x, ext2_ino_t ino)
{
	void *p = array_grow(x->n, &x->cap, x->count + 1, sizeof(*x->n));

	if (!p)
		return -ENOMEM;
	x->n = p;
	x->n[x->count++] = (struct name){.ino = ino, .text = NO_NAME};
	return 0;
}

static struct name *names_find(const struct names *x, ext2_ino_t ino)
{
	size_t low = 0, n = x->count;

	while (low < n) {
		size_t mid = low + (n - low) / 2;

		if (x->n[mid].ino < ino)
			low = mid + 1;
		else
			n = mid;
	}
	return low < x->count && x->n[low].ino == ino ? &x->n[low] : NULL;
}

/* ---- blocks of an inode ---- */

static int claim_leaf_in_inode(const struct scan *s, struct owner *o, const struct ext3_extent_header *h)
{
	const struct ext3_extent *e = (const struct ext3_extent *)(h + 1);
	unsigned entries = ext2fs_le16_to_cpu(h->eh_entries);

	if (entries > (sizeof(((struct ext2_inode *)0)->i_block) - sizeof(*h)) / sizeof(*e))
		return -EUCLEAN;
	for (unsigned i = 0; i < entries; i++) {
		uint64_t first = ext2fs_le32_to_cpu(e[i].ee_start) | (uint64_t)ext2fs_le16_to_cpu(e[i].ee_start_hi) << 32;
		unsigned len = ext2fs_le16_to_cpu(e[i].ee_len);

		claim(s, o, first, len > EXT_INIT_MAX_LEN ? len - EXT_INIT_MAX_LEN : len);
	}
	return 0;
}

static int claim_tree(const struct scan *s, struct owner *o, ext2_ino_t ino, struct ext2_inode *inode)
{
	ext2_extent_handle_t handle;
	struct ext2fs_extent e;
	errcode_t rc = ext2fs_extent_open2(s->fs, ino, inode, &handle);

	if (rc)
		return -EUCLEAN;
	rc = ext2fs_extent_get(handle, EXT2_EXTENT_ROOT, &e);
	while (!rc) {
		if (e.e_flags & EXT2_EXTENT_FLAGS_LEAF)
			claim(s, o, e.e_pblk, e.e_len);
		else if (!(e.e_flags & EXT2_EXTENT_FLAGS_SECOND_VISIT))
			claim(s, o, e.e_pblk, 1); /* a block of the tree */
		rc = ext2fs_extent_get(handle, EXT2_EXTENT_NEXT, &e);
	}
	ext2fs_extent_free(handle);
	return rc == EXT2_ET_EXTENT_NO_NEXT ? 0 : -EUCLEAN;
}

struct visit {
	const struct scan *s;
	struct owner *o;
};

static int claim_block(ext2_filsys fs, blk64_t *block, e2_blkcnt_t logical, blk64_t ref_blk, int ref_offset, void *ctx)
{
	struct visit *v = ctx;

	(void)fs, (void)logical, (void)ref_blk, (void)ref_offset;
	claim(v->s, v->o, *block, 1);
	return 0;
}

static int claim_inode(struct scan *s, struct owner *o, ext2_ino_t ino, struct ext2_inode *inode)
{
	const struct ext3_extent_header *h = (const void *)inode->i_block;
	struct visit v = {s, o};

	if (!ext2fs_inode_has_valid_blocks2(s->fs, inode))
		return 0; /* a device, a short symlink, a file inside of its inode */
	if (!(inode->i_flags & EXT4_EXTENTS_FL))
		return ext2fs_block_iterate3(s->fs, ino, BLOCK_FLAG_READ_ONLY, NULL, claim_block, &v) ? -EUCLEAN : 0;
	if (ext2fs_le16_to_cpu(h->eh_magic) != EXT3_EXT_MAGIC)
		return -EUCLEAN;
	return h->eh_depth ? claim_tree(s, o, ino, inode) : claim_leaf_in_inode(s, o, h);
}

static int note_xattr(struct scan *s, struct ext2_inode *inode)
{
	blk64_t block = ext2fs_file_acl_block(s->fs, inode);
	struct owner probe = {0};
	void *p;

	if (!block)
		return 0;
	claim(s, &probe, block, 1);
	if (!owner_has_some(&probe))
		return 0;
	p = array_grow(s->xattr, &s->xattr_cap, s->xattrs + 1, sizeof(*s->xattr));
	if (!p)
		return -ENOMEM;
	s->xattr = p;
	s->xattr[s->xattrs++] = block;
	return 0;
}

static int block_compare(const void *a, const void *b)
{
	const blk64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

/* Files may share one. */
static void claim_xattrs(struct scan *s)
{
	if (s->xattrs)
		qsort(s->xattr, s->xattrs, sizeof(*s->xattr), block_compare);
	for (size_t i = 0; i < s->xattrs; i++)
		if (!i || s->xattr[i] != s->xattr[i - 1])
			claim(s, &s->own[OWNER_XATTRS], s->xattr[i], 1);
}

/* ---- the inode tables ---- */

static bool is_own(const struct scan *s, ext2_ino_t ino)
{
	return ino != EXT2_ROOT_INO && (ino < EXT2_FIRST_INODE(s->fs->super) || ino == s->fs->super->s_orphan_file_inum);
}

static int take_own(struct scan *s, ext2_ino_t ino, struct ext2_inode *inode)
{
	if (ino == EXT2_RESIZE_INO)
		return 0; /* the room for descriptors */
	return claim_inode(s, &s->own[ino == s->fs->super->s_journal_inum ? OWNER_JOURNAL : OWNER_OTHER], ino, inode);
}

static int want(struct scan *s, struct names *list, ext2_ino_t ino)
{
	s->wanted[ino / 8] |= (uint8_t)(1 << ino % 8);
	return names_add(list, ino);
}

static int take_named(struct scan *s, ext2_ino_t ino, struct ext2_inode *inode)
{
	bool dir = LINUX_S_ISDIR(inode->i_mode) && inode->i_links_count;
	struct owner o = {
		.kind = !inode->i_links_count ? OWNER_DELETED : dir ? OWNER_DIRECTORY : OWNER_FILE,
		.ino = ino,
		.links = inode->i_links_count,
	};
	int err = 0;

	/* all that was deleted has no blocks */
	if (ext2fs_get_stat_i_blocks(s->fs, inode)) {
		int bad = claim_inode(s, &o, ino, inode);

		s->w->unreadable += bad != 0;
		err = note_xattr(s, inode);
	}
	if (!err && (dir || (owner_has_some(&o) && o.links)))
		err = want(s, dir ? &s->dirs : &s->files, ino);
	return err ? err : owners_keep(s->w, &o);
}

static void show(const struct scan *s, const char *phase, uint64_t done, uint64_t total)
{
	if (s->q->progress)
		s->q->progress(s->q->ctx, phase, done, total);
}

static int scan_inodes(struct scan *s)
{
	const uint64_t size = EXT2_INODE_SIZE(s->fs->super), all = s->fs->super->s_inodes_count;
	_cleanup_free_ struct ext2_inode *inode = malloc(max_u64(size, sizeof(struct ext2_inode_large)));
	ext2_inode_scan scan;
	ext2_ino_t ino = 0;
	uint64_t n = 0;
	int err = 0;

	if (!inode || ext2fs_open_inode_scan(s->fs, SCAN_BLOCKS, &scan))
		return -ENOMEM;
	while (!err) {
		errcode_t rc = ext2fs_get_next_inode_full(scan, &ino, inode, (int)size);

		if (rc == EXT2_ET_BAD_BLOCK_IN_INODE_TABLE)
			continue;
		if (rc)
			err = -EIO;
		if (rc || !ino)
			break;
		if (++n % PROGRESS_INODES == 0)
			show(s, "inodes", ino * size, all * size);
		if (!inode->i_mode || ino > all)
			continue;
		s->w->looked_at += inode->i_links_count != 0;
		if (is_own(s, ino))
			(void)take_own(s, ino, inode);
		else
			err = take_named(s, ino, inode);
	}
	ext2fs_close_inode_scan(scan);
	return err;
}

/* ---- what is nobody's ---- */

static void claim_group(struct scan *s, dgrp_t nr)
{
	ext2_filsys fs = s->fs;
	uint64_t old_descs = ext2fs_has_feature_meta_bg(fs->super) ? fs->super->s_first_meta_bg :
								     fs->desc_blocks + fs->super->s_reserved_gdt_blocks;
	struct owner *super = &s->own[OWNER_SUPER];
	blk64_t copy, old_desc, new_desc;
	blk_t used;

	ext2fs_super_and_bgd_loc2(fs, nr, &copy, &old_desc, &new_desc, &used);
	if (copy || !nr)
		claim(s, super, copy, 1);
	if (copy && !nr)
		claim(s, super, 0, 1); /* the boot sector, where blocks have 1 KiB */
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

static void claim_free_run(struct scan *s, uint64_t blk, uint64_t blks)
{
	ext2_filsys fs = s->fs;
	uint64_t block = max_u64(blk_to_bytes(blk) / fs->blocksize, fs->super->s_first_data_block);
	uint64_t end = (blk_to_bytes(blk + blks) + fs->blocksize - 1) / fs->blocksize;

	for (end = min_u64(end, ext2fs_blocks_count(fs->super)); block < end; block++)
		if (!ext2fs_test_block_bitmap2(fs->block_map, block))
			claim(s, &s->own[OWNER_FREE], block, 1);
}

static void claim_free(struct scan *s)
{
	ext2_filsys fs = s->fs;
	const struct extents *x = s->q->all;
	const struct tally *t = s->q->rewrites;

	if ((claimed_bytes(s) >= blk_to_bytes(x->blks) && !(t && t->n)) || ext2fs_read_block_bitmap(fs))
		return;
	for (size_t i = 0; i < x->n; i++)
		claim_free_run(s, x->e[i].blk, x->e[i].blks);
	for (size_t i = 0; t && i < t->n; i++) {
		uint64_t start = blk_to_bytes(t->b[i].blk);

		if (!extents_covered_bytes(x, start, start + COW_BLK_BYTES))
			claim_free_run(s, t->b[i].blk, 1);
	}
}

/* ---- names ---- */

static int pool_add(struct scan *s, const char *text, size_t len, uint64_t *ret)
{
	char *p = array_grow(s->pool, &s->pool_cap, s->pool_bytes + len + 1, 1);

	if (!p)
		return -ENOMEM;
	s->pool = p;
	memcpy(p + s->pool_bytes, text, len);
	p[s->pool_bytes + len] = '\0';
	*ret = s->pool_bytes;
	s->pool_bytes += len + 1;
	return 0;
}

static int take_entry(ext2_ino_t dir, int entry, struct ext2_dir_entry *d, int offset, int block_bytes, char *buf, void *ctx)
{
	struct scan *s = ctx;
	ext2_ino_t ino = d->inode;
	struct name *n;

	(void)offset, (void)block_bytes, (void)buf;
	if (entry != DIRENT_OTHER_FILE || ino / 8 >= s->wanted_bytes || !(s->wanted[ino / 8] & 1 << ino % 8))
		return 0;
	n = names_find(&s->files, ino);
	if (!n)
		n = names_find(&s->dirs, ino);
	if (!n || n->text != NO_NAME)
		return 0; /* the first of its names is enough */
	n->parent = dir;
	s->err = pool_add(s, d->name, (size_t)ext2fs_dirent_name_len(d), &n->text);
	return s->err ? DIRENT_ABORT : 0;
}

static int scan_directories(struct scan *s)
{
	_cleanup_free_ char *buf = malloc(s->fs->blocksize);

	if (!buf)
		return -ENOMEM;
	for (size_t i = 0; i < s->dirs.count && !s->err; i++) {
		errcode_t rc = ext2fs_dir_iterate2(s->fs, s->dirs.n[i].ino, 0, buf, take_entry, s);

		s->w->unreadable += rc && !s->err;
		if (i % 256 == 0)
			show(s, "names", i * s->fs->blocksize, s->dirs.count * s->fs->blocksize);
	}
	return s->err;
}

/* How long the path to ino is; into buf's end if there is one. 0: there is none. */
static size_t path_of(const struct scan *s, const struct name *n, char *end)
{
	size_t len = 0;

	for (unsigned depth = 0; depth < PATH_DEPTH && n && n->text != NO_NAME; depth++) {
		const char *text = s->pool + n->text;
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

static int make_path(const struct scan *s, struct owner *o)
{
	bool dir = o->kind == OWNER_DIRECTORY;
	size_t len;

	if (o->ino == EXT2_ROOT_INO) {
		o->path = strdup("/");
		return o->path ? 0 : -ENOMEM;
	}
	len = path_of(s, names_find(dir ? &s->dirs : &s->files, (ext2_ino_t)o->ino), NULL);
	if (!len)
		return 0;
	o->path = malloc(len + 2);
	if (!o->path)
		return -ENOMEM;
	o->path[len] = dir ? '/' : '\0';
	o->path[len + 1] = '\0';
	path_of(s, names_find(dir ? &s->dirs : &s->files, (ext2_ino_t)o->ino), o->path + len);
	return 0;
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

	for (size_t i = 0; i < s->w->n && !err; i++)
		if (s->w->o[i].kind == OWNER_FILE || s->w->o[i].kind == OWNER_DIRECTORY)
			err = make_path(s, &s->w->o[i]);
	return err;
}

/* ---- all of it ---- */

static int scan_all(struct scan *s)
{
	int err;

	s->wanted_bytes = s->fs->super->s_inodes_count / 8 + 1;
	s->wanted = calloc(s->wanted_bytes, 1);
	if (!s->wanted)
		return -ENOMEM;
	err = scan_inodes(s);
	if (err)
		return err;
	for (dgrp_t nr = 0; nr < s->fs->group_desc_count; nr++)
		claim_group(s, nr);
	claim_xattrs(s);
	claim_free(s);
	err = name_owners(s);
	for (unsigned k = 0; k < OWNER_KINDS && !err; k++) {
		s->own[k].kind = k;
		/* the rest has a row of its own */
		err = k == OWNER_OTHER ? 0 : owners_keep(s->w, &s->own[k]);
	}
	return err ? err : owners_add_rest(s->w, s->q);
}

static int open_error(errcode_t rc)
{
	if (rc == EXT2_ET_NO_MEMORY || rc == ENOMEM)
		return -ENOMEM;
	if (rc > 0 && rc < 4096)
		return -(int)rc; /* of open(2) */
	if (rc == EXT2_ET_BAD_MAGIC || rc == EXT2_ET_UNSUPP_FEATURE || rc == EXT2_ET_RO_UNSUPP_FEATURE)
		return -EOPNOTSUPP;
	return -EUCLEAN;
}

int owners_ext(struct owners *ret, const char *device, const struct owners_query *q)
{
	struct owners w = {.complete = true};
	struct scan s = {.q = q, .w = &w};
	errcode_t rc = ext2fs_open(device, EXT2_FLAG_64BITS | EXT2_FLAG_IGNORE_CSUM_ERRORS, 0, 0, unix_io_manager, &s.fs);
	int err;

	if (rc)
		return open_error(rc);
	err = scan_all(&s);
	ext2fs_free(s.fs);
	free(s.wanted);
	free(s.pool);
	free(s.files.n);
	free(s.dirs.n);
	free(s.xattr);
	if (err)
		owners_clear(&w);
	else
		*ret = w;
	return err;
}
