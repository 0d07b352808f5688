/* SPDX-License-Identifier: MIT */
/*
 * A list of directories that wait, instead of a recursion: a tree may be deeper than the number of
 * descriptors that a process may have.
 */
#include "files/walk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/array.h"
#include "files/node.h"

enum side { OLD, NEW, BOTH };

struct entry {
	char *name;
	uint64_t ino;
};

struct listing {
	struct entry *e; /* ascending by name */
	size_t n, cap;
};

struct waiting {
	enum side side; /* BOTH: the same directory */
	char *path;
};

struct tree_walk {
	int root_fd[2];
	bool ids;
	const struct walk_filter *filter;
	struct waiting *w;
	size_t n, cap;
	uint64_t seen;
	struct diff_names names[2]; /* gone, added */
	struct diff *ret;
	const struct diff_progress *progress;
};

/* ---- listings ---- */

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
	struct entry *p = array_grow(l->e, &l->cap, l->n + 1, sizeof(*p));
	char *name = strdup(d->d_name);

	if (p)
		l->e = p;
	if (!p || !name) {
		free(name);
		return -ENOMEM;
	}
	l->e[l->n++] = (struct entry){ name, d->d_ino };
	return 0;
}

/* On failure, too, the caller clears *ret. */
static int listing_load(int root_fd, const char *path, struct listing *ret)
{
	int fd = node_open(root_fd, path, O_RDONLY | O_DIRECTORY), err = 0;
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

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

static char *join(const char *dir, const char *name)
{
	char *path;

	return asprintf(&path, "%s%s%s", dir, *dir ? "/" : "", name) < 0 ? NULL : path;
}

/* ---- */

/* Takes path. */
static int wait_for(struct tree_walk *w, enum side side, char *path)
{
	struct waiting *p = path ? array_grow(w->w, &w->cap, w->n + 1, sizeof(*p)) : NULL;

	if (!p) {
		free(path);
		return -ENOMEM;
	}
	w->w = p;
	w->w[w->n++] = (struct waiting){ side, path };
	return 0;
}

static int add_name(struct tree_walk *w, enum side side, const char *path, const struct statx *st)
{
	int err = diff_names_add(
		&w->names[side],
		(struct diff_name){ .ino = w->ids ? st->stx_ino : 0,
				    .gen = node_gen(st),
				    .type = st->stx_mode & S_IFMT,
				    .size_bytes = S_ISDIR(st->stx_mode) ? 0 : st->stx_size,
				    .path = strdup(path) });

	if (!err && S_ISDIR(st->stx_mode))
		err = wait_for(w, side, strdup(path));
	return err;
}

/* Another mount is left out, and what any user can make: a path that no call takes. */
static int left_out(struct tree_walk *w, int err)
{
	w->ret->too_long += err == -ENAMETOOLONG;
	return err == -EXDEV || err == -ENAMETOOLONG ? 0 : err;
}

/* A name of one side only. */
static int take_one(struct tree_walk *w, enum side side, const char *path)
{
	struct node n;
	int err = node_load(w->root_fd[side], path, &n);

	if (err)
		return left_out(w, err);
	err = add_name(w, side, path, &n.st);
	node_clear(&n);
	return err;
}

static bool is_same(const struct tree_walk *w, const struct statx *a, const struct statx *b)
{
	return !((a->stx_mode ^ b->stx_mode) & S_IFMT) &&
	       (!w->ids || (w->filter && S_ISDIR(a->stx_mode)) ||
		(a->stx_ino == b->stx_ino && node_gen(a) == node_gen(b)));
}

static int compare_same(struct tree_walk *w, const char *path, const struct node *a,
			const struct node *b)
{
	unsigned what = 0;
	int err;

	if (S_ISDIR(a->st.stx_mode))
		return wait_for(w, BOTH, strdup(path));
	if (w->ids && node_untouched(&a->st, &b->st))
		return 0;
	err = node_compare(a, b, &what);
	return err ? err
		   : diff_add_changed(w->ret, b->st.stx_mode & S_IFMT, what, strdup(path),
				      a->st.stx_size, b->st.stx_size);
}

/* A name of both sides. *ret_other: of two files. */
static int take_both(struct tree_walk *w, const char *path, bool *ret_other)
{
	struct node a, b;
	int err;

	if (w->filter && !w->filter->wanted(w->filter->ctx, path))
		return 0;
	err = node_load(w->root_fd[OLD], path, &a);
	if (err)
		return left_out(w, err);
	err = node_load(w->root_fd[NEW], path, &b);
	if (err) {
		node_clear(&a);
		return left_out(w, err);
	}
	if (is_same(w, &a.st, &b.st)) {
		err = compare_same(w, path, &a, &b);
	} else {
		*ret_other = true;
		err = add_name(w, OLD, path, &a.st);
		if (!err)
			err = add_name(w, NEW, path, &b.st);
	}
	node_clear(&a);
	node_clear(&b);
	return err;
}

/* ---- directories ---- */

static void show(struct tree_walk *w)
{
	if (++w->seen % 256 == 0 && w->progress && w->progress->show)
		w->progress->show(w->progress->ctx, "names", w->seen, 0);
}

static int compare_dirs(struct tree_walk *w, const char *path, bool names_changed)
{
	struct node a, b;
	unsigned what = 0;
	int err = node_load(w->root_fd[OLD], path, &a);

	if (err)
		return err;
	err = node_load(w->root_fd[NEW], path, &b);
	if (!err) {
		err = node_compare(&a, &b, &what);
		node_clear(&b);
	}
	node_clear(&a);
	if (names_changed)
		what &= ~(unsigned)DIFF_TIME;
	return err ? err : diff_add_changed(w->ret, S_IFDIR, what, strdup(path), 0, 0);
}

static int walk_both(struct tree_walk *w, const char *dir)
{
	struct listing a = { 0 }, b = { 0 };
	size_t i = 0, k = 0;
	bool changed = false;
	int err = listing_load(w->root_fd[OLD], dir, &a);

	if (!err)
		err = listing_load(w->root_fd[NEW], dir, &b);
	while ((i < a.n || k < b.n) && !err) {
		int order = i == a.n ? 1 : k == b.n ? -1 : strcmp(a.e[i].name, b.e[k].name);
		_cleanup_free_ char *path = join(dir, order <= 0 ? a.e[i].name : b.e[k].name);

		show(w);
		changed = changed || order;
		err = !path   ? -ENOMEM
		      : order ? take_one(w, order < 0 ? OLD : NEW, path)
			      : take_both(w, path, &changed);
		i += order <= 0;
		k += order >= 0;
	}
	listing_clear(&a);
	listing_clear(&b);
	return err ? err : compare_dirs(w, dir, changed);
}

static int walk_one(struct tree_walk *w, enum side side, const char *dir)
{
	struct listing l = { 0 };
	int err = listing_load(w->root_fd[side], dir, &l);

	for (size_t i = 0; i < l.n && !err; i++) {
		_cleanup_free_ char *path = join(dir, l.e[i].name);

		show(w);
		err = path ? take_one(w, side, path) : -ENOMEM;
	}
	listing_clear(&l);
	return err;
}

/* Do both directories have the same names of the same files? */
static int names_differ(const struct tree_walk *w, const char *old_dir, const char *new_dir,
			bool *ret)
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

/* A diff_compare */
static int compare_names(void *ctx, struct diff_name *old_name, struct diff_name *new_name,
			 unsigned *ret_what)
{
	const struct tree_walk *w = ctx;
	struct node a, b;
	bool differ = old_name->ino != new_name->ino || old_name->gen != new_name->gen;
	int err = node_load(w->root_fd[OLD], old_name->path, &a);

	if (err)
		return err;
	err = node_load(w->root_fd[NEW], new_name->path, &b);
	if (!err) {
		if (!node_untouched(&a.st, &b.st) || !w->ids)
			err = node_compare(&a, &b, ret_what);
		if (!err && S_ISDIR(new_name->type) && !differ)
			err = names_differ(w, old_name->path, new_name->path, &differ);
		if (S_ISDIR(new_name->type) && differ)
			*ret_what &= ~(unsigned)DIFF_TIME;
		node_clear(&b);
	}
	node_clear(&a);
	return err;
}

int walk_diff(struct diff *ret, int old_root_fd, int new_root_fd, bool ids,
	      const struct walk_filter *filter, const struct diff_progress *progress)
{
	struct tree_walk w = { .root_fd = { old_root_fd, new_root_fd },
			       .ids = ids,
			       .filter = filter,
			       .ret = ret,
			       .progress = progress };
	int err = wait_for(&w, BOTH, strdup(""));

	while (w.n && !err) {
		_cleanup_free_ char *path = w.w[w.n - 1].path;
		enum side side = w.w[--w.n].side;

		err = side == BOTH ? walk_both(&w, path) : walk_one(&w, side, path);
	}
	while (w.n)
		free(w.w[--w.n].path);
	free(w.w);
	if (!err)
		err = diff_match(ret, &w.names[OLD], &w.names[NEW], compare_names, &w);
	diff_names_clear(&w.names[OLD]);
	diff_names_clear(&w.names[NEW]);
	return err;
}
