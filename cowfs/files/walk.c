/* SPDX-License-Identifier: MIT */
/*
 * Directories wait on a list, instead of a recursion: a tree may be deeper than the number of
 * descriptors that a process may have.
 */
#include "files/walk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/array.h"
#include "base/path.h"

/* ---- the list ---- */

int path_order(const char *a, const char *b)
{
	unsigned x, y;

	for (; *a && *a == *b; a++)
		b++;
	x = *a == '/' ? 1 : *a ? 1u + (uint8_t)*a : 0;
	y = *b == '/' ? 1 : *b ? 1u + (uint8_t)*b : 0;
	return x < y ? -1 : x > y;
}

bool path_is_below(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	return !n || (!strncmp(path, dir, n) && (!path[n] || path[n] == '/'));
}

static int by_path(const void *a, const void *b)
{
	return path_order(((const struct owner *)a)->path, ((const struct owner *)b)->path);
}

static int by_inode(const void *a, const void *b, void *ctx)
{
	const struct owner *o = ctx;
	uint64_t x = o[*(const size_t *)a].ino, y = o[*(const size_t *)b].ino;

	return x < y ? -1 : x > y;
}

void touched_sort(struct touched *t)
{
	if (t->w.n)
		qsort(t->w.o, t->w.n, sizeof(*t->w.o), by_path);
	t->names = true;
}

/* "/a/b/" becomes "a/b". Owners without a name are left out. */
static void strip(struct owners *w)
{
	size_t n = 0;

	for (size_t i = 0; i < w->n; i++) {
		char *path = w->o[i].path;
		size_t len = path ? strlen(path) : 0;

		if (!path)
			continue;
		if (len > 1 && path[len - 1] == '/')
			path[--len] = '\0';
		memmove(path, path + 1, len);
		w->o[n++] = w->o[i];
	}
	w->n = n;
}

int touched_sort_inodes(struct touched *t)
{
	size_t *p = realloc(t->by_ino, (t->w.n + 1) * sizeof(*p));

	if (!p) {
		touched_clear(t);
		return -ENOMEM;
	}
	t->by_ino = p;
	for (size_t i = 0; i < t->w.n; i++)
		p[i] = i;
	qsort_r(p, t->w.n, sizeof(*p), by_inode, t->w.o);
	return 0;
}

int touched_add_inode(struct touched *t, uint64_t ino)
{
	return owners_keep(&t->w, &(struct owner){ .differs = OWNER_TOUCHED, .ino = ino });
}

int touched_find_ext(struct touched *ret, int old_fd, const char *new_device,
		     const struct extents *changed, bool names,
		     const struct diff_progress *progress)
{
	const struct extents none = { 0 };
	const struct owners_query q = { .all = changed,
					.fresh = &none,
					.old_fd = &old_fd,
					.no_names = !names,
					.progress = progress ? progress->show : NULL,
					.ctx = progress ? progress->ctx : NULL };
	struct touched t = { .changed = changed };
	int e = owners_ext_boxed(&t.w, new_device, &q);

	if (e < 0)
		return e;
	if (names) {
		strip(&t.w);
		touched_sort(&t);
	}
	*ret = t;
	return touched_sort_inodes(ret);
}

int touched_of(struct touched *ret, const struct owners *w, const struct extents *changed,
	       bool unique)
{
	*ret = (struct touched){ .w = *w, .changed = changed, .unique = unique };
	return touched_sort_inodes(ret);
}

int touched_add(struct touched *t, const char *path)
{
	struct owner o = { .differs = OWNER_TOUCHED, .path = strdup(path) };
	int e = o.path ? owners_keep(&t->w, &o) : -ENOMEM;

	free(o.path);
	return e;
}

void touched_clear(struct touched *t)
{
	owners_clear(&t->w);
	free(t->by_ino);
	*t = (struct touched){ 0 };
}

/* The index of the first path from path on. */
static size_t touched_at(const struct touched *t, const char *path)
{
	return ARRAY_FIRST(i, t->w.n, path_order(t->w.o[i].path, path) >= 0);
}

/* Is path on the list, or something below it? */
static bool touched_within(const struct touched *t, const char *path)
{
	size_t i = touched_at(t, path);

	return i < t->w.n && path_is_below(t->w.o[i].path, path);
}

/* enum owner_differs of path itself, 0: it is not on the list */
static unsigned touched_path(const struct touched *t, const char *path)
{
	unsigned differs = 0;

	for (size_t i = touched_at(t, path); i < t->w.n && !strcmp(t->w.o[i].path, path); i++)
		differs |= t->w.o[i].differs;
	return differs;
}

const struct owner *touched_ino(const struct touched *t, uint64_t ino)
{
	size_t n = t && t->by_ino ? t->w.n : 0,
	       at = ARRAY_FIRST(i, n, t->w.o[t->by_ino[i]].ino >= ino);

	return at < n && t->w.o[t->by_ino[at]].ino == ino ? &t->w.o[t->by_ino[at]] : NULL;
}

/* ---- listings ---- */

struct entry {
	char *name;
	uint64_t ino;
	uint8_t type; /* DT_* */
};

struct listing {
	struct entry *e; /* ascending by name */
	size_t n, cap;
};

static void listing_clear(struct listing *l)
{
	for (size_t i = 0; i < l->n; i++)
		free(l->e[i].name);
	free(l->e);
	*l = (struct listing){ 0 };
}

static int entry_compare(const void *a, const void *b)
{
	return strcmp(((const struct entry *)a)->name, ((const struct entry *)b)->name);
}

static int listing_add(struct listing *l, const struct dirent *d)
{
	const struct entry e = { strdup(d->d_name), d->d_ino, d->d_type };

	if (e.name && ARRAY_ADD(l->e, l->n, l->cap, e) == 0)
		return 0;
	free(e.name);
	return -ENOMEM;
}

/* On failure, too, the caller clears *ret. */
static int listing_load(int root_fd, const char *path, struct listing *ret)
{
	int fd = path_open_below(root_fd, *path ? path : ".",
				 O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NOATIME);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;
	int err = 0;

	if (!d) {
		err = fd < 0 ? fd : -errno;
		if (fd >= 0)
			close(fd);
		return err;
	}
	while (!err && (errno = 0, e = readdir(d)))
		if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
			err = listing_add(ret, e);
	if (!err && errno)
		err = -errno;
	closedir(d);
	if (ret->n)
		qsort(ret->e, ret->n, sizeof(*ret->e), entry_compare);
	return err;
}

int walk_names_differ(const struct walk *w, const char *old_dir, const char *new_dir, bool *ret)
{
	struct listing a = { 0 }, b = { 0 };
	int err = listing_load(w->root_fd[OLD], old_dir, &a);

	if (!err)
		err = listing_load(w->root_fd[NEW], new_dir, &b);
	*ret = a.n != b.n;
	for (size_t i = 0; i < a.n && !err && !*ret; i++)
		*ret = strcmp(a.e[i].name, b.e[i].name) || a.e[i].ino != b.e[i].ino;
	listing_clear(&a);
	listing_clear(&b);
	return err;
}

/* ---- the walk ---- */

struct waiting {
	char *path[2]; /* in either state; NULL: it is not there */
	bool renamed, all, same;
};

static void waiting_clear(struct waiting *x)
{
	free(x->path[OLD]);
	free(x->path[NEW]);
}

int walk_wait(struct walk *w, const char *old_path, const char *new_path, bool renamed, bool all,
	      bool same)
{
	struct waiting x = { .path = { old_path ? strdup(old_path) : NULL,
				       new_path ? strdup(new_path) : NULL },
			     .renamed = renamed,
			     .all = all,
			     .same = same };

	if ((!old_path || x.path[OLD]) && (!new_path || x.path[NEW]) &&
	    ARRAY_ADD(w->w, w->n, w->cap, x) == 0)
		return 0;
	waiting_clear(&x);
	return -ENOMEM;
}

int walk_into(struct walk *w, struct found *f, bool together)
{
	bool dir[2] = { node_is(&f->node[OLD], S_IFDIR), node_is(&f->node[NEW], S_IFDIR) };
	bool by_ino = w->touched && w->touched->by_ino;
	uint64_t ino = f->node[NEW].st.stx_ino;
	int err = 0;

	/* in another subvolume the same numbers are those of other files */
	if (together && by_ino && !f->all)
		f->all = node_gen(&f->node[OLD]) != node_gen(&f->node[NEW]);
	if (together)
		return walk_wait(w, f->path[OLD], f->path[NEW], false, f->all,
				 by_ino && !f->all && ino == f->node[OLD].st.stx_ino &&
					 !touched_ino(w->touched, ino));
	if (dir[OLD])
		err = walk_wait(w, f->path[OLD], NULL, false, true, false);
	return dir[NEW] && !err ? walk_wait(w, NULL, f->path[NEW], false, true, false) : err;
}

static void show(struct walk *w)
{
	if (++w->seen % 256 == 0 && w->progress && w->progress->show)
		w->progress->show(w->progress->ctx, "names", w->seen, 0);
}

int walk_name(struct walk *w, const char *old_path, const char *new_path, bool all, bool *ret_other)
{
	struct found f = { .path = { old_path, new_path },
			   .node = { NODE_NONE, NODE_NONE },
			   .all = all };
	int err = w->stop && *w->stop ? -EINTR : 0;

	if (err)
		return err;
	for (enum side s = OLD; s <= NEW && !err; s++)
		if (f.path[s]) {
			err = node_open(&f.node[s], w->root_fd[s], f.path[s]);
			if (err)
				err = w->failed(w, f.path[s], err) ?: 1;
		}
	if (!err)
		err = w->visit(w, &f);
	*ret_other = *ret_other || f.other;
	node_close(&f.node[OLD]);
	node_close(&f.node[NEW]);
	return err > 0 ? 0 : err;
}

static char *join(const char *dir, const char *name)
{
	char *path;

	return asprintf(&path, "%s%s%s", dir, *dir ? "/" : "", name) < 0 ? NULL : path;
}

/* Is it the same file on both sides, with nothing in it that differs? */
static bool is_untouched(const struct walk *w, const struct waiting *d, const struct entry *a,
			 const struct entry *b, const char *path)
{
	const struct touched *t = w->touched;

	if (!t || d->all || !a || !b || a->ino != b->ino)
		return false;
	if (t->by_ino && a->type == b->type && a->type != DT_DIR && a->type != DT_UNKNOWN)
		return !touched_ino(t, a->ino);
	return t->names && !touched_within(t, path);
}

/* Is it the same directory on both sides, with the same names? */
static bool is_passed(const struct walk *w, const struct waiting *d, const struct entry *a,
		      const struct entry *b, const char *path)
{
	return w->passes && w->touched && w->touched->unique && !d->all && a && b &&
	       a->ino == b->ino && a->type == DT_DIR && b->type == DT_DIR &&
	       !touched_ino(w->touched, a->ino) && strlen(path) < PATH_MAX;
}

/* a, b: the name in either state, NULL: it has none */
static int take_name(struct walk *w, const struct waiting *d, const struct entry *a,
		     const struct entry *b, bool *other)
{
	_cleanup_free_ char *old_path = a ? join(d->path[OLD], a->name) : NULL;
	_cleanup_free_ char *path = b ? join(d->path[NEW], b->name) : NULL;

	show(w);
	*other = *other || !a || !b;
	if ((a && !old_path) || (b && !path))
		return -ENOMEM;
	if (is_untouched(w, d, a, b, path))
		return 0;
	return is_passed(w, d, a, b, path) ? walk_wait(w, old_path, path, false, false, true)
					   : walk_name(w, old_path, path, d->all, other);
}

/* In both states, or in one. */
static int list_names(struct walk *w, const struct waiting *d)
{
	struct listing a = { 0 }, b = { 0 }, *x = d->same ? &b : &a;
	bool other = false;
	int err = d->path[OLD] && !d->same ? listing_load(w->root_fd[OLD], d->path[OLD], &a) : 0;

	if (!err && d->path[NEW])
		err = listing_load(w->root_fd[NEW], d->path[NEW], &b);
	if (err)
		err = w->failed(w, d->path[d->path[NEW] ? NEW : OLD], err) ?: 1;
	for (size_t i = 0, k = 0; (i < x->n || k < b.n) && !err;) {
		int order = i == x->n ? 1 : k == b.n ? -1 : strcmp(x->e[i].name, b.e[k].name);

		err = take_name(w, d, order <= 0 ? &x->e[i] : NULL, order >= 0 ? &b.e[k] : NULL,
				&other);
		i += order <= 0;
		k += order >= 0;
	}
	listing_clear(&a);
	listing_clear(&b);
	if (!err && w->left && !d->renamed && !d->same && d->path[OLD] && d->path[NEW])
		err = w->left(w, d->path[OLD], d->path[NEW], other);
	return err > 0 ? 0 : err;
}

/* Only what the list has in an untouched directory, whose names are the same in both. */
static int take_touched(struct walk *w, const struct waiting *d)
{
	const struct owners *l = &w->touched->w;
	size_t n = strlen(d->path[NEW]);
	int err = 0;

	n += n != 0;
	for (size_t i = touched_at(w->touched, d->path[NEW]);
	     i < l->n && !err && path_is_below(l->o[i].path, d->path[NEW]);) {
		_cleanup_free_ char *path = strndup(l->o[i].path,
						    n + strcspn(l->o[i].path + n, "/"));
		struct entry e = { .name = path ? path + n : NULL, .type = DT_UNKNOWN };
		bool other = false;

		err = path ? take_name(w, d, &e, &e, &other) : -ENOMEM;
		while (!err && i < l->n && path_is_below(l->o[i].path, path))
			i++;
	}
	return err;
}

static int walk_dir(struct walk *w, struct waiting *d)
{
	bool names = d->path[OLD] && d->path[NEW] && w->touched && w->touched->names;
	unsigned differs = names ? touched_path(w->touched, d->path[NEW]) : 0;

	d->all = d->all || differs & OWNER_BELOW;
	if (names && w->touched->by_ino && !d->all && !differs)
		return take_touched(w, d);
	return list_names(w, d);
}

int walk_run(struct walk *w)
{
	int err = 0;

	while (w->n) {
		struct waiting d = w->w[--w->n];

		if (!err)
			err = walk_dir(w, &d);
		waiting_clear(&d);
	}
	free(w->w);
	w->w = NULL;
	w->cap = 0;
	return err;
}
