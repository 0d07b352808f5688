// SPDX-License-Identifier: MIT
#include "files/ext_compare.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

/* what chattr(1) shows; the others say how the file is stored */
#define FLAGS                                                                                      \
	(EXT2_SECRM_FL | EXT2_UNRM_FL | EXT2_COMPR_FL | EXT2_SYNC_FL | EXT2_IMMUTABLE_FL |         \
	 EXT2_APPEND_FL | EXT2_NODUMP_FL | EXT2_NOATIME_FL | EXT3_JOURNAL_DATA_FL |                \
	 EXT2_NOTAIL_FL | EXT2_DIRSYNC_FL | EXT2_TOPDIR_FL | EXT4_ENCRYPT_FL | EXT4_VERITY_FL |    \
	 FS_NOCOW_FL | FS_DAX_FL | EXT4_PROJINHERIT_FL | EXT4_CASEFOLD_FL)
#define XATTR_ACL_ACCESS 2
#define XATTR_ACL_DEFAULT 3
#define VALUE_MAX MIB

/* ---- changed blocks ---- */

int ext_changed_init(struct ext_changed *ret, const struct extents *runs, const struct ext_side *s)
{
	uint64_t size = s->fs->blocksize, all = ext2fs_blocks_count(s->fs->super), sum = 0;
	struct ext_changed c = { 0 };
	int err = 0;

	for (size_t i = 0; i < runs->n && !err; i++) {
		uint64_t first = blk_to_bytes(runs->e[i].blk) / size;
		uint64_t end = (blk_to_bytes(runs->e[i].blk + runs->e[i].blks) + size - 1) / size;
		uint64_t last = c.runs.n ? c.runs.e[c.runs.n - 1].blk + c.runs.e[c.runs.n - 1].blks
					 : 0;

		first = max_u64(first, last); /* blocks larger than the units */
		end = min_u64(end, all);
		if (first < end)
			err = extents_add(&c.runs, first, end - first);
	}
	c.before = calloc(c.runs.n + 1, sizeof(*c.before));
	c.claimed = calloc(c.runs.blks / 8 + 1, 1);
	if (err || !c.before || !c.claimed) {
		ext_changed_clear(&c);
		return -ENOMEM;
	}
	for (size_t i = 0; i < c.runs.n; i++) {
		c.before[i] = sum;
		sum += c.runs.e[i].blks;
	}
	*ret = c;
	return 0;
}

void ext_changed_clear(struct ext_changed *c)
{
	extents_clear(&c->runs);
	free(c->before);
	free(c->claimed);
	*c = (struct ext_changed){ 0 };
}

/* The first run that ends after block; runs.n: none. */
static size_t find_run(const struct ext_changed *c, uint64_t block)
{
	size_t low = 0, n = c->runs.n;

	while (low < n) {
		size_t mid = low + (n - low) / 2;

		if (c->runs.e[mid].blk + c->runs.e[mid].blks > block)
			n = mid;
		else
			low = mid + 1;
	}
	return low;
}

bool ext_changed_has(const struct ext_changed *c, uint64_t block)
{
	size_t i = find_run(c, block);

	return i < c->runs.n && c->runs.e[i].blk <= block;
}

bool ext_changed_is_claimed(const struct ext_changed *c, uint64_t index)
{
	return c->claimed[index / 8] & 1 << index % 8;
}

/* Calls for the changed blocks in a range; claims them, or ends at one that has no owner. */
static bool visit(const struct ext_changed *c, uint64_t block, uint64_t blks,
		  struct ext_changed *claim)
{
	uint64_t end = block + blks;

	for (size_t i = find_run(c, block); i < c->runs.n && c->runs.e[i].blk < end; i++) {
		uint64_t b = max_u64(c->runs.e[i].blk, block),
			 to = min_u64(c->runs.e[i].blk + c->runs.e[i].blks, end);

		for (; b < to; b++) {
			uint64_t index = c->before[i] + (b - c->runs.e[i].blk);

			if (ext_changed_is_claimed(c, index))
				continue;
			if (!claim)
				return true;
			claim->claimed[index / 8] |= (uint8_t)(1 << index % 8);
			claim->claimed_n++;
		}
	}
	return false;
}

bool ext_changed_unclaimed(const struct ext_changed *c, uint64_t block, uint64_t blks)
{
	return visit(c, block, blks, NULL);
}

void ext_changed_claim(struct ext_changed *c, uint64_t block, uint64_t blks)
{
	(void)visit(c, block, blks, c);
}

/* ---- content ---- */

static bool has_content(const struct ext_node *n)
{
	return !S_ISDIR(ext_inode(n->raw)->i_mode);
}

/* The bytes of content; a device number lies in i_block. */
static uint64_t content_bytes(const struct ext_node *n)
{
	mode_t mode = ext_inode(n->raw)->i_mode;

	if (S_ISREG(mode) || S_ISLNK(mode))
		return ext_node_bytes(n);
	return S_ISBLK(mode) || S_ISCHR(mode) ? 2 * sizeof(uint32_t) : 0;
}

/* Compares one block, of which len bytes count. */
static int block_differs(struct ext_pair *x, const struct ext_node *a, const struct ext_node *b,
			 uint64_t lblk, size_t len, uint8_t *buf, bool *ret)
{
	size_t size = x->new_side.fs->blocksize;
	int err = ext_node_read(&x->old_side, a, lblk, buf);

	if (!err)
		err = ext_node_read(&x->new_side, b, lblk, buf + size);
	*ret = !err && memcmp(buf, buf + size, len);
	return err;
}

/* As ext_map_find. A file inside its inode has one block, and a hole behind it. */
static uint64_t find_block(const struct ext_node *n, uint64_t lblk, uint64_t *ret_blks)
{
	if (!ext_node_is_inside(n))
		return ext_map_find(&n->map, lblk, ret_blks);
	*ret_blks = lblk ? UINT64_MAX - lblk : 1;
	return 0;
}

static int content_differs(struct ext_pair *x, const struct ext_node *a, const struct ext_node *b,
			   bool *ret)
{
	uint64_t bytes = content_bytes(a), size = x->new_side.fs->blocksize, step;
	bool inside = ext_node_is_inside(a) || ext_node_is_inside(b);
	_cleanup_free_ uint8_t *buf = NULL;
	int err = 0;

	*ret = bytes != content_bytes(b);
	buf = malloc(2 * size);
	if (!buf)
		return -ENOMEM;
	for (uint64_t lblk = 0; lblk < (bytes + size - 1) / size && !*ret && !err; lblk += step) {
		uint64_t a_blks, b_blks, pa = find_block(a, lblk, &a_blks),
					 pb = find_block(b, lblk, &b_blks);
		bool read_inside = inside && !lblk;

		step = 1;
		if (!read_inside && !pa && !pb) { /* holes in both */
			step = min_u64(a_blks, b_blks);
			step = min_u64(step, bytes); /* no overflow */
		} else if (read_inside || pa != pb || ext_changed_has(&x->changed, pb)) {
			err = block_differs(x, a, b, lblk, min_u64(size, bytes - lblk * size), buf,
					    ret);
		}
	}
	return err;
}

/* ---- extended attributes ---- */

static bool is_acl(const struct ext_xattr *x)
{
	return x->index == XATTR_ACL_ACCESS || x->index == XATTR_ACL_DEFAULT;
}

static int compare_names(const struct ext_xattr *a, const struct ext_xattr *b)
{
	if (a->index != b->index)
		return a->index - b->index;
	if (a->name_bytes != b->name_bytes)
		return a->name_bytes - b->name_bytes;
	return memcmp(a->name, b->name, a->name_bytes);
}

/* A value outside of the inode and its block. The caller frees *ret. */
static int load_value(struct ext_side *s, const struct ext_xattr *x, uint8_t **ret)
{
	_cleanup_free_ struct ext_node *n = calloc(1, sizeof(*n));
	_cleanup_free_ uint8_t *value = NULL;
	size_t size = s->fs->blocksize;
	int err = n ? ext_node_load(s, x->value_ino, n) : -ENOMEM;

	if (!err && (!n->used || x->value_bytes > VALUE_MAX))
		err = -EUCLEAN;
	if (!err) {
		value = malloc(x->value_bytes + size);
		err = value ? 0 : -ENOMEM;
	}
	for (size_t off = 0; !err && off < x->value_bytes; off += size)
		err = ext_node_read(s, n, off / size, value + off);
	if (n)
		ext_node_clear(n);
	if (!err)
		*ret = steal_ptr(value);
	return err;
}

static int value_differs(struct ext_pair *x, const struct ext_xattr *a, const struct ext_xattr *b,
			 bool *ret)
{
	_cleanup_free_ uint8_t *av = NULL, *bv = NULL;
	int err = 0;

	*ret = a->value_bytes != b->value_bytes;
	if (*ret || !a->value_bytes)
		return 0;
	if (a->value_ino)
		err = load_value(&x->old_side, a, &av);
	if (b->value_ino && !err)
		err = load_value(&x->new_side, b, &bv);
	if (!err)
		*ret = memcmp(av ? av : a->value, bv ? bv : b->value, a->value_bytes);
	return err;
}

static unsigned xattr_bit(const struct ext_xattr *x)
{
	return is_acl(x) ? DIFF_ACL : DIFF_XATTR;
}

static int xattr_lists_differ(struct ext_pair *x, const struct ext_xattrs *a,
			      const struct ext_xattrs *b, unsigned *ret)
{
	size_t i = 0, k = 0;
	int err = 0;

	while ((i < a->n || k < b->n) && !err) {
		int order = i == a->n ? 1 : k == b->n ? -1 : compare_names(&a->x[i], &b->x[k]);
		bool differs = true;

		if (!order)
			err = value_differs(x, &a->x[i], &b->x[k], &differs);
		if (differs)
			*ret |= xattr_bit(order <= 0 ? &a->x[i] : &b->x[k]);
		i += order <= 0;
		k += order >= 0;
	}
	return err;
}

/* Is what lies inside the inode the same, and the block, too? */
static bool xattrs_untouched(const struct ext_pair *x, const struct ext_node *a,
			     const struct ext_node *b)
{
	size_t size = EXT2_INODE_SIZE(x->new_side.fs->super), at = EXT2_GOOD_OLD_INODE_SIZE;
	uint64_t block = ext2fs_file_acl_block(x->new_side.fs, (const void *)b->raw);

	if (size > at) {
		at += ext_inode(b->raw)->i_extra_isize;
		if (ext_inode(a->raw)->i_extra_isize != ext_inode(b->raw)->i_extra_isize ||
		    at > size || memcmp(a->raw + at, b->raw + at, size - at))
			return false;
	}
	return block == ext2fs_file_acl_block(x->old_side.fs, (const void *)a->raw) &&
	       (!block || !ext_changed_has(&x->changed, block));
}

static int xattrs_differ(struct ext_pair *x, const struct ext_node *a, const struct ext_node *b,
			 unsigned *ret)
{
	struct ext_xattrs ax = { 0 }, bx = { 0 };
	int err = 0;

	if (xattrs_untouched(x, a, b))
		return 0;
	err = ext_xattrs_load(&x->old_side, a, &ax);
	if (!err)
		err = ext_xattrs_load(&x->new_side, b, &bx);
	if (!err)
		err = xattr_lists_differ(x, &ax, &bx, ret);
	ext_xattrs_clear(&ax);
	ext_xattrs_clear(&bx);
	return err;
}

/* ---- the rest ---- */

#define HAS(fs, inode, field)                                                                      \
	((size_t)EXT2_INODE_SIZE((fs)->super) > EXT2_GOOD_OLD_INODE_SIZE &&                        \
	 offsetof(struct ext2_inode_large, field) + sizeof((inode)->field) <=                      \
		 EXT2_GOOD_OLD_INODE_SIZE + (size_t)(inode)->i_extra_isize)

static bool times_differ(ext2_filsys fs, const struct ext2_inode_large *a,
			 const struct ext2_inode_large *b)
{
	uint32_t a_extra = HAS(fs, a, i_mtime_extra) ? a->i_mtime_extra : 0;
	uint32_t b_extra = HAS(fs, b, i_mtime_extra) ? b->i_mtime_extra : 0;

	return a->i_mtime != b->i_mtime || a_extra != b_extra;
}

static bool owners_differ(const struct ext2_inode_large *a, const struct ext2_inode_large *b)
{
	return inode_uid(*a) != inode_uid(*b) || inode_gid(*a) != inode_gid(*b);
}

static bool flags_differ(ext2_filsys fs, const struct ext2_inode_large *a,
			 const struct ext2_inode_large *b)
{
	uint32_t a_project = HAS(fs, a, i_projid) ? a->i_projid : 0;
	uint32_t b_project = HAS(fs, b, i_projid) ? b->i_projid : 0;

	return (a->i_flags ^ b->i_flags) & FLAGS || a_project != b_project;
}

int ext_compare(struct ext_pair *x, const struct ext_node *a, const struct ext_node *b,
		unsigned *ret_what)
{
	const struct ext2_inode_large *ai = ext_inode(a->raw), *bi = ext_inode(b->raw);
	unsigned what = 0;
	bool differs = false;
	int err = 0;

	if ((ai->i_mode ^ bi->i_mode) & 07777)
		what |= DIFF_MODE;
	if (owners_differ(ai, bi))
		what |= DIFF_OWNER;
	if (times_differ(x->new_side.fs, ai, bi))
		what |= DIFF_TIME;
	if (flags_differ(x->new_side.fs, ai, bi))
		what |= DIFF_FLAGS;
	if (has_content(b))
		err = content_differs(x, a, b, &differs);
	if (differs)
		what |= DIFF_CONTENT;
	if (!err)
		err = xattrs_differ(x, a, b, &what);
	if (!err)
		*ret_what = what;
	return err;
}
