/* SPDX-License-Identifier: MIT */
/* Look-up in a layer stack, and reading through it, run by run. */
#include "export/layers.h"

#include <errno.h>
#include <stdalign.h>
#include <string.h>

struct layers *layers_alloc(unsigned room)
{
	struct layers *l = calloc(1, sizeof(*l) + room * sizeof(l->gen[0]));

	if (l)
		l->room = room;
	return l;
}

void layers_free(struct layers *l)
{
	if (!l)
		return;
	for (unsigned i = 0; i < l->n; i++)
		generation_free(l->gen[i]);
	log_index_unref(l->index);
	free(l);
}

/* The newest generation that has blk: *ret_blks blocks from blk on are in it with the same state.
 * NULL: *ret_blks blocks are in no generation. */
static const struct generation *find_generation(const struct layers *l, unsigned first,
						uint64_t blk, uint64_t max_blks, uint64_t *ret_blks,
						enum blk_state *ret_state)
{
	for (unsigned i = first; i < l->n; i++) {
		max_blks = generation_run(l->gen[i], blk, max_blks, ret_state);
		if (*ret_state != BLK_ABSENT) {
			*ret_blks = max_blks;
			return l->gen[i];
		}
	}
	*ret_blks = max_blks;
	return NULL;
}

static enum layers_place find(const struct layers *l, unsigned first, uint64_t blk,
			      uint64_t max_blks, const struct generation **ret_gen,
			      uint64_t *ret_blks)
{
	enum blk_state state;
	enum log_where where;

	*ret_gen = find_generation(l, first, blk, max_blks, ret_blks, &state);
	if (*ret_gen)
		return state == BLK_DATA ? PLACE_RAM : PLACE_ZERO;
	*ret_blks = log_index_run(l->index, blk, *ret_blks, &where);
	switch (where) {
	case LOG_DATA:
		return PLACE_LOG;
	case LOG_ZERO:
		return PLACE_ZERO;
	case LOG_HOME:
		break;
	}
	return PLACE_BASE;
}

uint64_t layers_find(const struct layers *l, unsigned first, uint64_t blk, uint64_t max_blks,
		     enum layers_place *ret)
{
	const struct generation *g;
	uint64_t blks;

	*ret = find(l, first, blk, max_blks, &g, &blks);
	return blks;
}

static int read_blocks(const struct layers *l, unsigned first, enum layers_place place,
		       uint64_t blk, void *buf, uint64_t blks)
{
	if (place == PLACE_LOG)
		return log_index_read(l->index, blk, blks, buf);
	/* the commit reads the card directly */
	if (first == LAYER_ACTIVE && l->readahead)
		return readahead_read(l->readahead, l->epoch, blk, blks, buf);
	return card_read(l->base, blk_to_bytes(blk), buf, blk_to_bytes(blks));
}

/* The card needs whole blocks and aligned buffers. As much as possible goes straight to the
 * caller's buffer, the rest through one block on the stack. */
static int read_card(const struct layers *l, unsigned first, enum layers_place place,
		     uint64_t off_bytes, uint8_t *buf, size_t len_bytes)
{
	alignas(COW_BLK_BYTES) uint8_t bounce[COW_BLK_BYTES];

	while (len_bytes) {
		uint64_t blk = off_bytes >> COW_BLK_SHIFT;
		size_t in_blk = off_bytes % COW_BLK_BYTES, n;
		int r;

		if (!in_blk && len_bytes >= COW_BLK_BYTES && (uintptr_t)buf % COW_BLK_BYTES == 0) {
			n = len_bytes - len_bytes % COW_BLK_BYTES;
			r = read_blocks(l, first, place, blk, buf, n >> COW_BLK_SHIFT);
			if (r < 0)
				return r;
		} else {
			n = min_u64(len_bytes, COW_BLK_BYTES - in_blk);
			r = read_blocks(l, first, place, blk, bounce, 1);
			if (r < 0)
				return r;
			memcpy(buf, bounce + in_blk, n);
		}
		off_bytes += n;
		buf += n;
		len_bytes -= n;
	}
	return 0;
}

/* The source of the first bytes of a range: n bytes, from block blk on. */
struct piece {
	enum layers_place place;
	const struct generation *gen; /* for PLACE_RAM */
	uint64_t blk, blks;
	size_t n;
};

static struct piece find_piece(const struct layers *l, unsigned first, uint64_t off_bytes,
			       size_t len_bytes)
{
	uint64_t in_blk = off_bytes % COW_BLK_BYTES;
	uint64_t max_blks = (in_blk + len_bytes + COW_BLK_BYTES - 1) >> COW_BLK_SHIFT;
	struct piece p = { .blk = off_bytes >> COW_BLK_SHIFT };

	p.place = find(l, first, p.blk, max_blks, &p.gen, &p.blks);
	p.n = min_u64(len_bytes, blk_to_bytes(p.blks) - in_blk);
	return p;
}

static bool on_card(const struct piece *p)
{
	return p->place == PLACE_LOG || p->place == PLACE_BASE;
}

/* Not for data on the card. */
static int copy_piece(const struct piece *p, uint64_t off_bytes, void *to)
{
	if (p->place == PLACE_RAM)
		return generation_read(p->gen, off_bytes, to, p->n);
	memset(to, 0, p->n);
	return 0;
}

int layers_read(const struct layers *l, unsigned first, uint64_t off_bytes, void *buf,
		size_t len_bytes)
{
	uint8_t *to = buf;

	while (len_bytes) {
		struct piece p = find_piece(l, first, off_bytes, len_bytes);
		int r = on_card(&p) ? read_card(l, first, p.place, off_bytes, to, p.n)
				    : copy_piece(&p, off_bytes, to);

		if (r < 0)
			return r;
		off_bytes += p.n;
		to += p.n;
		len_bytes -= p.n;
	}
	return 0;
}

/* Is it one run of the base, whole blocks to an aligned buffer, with nothing behind it? */
static bool can_start(const struct layers *l, const struct piece *p, const void *to,
		      size_t len_bytes)
{
	return p->place == PLACE_BASE && p->n == len_bytes && p->n == blk_to_bytes(p->blks) &&
	       (uintptr_t)to % COW_BLK_BYTES == 0 && l->readahead;
}

/* Copies the part in RAM, and starts one run of the base behind it. This covers nearly all reads,
 * because files lie in runs. */
int layers_start(const struct layers *l, uint64_t off_bytes, void *buf, size_t len_bytes,
		 struct readahead_read *rd)
{
	uint8_t *to = buf;

	while (len_bytes) {
		struct piece p = find_piece(l, LAYER_ACTIVE, off_bytes, len_bytes);
		int r;

		if (on_card(&p))
			return can_start(l, &p, to, len_bytes)
				       ? readahead_start(l->readahead, l->epoch, p.blk, p.blks, to,
							 rd)
				       : -EAGAIN;
		r = copy_piece(&p, off_bytes, to);
		if (r < 0)
			return r;
		off_bytes += p.n;
		to += p.n;
		len_bytes -= p.n;
	}
	return 0;
}

int layers_peek(const struct layers *l, unsigned first, uint64_t blk, uint64_t blks, void *buf)
{
	uint8_t *to = buf;

	while (blks) {
		enum blk_state state;
		uint64_t n;
		const struct generation *g = find_generation(l, first, blk, blks, &n, &state);
		int r = g && state == BLK_DATA
				? generation_read(g, blk_to_bytes(blk), to, blk_to_bytes(n))
				: -ENODATA;

		if (r < 0)
			return r;
		blk += n;
		to += blk_to_bytes(n);
		blks -= n;
	}
	return 0;
}

bool layers_next(const struct layers *l, unsigned first, uint64_t *blk, uint64_t max_blks,
		 uint64_t *ret_blks, enum blk_state *ret_state)
{
	uint64_t volume_blks = generation_volume_blks(l->gen[0]), pos = *blk, blks;

	while (pos < volume_blks) {
		enum blk_state state;

		if (find_generation(l, first, pos, max_u64(max_blks, 1), &blks, &state)) {
			*blk = pos;
			*ret_blks = blks;
			*ret_state = state;
			return true;
		}
		/* absent for at least this long; now without the cut at max_blks */
		if (!find_generation(l, first, pos, volume_blks - pos, &blks, &state))
			pos += blks;
	}
	return false;
}
