// SPDX-License-Identifier: MIT
#include "files/diff.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#include "base/array.h"

/* A name that exists in one state only. */
struct diff_name {
	uint64_t ino, gen; /* the same file in both states has the same; ino 0: not comparable */
	mode_t type;
	uint64_t size_bytes;
	char *path;
	struct diff_name *peer; /* of the other state */
};

struct diff_names {
	struct diff_name *n;
	size_t count, cap;
};

struct diff_walk {
	struct walk w; /* the first: its functions get it */
	bool ids;
	struct diff_names names[2]; /* gone, added */
	struct diff *ret;
};

/* Takes path. */
static int add_name(struct diff_names *x, struct diff_name name)
{
	if (name.path && ARRAY_ADD(x->n, x->count, x->cap, name) == 0)
		return 0;
	free(name.path);
	return -ENOMEM;
}

static void clear_names(struct diff_names *x)
{
	for (size_t i = 0; i < x->count; i++)
		free(x->n[i].path);
	free(x->n);
}

static void free_file(const struct diff_file *f)
{
	free(f->path);
	free(f->from);
}

/* Takes path and from. */
static int add(struct diff *d, struct diff_file f)
{
	bool whole = f.path && (f.from || f.kind != DIFF_RENAMED);

	if (whole && ARRAY_ADD(d->f, d->n, d->cap, f) == 0)
		return 0;
	free_file(&f);
	return -ENOMEM;
}

/* A file that has the same name in both states. what 0: adds nothing. Takes path. */
static int add_changed(struct diff *d, mode_t type, unsigned what, char *path, uint64_t old_bytes,
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
	return strcmp((*(struct diff_name *const *)a)->path, (*(struct diff_name *const *)b)->path);
}

static bool is_same_file(const struct diff_name *a, const struct diff_name *b)
{
	return a->ino && a->ino == b->ino && a->gen == b->gen && a->type == b->type;
}

static void pair(struct diff_name *gone, struct diff_name *added)
{
	gone->peer = added;
	added->peer = gone;
}

/* Ascending by path: directories that have a peer, or all names that have none. */
struct refs {
	struct diff_name **p;
	size_t n;
};

static int refs_of(struct refs *ret, const struct diff_names *x, bool dirs)
{
	ret->p = malloc((x->count + 1) * sizeof(struct diff_name *));
	if (!ret->p)
		return -ENOMEM;
	for (size_t i = 0; i < x->count; i++)
		if (dirs ? x->n[i].peer && S_ISDIR(x->n[i].type) : !x->n[i].peer)
			ret->p[ret->n++] = &x->n[i];
	qsort(ret->p, ret->n, sizeof(struct diff_name *), by_path);
	return 0;
}

/* Has a name only followed its directory, which was renamed? */
static bool moved_along(const struct refs *dirs, const struct diff_name *gone)
{
	const char *from = strrchr(gone->path, '/'), *to = strrchr(gone->peer->path, '/');
	size_t n = from ? (size_t)(from - gone->path) : 0;
	size_t m = to ? (size_t)(to - gone->peer->path) : 0;
	_cleanup_free_ char *dir = strndup(gone->path, n);
	const struct diff_name key = { .path = dir }, *p = &key;
	struct diff_name **found = dir ? bsearch(&p, dirs->p, dirs->n, sizeof(p), by_path) : NULL;

	return found && !strcmp(gone->path + n + !!n, gone->peer->path + m + !!m) &&
	       !strncmp((*found)->peer->path, gone->peer->path, m) && !(*found)->peer->path[m];
}

static int compare_names(struct diff_walk *x, const struct diff_name *gone,
			 const struct diff_name *added, unsigned *ret_what);

static int add_pair(struct diff_walk *x, const struct diff_name *gone, bool renamed)
{
	const struct diff_name *added = gone->peer;
	unsigned what = 0;
	int err = compare_names(x, gone, added, &what);

	if (err)
		return err;
	if (!renamed)
		return add_changed(x->ret, added->type, what, strdup(added->path), gone->size_bytes,
				   added->size_bytes);
	return add(x->ret, (struct diff_file){ .kind = DIFF_RENAMED,
					       .what = what,
					       .type = added->type,
					       .path = strdup(added->path),
					       .from = strdup(gone->path),
					       .old_bytes = gone->size_bytes,
					       .new_bytes = added->size_bytes });
}

static int add_single(struct diff *d, const struct diff_name *n, enum diff_kind kind)
{
	struct diff_file f = { .kind = kind, .type = n->type, .path = strdup(n->path) };

	*(kind == DIFF_ADDED ? &f.new_bytes : &f.old_bytes) = n->size_bytes;
	return add(d, f);
}

/* Names of one file. A file that moved along with its directory is no rename. */
static int match_files(struct diff_walk *x)
{
	struct diff_names *gone = &x->names[OLD], *added = &x->names[NEW];
	struct refs dirs = { 0 };
	int err;

	for (enum side s = OLD; s <= NEW; s++)
		if (x->names[s].count)
			qsort(x->names[s].n, x->names[s].count, sizeof(*gone->n), by_file);
	for (size_t i = 0, k = 0; i < gone->count && k < added->count;)
		if (is_same_file(&gone->n[i], &added->n[k]))
			pair(&gone->n[i++], &added->n[k++]);
		else if (by_file(&gone->n[i], &added->n[k]) <= 0)
			i++;
		else
			k++;
	err = refs_of(&dirs, gone, true);
	for (size_t i = 0; i < gone->count && !err; i++)
		if (gone->n[i].peer)
			err = add_pair(x, &gone->n[i],
				       strcmp(gone->n[i].path, gone->n[i].peer->path) &&
					       !moved_along(&dirs, &gone->n[i]));
	free(dirs.p);
	return err;
}

/* Another file under the same name, and the rest */
static int match_paths(struct diff_walk *x)
{
	struct refs gone = { 0 }, added = { 0 };
	int err = refs_of(&gone, &x->names[OLD], false);

	if (!err)
		err = refs_of(&added, &x->names[NEW], false);
	for (size_t i = 0, k = 0; (i < gone.n || k < added.n) && !err;) {
		int order = i == gone.n	   ? 1
			    : k == added.n ? -1
					   : strcmp(gone.p[i]->path, added.p[k]->path);

		if (!order && gone.p[i]->type == added.p[k]->type) {
			pair(gone.p[i], added.p[k++]);
			err = add_pair(x, gone.p[i++], false);
		} else if (order <= 0) {
			err = add_single(x->ret, gone.p[i++], DIFF_DELETED);
		} else {
			err = add_single(x->ret, added.p[k++], DIFF_ADDED);
		}
	}
	free(gone.p);
	free(added.p);
	return err;
}

/* ---- the walk ---- */

static bool by_ino(const struct diff_walk *x)
{
	return x->w.touched && x->w.touched->by_ino;
}

static int compare(const struct diff_walk *x, struct node *a, struct node *b, unsigned *ret_what)
{
	const struct touched *t = x->w.touched;
	const struct node_content how = { .changed = t ? t->changed : NULL };
	const struct owner *o = touched_ino(t, b->st.stx_ino);
	int err = node_load(a), differs;

	if (!err)
		err = node_load(b);
	if (err)
		return err;
	differs = node_compare_content(a, b, &how);
	/* encrypted, and cannot be read */
	if (differs == -ENOKEY && by_ino(x))
		differs = a->st.stx_size != b->st.stx_size || (o && o->differs & OWNER_CONTENT);
	if (differs < 0)
		return differs;
	*ret_what = node_differs(a, b) | (differs ? DIFF_CONTENT : 0);
	return 0;
}

/* The directory of one name may be in the other state under another one: then it is gone through once. */
static int go_into(struct diff_walk *x, enum side side, const char *path, const struct node *n)
{
	const struct owner *o = touched_ino(x->w.touched, n->st.stx_ino);

	if (!o || !(o->differs & OWNER_SAME) || o->differs & OWNER_BELOW)
		return walk_wait(&x->w, side == OLD ? path : NULL, side == NEW ? path : NULL, false,
				 true, false);
	return side == OLD ? walk_wait(&x->w, path, o->path, true, false, false) : 0;
}

static int take_one(struct diff_walk *x, enum side side, const char *path, const struct node *n)
{
	bool dir = node_is(n, S_IFDIR);
	int err = add_name(&x->names[side],
			   (struct diff_name){ .ino = x->ids ? n->st.stx_ino : 0,
					       .gen = node_gen(n),
					       .type = n->st.stx_mode & S_IFMT,
					       .size_bytes = dir ? 0 : n->st.stx_size,
					       .path = strdup(path) });

	return err || !dir ? err : go_into(x, side, path, n);
}

static bool is_same(const struct diff_walk *x, const struct node *a, const struct node *b)
{
	return !((a->st.stx_mode ^ b->st.stx_mode) & S_IFMT) &&
	       (!x->ids || (x->w.touched && !by_ino(x) && node_is(a, S_IFDIR)) ||
		(a->st.stx_ino == b->st.stx_ino && node_gen(a) == node_gen(b)));
}

/* The list knows better than the times, whose clock ticks. */
static bool is_untouched(const struct diff_walk *x, const struct node *a, const struct node *b)
{
	return by_ino(x) ? !touched_ino(x->w.touched, b->st.stx_ino)
			 : x->ids && node_untouched(a, b);
}

static int visit(struct walk *w, struct found *f)
{
	struct diff_walk *x = (struct diff_walk *)w;
	struct node *a = &f->node[OLD], *b = &f->node[NEW];
	unsigned what = 0;
	int err = 0;

	/* what any user can make: a path that no call takes */
	for (enum side s = OLD; s <= NEW; s++)
		if (f->path[s] && strlen(f->path[s]) >= PATH_MAX) {
			x->ret->too_long++;
			return 0;
		}
	for (enum side s = OLD; s <= NEW; s++)
		if (f->path[s] && f->node[s].fd < 0)
			return -ENOENT;
	if (f->path[OLD] && f->path[NEW] && is_same(x, a, b)) {
		if (node_is(a, S_IFDIR))
			return walk_into(w, f, true);
		if (!is_untouched(x, a, b))
			err = compare(x, a, b, &what);
		return err ? err
			   : add_changed(x->ret, b->st.stx_mode & S_IFMT, what,
					 strdup(f->path[NEW]), a->st.stx_size, b->st.stx_size);
	}
	f->other = true;
	for (enum side s = OLD; s <= NEW && !err; s++)
		if (f->path[s])
			err = take_one(x, s, f->path[s], &f->node[s]);
	return err;
}

/* Another mount is left out. */
static int failed(struct walk *w, const char *path, int e)
{
	(void)w;
	(void)path;
	return e == -EXDEV ? 0 : e;
}

/* Two files, or directories: untouched ones need not be compared. */
static int compare_paths(const struct diff_walk *x, const char *old_path, const char *new_path,
			 bool always, unsigned *ret_what)
{
	struct node a, b = NODE_NONE;
	int err = node_open(&a, x->w.root_fd[OLD], old_path);

	if (!err)
		err = node_open(&b, x->w.root_fd[NEW], new_path);
	if (!err && (a.fd < 0 || b.fd < 0))
		err = -ENOENT;
	if (!err && (always || by_ino(x) || !x->ids || !node_untouched(&a, &b)))
		err = compare(x, &a, &b, ret_what);
	node_close(&a);
	node_close(&b);
	return err;
}

static int left(struct walk *w, const char *old_path, const char *new_path, bool names)
{
	struct diff_walk *x = (struct diff_walk *)w;
	unsigned what = 0;
	int err = compare_paths(x, old_path, new_path, true, &what);

	if (names)
		what &= ~(unsigned)DIFF_TIME;
	return err ? err : add_changed(x->ret, S_IFDIR, what, strdup(new_path), 0, 0);
}

static int compare_names(struct diff_walk *x, const struct diff_name *gone,
			 const struct diff_name *added, unsigned *ret_what)
{
	bool differ = gone->ino != added->ino || gone->gen != added->gen;
	int err = compare_paths(x, gone->path, added->path, false, ret_what);

	if (err || !S_ISDIR(added->type))
		return err;
	if (!differ)
		err = walk_names_differ(&x->w, gone->path, added->path, &differ);
	if (differ)
		*ret_what &= ~(unsigned)DIFF_TIME;
	return err;
}

int walk_diff(struct diff *ret, int old_root_fd, int new_root_fd, bool ids,
	      const struct touched *touched, const struct diff_progress *progress)
{
	struct diff_walk x = { .w = { .root_fd = { old_root_fd, new_root_fd },
				      .touched = touched,
				      .progress = progress,
				      .passes = true,
				      .visit = visit,
				      .left = left,
				      .failed = failed },
			       .ids = ids,
			       .ret = ret };
	int err = walk_wait(&x.w, "", "", false, !touched, false);

	if (!err)
		err = walk_run(&x.w);
	if (touched)
		ret->too_long += touched->w.too_long;
	if (!err)
		err = match_files(&x);
	if (!err)
		err = match_paths(&x);
	clear_names(&x.names[OLD]);
	clear_names(&x.names[NEW]);
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

void diff_filter(struct diff *d, bool (*keep)(void *ctx, const char *path), void *ctx)
{
	size_t n = 0;

	for (size_t i = 0; i < d->n; i++) {
		if (keep(ctx, d->f[i].path) || (d->f[i].from && keep(ctx, d->f[i].from))) {
			d->f[n++] = d->f[i];
			continue;
		}
		free_file(&d->f[i]);
	}
	d->n = n;
}

void diff_clear(struct diff *d)
{
	for (size_t i = 0; i < d->n; i++)
		free_file(&d->f[i]);
	free(d->f);
	*d = (struct diff){ 0 };
}
