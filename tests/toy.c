/* SPDX-License-Identifier: MIT */
#include "toy.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"

static void must(int r, const char *what)
{
	if (r < 0) {
		fprintf(stderr, "toy: %s: %s\n", what, strerror(-r));
		abort();
	}
}

/* Repeats one word: the golden image of such a block is short. */
void toy_content(uint16_t content, uint8_t buf[COW_BLK_BYTES])
{
	uint64_t word = content ? content * 0x9e3779b97f4a7c15u | 1 : 0;
	struct bytes_writer w = { .p = buf, .size_bytes = COW_BLK_BYTES };

	if (content >= TOY_ENV && content < TOY_SUPER) {
		memset(buf, '#', COW_BLK_BYTES);
		put_bytes(&w, "# GRUB Environment Block\n", 25);
		buf[w.pos] = (uint8_t)('0' + content - TOY_ENV);
		return;
	}
	if (content >= TOY_MAGIC && content < TOY_SUPER) {
		memset(buf, 0, COW_BLK_BYTES);
		put_bytes(&w, "COWFSREC", 8);
		put_u64(&w, word);
		return;
	}
	if (content < TOY_SUPER) {
		while (w.pos < w.size_bytes)
			put_u64(&w, word);
		return;
	}
	memset(buf, 0, COW_BLK_BYTES);
	put_u64(&w, content);
	w.pos = 1024; /* checkpoint packs in blocks 2 and 3 */
	put_u32(&w, 0xF2F52010);
	w.pos = 1024 + 16;
	put_u32(&w, 12);
	put_u32(&w, 0);
	w.pos = 1024 + 36;
	put_u64(&w, TOY_BLKS);
	w.pos = 1024 + 76;
	put_u32(&w, 2);
	w.pos = 1024 + 108;
	put_bytes(&w, "toy file system", 16);
}

/* ---- cards ---- */

static void format(struct toy *t, bool external, bool lag)
{
	const uint64_t seg_bytes = TOY_SEG_BLKS * COW_BLK_BYTES, ring_bytes = TOY_SEGS * seg_bytes;
	uint64_t fs_bytes = blk_to_bytes(TOY_BLKS), missing;
	struct sim_params p = { .size_bytes = (external ? 0 : fs_bytes) + ring_bytes +
					      2 * seg_bytes,
				.erase_block_bytes = (uint32_t)seg_bytes,
				.disk_off_bytes = 32 * KIB,
				.identity = "toy card" };
	struct log_super super;
	uint8_t blk[COW_BLK_BYTES];

	*t = (struct toy){ 0 };
	must(sim_new(&t->card, &p), "sim_new");
	t->base = t->card;
	p.size_bytes = fs_bytes;
	if (external)
		must(sim_new(&t->base, &p), "sim_new");
	for (unsigned b = 0; b < TOY_BLKS; b++) {
		t->n.use[b] = b < 4 || b % 3 ? USE_USED : USE_FREE;
		t->n.content[b] = (uint16_t)(b + 1);
	}
	t->n.content[0] = TOY_SUPER;
	t->live = t->n;
	for (unsigned b = 0; b < TOY_BLKS; b++) {
		toy_content(t->n.content[b], blk);
		must(sim_poke(t->base, blk_to_bytes(b), blk, sizeof(blk)), "sim_poke");
	}
	must(super_plan(t->base, t->card, fs_bytes, ring_bytes, &super, &missing), "super_plan");
	memcpy(super.fs_uuid, "toy file system", 16);
	super.lag = lag;
	must(card_set_writable(t->card, true), "writable");
	must(super_write(t->card, &super), "super_write");
	must(card_set_writable(t->card, false), "read-only");
}

void toy_format(struct toy *t, bool external)
{
	format(t, external, false);
}

int toy_open(struct toy *t, unsigned flags)
{
	struct log_super super;
	unsigned trouble;
	int r = super_read(t->card, t->base == t->card ? blk_to_bytes(TOY_BLKS) : 0, &super,
			   &trouble);

	if (r == 0)
		r = log_open(&t->log, t->base, t->card, &super, flags, t->mark, &t->rep);
	if (r < 0)
		return r;
	log_mend_super(t->log, trouble);
	t->index = log_index_of(t->log);
	return 0;
}

void toy_close(struct toy *t)
{
	log_index_unref(t->index);
	log_close(t->log);
	t->index = NULL;
	t->log = NULL;
}

void toy_free(struct toy *t)
{
	toy_close(t);
	if (t->base != t->card)
		card_close(t->base);
	card_close(t->card);
}

void toy_clone(struct toy *to, const struct toy *from)
{
	*to = *from;
	to->log = NULL;
	to->index = NULL;
	must(sim_clone(&to->card, from->card), "sim_clone");
	to->base = to->card;
	if (from->base != from->card)
		must(sim_clone(&to->base, from->base), "sim_clone");
}

/* ---- operations between pauses ---- */

static const struct card_ops *real_ops;
static struct card_ops paused_ops;
static void (*pause_fn)(bool on);

static int paused_read(struct card *c, uint64_t off_bytes, void *buf, size_t len_bytes)
{
	int r;

	pause_fn(true);
	r = real_ops->read(c, off_bytes, buf, len_bytes);
	pause_fn(false);
	return r;
}

static int paused_write(struct card *c, uint64_t off_bytes, const void *buf, size_t len_bytes)
{
	int r;

	pause_fn(true);
	r = real_ops->write(c, off_bytes, buf, len_bytes);
	pause_fn(false);
	return r;
}

static int paused_flush(struct card *c)
{
	int r;

	pause_fn(true);
	r = real_ops->flush(c);
	pause_fn(false);
	return r;
}

void toy_pause(struct toy *t, void (*pause)(bool on))
{
	if (!real_ops) {
		real_ops = t->card->ops;
		paused_ops = *real_ops;
		paused_ops.read = paused_read;
		paused_ops.write = paused_write;
		paused_ops.flush = paused_flush;
	}
	pause_fn = pause;
	t->card->ops = t->base->ops = &paused_ops;
}

/* ---- the live image, and callbacks of a commit for it ---- */

void toy_write(struct toy *t, unsigned blk, uint16_t content)
{
	t->live.use[blk] = USE_USED;
	t->live.content[blk] = content;
	t->dirty[blk] = true;
}

void toy_drop(struct toy *t, unsigned blk)
{
	t->live.use[blk] = USE_FREE;
}

static bool src_next(void *ctx, uint64_t *blk, uint64_t max_blks, uint64_t *ret_blks,
		     enum blk_state *ret_state)
{
	struct toy *t = ctx;
	uint64_t b = *blk, n = 1;

	while (b < TOY_BLKS && !t->dirty[b])
		b++;
	if (b >= TOY_BLKS)
		return false;
	while (n < max_blks && b + n < TOY_BLKS && t->dirty[b + n])
		n++;
	*blk = b;
	*ret_blks = n;
	*ret_state = BLK_DATA;
	return true;
}

static int src_read_sealed(void *ctx, uint64_t blk, uint64_t blks, void *buf)
{
	struct toy *t = ctx;

	for (uint64_t i = 0; i < blks; i++)
		toy_content(t->live.content[blk + i], (uint8_t *)buf + blk_to_bytes(i));
	return 0;
}

static int read_committed(void *ctx, uint64_t blk, uint64_t blks, void *buf)
{
	struct toy *t = ctx;

	return log_index_read_volume(t->index, t->base, blk, blks, buf);
}

static int src_run_sealed(void *ctx, uint64_t blk, uint64_t max_blks, enum blk_use *ret,
			  uint64_t *ret_blks)
{
	*ret = (enum blk_use)((struct toy *)ctx)->live.use[blk];
	*ret_blks = 1;
	return 0;
}

static int src_run_committed(void *ctx, uint64_t blk, uint64_t max_blks, enum blk_use *ret,
			     uint64_t *ret_blks)
{
	*ret = (enum blk_use)((struct toy *)ctx)->n.use[blk];
	*ret_blks = 1;
	return 0;
}

void toy_publish(void *ctx, struct log_index *ix)
{
	struct toy *t = ctx;

	log_index_unref(t->index);
	t->index = ix;
}

struct commit_source toy_source(struct toy *t)
{
	return (struct commit_source){ .ctx = t,
				       .volume_blks = TOY_BLKS,
				       .next = src_next,
				       .read_sealed = src_read_sealed,
				       .read_committed = read_committed,
				       .run_sealed = src_run_sealed,
				       .run_committed = src_run_committed };
}

int toy_commit(struct toy *t)
{
	const struct commit_source src = toy_source(t);
	const struct commit_options opt = { .cause = CAUSE_TIMER };
	struct commit_report bill;
	struct log_index *ix = NULL;
	int r = commit_run(t->log, t->base, &src, &opt, toy_publish, t, &bill, &ix);

	if (r < 0)
		return r;
	if (ix)
		toy_publish(t, ix);
	for (unsigned b = 0; b < TOY_BLKS; b++)
		t->direct[b] = t->dirty[b] && t->n.use[b] == USE_FREE && t->live.use[b] == USE_USED;
	t->n = t->live;
	memset(t->dirty, 0, sizeof(t->dirty));
	return 0;
}

int toy_checkpoint(struct toy *t, enum record_type type, uint32_t flags)
{
	const struct commit_source src = toy_source(t);
	const struct commit_options opt = { .cause = CAUSE_DETACH,
					    .record_flags = flags,
					    .uses = &src };
	uint64_t blks;

	return commit_checkpoint(t->log, t->base, &opt, toy_publish, t, type, &blks);
}

int toy_view(struct toy *t, uint8_t buf[TOY_BLKS * COW_BLK_BYTES])
{
	return read_committed(t, 0, TOY_BLKS, buf);
}

int toy_differs(const struct toy_image *im, const uint8_t *view)
{
	uint8_t blk[COW_BLK_BYTES];

	for (unsigned b = 0; b < TOY_BLKS; b++) {
		toy_content(im->content[b], blk);
		if (im->use[b] == USE_USED && memcmp(blk, view + blk_to_bytes(b), sizeof(blk)))
			return (int)b;
	}
	return -1;
}

/* ---- stories ---- */

static void told(struct toy *t, void (*each)(struct toy *t, void *ctx), void *ctx)
{
	if (each)
		each(t, ctx);
}

/* The i-th commit of a long life: some used blocks, one free block, one freed, checkpoint packs. */
static void change(struct toy *t, unsigned i)
{
	uint16_t c = (uint16_t)(200 + 16 * i);

	for (unsigned k = 0; k < 4; k++)
		toy_write(t, 4 + (i * 7 + k) % (TOY_BLKS - 4), (uint16_t)(c + k));
	toy_write(t, 6 + (i * 3) % 30 * 3, (uint16_t)(c + 5));
	toy_drop(t, 6 + (i * 3 + 12) % 30 * 3);
	toy_write(t, 2 + i % 2, (uint16_t)(c + 6));
	toy_write(t, 5, 0);
}

static void commits(struct toy *t, unsigned first, unsigned n,
		    void (*each)(struct toy *t, void *ctx), void *ctx)
{
	for (unsigned i = first; i < first + n; i++) {
		change(t, i);
		must(toy_commit(t), "commit");
		told(t, each, ctx);
	}
}

static int stop_half_way(void *ctx, uint64_t done, uint64_t total)
{
	return done >= total / 2;
}

/* More than the ring can hold, so that payload is spilled; and zeroes, and direct blocks. */
static void heavy(struct toy *t, void (*each)(struct toy *t, void *ctx), void *ctx)
{
	unsigned todo = 51;

	for (unsigned b = 64; b < TOY_BLKS; b += 2)
		toy_drop(t, b);
	toy_write(t, 3, 2999);
	must(toy_commit(t), "commit");
	told(t, each, ctx);
	for (unsigned b = 4; b < TOY_BLKS && todo; b++)
		if (t->n.use[b] == USE_USED) {
			toy_write(t, b, (uint16_t)(b < 8 ? 0 : 3000 + b));
			todo--;
		}
	toy_write(t, 94, 3094);
	toy_write(t, 0, TOY_SUPER + 1);
	must(toy_commit(t), "heavy commit");
	told(t, each, ctx);
}

void toy_tell(struct toy *t, enum toy_story story, void (*each)(struct toy *t, void *ctx),
	      void *ctx)
{
	static struct toy_image held;
	struct log_index *ix;

	format(t, story == TOY_CHAIN, story == TOY_LAG);
	must(toy_open(t, 0), "open");
	switch (story) {
	case TOY_LIVE: /* wrapped, and the last commit is not checkpointed */
		commits(t, 0, 14, each, ctx);
		heavy(t, each, ctx);
		break;
	case TOY_RETIRED:
		commits(t, 0, 3, each, ctx);
		must(toy_checkpoint(t, RECORD_RETIRED, RECORD_CLEAN), "checkpoint");
		told(t, each, ctx);
		break;
	case TOY_CUT_CHECKPOINT:
		commits(t, 3, 3, each, ctx);
		must(card_set_writable(t->card, true), "writable");
		if (log_checkpoint(t->log, NULL, stop_half_way, NULL, &ix) != -ECANCELED)
			abort();
		must(card_flush(t->card), "flush");
		must(card_set_writable(t->card, false), "read-only");
		told(t, each, ctx);
		break;
	case TOY_CHAIN: /* with a separate log device, and a second attach */
		commits(t, 5, 2, each, ctx);
		toy_close(t);
		must(toy_open(t, 0), "open");
		commits(t, 7, 1, each, ctx);
		break;
	case TOY_VIRGIN:
		told(t, each, ctx);
		break;
	/* content that looks like a record waits in the ring, and one such block was written
	 * home */
	case TOY_ESCAPED:
		commits(t, 2, 2, each, ctx);
		toy_write(t, 8, TOY_MAGIC + 1);
		must(toy_commit(t), "commit");
		must(toy_checkpoint(t, RECORD_TAIL, 0), "checkpoint");
		for (unsigned i = 0; i < 3; i++)
			toy_write(t, 9 + 2 * i, (uint16_t)(TOY_MAGIC + 2 + i));
		toy_write(t, 11, 511);
		must(toy_commit(t), "commit");
		told(t, each, ctx);
		break;
	/* a generation is held, and commits came since */
	case TOY_HELD:
		commits(t, 2, 2, each, ctx);
		must(commit_hold(t->log, t->base, &ix), "hold");
		toy_publish(t, ix);
		commits(t, 4, 2, each, ctx);
		break;
	/* on trial, then the order to go back, and a commit behind it */
	case TOY_BACK:
		commits(t, 2, 2, each, ctx);
		must(commit_hold(t->log, t->base, &ix), "hold");
		toy_publish(t, ix);
		held = t->n;
		must(commit_try(t->log, t->base, 3), "trial");
		commits(t, 4, 1, each, ctx);
		must(commit_go_back(t->log, t->base, true), "order");
		commits(t, 5, 1, each, ctx);
		t->n = held;
		break;
	/* wrapped, with empty records, and a second attach; both candidates wait in the ring */
	case TOY_LAG:
		commits(t, 0, 11, each, ctx);
		toy_close(t);
		must(toy_open(t, 0), "open");
		commits(t, 11, 2, each, ctx);
		break;
	}
}
