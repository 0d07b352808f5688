// SPDX-License-Identifier: MIT
#include "files/diff.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/array.h"

int diff_names_add(struct diff_names *x, struct diff_name name)
{
	struct diff_name *p = name.path ? array_grow(x->n, &x->cap, x->count + 1, sizeof(*p))
					: NULL;

	if (!p) {
		free(name.path);
		return -ENOMEM;
	}
	x->n = p;
	x->n[x->count++] = name;
	return 0;
}

void diff_names_clear(struct diff_names *x)
{
	for (size_t i = 0; i < x->count; i++)
		free(x->n[i].path);
	free(x->n);
	*x = (struct diff_names){ 0 };
}

/* Takes path and from. */
static int add(struct diff *d, struct diff_file f)
{
	struct diff_file *p = f.path ? array_grow(d->f, &d->cap, d->n + 1, sizeof(*p)) : NULL;

	if (!p) {
		free(f.path);
		free(f.from);
		return -ENOMEM;
	}
	d->f = p;
	d->f[d->n++] = f;
	return 0;
}

int diff_add_changed(struct diff *d, mode_t type, unsigned what, char *path, uint64_t old_bytes,
		     uint64_t new_bytes)
{
	if (!what) {
		free(path);
		return 0;
	}
	return add(d, (struct diff_file){ .kind = what & DIFF_CONTENT ? DIFF_CHANGED : DIFF_META,
					  .what = what,
					  .type = type,
					  .path = path,
					  .old_bytes = old_bytes,
					  .new_bytes = new_bytes });
}

/* ---- names of the same file ---- */

static int by_file(const void *a, const void *b)
{
	const struct diff_name *x = a, *y = b;

	if (x->ino != y->ino)
		return x->ino < y->ino ? -1 : 1;
	if (x->gen != y->gen)
		return x->gen < y->gen ? -1 : 1;
	if (x->type != y->type)
		return x->type < y->type ? -1 : 1;
	return strcmp(x->path, y->path);
}

static int by_path(const void *a, const void *b)
{
	return strcmp(((const struct diff_name *)a)->path, ((const struct diff_name *)b)->path);
}

static bool is_same_file(const struct diff_name *a, const struct diff_name *b)
{
	return a->ino && a->ino == b->ino && a->gen == b->gen && a->type == b->type;
}

/* Both names of a pair, taken out of the lists. */
struct pair {
	struct diff_name gone, added;
};

struct pairs {
	struct pair *p;
	size_t n, cap;
};

static int by_gone_path(const void *a, const void *b)
{
	return strcmp(((const struct pair *)a)->gone.path, ((const struct pair *)b)->gone.path);
}

static int pair_names(struct pairs *x, struct diff_name *gone, struct diff_name *added)
{
	struct pair *p = array_grow(x->p, &x->cap, x->n + 1, sizeof(*p));

	if (!p)
		return -ENOMEM;
	x->p = p;
	x->p[x->n++] = (struct pair){ *gone, *added };
	gone->path = added->path = NULL;
	return 0;
}

/* Takes the names without a path out. */
static void squeeze(struct diff_names *x)
{
	size_t n = 0;

	for (size_t i = 0; i < x->count; i++)
		if (x->n[i].path)
			x->n[n++] = x->n[i];
	x->count = n;
}

static void sort_names(struct diff_names *x, int (*compare)(const void *, const void *))
{
	if (x->count)
		qsort(x->n, x->count, sizeof(*x->n), compare);
}

/* Pairs the names that compare as 0, and that match() accepts. */
static int pair_lists(struct pairs *ret, struct diff_names *gone, struct diff_names *added,
		      int (*compare)(const void *, const void *),
		      bool (*match)(const struct diff_name *, const struct diff_name *))
{
	int err = 0;

	sort_names(gone, compare);
	sort_names(added, compare);
	for (size_t i = 0, k = 0; i < gone->count && k < added->count && !err;) {
		bool same = match(&gone->n[i], &added->n[k]);
		int order = compare(&gone->n[i], &added->n[k]);

		if (same)
			err = pair_names(ret, &gone->n[i++], &added->n[k++]);
		else if (order <= 0)
			i++;
		else
			k++;
	}
	squeeze(gone);
	squeeze(added);
	return err;
}

static bool is_same_path(const struct diff_name *a, const struct diff_name *b)
{
	return !strcmp(a->path, b->path) && a->type == b->type;
}

/* ---- renames ---- */

static size_t dir_bytes(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? (size_t)(slash - path) : 0;
}

/* Has p only followed its directory, which was renamed? dirs: ascending by gone.path. */
static bool moved_along(const struct pairs *dirs, const struct pair *p)
{
	size_t from = dir_bytes(p->gone.path), to = dir_bytes(p->added.path), low = 0, n = dirs->n;

	if (strcmp(p->gone.path + from + (from != 0), p->added.path + to + (to != 0)))
		return false;
	while (low < n) {
		size_t mid = low + (n - low) / 2;
		const char *path = dirs->p[mid].gone.path;
		int order = strncmp(path, p->gone.path, from);

		if (!order && !path[from])
			return !strncmp(dirs->p[mid].added.path, p->added.path, to) &&
			       !dirs->p[mid].added.path[to];
		if (order < 0)
			low = mid + 1;
		else
			n = mid;
	}
	return false;
}

/* The pairs of directories; the names stay in x. */
static int find_dirs(struct pairs *ret, const struct pairs *x)
{
	ret->p = malloc((x->n + 1) * sizeof(*ret->p));
	if (!ret->p)
		return -ENOMEM;
	for (size_t i = 0; i < x->n; i++)
		if (S_ISDIR(x->p[i].gone.type))
			ret->p[ret->n++] = x->p[i];
	qsort(ret->p, ret->n, sizeof(*ret->p), by_gone_path);
	return 0;
}

/* Takes the pair's names. */
static int add_pair(struct diff *d, struct pair *p, bool renamed, diff_compare *compare, void *ctx)
{
	unsigned what = 0;
	int err = compare(ctx, &p->gone, &p->added, &what);
	struct diff_file f = { .kind = DIFF_RENAMED,
			       .what = what,
			       .type = p->added.type,
			       .path = p->added.path,
			       .from = p->gone.path,
			       .old_bytes = p->gone.size_bytes,
			       .new_bytes = p->added.size_bytes };

	if (!err && renamed) {
		p->gone.path = p->added.path = NULL;
		return add(d, f);
	}
	if (err)
		return err;
	p->added.path = NULL;
	return diff_add_changed(d, f.type, what, f.path, f.old_bytes, f.new_bytes);
}

static void clear_pairs(struct pairs *x)
{
	for (size_t i = 0; i < x->n; i++) {
		free(x->p[i].gone.path);
		free(x->p[i].added.path);
	}
	free(x->p);
}

static int add_renames(struct diff *d, struct pairs *x, diff_compare *compare, void *ctx)
{
	struct pairs dirs = { 0 };
	_cleanup_free_ bool *along = calloc(x->n + 1, sizeof(*along));
	int err = along ? find_dirs(&dirs, x) : -ENOMEM;

	for (size_t i = 0; i < x->n && !err; i++)
		along[i] = !strcmp(x->p[i].gone.path, x->p[i].added.path) ||
			   moved_along(&dirs, &x->p[i]);
	free(dirs.p);
	for (size_t i = 0; i < x->n && !err; i++)
		err = add_pair(d, &x->p[i], !along[i], compare, ctx);
	return err;
}

/* Takes the names of the list. */
static int add_rest(struct diff *d, struct diff_names *x, enum diff_kind kind)
{
	int err = 0;

	for (size_t i = 0; i < x->count && !err; i++) {
		struct diff_file f = { .kind = kind, .type = x->n[i].type };

		*(kind == DIFF_ADDED ? &f.new_bytes : &f.old_bytes) = x->n[i].size_bytes;
		f.path = steal_ptr(x->n[i].path);
		err = add(d, f);
	}
	return err;
}

int diff_match(struct diff *d, struct diff_names *gone, struct diff_names *added,
	       diff_compare *compare, void *ctx)
{
	struct pairs renamed = { 0 }, replaced = { 0 };
	int err = pair_lists(&renamed, gone, added, by_file, is_same_file);

	if (!err)
		err = add_renames(d, &renamed, compare, ctx);
	/* another file under the same name */
	if (!err)
		err = pair_lists(&replaced, gone, added, by_path, is_same_path);
	for (size_t i = 0; i < replaced.n && !err; i++)
		err = add_pair(d, &replaced.p[i], false, compare, ctx);
	if (!err)
		err = add_rest(d, gone, DIFF_DELETED);
	if (!err)
		err = add_rest(d, added, DIFF_ADDED);
	clear_pairs(&renamed);
	clear_pairs(&replaced);
	diff_names_clear(gone);
	diff_names_clear(added);
	return err;
}

/* ---- the list ---- */

static int file_compare(const void *a, const void *b)
{
	const struct diff_file *x = a, *y = b;
	int order = strcmp(x->path, y->path);

	return order ? order : (y->kind == DIFF_DELETED) - (x->kind == DIFF_DELETED);
}

void diff_sort(struct diff *d)
{
	if (d->n)
		qsort(d->f, d->n, sizeof(*d->f), file_compare);
}

bool diff_is_below(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	return !n || (!strncmp(path, dir, n) && (!path[n] || path[n] == '/'));
}

void diff_filter(struct diff *d, bool (*keep)(void *ctx, const char *path), void *ctx)
{
	size_t n = 0;

	for (size_t i = 0; i < d->n; i++) {
		if (keep(ctx, d->f[i].path) || (d->f[i].from && keep(ctx, d->f[i].from))) {
			d->f[n++] = d->f[i];
			continue;
		}
		free(d->f[i].path);
		free(d->f[i].from);
	}
	d->n = n;
}

void diff_clear(struct diff *d)
{
	for (size_t i = 0; i < d->n; i++) {
		free(d->f[i].path);
		free(d->f[i].from);
	}
	free(d->f);
	*d = (struct diff){ 0 };
}
