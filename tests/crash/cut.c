/* SPDX-License-Identifier: MIT */
/*
 * Cut points and images. The cards' vtables are wrapped: before each write and each flush, and at
 * the end of each operation of a session, the cards are cloned, the power of the clones is cut, and
 * the clones are attached.
 *
 * The results of a cut for the unflushed block writes are enumerated when they are few: all subsets
 * of {done, dropped}; then each one alone dropped, torn, garbage or done; then samples, in which
 * writes also overtake each other.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "crash.h"
#include "fs/guard.h"
#include "log/codec.h"
#include "log/ring.h"

enum { SUBSETS_MAX = 6, SUBSETS_DEEP = 12, SINGLES_MAX = 6, SAMPLES = 6, SAMPLES_WIDE = 60 };

static const struct card_ops *real; /* of the simulator */
static struct card_ops hooked;
static struct world *current;

/* ---- clones ---- */

void cards_close(struct cards *c)
{
	if (c->log != c->base)
		card_close(c->log);
	card_close(c->base);
	*c = (struct cards){ 0 };
}

void cards_clone(struct cards *ret, const struct cards *c)
{
	if (sim_clone(&ret->base, c->base) < 0)
		fail("clone");
	ret->log = ret->base;
	if (c->log != c->base && sim_clone(&ret->log, c->log) < 0)
		fail("clone");
	ret->base->ops = ret->log->ops = real;
}

static void account_reset(struct card *c)
{
	struct card_account *a = &c->account;

	a->write_calls = a->written_bytes = a->read_calls = a->read_bytes = a->flushes =
		a->writable_ns = 0;
}

void cards_account_reset(struct cards *c)
{
	account_reset(c->base);
	account_reset(c->log);
}

static void check_counters(const struct wear_ledger *old, const struct wear_ledger *new)
{
	const uint64_t *a = (const uint64_t *)old, *b = (const uint64_t *)new;

	for (size_t i = 0; i < sizeof(*old) / sizeof(*a); i++)
		if (b[i] < a[i])
			fail("counter %zu of the ledger went back from %llu to %llu", i,
			     (unsigned long long)a[i], (unsigned long long)b[i]);
}

/*
 * A card that lies may lose the head of a segment, and keep a record in it. No attach sees that record before a later
 * session writes the head again. Then neither of the two ledgers counts the other's writes: the one with more bytes is
 * taken, and it goes on.
 */
void ledger_check(const struct world *w, const struct log *l, const struct wear_ledger *old,
		  const struct wear_ledger *new)
{
	if (!w->lie || l->wear.head.epoch >= l->newest.epoch)
		check_counters(old, new);
	else if (new->written_bytes < old->written_bytes)
		fail("the ledger of a lost record has %llu bytes, and that of a newer one %llu",
		     (unsigned long long)new->written_bytes,
		     (unsigned long long)old->written_bytes);
}

/* ---- one image ---- */

static void keep(struct world *w, struct cards *c, const struct image *im,
		 const struct wear_ledger *ledger)
{
	if (rnd_below(w, ++w->kept_of)) {
		cards_close(c);
		return;
	}
	cards_close(&w->kept);
	w->kept = *c;
	w->kept_held = *w->held_found;
	w->kept_older = im == &w->n ? w->older : w->n;
	w->kept_n = *im;
	w->kept_acked = *ledger;
}

static const struct image *find_generation(struct world *w, const uint8_t *volume,
					   const struct log_open_report *rep)
{
	const struct image *im;
	int bad[MAX_TRIED + 1];
	unsigned lost;

	/* the last attempt first: most images hold it or n */
	for (unsigned gen = w->n_tried + 1; gen-- > 0;) {
		bad[gen] = image_differs(gen ? &w->tried[gen - 1] : &w->n, volume, w->shape.blks);
		if (bad[gen] >= 0)
			continue;
		*(gen ? &total.is_new : &total.is_old) += 1;
		return gen ? &w->tried[gen - 1] : &w->n;
	}
	im = w->lie || measure ? lie_find(w, volume, &lost) : NULL;
	if (im && (measure || lost <= w->shape.lag)) {
		total.is_older++;
		total.lost[lost]++;
		return im;
	}
	if (measure) {
		total.mixed++;
		return NULL;
	}
	fail("no generation: record %llu of type %d was chosen, block %d of N differs, block %d of N+1 (%u attempts); %s",
	     (unsigned long long)rep->newest.seq, rep->newest.type, bad[0],
	     w->n_tried ? bad[w->n_tried] : -1, w->n_tried, rep->why);
}

/*
 * The invariant of the guard: the log is empty and the base alone is a whole generation, or the
 * superblock on the base has the guard. With a log that is empty the last write of it may be
 * garbage or torn; the sector with the guard is that of the generation then.
 */
static void check_guard(struct world *w, const struct cards *c, const struct log_index *ix,
			const struct image *im)
{
	static _Alignas(4096) uint8_t bare[MAX_BLKS][COW_BLK_BYTES];
	bool waits = log_index_data_blks(ix) || log_index_zero_blks(ix);
	const unsigned at_blk = BITMAP_BLK, sector = super_kind == SUPER_EXT ? 1024 : 0;
	int b;

	for (unsigned i = 0; i < w->shape.blks && (i <= at_blk || !waits); i++)
		if (sim_peek(c->base, blk_to_bytes(i), bare[i], COW_BLK_BYTES) < 0)
			fail("peek");
	if (guard_is(bare[at_blk], NULL)) {
		total.guarded++;
		return;
	}
	if (!guard_fits(bare[at_blk]))
		return;
	if (waits)
		fail("unguarded, and %llu blocks wait in the log",
		     (unsigned long long)(log_index_data_blks(ix) + log_index_zero_blks(ix)));
	b = im->use[at_blk] == USE_USED
		    ? memcmp(bare[at_blk] + sector, content_of(im->content[at_blk]) + sector, 512)
		    : 0;
	if (b)
		fail("unguarded, with the superblock of another generation");
	memcpy(bare[at_blk], content_of(im->content[at_blk]), COW_BLK_BYTES);
	b = image_differs(im, bare[0], w->shape.blks);
	if (b >= 0)
		fail("unguarded, and block %d is not home", b);
}

/* The ledger of an image has nothing that was not sent by then. (A record counts its FLUSHes before
 * they are made.) */
static void check_sent(const struct world *w, const struct wear_ledger *found)
{
	struct wear_ledger sent;

	log_totals(w->log, &sent);
	if (found->written_bytes > sent.written_bytes || found->write_calls > sent.write_calls)
		fail("the ledger has %llu bytes in %llu writes, and %llu in %llu were sent",
		     (unsigned long long)found->written_bytes,
		     (unsigned long long)found->write_calls, (unsigned long long)sent.written_bytes,
		     (unsigned long long)sent.write_calls);
}

void judge(struct world *w, struct cards *c)
{
	struct log_super super;
	struct log_open_report rep;
	struct log_index *ix;
	const uint8_t *volume;
	struct log *l;
	const struct image *im = NULL;
	unsigned trouble;
	uint64_t bad = 0, ops = sim_ops(c->base), log_ops = sim_ops(c->log);
	int r = super_read(c->log, w->shape.external ? 0 : blk_to_bytes(w->shape.blks), &super,
			   &trouble);

	if (r < 0 && measure) {
		total.images++;
		total.broken++;
		cards_close(c);
		return;
	}
	if (r < 0)
		fail("super_read: %s", strerror(-r));
	w->held_found = &w->held;
	cards_account_reset(c);
	r = log_open(&l, c->base, c->log, &super, 0, NULL, &rep);
	if (r < 0)
		fail("log_open: %s", strerror(-r));
	if (rep.state == LOG_BROKEN && measure)
		total.broken++;
	else if (rep.state == LOG_BROKEN && !w->rotten)
		fail("broken on an honest card: %s", rep.why);
	if (!w->rotten && !measure)
		hold_back_judged(w, c, &super, &l, &rep);
	ix = log_index_of(l);
	volume = volume_read(w, c, ix);
	total.images++;
	if (!volume && measure)
		total.broken++;
	if (volume && rep.state != LOG_BROKEN)
		im = find_generation(w, volume, &rep);
	if (im && w->loader_blk)
		loader_boots(w, c, &super, &rep, volume);
	if (im && !w->rotten && !measure)
		check_guard(w, c, ix, im);

	if (im && w->shape.ext4 && total.images % 256 == 0)
		ext4_check(im, volume);
	if (im && !w->rotten && !measure) /* volume has another image from here on */
		hold_judged(w, c, l, &super);
	if (!w->rotten && !measure)
		ledger_check(w, l, w->lie ? &w->acked_before : &w->acked, &rep.ledger);
	if (!w->rotten && !measure && !w->lie && w->log)
		check_sent(w, &rep.ledger);
	if (!w->rotten && !measure && at.variant % 8 == 0 &&
	    (log_verify(l, NULL, NULL, &bad) < 0 || bad))
		fail("log_verify finds %llu bad blocks", (unsigned long long)bad);
	if (sim_ops(c->base) != ops || sim_ops(c->log) != log_ops)
		fail("attach wrote to the card");
	log_index_unref(ix);
	log_close(l);
	if (w->rotten || !im)
		cards_close(c);
	else
		keep(w, c, im, &rep.ledger);
}

/* ---- the images of one cut ---- */

struct fates {
	unsigned n;
	uint8_t fate[8 * MAX_BLKS + 512];
	unsigned shift; /* index of the first block write of this card */
};

static enum sim_fate fate_of(void *arg, size_t i)
{
	const struct fates *f = arg;

	return (enum sim_fate)f->fate[f->shift + i];
}

/* f NULL: fates from a seed */
static void image(struct world *w, struct fates *f)
{
	struct cards c;

	/* images of a real file system are ten times as large */
	if ((++at.variant + at.cut) % (w->shape.ext4 ? 4 * thin : thin))
		return;
	cards_clone(&c, &w->c);
	if (!f) {
		sim_seed(c.base, rnd_next(&w->rnd));
		sim_seed(c.log, rnd_next(&w->rnd));
	}
	if (f)
		f->shift = 0;
	sim_power_cycle(c.base, f ? fate_of : NULL, f);
	if (c.log != c.base) {
		if (f)
			f->shift = (unsigned)sim_pending(w->c.base);
		sim_power_cycle(c.log, f ? fate_of : NULL, f);
	}
	if (at.replay && at.want.seed == at.seed && at.want.cut == at.cut &&
	    at.want.variant == at.variant && at.want.step == at.step) {
		printf("this is the image: %zu pending block writes:", sim_pending(w->c.base));
		for (size_t i = 0; i < sim_pending(w->c.base); i++)
			printf(" %llu%s", (unsigned long long)sim_pending_blk(w->c.base, i),
			       f ? (const char *[]){ "", "-", "t", "g" }[f->fate[i]] : "?");
		printf("\n");
	}
	judge(w, &c);
}

static void singles(struct world *w, struct fates *f, enum sim_fate others, enum sim_fate one)
{
	for (unsigned k = 0; k < f->n && k < SINGLES_MAX; k++) {
		/* the last ones first: a record is the last; then any */
		unsigned i = k < SINGLES_MAX / 2 || f->n <= SINGLES_MAX
				     ? f->n - 1 - k
				     : (unsigned)rnd_below(w, f->n);

		memset(f->fate, others, f->n);
		f->fate[i] = (uint8_t)one;
		image(w, f);
	}
}

void cut_here(struct world *w)
{
	static struct fates f;
	size_t n = sim_pending(w->c.base) + (w->c.log != w->c.base ? sim_pending(w->c.log) : 0);
	uint64_t ops = world_ops(w) + 1;

	if (w->mute || w->last == ops)
		return;
	w->last = ops;
	at.cut++;
	at.variant = 0;
	total.cuts++;
	total.max_pending = max_u64(total.max_pending, n);
	if (n > sizeof(f.fate))
		fail("%zu pending block writes", n);
	f.n = (unsigned)n;
	if (n <= (w->shape.deep ? SUBSETS_DEEP : SUBSETS_MAX)) {
		for (uint64_t set = 0; set < 1u << n; set++) {
			for (unsigned i = 0; i < n; i++)
				f.fate[i] = set >> i & 1 ? SIM_DONE : SIM_DROPPED;
			image(w, &f);
		}
	} else {
		memset(f.fate, SIM_DONE, n);
		image(w, &f);
		memset(f.fate, SIM_DROPPED, n);
		image(w, &f);
		singles(w, &f, SIM_DONE, SIM_DROPPED);
		singles(w, &f, SIM_DROPPED, SIM_DONE);
	}
	if (!n)
		return;
	singles(w, &f, SIM_DONE, SIM_TORN);
	singles(w, &f, SIM_DONE, SIM_GARBAGE);
	for (unsigned i = 0; i < (w->shape.wide ? SAMPLES_WIDE : SAMPLES); i++)
		image(w, NULL);
}

/* ---- hooks ---- */

/*
 * A home write to a block that the committed image uses may only contain that image's content, and
 * only while the durable log also holds it. This check is stricter than a cut: it applies to every
 * write.
 */
static void check_home_write(struct world *w, uint64_t blk, const void *data)
{
	enum log_where where;

	static _Alignas(4096) uint8_t first[COW_BLK_BYTES];

	if (blk < w->shape.blks && w->hold == HOLD_YES && blk != BITMAP_BLK &&
	    w->held.use[blk] == USE_USED)
		fail("block %llu of the held generation is written in place",
		     (unsigned long long)blk);
	if (blk >= w->shape.blks)
		return;
	log_index_run(w->index, blk, 1, &where);
	if (w->shape.marked && w->n.use[blk] == USE_FREE && where == LOG_HOME && is_marked(data))
		fail("block %llu, free in the committed image, gets metadata",
		     (unsigned long long)blk);
	if (w->n.use[blk] != USE_USED)
		return;
	/* the guard comes and goes while the log is empty */
	if (blk == BITMAP_BLK && guard_fits(content_of(w->n.content[blk]))) {
		memcpy(first, data, sizeof(first));
		guard_take(first);
		if (memcmp(first, content_of(w->n.content[blk]), sizeof(first)))
			fail("the superblock gets other content in place");
		return;
	}
	if (where == LOG_HOME)
		fail("block %llu, used in the committed image and not in the log, is written in place",
		     (unsigned long long)blk);
	if (memcmp(data, content_of(w->n.content[blk]), COW_BLK_BYTES))
		fail("block %llu, used in the committed image, gets other content in place",
		     (unsigned long long)blk);
}

static bool head_pending(const struct world *w)
{
	const struct log_super *s = log_super(w->log);
	uint64_t ring_blk = s->ring_off_bytes / COW_BLK_BYTES,
		 seg_blks = s->seg_bytes / COW_BLK_BYTES;

	for (size_t i = 0; i < sim_pending(w->c.log); i++) {
		uint64_t blk = sim_pending_blk(w->c.log, i) - ring_blk;

		if (blk < s->seg_count * seg_blks && blk % seg_blks == 0)
			return true;
	}
	return false;
}

/* Everything that the record refers to is durable: a FLUSH came in between. Recovery would mostly
 * detect a record that came too early, so a cut would not reveal it. A record of any kind also
 * needs the head of its segment: without it, it appears only when the segment gets another one. */
static void check_record_write(struct world *w, const uint8_t *data)
{
	enum { TYPE_AT = 32 };

	if (w->lie || memcmp(data, "COWFSREC", 8))
		return;
	if (data[TYPE_AT] == RECORD_COMMIT && (sim_pending(w->c.base) || sim_pending(w->c.log)))
		fail("a commit record is written while blocks are not flushed");
	if (head_pending(w))
		fail("a record is written while the head of a segment is not flushed");
}

static void note_fault(int r, bool must_fail)
{
	if (r >= 0)
		return;
	current->failed = true;
	away_failed(current);
	current->fault |= must_fail;
	say("an operation failed");
}

/* A bad copy of the superblock is mended during other work, and that may fail: it is tried
 * again. */
static bool is_mending(const void *buf)
{
	return current->log && log_super_trouble(current->log) && !memcmp(buf, "COWFSSUP", 8);
}

/* A file may hold something that looks like a record: at home it does not count as one. */
static bool is_ring(const struct card *c, uint64_t off_bytes)
{
	return c == current->c.log &&
	       (current->shape.external || off_bytes >= blk_to_bytes(current->shape.blks));
}

static int hook_write(struct card *c, uint64_t off_bytes, const void *buf, size_t len_bytes)
{
	int r;

	cut_here(current);
	for (uint64_t i = 0; c == current->c.base && i < len_bytes / COW_BLK_BYTES; i++)
		check_home_write(current, off_bytes / COW_BLK_BYTES + i,
				 (const uint8_t *)buf + blk_to_bytes(i));
	if (is_ring(c, off_bytes))
		check_record_write(current, buf);
	r = real->write(c, off_bytes, buf, len_bytes);
	note_fault(r, !is_mending(buf));
	if (is_ring(c, off_bytes))
		lie_wrote(current, buf);
	return r;
}

static int hook_flush(struct card *c)
{
	int r;

	cut_here(current);
	r = real->flush(c);
	note_fault(r, true);
	if (r == 0 && c == current->c.log) {
		current->settled = true;
		lie_flushed(current);
	}
	return r;
}

static int hook_read(struct card *c, uint64_t off_bytes, void *buf, size_t len_bytes)
{
	int r = real->read(c, off_bytes, buf, len_bytes);

	/* it is made again block by block, or costs a comparison only; what the job wrote then is compared with the model */
	note_fault(r, false);
	return r;
}

void hook_cards(struct world *w)
{
	if (!real) {
		real = w->c.base->ops;
		hooked = *real;
		hooked.read = hook_read;
		hooked.write = hook_write;
		hooked.flush = hook_flush;
	}
	current = w;
	lie_start(w);
	w->c.base->ops = w->c.log->ops = &hooked;
}
