/* SPDX-License-Identifier: MIT */
/*
 * Why S2 is correct. The commit thread saves a block, marks it, then issues the write. A reader
 * whose read returns any of the new bytes therefore finds the mark when it looks again. The same
 * holds for the end of the snapshot, which is set ahead of the write that it could not follow. The
 * marks only grow, so the read of a piece of 64 blocks is repeated 64 times at most.
 *
 * Why no RAM is freed under a reader. A reader enters a pin, then looks whether the snapshot has
 * ended; the end is set, then the pins are counted. One of the two sees the other. The last one
 * that leaves an ended snapshot frees.
 */
#include "export/snapshot.h"

#include <errno.h>
#include <string.h>

#include "base/array.h"
#include "base/bytes.h"
#include "base/io.h"
#include "base/thread.h"
#include "export/pin.h"

#define PIECE_BLKS 64u
#define SAVE_BLKS 32u

struct snapshot {
	struct pins pins;
	_Atomic unsigned refs;
	_Atomic bool ended;
	uint64_t volume_blks, max_bytes;
	struct ram_store *store;
	pthread_mutex_t lock;	    /* protects the release of the layers; held for moments */
	pthread_mutex_t write_lock; /* for [read, write, mark] of a block */
	struct layers *l;	    /* under a pin; NULL: released; `written` is the highest */
	struct generation *saved;   /* the lowest generation of l */
	/* commit thread only: the places of the index, sorted; a buffer of SAVE_BLKS */
	struct log_place *place;
	size_t places;
	void *buf;
};

static int by_place(const void *a, const void *b)
{
	const struct log_place *x = a, *y = b;

	if (x->card != y->card)
		return x->card < y->card ? -1 : 1;
	return x->off_bytes < y->off_bytes ? -1 : x->off_bytes > y->off_bytes;
}

static int list_places(struct snapshot *s)
{
	struct log_place p;
	size_t n = 0;

	while (log_index_place(s->l->index, n, &p))
		n++;
	s->place = calloc(n + 1, sizeof(*s->place));
	if (!s->place)
		return -ENOMEM;
	for (size_t i = 0; log_index_place(s->l->index, i, &p); i++)
		if (p.card)
			s->place[s->places++] = p;
	qsort(s->place, s->places, sizeof(*s->place), by_place);
	return 0;
}

static void free_snapshot(struct snapshot *s)
{
	layers_free(s->l);
	free(s->place);
	free(s->buf);
	pthread_mutex_destroy(&s->lock);
	pthread_mutex_destroy(&s->write_lock);
	free(s);
}

int snapshot_new(struct snapshot **ret, struct ram_store *store, struct layers *l,
		 uint64_t volume_blks, uint64_t max_bytes)
{
	struct snapshot *s = aligned_alloc(alignof(struct snapshot), sizeof(*s));
	struct generation *written = NULL;
	int r;

	if (!s)
		return -ENOMEM;
	memset(s, 0, sizeof(*s));
	pthread_mutex_init(&s->lock, NULL);
	pthread_mutex_init(&s->write_lock, NULL);
	s->store = store;
	s->max_bytes = max_bytes;
	s->refs = 1;
	s->volume_blks = volume_blks;
	s->buf = io_alloc(blk_to_bytes(SAVE_BLKS));
	s->l = l;
	r = s->buf ? list_places(s) : -ENOMEM;
	if (r == 0)
		r = generation_new(&written, store, volume_blks);
	if (r == 0)
		r = generation_new(&s->saved, store, volume_blks);
	if (r < 0) {
		generation_free(written);
		s->l = NULL; /* the caller's */
		free_snapshot(s);
		return r;
	}
	memmove(l->gen + 1, l->gen, l->n * sizeof(l->gen[0]));
	l->gen[0] = written;
	l->gen[++l->n] = s->saved;
	l->n++;
	*ret = s;
	return 0;
}

struct snapshot *snapshot_ref(struct snapshot *s)
{
	atomic_fetch_add(&s->refs, 1);
	return s;
}

void snapshot_unref(struct snapshot *s)
{
	if (s && atomic_fetch_sub(&s->refs, 1) == 1)
		free_snapshot(s);
}

uint64_t snapshot_volume_blks(const struct snapshot *s)
{
	return s->volume_blks;
}

bool snapshot_ended(const struct snapshot *s)
{
	return s->ended;
}

/* ---- the end ---- */

static void release_if_idle(struct snapshot *s)
{
	atomic_thread_fence(memory_order_seq_cst);
	if (!s->ended)
		return;
	LOCKED(&s->lock);
	if (s->l && pins_none(&s->pins)) {
		layers_free(s->l);
		s->l = NULL;
	}
}

static struct pin enter(struct snapshot *s)
{
	return pins_enter(&s->pins);
}

static void leave(struct snapshot *s, struct pin pin)
{
	pins_leave(pin);
	release_if_idle(s);
}

void snapshot_end(struct snapshot *s)
{
	s->ended = true;
	release_if_idle(s);
}

void snapshot_each(struct snapshot *s, void (*each)(void *ctx, const struct generation *g),
		   void *ctx)
{
	struct pin pin = enter(s);

	for (unsigned i = 0; !s->ended && i < s->l->n; i++)
		each(ctx, s->l->gen[i]);
	leave(s, pin);
}

/* ---- reading ---- */

/* Bit i: block blk + i is in `saved`. */
static uint64_t look_saved(const struct snapshot *s, uint64_t blk, uint64_t blks)
{
	uint64_t word = 0;

	for (uint64_t i = 0, n; i < blks; i += n) {
		enum blk_state state;

		n = generation_run(s->saved, blk + i, blks - i, &state);
		if (state != BLK_ABSENT)
			word |= UINT64_MAX >> (64 - n) << i;
	}
	return word;
}

/* Pinned; at most PIECE_BLKS blocks. */
static int read_piece(const struct snapshot *s, uint64_t off_bytes, void *buf, size_t len_bytes)
{
	uint64_t blk = off_bytes >> COW_BLK_SHIFT,
		 blks = ((off_bytes + len_bytes - 1) >> COW_BLK_SHIFT) + 1 - blk, before;
	int r;

	do {
		if (s->ended)
			return -EIO;
		before = look_saved(s, blk, blks);
		r = layers_read(s->l, 0, off_bytes, buf, len_bytes);
		/* an acquire load alone does not keep the read above it in front */
		atomic_thread_fence(memory_order_seq_cst);
	} while (s->ended || look_saved(s, blk, blks) != before);
	return r;
}

int snapshot_read(struct snapshot *s, uint64_t off_bytes, void *buf, size_t len_bytes)
{
	const uint64_t piece_bytes = blk_to_bytes(PIECE_BLKS);
	struct pin pin;
	uint8_t *to = buf;
	int r = 0;

	if (!range_fits(off_bytes, len_bytes, blk_to_bytes(s->volume_blks)))
		return -EINVAL;
	pin = enter(s);
	while (len_bytes && r == 0) {
		size_t n = min_u64(len_bytes, piece_bytes - off_bytes % piece_bytes);

		r = read_piece(s, off_bytes, to, n);
		off_bytes += n;
		to += n;
		len_bytes -= n;
	}
	leave(s, pin);
	return r;
}

/* ---- writing ---- */

/* A part of one block, or the whole. */
static int write_blk(struct snapshot *s, uint64_t off_bytes, const void *part, size_t len_bytes)
{
	uint64_t blk = off_bytes >> COW_BLK_SHIFT;
	uint8_t buf[COW_BLK_BYTES];
	int r = s->ended ? -EIO : ram_store_room(s->store, s->max_bytes) ? 0 : -ENOSPC;

	if (r == 0 && len_bytes < COW_BLK_BYTES)
		r = read_piece(s, blk_to_bytes(blk), buf, COW_BLK_BYTES);
	if (r < 0)
		return r;
	memcpy(buf + off_bytes % COW_BLK_BYTES, part, len_bytes);
	r = generation_write(s->l->gen[0], blk_to_bytes(blk), buf, COW_BLK_BYTES);
	if (r == 0)
		r = generation_mark(s->l->gen[0], blk, 1, BLK_DATA);
	return r;
}

int snapshot_write(struct snapshot *s, uint64_t off_bytes, const void *buf, size_t len_bytes)
{
	const uint8_t *from = buf;
	struct pin pin;
	int r = 0;

	if (!range_fits(off_bytes, len_bytes, blk_to_bytes(s->volume_blks)))
		return -EINVAL;
	pin = enter(s);
	pthread_mutex_lock(&s->write_lock);
	while (len_bytes && r == 0) {
		size_t n = min_u64(len_bytes, COW_BLK_BYTES - off_bytes % COW_BLK_BYTES);

		r = write_blk(s, off_bytes, from, n);
		off_bytes += n;
		from += n;
		len_bytes -= n;
	}
	pthread_mutex_unlock(&s->write_lock);
	leave(s, pin);
	return r;
}

/* ---- ahead of a write; commit thread ---- */

struct save {
	struct snapshot *s;
	uint64_t left_blks, taken_blks;
};

static int put(const struct snapshot *s, uint64_t blk, uint64_t blks)
{
	enum blk_state state = BLK_HOLE;
	int r = 0;

	if (!bytes_all_zero(s->buf, blk_to_bytes(blks))) {
		r = generation_write(s->saved, blk_to_bytes(blk), s->buf, blk_to_bytes(blks));
		state = BLK_DATA;
	}
	if (r == 0)
		r = generation_mark(s->saved, blk, blks, state);
	if (r < 0)
		generation_drop(s->saved, blk, blks);
	return r;
}

static int keep(struct save *v, uint64_t blk, uint64_t blks)
{
	int r = 0;

	for (uint64_t n; blks && r == 0; blk += n, blks -= n) {
		n = min_u64(blks, SAVE_BLKS);
		if (n > v->left_blks)
			return -ENOSPC;
		r = layers_read(v->s->l, 0, blk_to_bytes(blk), v->s->buf, blk_to_bytes(n));
		if (r == 0)
			r = put(v->s, blk, n);
		v->left_blks -= n;
		v->taken_blks += n;
	}
	return r;
}

/* Keeps the blocks of this range that the snapshot reads from `where`. */
static int keep_from(struct save *v, enum layers_place where, uint64_t blk, uint64_t blks)
{
	int r = 0;

	for (uint64_t n; blks && r == 0; blk += n, blks -= n) {
		enum layers_place place;

		n = layers_find(v->s->l, 0, blk, blks, &place);
		if (place == where)
			r = keep(v, blk, n);
	}
	return r;
}

/* The first place on this card that ends after off_bytes. */
static size_t first_place(const struct snapshot *s, const struct card *c, uint64_t off_bytes)
{
	const struct log_place *p = s->place;

	return ARRAY_FIRST(i, s->places,
			   p[i].card > c || (p[i].card == c &&
					     p[i].off_bytes + blk_to_bytes(p[i].blks) > off_bytes));
}

static int keep_places(struct save *v, const struct card *c, uint64_t off_bytes, uint64_t end_bytes)
{
	const struct snapshot *s = v->s;
	int r = 0;

	for (size_t i = first_place(s, c, off_bytes);
	     r == 0 && i < s->places && s->place[i].card == c && s->place[i].off_bytes < end_bytes;
	     i++) {
		const struct log_place *p = &s->place[i];
		uint64_t from = max_u64(off_bytes, p->off_bytes),
			 to = min_u64(end_bytes, p->off_bytes + blk_to_bytes(p->blks));

		r = keep_from(v, PLACE_LOG, p->blk + ((from - p->off_bytes) >> COW_BLK_SHIFT),
			      (to - from) >> COW_BLK_SHIFT);
	}
	return r;
}

int snapshot_save(struct snapshot *s, struct card *c, uint64_t off_bytes, uint64_t len_bytes,
		  uint64_t max_blks, uint64_t *ret_blks)
{
	struct save v = { .s = s, .left_blks = max_blks };
	uint64_t blk = off_bytes >> COW_BLK_SHIFT, blks = len_bytes >> COW_BLK_SHIFT;
	struct pin pin = enter(s);
	int r = 0;

	if (!s->ended && c == s->l->base && blk < s->volume_blks)
		r = keep_from(&v, PLACE_BASE, blk, min_u64(blks, s->volume_blks - blk));
	if (!s->ended && r == 0)
		r = keep_places(&v, c, off_bytes, off_bytes + len_bytes);
	leave(s, pin);
	*ret_blks = v.taken_blks;
	return r;
}

int snapshot_forget(struct snapshot *s, uint64_t blk, uint64_t blks)
{
	struct pin pin = enter(s);
	int r = s->ended ? 0 : generation_mark(s->saved, blk, blks, BLK_HOLE);

	leave(s, pin);
	return r;
}
