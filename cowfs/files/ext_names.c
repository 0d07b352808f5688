// SPDX-License-Identifier: MIT
#include "files/ext_names.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#include "base/array.h"

int ext_names_init(struct ext_names *ret, struct ext_side *s)
{
	*ret = (struct ext_names){ .s = s };
	ret->listed = calloc(s->fs->super->s_inodes_count / 8 + 1, 1);
	return ret->listed ? 0 : -ENOMEM;
}

void ext_names_clear(struct ext_names *x)
{
	free(x->dir);
	free(x->listed);
	free(x->pool.text);
	*x = (struct ext_names){ 0 };
}

int ext_names_keep(struct ext_names *x, struct ext_entries *list, const struct ext_name *n)
{
	struct ext_entry e = { .dir = n->dir, .ino = n->ino };
	int err = text_pool_add(&x->pool, n->name, n->len, &e.text);
	void *p = err ? NULL : array_grow(list->e, &list->cap, list->n + 1, sizeof(e));

	if (!p)
		return -ENOMEM;
	list->e = p;
	list->e[list->n++] = e;
	return 0;
}

/* ---- the table of directories ---- */

static struct ext_entry *slot(const struct ext_names *x, uint32_t ino)
{
	size_t i = (ino * 2654435761u) & (x->dir_cap - 1);

	while (x->dir[i].ino && x->dir[i].ino != ino)
		i = (i + 1) & (x->dir_cap - 1);
	return &x->dir[i];
}

static const struct ext_entry *find_dir(const struct ext_names *x, uint32_t ino)
{
	const struct ext_entry *e = x->dir_cap ? slot(x, ino) : NULL;

	return e && e->ino ? e : NULL;
}

static int grow(struct ext_names *x)
{
	struct ext_names larger = { .dir_cap = x->dir_cap ? 2 * x->dir_cap : 1024 };

	if (2 * (x->dirs + 1) <= x->dir_cap)
		return 0;
	larger.dir = calloc(larger.dir_cap, sizeof(*larger.dir));
	if (!larger.dir)
		return -ENOMEM;
	for (size_t i = 0; i < x->dir_cap; i++)
		if (x->dir[i].ino)
			*slot(&larger, x->dir[i].ino) = x->dir[i];
	free(x->dir);
	x->dir = larger.dir;
	x->dir_cap = larger.dir_cap;
	return 0;
}

bool ext_names_knows(const struct ext_names *x, uint32_t ino)
{
	return find_dir(x, ino);
}

/* One name of a directory is enough: it has only one. */
int ext_names_learn(struct ext_names *x, const struct ext_name *n)
{
	int err = grow(x);
	struct ext_entry *e = err ? NULL : slot(x, n->ino);

	if (err || e->ino)
		return err;
	err = text_pool_add(&x->pool, n->name, n->len, &e->text);
	if (err)
		return err;
	e->dir = n->dir;
	e->ino = n->ino;
	x->dirs++;
	return 0;
}

static bool mark_listed(struct ext_names *x, uint32_t ino)
{
	uint8_t bit = (uint8_t)(1 << ino % 8);
	bool was = x->listed[ino / 8] & bit;

	x->listed[ino / 8] |= bit;
	return was;
}

static bool is_inode(const struct ext_names *x, uint32_t ino)
{
	return ino && ino <= x->s->fs->super->s_inodes_count;
}

static int load_dir(struct ext_names *x, uint32_t ino, struct ext_node *ret)
{
	int err = is_inode(x, ino) ? ext_node_load(x->s, ino, ret) : -EUCLEAN;

	if (!err && (!ret->used || !S_ISDIR(ext_inode(ret->raw)->i_mode))) {
		ext_node_clear(ret);
		err = -EUCLEAN;
	}
	return err;
}

static int take_dirs(void *ctx, const struct ext_name *n)
{
	struct ext_names *x = ctx;

	return n->maybe_dir && is_inode(x, n->ino) ? ext_names_learn(x, n) : 0;
}

/* Finds the name of a directory in the directory above it. */
static int name_dir(struct ext_names *x, uint32_t ino)
{
	_cleanup_free_ struct ext_node *n = malloc(sizeof(*n));
	uint32_t parent = 0;
	int err = n ? load_dir(x, ino, n) : -ENOMEM;

	if (err)
		return err;
	err = ext_side_parent(x->s, n, &parent);
	ext_node_clear(n);
	if (!err)
		err = load_dir(x, parent, n);
	if (err)
		return err;
	if (!mark_listed(x, parent))
		err = ext_side_names(x->s, n, NULL, take_dirs, x);
	ext_node_clear(n);
	return err ? err : find_dir(x, ino) ? 0 : -EUCLEAN;
}

/* ---- paths ---- */

int ext_names_dir(struct ext_names *x, uint32_t ino, struct ext_entry *ret)
{
	const struct ext_entry *e = find_dir(x, ino);
	int err = e ? 0 : name_dir(x, ino);

	if (!err)
		*ret = *find_dir(x, ino);
	return err;
}

/* The path of a directory, "" for the root. */
static int dir_path(struct ext_names *x, uint32_t ino, char **ret)
{
	char path[PATH_MAX], *at = path + sizeof(path) - 1;

	*at = '\0';
	while (ino != EXT2_ROOT_INO) { /* ends by its length: directories may form a circle */
		struct ext_entry e;
		const char *text;
		size_t len;
		int err = ext_names_dir(x, ino, &e);

		if (err)
			return err;
		text = ext_names_text(x, &e);
		len = strlen(text);
		if (len + 1 > (size_t)(at - path))
			return -ENAMETOOLONG;
		if (*at)
			*--at = '/';
		at -= len;
		memcpy(at, text, len);
		ino = e.dir;
	}
	*ret = strdup(at);
	return *ret ? 0 : -ENOMEM;
}

int ext_names_path(struct ext_names *x, const struct ext_entry *e, char **ret)
{
	_cleanup_free_ char *above = NULL;
	int err = dir_path(x, e->dir, &above);

	if (!err && strlen(above) + 1 + strlen(ext_names_text(x, e)) >= PATH_MAX)
		err = -ENAMETOOLONG;
	if (!err && asprintf(ret, "%s%s%s", above, *above ? "/" : "", ext_names_text(x, e)) < 0)
		err = -ENOMEM;
	return err;
}

/* ---- all names ---- */

struct inos {
	uint32_t *ino;
	size_t n, cap;
};

struct name_scan {
	struct ext_names *x;
	ext_each_name *each;
	void *ctx;
	struct inos below; /* the directories one level deeper */
};

static int ino_compare(const void *a, const void *b)
{
	const uint32_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

static int take_name(void *ctx, const struct ext_name *n)
{
	struct name_scan *s = ctx;
	int r;

	if (!is_inode(s->x, n->ino))
		return -EUCLEAN;
	r = s->each(s->ctx, n);
	if (!r && n->maybe_dir) {
		uint32_t *p = array_grow(s->below.ino, &s->below.cap, s->below.n + 1, sizeof(*p));

		if (!p)
			return -ENOMEM;
		s->below.ino = p;
		s->below.ino[s->below.n++] = n->ino;
		r = ext_names_learn(s->x, n);
	}
	return r;
}

static int scan_dir(struct name_scan *s, uint32_t ino, uint8_t *seen, struct ext_node *n)
{
	uint8_t bit = (uint8_t)(1 << ino % 8);
	int r;

	if (seen[ino / 8] & bit)
		return -EUCLEAN; /* a directory with two names */
	r = ext_node_load(s->x->s, ino, n);
	if (r || !n->used || !S_ISDIR(ext_inode(n->raw)->i_mode)) {
		ext_node_clear(n);
		return r;
	}
	seen[ino / 8] |= bit;
	r = ext_side_names(s->x->s, n, NULL, take_name, s);
	ext_node_clear(n);
	if (!r)
		(void)mark_listed(s->x, ino);
	return r;
}

int ext_names_scan(struct ext_names *x, ext_each_name *each, void *ctx,
		   void (*progress)(void *ctx, uint64_t done_dirs), void *progress_ctx)
{
	_cleanup_free_ uint8_t *seen = calloc(x->s->fs->super->s_inodes_count / 8 + 1, 1);
	_cleanup_free_ struct ext_node *n = malloc(sizeof(*n));
	struct name_scan s = { .x = x, .each = each, .ctx = ctx };
	struct inos level = { 0 };
	uint64_t done = 0;
	int r = seen && n ? scan_dir(&s, EXT2_ROOT_INO, seen, n) : -ENOMEM;

	while (s.below.n && !r) {
		free(level.ino);
		level = s.below;
		s.below = (struct inos){ 0 };
		/* in the order in which inodes, and mostly blocks, lie on the card */
		qsort(level.ino, level.n, sizeof(*level.ino), ino_compare);
		for (size_t i = 0; i < level.n && !r; i++) {
			r = scan_dir(&s, level.ino[i], seen, n);
			if (++done % 256 == 0 && progress)
				progress(progress_ctx, done);
		}
	}
	free(level.ino);
	free(s.below.ino);
	return r;
}
