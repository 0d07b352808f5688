/* SPDX-License-Identifier: MIT */
/*
 * Makes a delta of two images.
 *
 * - A block that the base leaves free is data, whatever lies there: another card has something else.
 * - The blocks of an empty journal are neither data nor kept: nothing reads them. A whole delta has them, as a clone
 *   does: what a previous file system left there could pass for their continuation.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <zstd.h>

#include "base/array.h"
#include "base/boxed.h"
#include "base/io.h"
#include "card/blockdev.h"
#include "offline/delta_section.h"
#include "offline/offline.h"

#define LEVEL 12

struct image {
	struct offline f;
	struct fsmap *map;
	char *buf; /* a run */
};

struct maker {
	struct delta_make *m;
	struct image of, base;
	struct section s;
	struct section_sums sums;
	uint8_t *data; /* of the section, behind room for its head */
	uint8_t *packed;
	ZSTD_CCtx *zstd;
	uint8_t *table;
	size_t table_cap;
	uint64_t at; /* in the file */
};

static int end_section(struct maker *k)
{
	size_t room = ZSTD_compressBound(SECTION_BYTES), n, bytes;
	struct section_entry e;
	uint8_t head[SECTION_META_BYTES], *from;
	int r;

	section_end_sums(&k->sums, k->s.kept_sum);
	n = section_put(head, &k->s);
	from = k->data - n;
	memcpy(from, head, n);
	bytes = n + blk_to_bytes(k->s.data_blks);
	n = ZSTD_compressCCtx(k->zstd, k->packed, room, from, bytes, LEVEL);
	if (ZSTD_isError(n) ||
	    array_room(&k->table, &k->table_cap, k->m->head.sections + 1, SECTION_ENTRY_BYTES) < 0)
		return -ENOMEM;
	e = (struct section_entry){ (uint32_t)n, (uint32_t)bytes, { 0 } };
	section_sum(k->packed, n, e.sum);
	section_put_entry(k->table + (size_t)k->m->head.sections * SECTION_ENTRY_BYTES, &e);
	r = io_pwrite_full(k->m->fd, k->packed, n, k->at);
	k->at += n;
	k->m->head.sections++;
	k->m->head.kept_blks += k->s.kept_blks;
	k->m->head.data_blks += k->s.data_blks;
	k->s.runs = k->s.data_blks = k->s.kept_blks = k->s.replaced = 0;
	k->sums.n = 0;
	return r;
}

/* then: what the base has there; NULL: it does not use these blocks. */
static int add_run(struct maker *k, uint64_t blk, uint64_t blks, bool kept, const char *buf,
		   const char *then)
{
	struct section *s = &k->s;
	int r = 0;

	if (s->runs == SECTION_RUNS || s->data_blks + blks > SECTION_DATA_BLKS ||
	    s->kept_blks + blks > SECTION_KEPT_BLKS)
		r = end_section(k);
	if (r < 0)
		return r;
	s->run[s->runs++] = (struct section_run){ blk, (uint32_t)blks, kept, then && !kept };
	if (kept) {
		section_add_sum(&k->sums, buf, blks);
		s->kept_blks += (uint32_t)blks;
	} else {
		memcpy(k->data + blk_to_bytes(s->data_blks), buf, blk_to_bytes(blks));
		s->data_blks += (uint32_t)blks;
		if (then)
			section_sum(then, blk_to_bytes(blks), s->replaced_sum[s->replaced++]);
	}
	return 0;
}

static int read_image(struct image *x, uint64_t blk, uint64_t blks)
{
	return card_read(x->f.base, blk_to_bytes(blk), x->buf, blk_to_bytes(blks));
}

/* Blocks that both use: runs of the same, and of others. */
static int compare(struct maker *k, uint64_t blk, uint64_t blks, const char *now)
{
	const char *then = k->base.buf;
	int r = read_image(&k->base, blk, blks);

	for (uint64_t i = 0, n; i < blks && r == 0; i += n) {
		bool kept = !memcmp(now + blk_to_bytes(i), then + blk_to_bytes(i), COW_BLK_BYTES);

		for (n = 1; i + n < blks; n++)
			if (kept != !memcmp(now + blk_to_bytes(i + n), then + blk_to_bytes(i + n),
					    COW_BLK_BYTES))
				break;
		r = add_run(k, blk + i, n, kept, now + blk_to_bytes(i), then + blk_to_bytes(i));
	}
	return r;
}

static int do_run(struct maker *k, uint64_t blk, uint64_t blks)
{
	int r = read_image(&k->of, blk, blks);

	for (uint64_t i = 0, n; i < blks && r == 0; i += n) {
		const char *now = k->of.buf + blk_to_bytes(i);
		enum blk_use use = USE_FREE;

		n = blks - i;
		if (k->m->base_disk)
			r = fsmap_run(k->base.map, blk + i, n, &use, &n);
		if (r == 0)
			r = use == USE_USED ? compare(k, blk + i, n, now)
					    : add_run(k, blk + i, n, false, now, NULL);
	}
	return r;
}

static int do_all(struct maker *k)
{
	uint64_t end = k->m->head.volume_blks, n;
	int r = 0;

	for (uint64_t blk = 0; blk < end && r == 0; blk += n) {
		enum blk_use use;

		n = min_u64(end - blk, SECTION_RUN_BLKS - blk % SECTION_RUN_BLKS);
		r = fsmap_run(k->of.map, blk, n, &use, &n);
		if (r == 0 && (use == USE_USED || (use == USE_JOURNAL && k->m->head.whole)))
			r = do_run(k, blk, n);
		k->m->progress(k->m->ctx, "export", blk_to_bytes(blk), blk_to_bytes(end));
	}
	return r == 0 && k->s.runs ? end_section(k) : r;
}

static int write_ends(struct maker *k)
{
	struct delta_head *h = &k->m->head;
	size_t bytes = (size_t)h->sections * SECTION_ENTRY_BYTES;
	uint8_t buf[DELTA_HEAD_BYTES];
	int r;

	section_sum(k->table, bytes, h->table_sum);
	h->file_bytes = k->at + bytes;
	r = io_pwrite_full(k->m->fd, k->table, bytes, k->at);
	delta_put_head(buf, h);
	return r == 0 ? io_pwrite_full(k->m->fd, buf, sizeof(buf), 0) : r;
}

/* ---- */

static int open_image(struct image *x, const char *disk, const char *name, struct failure *fail)
{
	struct blk_reader reader;
	int r = offline_open(&x->f, disk, NULL, BLOCKDEV_RDONLY | BLOCKDEV_ALLOW_FILE, 0, fail);

	if (r < 0)
		return r;
	if (x->f.fs.kind == FS_UNKNOWN || fsinfo_refusal(&x->f.fs))
		return failure(fail, -EMEDIUMTYPE, "%s: no file system that cowfs knows", name);
	reader = super_reader(x->f.base);
	r = fsmap_open(&x->map, &reader);
	if (r == 0 && !fsmap_knows(x->map))
		return failure(fail, -EUCLEAN,
			       "%s: which blocks it uses is not known: is it damaged?", name);
	if (r == 0 && fsmap_alarms(x->map))
		return failure(fail, -EUCLEAN,
			       "%s: its file system has errors, or needs a replay: check it", name);
	x->buf = io_alloc(blk_to_bytes(SECTION_RUN_BLKS));
	if (r == 0 && !x->buf)
		r = -ENOMEM;
	return r < 0 ? offline_cannot_read(name, r, fail) : 0;
}

static void close_image(struct image *x)
{
	fsmap_close(x->map);
	offline_close(&x->f);
	free(x->buf);
}

static int open_both(struct maker *k, struct failure *fail)
{
	const struct delta_make *m = k->m;
	const struct fsinfo *a = &k->of.f.fs, *b = &k->base.f.fs;
	int r = open_image(&k->of, m->disk, m->name, fail);

	if (r == 0 && m->base_disk)
		r = open_image(&k->base, m->base_disk, m->base_name, fail);
	if (r < 0 || !m->base_disk)
		return r;
	if (a->kind != b->kind || memcmp(a->uuid, b->uuid, sizeof(a->uuid)))
		return failure(fail, -EXDEV, "%s and %s are not of one file system", m->base_name,
			       m->name);
	return 0;
}

static int allocate(struct maker *k)
{
	k->data = io_alloc(round_up_u64(SECTION_META_BYTES, COW_BLK_BYTES) +
			   blk_to_bytes(SECTION_DATA_BLKS));
	k->packed = malloc(ZSTD_compressBound(SECTION_BYTES));
	k->zstd = ZSTD_createCCtx();
	if (!k->data || !k->packed || !k->zstd)
		return -ENOMEM;
	k->data += round_up_u64(SECTION_META_BYTES, COW_BLK_BYTES);
	return 0;
}

static void set_head(struct maker *k)
{
	struct delta_head *h = &k->m->head;
	const struct fsinfo *fs = &k->of.f.fs;

	h->whole = !k->m->base_disk;
	snprintf(h->fs_type, sizeof(h->fs_type), "%s", fs->type);
	memcpy(h->fs_uuid, fs->uuid, sizeof(h->fs_uuid));
	h->volume_blks = k->of.f.base->geo.size_bytes / COW_BLK_BYTES;
	k->at = DELTA_HEAD_BYTES + DELTA_SIGNATURE_BYTES;
}

static int make(struct maker *k, struct failure *fail)
{
	int r = open_both(k, fail);

	if (r < 0)
		return r;
	set_head(k);
	if (k->m->head.volume_blks > UINT32_MAX)
		return failure(fail, -EFBIG, "%s: larger than 16 TiB", k->m->name);
	r = allocate(k);
	if (r == 0)
		r = do_all(k);
	if (r == 0)
		r = write_ends(k);
	return r < 0 ? failure(fail, r, "%s: not exported: %s", k->m->name, boxed_error(r)) : 0;
}

int delta_make(struct delta_make *m, struct failure *fail)
{
	struct maker *k = calloc(1, sizeof(*k));
	int r;

	if (!k)
		return failure(fail, -ENOMEM, "out of memory");
	k->m = m;
	r = make(k, fail);
	close_image(&k->of);
	close_image(&k->base);
	if (k->data)
		free(k->data - round_up_u64(SECTION_META_BYTES, COW_BLK_BYTES));
	free(k->packed);
	free(k->table);
	ZSTD_freeCCtx(k->zstd);
	free(k);
	return r;
}
