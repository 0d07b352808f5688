// SPDX-License-Identifier: MIT
/*
 * owners.h for file systems that only the kernel can read: asks every file of the mounted tree for
 * its extents. No metadata (except that of btrfs), and no files without a name: these are in the
 * rest. Syncs nothing, so that a question causes no write.
 */
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>

#include "base/array.h"
#include "fs/btrfs.h"
#include "fs/owners.h"

#define EXTENTS 128
#define NOT_PLACED                                                                                 \
	(FIEMAP_EXTENT_UNKNOWN | FIEMAP_EXTENT_DELALLOC | FIEMAP_EXTENT_ENCODED |                  \
	 FIEMAP_EXTENT_DATA_INLINE | FIEMAP_EXTENT_DATA_TAIL | FIEMAP_EXTENT_NOT_ALIGNED)

struct walk {
	const struct owners_query *q;
	struct owners *w;
	size_t prefix_bytes;
	bool is_btrfs;
	struct btrfs_chunks chunks;
	uint64_t seen_bytes, used_bytes; /* for the progress */
	struct {
		uint64_t *ino; /* open addressing, 0: empty; of files with several names */
		size_t n, cap;
	} seen;
	union {
		struct fiemap map;
		uint8_t room[sizeof(struct fiemap) + EXTENTS * sizeof(struct fiemap_extent)];
	} f;
};

/* 1: it was already there */
static int seen_before(struct walk *k, uint64_t ino)
{
	if (2 * (k->seen.n + 1) > k->seen.cap) {
		size_t cap = k->seen.cap ? 2 * k->seen.cap : 1024;
		uint64_t *bigger = calloc(cap, sizeof(*bigger));

		if (!bigger)
			return -ENOMEM;
		for (size_t i = 0; i < k->seen.cap; i++) {
			size_t at = k->seen.ino[i] * 0x9e3779b97f4a7c15u % cap;

			if (!k->seen.ino[i])
				continue;
			while (bigger[at])
				at = (at + 1) % cap;
			bigger[at] = k->seen.ino[i];
		}
		free(k->seen.ino);
		k->seen.ino = bigger;
		k->seen.cap = cap;
	}
	for (size_t at = ino * 0x9e3779b97f4a7c15u % k->seen.cap;; at = (at + 1) % k->seen.cap) {
		if (k->seen.ino[at] == ino)
			return 1;
		if (!k->seen.ino[at]) {
			k->seen.ino[at] = ino;
			k->seen.n++;
			return 0;
		}
	}
}

struct claim {
	const struct walk *k;
	struct owner *o;
};

static void claim_place(void *ctx, uint64_t start_bytes, uint64_t end_bytes)
{
	const struct claim *c = ctx;

	owner_claim(c->o, c->k->q, start_bytes, end_bytes);
}

static void claim_extent(struct walk *k, int fd, struct owner *o, const struct fiemap_extent *e)
{
	uint64_t len_bytes = e->fe_length;

	if (k->is_btrfs && (e->fe_flags & NOT_PLACED) == FIEMAP_EXTENT_ENCODED)
		/* compressed: shorter than its content */
		len_bytes = btrfs_extent_bytes(fd, e->fe_physical);
	else if (e->fe_flags & NOT_PLACED)
		return;
	if (k->is_btrfs)
		btrfs_map(&k->chunks, e->fe_physical, len_bytes, claim_place,
			  &(struct claim){ k, o });
	else
		owner_claim(o, k->q, e->fe_physical, e->fe_physical + len_bytes);
}

static int claim_file(struct walk *k, int fd, struct owner *o)
{
	struct fiemap *f = &k->f.map;
	uint64_t from = 0;

	for (;;) {
		const struct fiemap_extent *e = f->fm_extents;

		*f = (struct fiemap){ .fm_start = from,
				      .fm_length = FIEMAP_MAX_OFFSET - from,
				      .fm_extent_count = EXTENTS };
		if (ioctl(fd, FS_IOC_FIEMAP, f) < 0)
			return -errno;
		for (unsigned i = 0; i < f->fm_mapped_extents; i++, e++)
			claim_extent(k, fd, o, e);
		if (!f->fm_mapped_extents || e[-1].fe_flags & FIEMAP_EXTENT_LAST ||
		    !e[-1].fe_length)
			return 0;
		from = e[-1].fe_logical + e[-1].fe_length;
	}
}

/* -ESTALE: another file has this name now. */
static int open_file(const FTSENT *e)
{
	_cleanup_close_ int fd = open(e->fts_accpath,
				      O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOATIME | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (st.st_dev != e->fts_statp->st_dev || st.st_ino != e->fts_statp->st_ino)
		return -ESTALE;
	return steal_fd(&fd);
}

static int take_file(struct walk *k, const FTSENT *e)
{
	struct owner o = { .kind = OWNER_FILE,
			   .ino = e->fts_statp->st_ino,
			   .links = (uint32_t)e->fts_statp->st_nlink };
	_cleanup_close_ int fd = -1;
	int err;

	if (!S_ISREG(e->fts_statp->st_mode) || !e->fts_statp->st_blocks)
		return 0;
	if (o.links > 1) {
		err = seen_before(k, o.ino);
		if (err)
			return err < 0 ? err : 0;
	}
	fd = open_file(e);
	err = fd < 0 ? fd : claim_file(k, fd, &o);
	if (err == -EOPNOTSUPP || err == -ENOTTY)
		return -EOPNOTSUPP;
	k->w->unreadable += err != 0;
	if (!o.bytes)
		return 0;
	o.path = strdup(e->fts_path + k->prefix_bytes);
	if (!o.path)
		return -ENOMEM;
	err = owners_keep(k->w, &o);
	free(o.path);
	return err;
}

static int walk_tree(struct walk *k, FTS *fts, uint64_t max_files, uint64_t max_ns)
{
	const uint64_t end_ns = now_ns() + max_ns;
	FTSENT *e;
	int err = 0;

	while (!err && (e = fts_read(fts))) {
		if (e->fts_info == FTS_DNR || e->fts_info == FTS_ERR || e->fts_info == FTS_NS)
			k->w->unreadable++;
		if (e->fts_info != FTS_F)
			continue;
		if (k->w->looked_at == max_files || now_ns() > end_ns) {
			k->w->complete = false;
			break;
		}
		k->seen_bytes += (uint64_t)e->fts_statp->st_blocks * 512;
		if (++k->w->looked_at % 256 == 0 && k->q->progress)
			k->q->progress(k->q->ctx, "files", k->seen_bytes, k->used_bytes);
		err = take_file(k, e);
	}
	return err;
}

/* ---- what btrfs has besides files ---- */

static int start_btrfs(struct walk *k, const char *dir)
{
	_cleanup_close_ int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 ? -errno : btrfs_chunks_read(&k->chunks, fd);
}

static bool in_metadata(const struct btrfs_chunks *x, uint64_t off_bytes)
{
	for (size_t i = 0; i < x->n; i++)
		for (unsigned c = 0; c < x->c[i].copies; c++)
			if (x->c[i].metadata && off_bytes >= x->c[i].place[c] &&
			    off_bytes - x->c[i].place[c] < x->c[i].len_bytes)
				return true;
	return false;
}

static int claim_btrfs(struct walk *k)
{
	static const uint64_t supers[] = { 64 * KIB, 64 * MIB, 256 * GIB };
	struct owner trees = { .kind = OWNER_METADATA }, super = { .kind = OWNER_SUPER };
	int err;

	for (size_t i = 0; i < k->chunks.n; i++)
		if (k->chunks.c[i].metadata)
			btrfs_map(&k->chunks, k->chunks.c[i].logical, k->chunks.c[i].len_bytes,
				  claim_place, &(struct claim){ k, &trees });
	for (size_t i = 0; i < ARRAY_SIZE(supers); i++)
		if (!in_metadata(&k->chunks, supers[i]))
			owner_claim(&super, k->q, supers[i], supers[i] + 4 * KIB);
	err = owners_keep(k->w, &trees);
	return err ? err : owners_keep(k->w, &super);
}

int owners_tree(struct owners *ret, const char *dir, uint64_t max_files, uint64_t max_ns,
		const struct owners_query *q)
{
	char *const roots[] = { (char *)dir, NULL };
	struct owners w = { .complete = true };
	_cleanup_free_ struct walk *k = calloc(1, sizeof(*k));
	struct statvfs vfs;
	struct statfs fs;
	FTS *fts;
	int err;

	if (statvfs(dir, &vfs) < 0 || statfs(dir, &fs) < 0)
		return -errno;
	if (!k)
		return -ENOMEM;
	*k = (struct walk){ .q = q, .w = &w, .prefix_bytes = strcmp(dir, "/") ? strlen(dir) : 0 };
	k->used_bytes = (uint64_t)(vfs.f_blocks - vfs.f_bfree) * vfs.f_frsize;
	k->is_btrfs = (uint32_t)fs.f_type == BTRFS_SUPER_MAGIC;
	err = k->is_btrfs ? start_btrfs(k, dir) : 0;
	if (err)
		return err;
	fts = fts_open(roots, FTS_PHYSICAL | FTS_XDEV, NULL);
	err = fts ? walk_tree(k, fts, max_files, max_ns) : -errno;
	if (fts)
		fts_close(fts);
	free(k->seen.ino);
	if (!err && k->is_btrfs)
		err = claim_btrfs(k);
	btrfs_chunks_clear(&k->chunks);
	if (!err)
		err = owners_add_rest(&w, q);
	if (err)
		owners_clear(&w);
	else
		*ret = w;
	return err;
}
