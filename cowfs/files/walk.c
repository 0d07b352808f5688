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
	char *path[2];	/* in either state; NULL: it is not there */
	bool renamed;	/* it is compared where its names are */
	bool all;	/* all that is in it may differ */
};

struct tree_walk {
	int root_fd[2];
	bool ids;
	const struct touched *touched;
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

/* ---- names ---- */

/* A NULL path: not in this state. Copies the others. */
static int wait_for(struct tree_walk *w, const char *old_path, const char *new_path, bool renamed,
		    bool all)
{
	struct waiting *p = array_grow(w->w, &w->cap, w->n + 1, sizeof(*p)), x = {
		.side = !new_path   ? OLD
			: !old_path ? NEW
				    : BOTH,
		.path = { old_path ? strdup(old_path) : NULL, new_path ? strdup(new_path) : NULL },
		.renamed = renamed,
		.all = all,
	};

	if (p)
		w->w = p;
	if (!p || (old_path && !x.path[OLD]) || (new_path && !x.path[NEW])) {
		free(x.path[OLD]);
		free(x.path[NEW]);
		return -ENOMEM;
	}
	w->w[w->n++] = x;
	return 0;
}

/* The directory of one name may be in the other state under another one: then it is gone through once. */
static int wait_for_one(struct tree_walk *w, enum side side, const char *path, const struct node *n)
{
	const struct owner *o = w->touched ? touched_ino(w->touched, n->st.stx_ino) : NULL;

	if (!o || !(o->differs & OWNER_SAME) || o->differs & OWNER_BELOW)
		return wait_for(w, side == OLD ? path : NULL, side == NEW ? path : NULL, false,
				true);
	return side == OLD ? wait_for(w, path, o->path, true, false) : 0;
}

static int add_name(struct tree_walk *w, enum side side, const char *path, const struct node *n)
{
	const struct statx *st = &n->st;
	int err = diff_names_add(
		&w->names[side],
		(struct diff_name){ .ino = w->ids ? st->stx_ino : 0,
				    .gen = n->gen,
				    .type = st->stx_mode & S_IFMT,
				    .size_bytes = S_ISDIR(st->stx_mode) ? 0 : st->stx_size,
				    .path = strdup(path) });

	if (!err && S_ISDIR(st->stx_mode))
		err = wait_for_one(w, side, path, n);
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
	err = add_name(w, side, path, &n);
	node_clear(&n);
	return err;
}

static bool is_same(const struct tree_walk *w, const struct node *a, const struct node *b)
{
	return !((a->st.stx_mode ^ b->st.stx_mode) & S_IFMT) &&
	       (!w->ids || (w->touched && !w->touched->by_ino && S_ISDIR(a->st.stx_mode)) ||
		(a->st.stx_ino == b->st.stx_ino && a->gen == b->gen));
}

/* old_path and path: of the same file */
static int compare_same(struct tree_walk *w, const char *old_path, const char *path, bool all,
			const struct node *a, const struct node *b)
{
	bool by_ino = w->touched && w->touched->by_ino;
	unsigned what = 0;
	int err;

	if (S_ISDIR(a->st.stx_mode))
		return wait_for(w, old_path, path, false, all);
	/* the list knows better than the times, whose clock ticks */
	if (by_ino ? !touched_ino(w->touched, b->st.stx_ino) : w->ids && node_untouched(a, b))
		return 0;
	err = node_compare(a, b, w->touched, &what);
	return err ? err
		   : diff_add_changed(w->ret, b->st.stx_mode & S_IFMT, what, strdup(path),
				      a->st.stx_size, b->st.stx_size);
}

/* A name of both sides. *ret_other: of two files. */
static int take_both(struct tree_walk *w, const char *old_path, const char *path, bool all,
		     bool *ret_other)
{
	struct node a, b;
	int err;

	err = node_load(w->root_fd[OLD], old_path, &a);
	if (err)
		return left_out(w, err);
	err = node_load(w->root_fd[NEW], path, &b);
	if (err) {
		node_clear(&a);
		return left_out(w, err);
	}
	if (is_same(w, &a, &b)) {
		err = compare_same(w, old_path, path, all, &a, &b);
	} else {
		*ret_other = true;
		err = add_name(w, OLD, old_path, &a);
		if (!err)
			err = add_name(w, NEW, path, &b);
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

static int compare_dirs(struct tree_walk *w, const struct waiting *d, bool names_changed)
{
	struct node a, b;
	unsigned what = 0;
	int err = node_load(w->root_fd[OLD], d->path[OLD], &a);

	if (err)
		return err;
	err = node_load(w->root_fd[NEW], d->path[NEW], &b);
	if (!err) {
		err = node_compare(&a, &b, w->touched, &what);
		node_clear(&b);
	}
	node_clear(&a);
	if (names_changed)
		what &= ~(unsigned)DIFF_TIME;
	return err ? err : diff_add_changed(w->ret, S_IFDIR, what, strdup(d->path[NEW]), 0, 0);
}

/* a, b: the name in either state, NULL: it has none */
static int take_name(struct tree_walk *w, const struct waiting *d, const struct entry *a,
		     const struct entry *b, bool *changed)
{
	_cleanup_free_ char *old_path = a ? join(d->path[OLD], a->name) : NULL;
	_cleanup_free_ char *path = b ? join(d->path[NEW], b->name) : NULL;

	show(w);
	*changed = *changed || !a || !b;
	if ((a && !old_path) || (b && !path))
		return -ENOMEM;
	if (!a || !b)
		return take_one(w, a ? OLD : NEW, a ? old_path : path);
	if (w->touched && !d->all && a->ino == b->ino && !touched_within(w->touched, path))
		return 0;
	return take_both(w, old_path, path, d->all, changed);
}

static int list_both(struct tree_walk *w, const struct waiting *d)
{
	struct listing a = { 0 }, b = { 0 };
	size_t i = 0, k = 0;
	bool changed = false;
	int err = listing_load(w->root_fd[OLD], d->path[OLD], &a);

	if (!err)
		err = listing_load(w->root_fd[NEW], d->path[NEW], &b);
	while ((i < a.n || k < b.n) && !err) {
		int order = i == a.n ? 1 : k == b.n ? -1 : strcmp(a.e[i].name, b.e[k].name);

		err = take_name(w, d, order <= 0 ? &a.e[i] : NULL, order >= 0 ? &b.e[k] : NULL,
				&changed);
		i += order <= 0;
		k += order >= 0;
	}
	listing_clear(&a);
	listing_clear(&b);
	return err || d->renamed ? err : compare_dirs(w, d, changed);
}

/* Only what the list has in an untouched directory, whose names are the same in both. */
static int take_touched(struct tree_walk *w, const struct waiting *d)
{
	const struct owners *l = &w->touched->w;
	size_t n = strlen(d->path[NEW]);
	int err = 0;

	n += n != 0;
	for (size_t i = touched_at(w->touched, d->path[NEW]);
	     i < l->n && !err && diff_is_below(l->o[i].path, d->path[NEW]);) {
		_cleanup_free_ char *path = strndup(l->o[i].path,
						    n + strcspn(l->o[i].path + n, "/"));
		struct entry e = { .name = path ? path + n : NULL };
		bool other = false;

		err = path ? take_name(w, d, &e, &e, &other) : -ENOMEM;
		while (!err && i < l->n && diff_is_below(l->o[i].path, path))
			i++;
	}
	return err;
}

static int walk_both(struct tree_walk *w, struct waiting *d)
{
	unsigned differs = w->touched ? touched_path(w->touched, d->path[NEW]) : 0;

	d->all = d->all || differs & OWNER_BELOW;
	if (!w->touched || !w->touched->by_ino || d->all || differs)
		return list_both(w, d);
	return take_touched(w, d);
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
		if ((w->touched && w->touched->by_ino) || !w->ids || !node_untouched(&a, &b))
			err = node_compare(&a, &b, w->touched, ret_what);
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
	      const struct touched *touched, const struct diff_progress *progress)
{
	struct tree_walk w = { .root_fd = { old_root_fd, new_root_fd },
			       .ids = ids,
			       .touched = touched,
			       .ret = ret,
			       .progress = progress };
	int err = wait_for(&w, "", "", false, !touched);

	while (w.n && !err) {
		struct waiting d = w.w[--w.n];

		err = d.side == BOTH ? walk_both(&w, &d) : walk_one(&w, d.side, d.path[d.side]);
		free(d.path[OLD]);
		free(d.path[NEW]);
	}
	for (; w.n; w.n--) {
		free(w.w[w.n - 1].path[OLD]);
		free(w.w[w.n - 1].path[NEW]);
	}
	free(w.w);
	if (touched)
		ret->too_long += touched->w.too_long;
	if (!err)
		err = diff_match(ret, &w.names[OLD], &w.names[NEW], compare_names, &w);
	diff_names_clear(&w.names[OLD]);
	diff_names_clear(&w.names[NEW]);
	return err;
}
