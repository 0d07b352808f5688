/* SPDX-License-Identifier: MIT */
/*
 * The serving side of the view: read, write, punch. The commit side is view_commit.c.
 *
 * A write takes the seal lock before it loads the layer stack. So it goes to the newest active
 * generation, and its mark is there before the seal. A read uses whatever stack it pins. If a seal
 * overtakes it, its active generation is sealed and still the newest of its time.
 *
 * What readers may see while a block changes, and why it is correct: DATA is marked after its bytes
 * are complete, so the mark shows whole blocks. A read during an overwrite of DATA in place may be
 * torn, as on a disk. A punch marks HOLE, then frees. A reader that saw DATA before reads the freed
 * pages as zeroes, which is the new content. The stripe of a block serialises all its changes, so a
 * partial write finds the bytes that it leaves alone.
 */
#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "export/view_private.h"

static void count(_Atomic uint64_t *counter, uint64_t n)
{
	atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

/* r: of a call that ends. */
static int count_call(int r, uint64_t len_bytes, _Atomic uint64_t *calls, _Atomic uint64_t *bytes,
		      _Atomic uint64_t *errors)
{
	if (r == -ENOMEDIUM) /* it is asked for again */
		return r;
	count(calls, 1);
	if (r < 0)
		count(errors, 1);
	else
		count(bytes, len_bytes);
	return r;
}

/* ---- locks of one change ---- */

/* What the card has of the blocks that a write of several covers in part. */
struct ends {
	unsigned n;
	uint64_t blk[2];
	alignas(COW_BLK_BYTES) uint8_t block[2][COW_BLK_BYTES];
};

struct change {
	struct view *v;
	struct layers *l;
	struct pin pin;
	unsigned first, end;	 /* stripes */
	const struct ends *ends; /* may be NULL */
};

/* Seal lock held shared. The range lies within one piece, and so within neighbouring stripes. */
static void change_begin(struct change *c, struct view *v, uint64_t off_bytes, uint64_t len_bytes)
{
	c->v = v;
	c->first = off_bytes / VIEW_STRIPE_BYTES % VIEW_STRIPES;
	c->end = (off_bytes + len_bytes - 1) / VIEW_STRIPE_BYTES % VIEW_STRIPES + 1;
	for (unsigned i = c->first; i < c->end; i++)
		pthread_mutex_lock(&v->stripe[i]);
	c->pin = pins_enter(&v->pins);
	c->l = view_layers(v);
}

static void change_end(struct change *c)
{
	pins_leave(c->pin);
	for (unsigned i = c->first; i < c->end; i++)
		pthread_mutex_unlock(&c->v->stripe[i]);
}

/* ---- changing blocks, all locks held ---- */

/* Whole blocks. On error they keep their content, except DATA that the store has already
 * overwritten. */
static int put_blocks(const struct change *c, uint64_t blk, uint64_t blks, const void *buf)
{
	struct generation *g = c->l->gen[LAYER_ACTIVE];
	int r = generation_write(g, blk_to_bytes(blk), buf, blk_to_bytes(blks));

	if (r == 0)
		r = generation_mark(g, blk, blks, BLK_DATA);
	if (r < 0)
		generation_drop(g, blk, blks);
	return r;
}

static int read_below(const struct change *c, uint64_t blk, uint8_t *block)
{
	for (unsigned i = 0; c->ends && i < c->ends->n; i++) {
		if (c->ends->blk[i] == blk) {
			memcpy(block, c->ends->block[i], COW_BLK_BYTES);
			return 0;
		}
	}
	return layers_read(c->l, LAYER_SEALED, blk_to_bytes(blk), block, COW_BLK_BYTES);
}

/* A part of one block; from NULL: zeroes. The first write fills the rest from below. */
static int put_part(const struct change *c, uint64_t off_bytes, const void *from, size_t len_bytes)
{
	alignas(COW_BLK_BYTES) uint8_t block[COW_BLK_BYTES];
	struct generation *g = c->l->gen[LAYER_ACTIVE];
	uint64_t blk = off_bytes >> COW_BLK_SHIFT;
	uint8_t *part = block + off_bytes % COW_BLK_BYTES;
	enum blk_state state;
	int r;

	generation_run(g, blk, 1, &state);
	if (state == BLK_DATA && from)
		return generation_write(g, off_bytes, from, len_bytes);
	if (state == BLK_HOLE && !from)
		return 0;
	if (state == BLK_DATA) {
		memset(part, 0, len_bytes);
		return generation_write(g, off_bytes, part, len_bytes);
	}
	if (state == BLK_HOLE) {
		memset(block, 0, sizeof(block));
	} else {
		r = read_below(c, blk, block);
		if (r < 0)
			return r;
	}
	if (from)
		memcpy(part, from, len_bytes);
	else
		memset(part, 0, len_bytes);
	if (!from && bytes_all_zero(block, sizeof(block)))
		return generation_punch(g, blk, 1);
	return put_blocks(c, blk, 1, block);
}

/* Head and tail by put_part, the whole blocks between in one go; from NULL: zeroes. */
static int put_range(const struct change *c, uint64_t off_bytes, const uint8_t *from,
		     uint64_t len_bytes)
{
	while (len_bytes) {
		uint64_t blk = off_bytes >> COW_BLK_SHIFT, in_blk = off_bytes % COW_BLK_BYTES, n;
		int r;

		if (in_blk || len_bytes < COW_BLK_BYTES) {
			n = min_u64(len_bytes, COW_BLK_BYTES - in_blk);
			r = put_part(c, off_bytes, from, n);
		} else {
			n = len_bytes - len_bytes % COW_BLK_BYTES;
			r = from ? put_blocks(c, blk, n >> COW_BLK_SHIFT, from)
				 : generation_punch(c->l->gen[LAYER_ACTIVE], blk,
						    n >> COW_BLK_SHIFT);
		}
		if (r < 0)
			return r;
		off_bytes += n;
		from = from ? from + n : NULL;
		len_bytes -= n;
	}
	return 0;
}

static uint64_t piece_bytes(uint64_t off_bytes, uint64_t len_bytes)
{
	return min_u64(len_bytes, VIEW_PIECE_BYTES - off_bytes % VIEW_PIECE_BYTES);
}

/* Seal lock held. */
static int change_pieces(struct view *v, uint64_t off_bytes, const uint8_t *from,
			 uint64_t len_bytes, const struct ends *ends)
{
	while (len_bytes) {
		uint64_t n = piece_bytes(off_bytes, len_bytes);
		struct change c = { .ends = ends };
		int r;

		change_begin(&c, v, off_bytes, n);
		r = put_range(&c, off_bytes, from, n);
		change_end(&c);
		if (r < 0)
			return r;
		off_bytes += n;
		from = from ? from + n : NULL;
		len_bytes -= n;
	}
	return 0;
}

/* Reads a block that the active generation does not have. No seal comes in between, so it stays what is
 * below. */
static int read_end(struct view *v, struct ends *ends, uint64_t blk)
{
	struct pin pin = pins_enter(&v->pins);
	const struct layers *l = view_layers(v);
	enum blk_state state;
	int r = 0;

	generation_run(l->gen[LAYER_ACTIVE], blk, 1, &state);
	if (state == BLK_ABSENT) {
		r = layers_read(l, LAYER_SEALED, blk_to_bytes(blk), ends->block[ends->n],
				COW_BLK_BYTES);
		ends->blk[ends->n] = blk;
		ends->n += r == 0;
	}
	pins_leave(pin);
	return r;
}

/* Seal lock held. A write that ends because the card is away is repeated, and a seal may come first: so
 * what it needs of the card is read before anything is changed. */
static int change_with_ends(struct view *v, uint64_t off_bytes, const uint8_t *from,
			    uint64_t len_bytes)
{
	uint64_t end_bytes = off_bytes + len_bytes;
	struct ends ends;
	int r = 0;

	ends.n = 0;
	if (off_bytes % COW_BLK_BYTES)
		r = read_end(v, &ends, off_bytes >> COW_BLK_SHIFT);
	if (r == 0 && end_bytes % COW_BLK_BYTES)
		r = read_end(v, &ends, end_bytes >> COW_BLK_SHIFT);
	return r < 0 ? r : change_pieces(v, off_bytes, from, len_bytes, &ends);
}

static bool needs_ends(uint64_t off_bytes, uint64_t len_bytes)
{
	return (off_bytes | len_bytes) % COW_BLK_BYTES &&
	       off_bytes % COW_BLK_BYTES + len_bytes > COW_BLK_BYTES;
}

/* A seal sees all of a write or nothing: the recovery of xfs cannot mend a block of metadata of which
 * only the beginning was written. A punch is sealed piece by piece, because one of gigabytes would
 * delay the seal and, behind it, all writers. */
static int change_range(struct view *v, uint64_t off_bytes, const uint8_t *from, uint64_t len_bytes)
{
	while (len_bytes) {
		uint64_t n = from ? len_bytes : piece_bytes(off_bytes, len_bytes);
		int r;

		pthread_rwlock_rdlock(&v->seal_lock);
		r = from && needs_ends(off_bytes, n) ? change_with_ends(v, off_bytes, from, n)
						     : change_pieces(v, off_bytes, from, n, NULL);
		pthread_rwlock_unlock(&v->seal_lock);
		if (r < 0)
			return r;
		off_bytes += n;
		len_bytes -= n;
	}
	return 0;
}

/* ---- the contract ---- */

static bool in_volume(const struct view *v, uint64_t off_bytes, uint64_t len_bytes)
{
	return range_fits(off_bytes, len_bytes, blk_to_bytes(v->volume_blks));
}

static int count_read(struct view *v, size_t len_bytes, int r)
{
	return count_call(r, len_bytes, &v->counters.read_calls, &v->counters.read_bytes,
			  &v->counters.read_errors);
}

int view_read(struct view *v, uint64_t off_bytes, void *buf, size_t len_bytes)
{
	int r = -EINVAL;

	if (in_volume(v, off_bytes, len_bytes)) {
		struct pin pin = pins_enter(&v->pins);

		r = layers_read(view_layers(v), LAYER_ACTIVE, off_bytes, buf, len_bytes);
		pins_leave(pin);
	}
	return count_read(v, len_bytes, r);
}

static void read_done(struct readahead_read *readahead, int r)
{
	struct view_read *rd = container_of(readahead, struct view_read, readahead);

	pins_leave(rd->pin);
	rd->done(rd, r == -EIO ? r : count_read(rd->view, rd->len_bytes, r));
}

int view_start_read(struct view *v, uint64_t off_bytes, void *buf, size_t len_bytes,
		    struct view_read *rd)
{
	struct pin pin;
	int r;

	if (!in_volume(v, off_bytes, len_bytes))
		return count_read(v, len_bytes, -EINVAL);
	pin = pins_enter(&v->pins);
	rd->view = v;
	rd->pin = pin;
	rd->len_bytes = len_bytes;
	rd->readahead.done = read_done;
	r = layers_start(view_layers(v), off_bytes, buf, len_bytes, &rd->readahead);
	if (r == VIEW_PENDING)
		return r; /* rd may be gone */
	pins_leave(pin);
	return r == -EAGAIN ? r : count_read(v, len_bytes, r);
}

/* A write to a part of a block that the active generation does not have fills the rest from
 * below. */
bool view_write_waits(struct view *v, uint64_t off_bytes, size_t len_bytes)
{
	uint64_t end_bytes = off_bytes + len_bytes;
	enum blk_state first = BLK_DATA, last = BLK_DATA;
	const struct generation *g;
	struct pin pin;

	if ((off_bytes | len_bytes) % COW_BLK_BYTES == 0 || !in_volume(v, off_bytes, len_bytes))
		return false;
	pin = pins_enter(&v->pins);
	g = view_layers(v)->gen[LAYER_ACTIVE];
	if (off_bytes % COW_BLK_BYTES)
		generation_run(g, off_bytes >> COW_BLK_SHIFT, 1, &first);
	if (end_bytes % COW_BLK_BYTES)
		generation_run(g, end_bytes >> COW_BLK_SHIFT, 1, &last);
	pins_leave(pin);
	return first == BLK_ABSENT || last == BLK_ABSENT;
}

int view_fill(struct view *v, uint64_t blk)
{
	alignas(COW_BLK_BYTES) uint8_t block[COW_BLK_BYTES];
	enum blk_state state;
	struct change c = { 0 };
	int r = 0;

	pthread_rwlock_rdlock(&v->seal_lock);
	change_begin(&c, v, blk_to_bytes(blk), COW_BLK_BYTES);
	generation_run(c.l->gen[LAYER_ACTIVE], blk, 1, &state);
	if (state == BLK_ABSENT) {
		r = layers_read(c.l, LAYER_SEALED, blk_to_bytes(blk), block, sizeof(block));
		if (r == 0)
			r = put_blocks(&c, blk, 1, block);
	}
	change_end(&c);
	pthread_rwlock_unlock(&v->seal_lock);
	return r;
}

/* ---- */

int view_write(struct view *v, uint64_t off_bytes, const void *buf, size_t len_bytes)
{
	int r = -EINVAL;

	if (in_volume(v, off_bytes, len_bytes))
		r = change_range(v, off_bytes, buf, len_bytes);
	return count_call(r, len_bytes, &v->counters.write_calls, &v->counters.written_bytes,
			  &v->counters.write_errors);
}

int view_punch(struct view *v, uint64_t off_bytes, uint64_t len_bytes)
{
	int r = -EINVAL;

	if (in_volume(v, off_bytes, len_bytes))
		r = change_range(v, off_bytes, NULL, len_bytes);
	return count_call(r, len_bytes, &v->counters.punch_calls, &v->counters.punched_bytes,
			  &v->counters.write_errors);
}

uint64_t view_volume_blks(const struct view *v)
{
	return v->volume_blks;
}

void view_counters(const struct view *v, struct view_counters *ret)
{
#define GET(name) ret->name = atomic_load_explicit(&v->counters.name, memory_order_relaxed)
	GET(read_calls);
	GET(read_bytes);
	GET(write_calls);
	GET(written_bytes);
	GET(punch_calls);
	GET(punched_bytes);
	GET(read_errors);
	GET(write_errors);
#undef GET
}
