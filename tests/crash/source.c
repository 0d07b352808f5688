/* SPDX-License-Identifier: MIT */
/* The source of a commit: the live image is the sealed one, nothing runs beside it. */
#include <string.h>

#include "crash.h"
#include "export/view.h"

static bool src_next(void *ctx, uint64_t *blk, uint64_t max_blks, uint64_t *ret_blks,
		     enum blk_state *ret_state)
{
	struct world *w = ctx;
	uint64_t b = *blk, n = 1;

	if (w->view)
		return view_next_sealed(w->view, blk, max_blks, ret_blks, ret_state);
	while (b < w->shape.blks && !w->dirty[b])
		b++;
	if (b >= w->shape.blks)
		return false;
	while (n < max_blks && b + n < w->shape.blks && w->dirty[b + n] &&
	       w->hole[b + n] == w->hole[b])
		n++;
	*blk = b;
	*ret_blks = n;
	*ret_state = w->hole[b] ? BLK_HOLE : BLK_DATA;
	return true;
}

static int src_read_sealed(void *ctx, uint64_t blk, uint64_t blks, void *buf)
{
	struct world *w = ctx;

	if (w->view)
		return view_read_sealed(w->view, blk, blks, buf);
	for (uint64_t i = 0; i < blks; i++) {
		if (!w->dirty[blk + i])
			fail("commit reads block %llu, which is not dirty",
			     (unsigned long long)(blk + i));
		memcpy((uint8_t *)buf + blk_to_bytes(i), content_of(w->live.content[blk + i]),
		       COW_BLK_BYTES);
	}
	return 0;
}

static int src_read_committed(void *ctx, uint64_t blk, uint64_t blks, void *buf)
{
	struct world *w = ctx;

	return log_index_read_volume(w->index, w->c.base, blk, blks, buf);
}

/* As a file system's map would answer: runs end where the use changes, or at the end of a group. In
 * every second world each block is a run. */
static int run_of(struct world *w, const uint8_t *use, uint64_t blk, uint64_t max_blks,
		  enum blk_use *ret, uint64_t *ret_blks)
{
	uint64_t n = 1;

	while (at.seed % 2 && n < max_blks && blk + n < w->shape.blks && use[blk + n] == use[blk] &&
	       (blk + n) % 11)
		n++;
	*ret = (enum blk_use)use[blk];
	*ret_blks = n;
	return 0;
}

static int src_run_sealed(void *ctx, uint64_t blk, uint64_t max_blks, enum blk_use *ret,
			  uint64_t *ret_blks)
{
	return run_of(ctx, ((struct world *)ctx)->live.use, blk, max_blks, ret, ret_blks);
}

static int src_run_committed(void *ctx, uint64_t blk, uint64_t max_blks, enum blk_use *ret,
			     uint64_t *ret_blks)
{
	return run_of(ctx, ((struct world *)ctx)->n.use, blk, max_blks, ret, ret_blks);
}

/* Cards with units of a few blocks, so that some units are written whole, some gaps are written
 * over, and some blocks go to the log. */
const struct card_costs *profile_of(const struct world *w)
{
#define SPEED                                                                                      \
	{                                                                                          \
		.affine = true, .overhead_ns = 1000000, .bytes_per_s = 10000000                    \
	}
	static const struct card_costs card[] = {
		{ .id = "closes",
		  .write = SPEED,
		  .unit_bytes = 8 * COW_BLK_BYTES,
		  .open_units = 1,
		  .copy_bytes_per_s = 1000000,
		  .absorb = 1 },
		{ .id = "jumps",
		  .write = SPEED,
		  .unit_bytes = 4 * COW_BLK_BYTES,
		  .open_units = 2,
		  .open_random = 2,
		  .copy_bytes_per_s = 20000000,
		  .absorb = 1 },
		{ .id = "absorbs",
		  .write = SPEED,
		  .unit_bytes = 16 * COW_BLK_BYTES,
		  .open_units = 2,
		  .open_random = 2,
		  .copy_bytes_per_s = 5000000,
		  .absorb = 4 },
	};

	return w->shape.plan ? &card[w->shape.plan - 1] : NULL;
}

bool content_at_hand(void *world, uint64_t blk, uint64_t blks, void *buf)
{
	const struct world *w = world;

	for (uint64_t i = 0; i < blks; i++) {
		uint8_t *to = (uint8_t *)buf + blk_to_bytes(i);

		memcpy(to, content_of(w->live.content[blk + i]), COW_BLK_BYTES);
		to[0] ^= (blk + i + at.seed) % 7 == 3; /* changed since it was logged */
	}
	return (blk + at.seed) % 5 != 0;
}

static int src_run_older(void *ctx, uint64_t blk, uint64_t max_blks, enum blk_use *ret,
			 uint64_t *ret_blks)
{
	return run_of(ctx, ((struct world *)ctx)->older.use, blk, max_blks, ret, ret_blks);
}

static int src_run_held(void *ctx, uint64_t blk, uint64_t max_blks, enum blk_use *ret,
			uint64_t *ret_blks)
{
	return run_of(ctx, ((struct world *)ctx)->held.use, blk, max_blks, ret, ret_blks);
}

struct commit_source source_of(struct world *w)
{
	bool classify = !w->shape.no_classifier;

	return (struct commit_source){ .ctx = w,
				       .volume_blks = w->shape.blks,
				       .next = src_next,
				       .read_sealed = src_read_sealed,
				       .read_committed = src_read_committed,
				       .run_sealed = classify ? src_run_sealed : NULL,
				       .run_committed = classify ? src_run_committed : NULL,
				       .run_older = classify ? src_run_older : NULL,
				       .run_held = classify ? src_run_held : NULL,
				       .metadata_uuid = w->shape.marked ? mark : NULL };
}
