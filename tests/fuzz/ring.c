/* SPDX-License-Identifier: MIT */
/*
 * Recovery of a ring image. Input: image u8, flags u8, then the edits of image.c. For any content
 * of the card: opening writes nothing; later writes stay inside the ring, the superblock copies and
 * the volume; all errors are valid error codes; and content that was shown once is shown again
 * after a checkpoint and after the next attach.
 *
 * If one block is damaged and no checksum is made right, recovery finds a real generation, block
 * for block. The exception is the damaged block, if it is at home and the newest commit did not
 * write it there.
 */
#include <errno.h>

#include "image.h"

enum { FLAG_FIX = 7, FLAG_ANY_BASE = 8, FLAG_COMMIT = 16, FLAG_ACCEPT = 32 };

static _Alignas(COW_BLK_BYTES) uint8_t view[TOY_BLKS * COW_BLK_BYTES],
	again[TOY_BLKS * COW_BLK_BYTES];

/* ---- checks every write of the target ---- */

static const struct card_ops *real;
static struct card_ops guarded;
static struct toy *guard_toy;
static struct log_super guard_super;

static int guarded_write(struct card *c, uint64_t off, const void *buf, size_t len)
{
	const struct log_super *s = &guard_super;
	uint64_t ring_end = s->ring_off_bytes + (uint64_t)s->seg_bytes * s->seg_count;
	bool ok = c == guard_toy->base && off + len <= s->fs_bytes;

	if (c == guard_toy->card) {
		ok |= off >= s->ring_off_bytes && off + len <= ring_end;
		ok |= len == COW_BLK_BYTES &&
		      (off == s->copy_off_bytes[0] || off == s->copy_off_bytes[1]);
	}
	FUZZ_PROMISE(ok);
	return real->write(c, off, buf, len);
}

static void guard(struct toy *t)
{
	if (!real) {
		real = t->card->ops;
		guarded = *real;
		guarded.write = guarded_write;
	}
	guard_toy = t;
	t->card->ops = t->base->ops = &guarded;
}

/* ---- */

static uint64_t ops(const struct toy *t)
{
	return sim_ops(t->card) + (t->base != t->card ? sim_ops(t->base) : 0);
}

static void ignore_line(void *ctx, uint64_t blk, const char *line)
{
	FUZZ_PROMISE(*line);
}

static bool is_error(int r)
{
	return r < 0 && r > -4096;
}

/* Opens; the cards must not change. */
static int attach(struct toy *t, unsigned flags)
{
	uint64_t before = ops(t), bad;
	int r = toy_open(t, flags);

	if (r == 0)
		guard_super = *log_super(t->log);
	if (r == 0)
		log_wear_load(t->log);
	if (r == 0)
		FUZZ_PROMISE(log_verify(t->log, ignore_line, NULL, &bad) == 0);
	if (getenv("FUZZ_VERBOSE"))
		printf("attach: %d, state %d, newest %llu, live %llu; %s\n", r,
		       r ? 0 : (int)t->rep.state, r ? 0 : (unsigned long long)t->rep.newest.seq,
		       r ? 0 : (unsigned long long)t->rep.live_blks, r ? "" : t->rep.why);
	FUZZ_PROMISE(r == 0 || is_error(r));
	FUZZ_PROMISE(ops(t) == before && !t->card->writable);
	return r;
}

/* One damaged block: recovery finds a real generation, or none. Damage at home is detected only
 * where the newest commit wrote. */
static void check_generation(const struct image *im, struct toy *t, const struct edits *e)
{
	bool checked = t->rep.newest.type == RECORD_COMMIT ||
		       t->rep.newest.type == RECORD_CHECKPOINT;
	unsigned i = im->n_gens;

	if (t->rep.state == LOG_BROKEN || t->rep.state == LOG_FOREIGN || e->outside ||
	    e->ring_blks + e->home_blks > 1)
		return;
	while (i && im->gen[i - 1].seq > t->rep.newest.seq)
		i--;
	if (i) {
		struct toy_image should = im->gen[i - 1].image;

		if (e->home_blks && !(checked && im->gen[i - 1].direct[e->home_blk]))
			should.use[e->home_blk] = USE_FREE;
		FUZZ_PROMISE(toy_differs(&should, view) < 0);
	}
}

static void go_on(struct toy *t, unsigned flags)
{
	bool shown = toy_view(t, view) == 0, ok;
	int r;

	if (flags & FLAG_ACCEPT)
		log_accept_base(t->log);
	if (flags & FLAG_COMMIT) {
		toy_write(t, 7, 77);
		toy_write(t, 50, 78);
		r = toy_commit(t);
		FUZZ_PROMISE(r == 0 || is_error(r));
		ok = r == 0;
	} else {
		r = toy_checkpoint(t, RECORD_TAIL, 0);
		FUZZ_PROMISE(r == 0 || is_error(r));
		ok = r == 0 && shown && !(flags & (FLAG_FIX | FLAG_ACCEPT)) &&
		     t->rep.state != LOG_BROKEN && t->rep.state != LOG_FOREIGN;
		if (ok) {
			FUZZ_PROMISE(toy_view(t, again) == 0);
			FUZZ_PROMISE(!memcmp(view, again, sizeof(view)));
		}
	}
	toy_close(t);
	r = attach(t, flags & FLAG_ANY_BASE ? LOG_ANY_BASE : 0);
	if (flags & FLAG_FIX || !ok)
		return;
	FUZZ_PROMISE(r == 0 && t->rep.state != LOG_BROKEN);
	if (!shown) /* older payload is rotten: reported when it is read */
		return;
	FUZZ_PROMISE(toy_view(t, again) == 0);
	if (flags & FLAG_COMMIT) {
		uint8_t blk[COW_BLK_BYTES];

		toy_content(77, blk);
		FUZZ_PROMISE(!memcmp(again + blk_to_bytes(7), blk, sizeof(blk)));
	} else {
		FUZZ_PROMISE(!memcmp(view, again, sizeof(view)));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct fuzz_input in = { data, len };
	const struct image *im = image_get((unsigned)fuzz_uint(&in, 1));
	unsigned flags = (unsigned)fuzz_uint(&in, 1);
	struct edits e;
	struct toy t;

	toy_clone(&t, &im->toy);
	image_edit(im, &t, &in, flags & FLAG_FIX, &e);
	guard(&t);
	if (attach(&t, flags & FLAG_ANY_BASE ? LOG_ANY_BASE : 0) == 0) {
		if (toy_view(&t, view) == 0 && !(flags & FLAG_FIX))
			check_generation(im, &t, &e);
		go_on(&t, flags);
	}
	toy_free(&t);
	return 0;
}
