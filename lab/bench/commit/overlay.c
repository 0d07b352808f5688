/* SPDX-License-Identifier: MIT */
/*
 * Overlays of other systems, between two commit points, and how they are merged.
 *
 * Block order: all dirty blocks, ascending, in place, in runs of at most one request, a flush at
 * the end. cowloop's cowmerge goes through its bitmap in this way.
 *
 * dm-snapshot (Linux, drivers/md: dm-snap.c, dm-snap-persistent.c, dm-kcopyd.c): the exception
 * store takes chunks in the order of their first write. Its exceptions lie in areas of
 * chunk_size / 16. persistent_prepare_merge() begins with the last exception of the last area. It
 * goes back while the previous one is for the previous chunk, in the same area.
 * snapshot_merge_next_chunks() copies this run in one job, which kcopyd splits into pieces of
 * 512 KiB. merge_callback() flushes the origin (since 5.12) before the exceptions are dropped, and
 * then comes the next run. Whole chunks are copied.
 */
#include <string.h>

#include "replay.h"

enum { EXCEPTION_BYTES = 16, KCOPYD_BYTES = 512 * 1024 };

static bool bit_get(const uint64_t *map, uint64_t i)
{
	return map[i / 64] >> (i % 64) & 1;
}

static void bit_set(uint64_t *map, uint64_t i)
{
	map[i / 64] |= 1ull << (i % 64);
}

static uint64_t words(uint64_t bits)
{
	return bits / 64 + 1;
}

static uint64_t chunks_of(const struct overlay *o)
{
	return (o->blks + o->chunk_blks - 1) / o->chunk_blks;
}

void overlay_init(struct overlay *o, uint64_t volume_bytes, unsigned chunk_blks)
{
	*o = (struct overlay){ .blks = volume_bytes >> COW_BLK_SHIFT, .chunk_blks = chunk_blks };
	o->dirty = calloc(words(o->blks), 8);
	o->touched = calloc(words(chunks_of(o)), 8);
	o->order = calloc(chunks_of(o), sizeof(*o->order));
	if (!o->dirty || !o->touched || !o->order)
		die("no memory");
}

void overlay_free(struct overlay *o)
{
	free(o->dirty);
	free(o->touched);
	free(o->order);
}

void overlay_write(struct overlay *o, uint64_t off_bytes, uint64_t len_bytes)
{
	uint64_t blk = off_bytes >> COW_BLK_SHIFT,
		 end = (off_bytes + len_bytes + COW_BLK_BYTES - 1) >> COW_BLK_SHIFT;

	for (; blk < end && blk < o->blks; blk++) {
		uint64_t chunk = blk / o->chunk_blks;

		if (!bit_get(o->dirty, blk)) {
			bit_set(o->dirty, blk);
			o->dirty_blks++;
		}
		if (!bit_get(o->touched, chunk)) {
			bit_set(o->touched, chunk);
			o->order[o->n_order++] = (uint32_t)chunk;
		}
	}
}

void overlay_clear(struct overlay *o)
{
	memset(o->dirty, 0, words(o->blks) * 8);
	memset(o->touched, 0, words(chunks_of(o)) * 8);
	o->dirty_blks = o->n_order = 0;
}

bool overlay_next(const struct overlay *o, uint64_t *blk, uint64_t *ret_blks)
{
	uint64_t b = *blk, n = 1;

	while (b < o->blks && !bit_get(o->dirty, b))
		b += b % 64 == 0 && !o->dirty[b / 64] ? 64 : 1;
	if (b >= o->blks)
		return false;
	while (b + n < o->blks && bit_get(o->dirty, b + n))
		n++;
	*blk = b;
	*ret_blks = n;
	return true;
}

static void write_run(struct flash_model *m, uint64_t off_bytes, uint64_t len_bytes,
		      uint64_t piece_bytes)
{
	for (uint64_t n; len_bytes; off_bytes += n, len_bytes -= n) {
		n = min_u64(len_bytes, piece_bytes);
		flash_model_write(m, off_bytes, n, 0);
	}
}

void merge_block_order(const struct overlay *o, struct flash_model *m)
{
	uint64_t blk = 0, n;

	for (; overlay_next(o, &blk, &n); blk += n)
		write_run(m, blk_to_bytes(blk), blk_to_bytes(n), REQUEST_BYTES);
	flash_model_flush(m);
}

void merge_dm_snapshot(const struct overlay *o, struct flash_model *m)
{
	uint64_t chunk_bytes = blk_to_bytes(o->chunk_blks),
		 per_area = chunk_bytes / EXCEPTION_BYTES, last = o->n_order;

	while (last) {
		uint64_t first = last - 1, area = first / per_area * per_area, off, n;

		while (first > area && o->order[first - 1] + 1 == o->order[first])
			first--;
		off = o->order[first] * chunk_bytes;
		n = (last - first) * chunk_bytes;
		write_run(m, off, min_u64(n, blk_to_bytes(o->blks) - off), KCOPYD_BYTES);
		flash_model_flush(m);
		last = first;
	}
}
