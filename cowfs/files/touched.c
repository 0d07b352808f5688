/* SPDX-License-Identifier: MIT */
/*
 * The order is that of a walk: "/" comes before all other bytes, so what lies below a directory follows
 * it at once.
 */
#include "files/touched.h"

#include <errno.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/ioctl.h>

#define PART_BYTES (64 * KIB)
/* what FIEMAP cannot place on the device */
#define NOT_PLACED                                                                                 \
	(FIEMAP_EXTENT_UNKNOWN | FIEMAP_EXTENT_DELALLOC | FIEMAP_EXTENT_ENCODED |                  \
	 FIEMAP_EXTENT_DATA_INLINE | FIEMAP_EXTENT_DATA_TAIL | FIEMAP_EXTENT_NOT_ALIGNED)

static int path_order(const char *a, const char *b)
{
	unsigned x, y;

	for (; *a && *a == *b; a++)
		b++;
	x = *a == '/' ? 1 : *a ? 1u + (uint8_t)*a : 0;
	y = *b == '/' ? 1 : *b ? 1u + (uint8_t)*b : 0;
	return x < y ? -1 : x > y;
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
	t.by_ino = calloc(t.w.n + 1, sizeof(*t.by_ino));
	if (!t.by_ino) {
		touched_clear(&t);
		return -ENOMEM;
	}
	for (size_t i = 0; i < t.w.n; i++)
		t.by_ino[i] = i;
	qsort_r(t.by_ino, t.w.n, sizeof(*t.by_ino), by_inode, t.w.o);
	*ret = t;
	return 0;
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

size_t touched_at(const struct touched *t, const char *path)
{
	size_t low = 0, high = t->w.n;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (path_order(t->w.o[middle].path, path) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static bool is_within(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	return !n || (!strncmp(path, dir, n) && (!path[n] || path[n] == '/'));
}

bool touched_within(const struct touched *t, const char *path)
{
	size_t i = touched_at(t, path);

	return i < t->w.n && is_within(t->w.o[i].path, path);
}

unsigned touched_path(const struct touched *t, const char *path)
{
	unsigned differs = 0;

	for (size_t i = touched_at(t, path); i < t->w.n && !strcmp(t->w.o[i].path, path); i++)
		differs |= t->w.o[i].differs;
	return differs;
}

const struct owner *touched_ino(const struct touched *t, uint64_t ino)
{
	size_t low = 0, high = t->by_ino ? t->w.n : 0;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (t->w.o[t->by_ino[middle]].ino < ino)
			low = middle + 1;
		else
			high = middle;
	}
	return low < t->w.n && t->by_ino && t->w.o[t->by_ino[low]].ino == ino
		       ? &t->w.o[t->by_ino[low]]
		       : NULL;
}

/* ---- content that lies on the same blocks ---- */

static void find_place(struct touched_place *p, uint64_t off)
{
	struct {
		struct fiemap map;
		struct fiemap_extent e;
	} f = { .map = { .fm_start = off,
			 .fm_length = FIEMAP_MAX_OFFSET - off,
			 .fm_extent_count = 1 } };

	if (p->known && off >= p->off && off < p->end)
		return;
	*p = (struct touched_place){ .fd = p->fd, .off = off, .end = off, .known = true };
	if (ioctl(p->fd, FS_IOC_FIEMAP, &f) < 0 || !f.map.fm_mapped_extents ||
	    f.e.fe_flags & NOT_PLACED || f.e.fe_logical > off)
		return;
	p->off = f.e.fe_logical;
	p->end = f.e.fe_logical + f.e.fe_length;
	p->at = f.e.fe_physical;
	p->zeros = f.e.fe_flags & FIEMAP_EXTENT_UNWRITTEN;
}

uint64_t touched_same_until(struct touched_place *a, struct touched_place *b, uint64_t off,
			    const struct extents *changed)
{
	uint64_t end, at;

	find_place(a, off);
	find_place(b, off);
	at = a->at + (off - a->off);
	end = min_u64(a->end, b->end);
	if (end <= off || at != b->at + (off - b->off) || a->zeros != b->zeros)
		return off;
	while (off < end &&
	       !extents_covered_bytes(changed, at, at + min_u64(PART_BYTES, end - off))) {
		at += min_u64(PART_BYTES, end - off);
		off += min_u64(PART_BYTES, end - off);
	}
	return off;
}
