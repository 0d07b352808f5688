/* SPDX-License-Identifier: MIT */
/* A generation that is held: it must be whole in every image of a cut, until its hold ends, and the
 * log must be able to go back to it from there. */
#include <errno.h>
#include <string.h>

#include "crash.h"
#include "attacks.h"

/* A card that lies may lose the record that began or ended the hold: then either is right, until
 * later records are there. */

bool hold_opened(struct world *w, bool went_back, const uint8_t *volume)
{
	struct log_hold h = { 0 };

	/* what the session before could not flush may be in a cache only */
	w->hold_doubt |= w->hold == HOLD_MAYBE || w->back == BACK_MAYBE;
	w->back_before |= w->back == BACK_MAYBE && !went_back;
	w->hold = log_holds(w->log, &h) ? HOLD_YES : HOLD_NO;
	w->back = h.back ? BACK_YES : BACK_NO;
	w->boots = h.boots + h.trial;
	w->boots_open = false;
	if (!w->rep.back_seq)
		return false;
	if (w->hold != HOLD_NO)
		fail("a hold after going back");
	if (image_differs(&w->held, volume, w->shape.blks) >= 0)
		fail("attach: not the held generation");
	w->hold = HOLD_MAYBE;
	w->back = BACK_MAYBE;
	w->tried[w->n_tried++] = w->older = w->left = w->n;
	w->n = w->held;
	total.backs++;
	return true;
}

void hold_sure(struct world *w)
{
	w->hold_doubt = w->has_before = w->back_before = false;
}

/* First block that differs from what is held; -1: none. In doubt it is that of the hold before. */
static int held_differs(struct world *w, const uint8_t *volume)
{
	int b = image_differs(&w->held, volume, w->shape.blks);

	if (b < 0 || !w->has_before || image_differs(&w->held_before, volume, w->shape.blks) >= 0)
		return b;
	w->held_found = &w->held_before;
	return -1;
}

void hold_wrote(struct world *w)
{
	if (w->back != BACK_MAYBE || !w->rep.back_seq || log_newest(w->log)->seq <= w->rep.back_seq)
		return;
	w->rep.back_seq = 0; /* done */
	w->back = BACK_NO;
	w->hold = HOLD_NO;
	w->hold_age = 0;
}

void hold_no_tried(struct world *w)
{
	w->n_tried = w->back == BACK_MAYBE && w->rep.back_seq;
	w->tried[0] = w->left;
}

static bool is_open(const struct world *w)
{
	return w->hold == HOLD_MAYBE || w->hold_doubt || (w->lie && w->hold_age < HOLD_SETTLED);
}

void hold_back_judged(struct world *w, const struct cards *c, const struct log_super *super,
		      struct log **l, struct log_open_report *rep)
{
	/* more records follow an order, so that a card with this lag keeps it */
	bool settled = !w->hold_doubt && (!w->lie || (w->shape.lag && w->lie == LIE_RECORDS) ||
					  w->hold_age == HOLD_SETTLED);
	struct log_index *ix;
	int b;

	if (w->back != BACK_MAYBE && settled && !rep->back_seq != (w->back == BACK_NO))
		fail(rep->back_seq ? "back without an order" : "the order to go back is lost");
	if (!rep->back_seq)
		return;
	total.backs++;
	if (log_holds(*l, NULL))
		fail("a hold after going back");
	ix = log_index_of(*l);
	b = held_differs(w, volume_read(w, c, ix));
	if (b >= 0)
		fail("block %d of the generation that was gone back to differs", b);
	log_index_unref(ix);
	/* the session behind it may have begun to write over what was left */
	if ((w->back == BACK_NO && !w->back_before) || w->rep.back_seq)
		return;
	log_close(*l);
	if (log_open(l, c->base, c->log, super, LOG_NOT_BACK, NULL, rep) < 0)
		fail("log_open");
	if (rep->back_seq)
		fail("back against the order");
}

static void check_whole(struct world *w, const struct cards *c, const struct log *l)
{
	struct log_index *ix = log_hold_index(l);
	const uint8_t *volume = volume_read(w, c, ix);
	int b = volume ? held_differs(w, volume) : -1;

	if (!volume)
		fail("the held generation cannot be read");
	if (b >= 0)
		fail("block %d of the held generation differs", b);
	log_index_unref(ix);
}

/* From this image back to the held generation. Takes the cards over. */
static void check_back(struct world *w, struct cards *c, const struct log_super *super)
{
	struct log_open_report rep;
	struct log_index *ix;
	struct log *l;
	int b;

	if (log_open(&l, c->base, c->log, super, LOG_NOT_BACK, NULL, &rep) < 0)
		fail("log_open");
	if (commit_go_back(l, c->base, true) < 0)
		fail("the log cannot go back");
	log_close(l);
	if (log_open(&l, c->base, c->log, super, 0, NULL, &rep) < 0 || rep.state >= LOG_BROKEN)
		fail("broken after going back: %s", rep.why);
	ix = log_index_of(l);
	b = held_differs(w, volume_read(w, c, ix));
	if (b >= 0)
		fail("after going back block %d differs", b);
	if (log_holds(l, NULL) || !rep.back_seq)
		fail("a hold after going back");
	log_index_unref(ix);
	log_close(l);
	cards_close(c);
	total.backs++;
}

void hold_judged(struct world *w, const struct cards *c, const struct log *l,
		 const struct log_super *super)
{
	struct log_hold h = { 0 };
	bool holds = log_holds(l, &h);
	struct cards copy;

	if (!is_open(w) && holds != (w->hold == HOLD_YES))
		fail(holds ? "a hold that has ended" : "the hold is lost");
	if (!holds)
		return;
	total.holds++;
	if (w->hold == HOLD_YES && !is_open(w) && !w->boots_open && h.boots + h.trial != w->boots)
		fail("%u boots are left of a trial, not %u", h.boots, w->boots);
	if (!(super->incompat & LOG_INCOMPAT_HELD) && !w->lie)
		fail("a hold without its feature");
	check_whole(w, c, l);
	if (total.holds % 8)
		return;
	cards_clone(&copy, c);
	check_back(w, &copy, super);
}

static void acked(struct world *w)
{
	w->acked_before = w->acked;
	w->acked = log_newest(w->log)->ledger;
	w->last = 0;
	hold_sure(w);
}

static int outcome(struct world *w, const char *what, int r)
{
	say("%s: %s, newest %llu", what, r < 0 ? strerror(-r) : "ok",
	    (unsigned long long)log_newest(w->log)->seq);
	total.faults += w->failed;
	check_flushed(w, what, r);
	if (r == 0 && w->fault)
		fail("%s returned 0 although an operation failed", what);
	if (r < 0 && !w->failed && r != -ENOSPC && r != -EBUSY)
		fail("%s: %s, and no operation failed", what, strerror(-r));
	world_disarm(w);
	w->hold_doubt |= r < 0;
	hold_wrote(w);
	return r;
}

int world_hold(struct world *w)
{
	struct log_index *ix = NULL;
	int r;

	if (w->hold != HOLD_NO || w->n_tried)
		return -EEXIST;
	w->ended = false;
	if (w->hold_doubt && !w->has_before)
		w->held_before = w->held;
	w->has_before = w->hold_doubt;
	w->held = w->n;
	w->hold = HOLD_MAYBE;
	r = outcome(w, "hold", commit_hold(w->log, w->c.base, &ix));
	if (ix) {
		log_index_unref(w->index);
		w->index = ix;
		paths_publish(w);
	}
	if (r == 0) {
		w->boots = 0;
		w->hold = HOLD_YES;
		w->hold_age = 0;
		acked(w);
	}
	cut_here(w);
	/* without a failed operation nothing was begun */
	if (r == -EBUSY || r == -ENOSPC)
		w->hold = HOLD_NO;
	return r;
}

int world_release(struct world *w)
{
	int r;

	if (w->hold != HOLD_YES)
		return -ENOENT;
	w->ended = false;
	w->hold = HOLD_MAYBE;
	w->back = w->back == BACK_NO ? BACK_NO : BACK_MAYBE;
	r = outcome(w, "release", commit_release(w->log, w->c.base));
	if (r == 0) {
		w->hold = HOLD_NO;
		w->back = BACK_NO;
		w->hold_age = 0;
		w->n_tried = 0;
		acked(w);
	}
	cut_here(w);
	return r;
}

int world_ask(struct world *w, bool back)
{
	int r;

	if (w->hold != HOLD_YES || w->back != (back ? BACK_NO : BACK_YES) || w->loader_blk)
		return -ENOENT;
	w->ended = false;
	w->back = BACK_MAYBE;
	r = outcome(w, back ? "going back" : "not going back",
		    commit_go_back(w->log, w->c.base, back));
	if (r == 0) {
		w->hold_age = 0;
		acked(w);
	}
	/* without a failed operation nothing was begun */
	if (r == 0 || r == -EBUSY || r == -ENOSPC)
		w->back = back == (r == 0) ? BACK_YES : BACK_NO;
	cut_here(w);
	return r;
}

int world_try(struct world *w)
{
	unsigned n = (unsigned)rnd_below(w, RECORD_BOOTS_MAX + 1);
	const int was = w->back;
	int r;

	if (w->hold != HOLD_YES)
		return -ENOENT;
	w->ended = false;
	w->boots_open = true;
	if (was == BACK_YES) /* the order ends with this record */
		w->back = BACK_MAYBE;
	r = outcome(w, "trial", commit_try(w->log, w->c.base, n));
	if (r == 0) {
		w->hold_age = 0;
		w->boots = n + 1;
		acked(w);
	}
	w->boots_open = r < 0 && r != -EBUSY && r != -ENOSPC;
	if (!w->boots_open)
		w->back = r == 0 ? BACK_NO : was;
	cut_here(w);
	return r;
}

/* Another process goes on with the session, or looks at what was left. */
static void take_over(struct world *w)
{
	world_close(w);
	w->not_back = true;
	world_open(w);
	w->not_back = false;
	live_revert(w);
}

int world_back(struct world *w)
{
	int r = w->n_tried < MAX_TRIED - 2 ? world_ask(w, true) : -ENOENT;

	if (r == -ENOENT)
		return r;
	world_close(w);
	world_open(w);
	if (r == 0 && !w->rep.back_seq)
		fail("not gone back");
	live_revert(w);
	return r;
}

/* ---- attacks ---- */

static void turn_over(struct world *w, unsigned n)
{
	/* blocks that the held generation uses are freed, taken again, and written */
	for (unsigned i = 0; i < n; i++) {
		for (unsigned b = 3 + i % 3; b < w->shape.blks; b += 3) {
			if (w->live.use[b] == USE_USED && rnd_below(w, 2))
				live_free(w, b);
			else
				live_write(w, b, 1 + (unsigned)rnd_below(w, CONTENTS - 1));
		}
		at.step++;
		if (world_commit(w) == -EFBIG)
			live_revert(w);
	}
}

/* Held while blocks are freed and written; released and checkpointed, or gone back to. */
void attack_hold(void)
{
	struct world w;

	for (uint64_t seed = 0; seed < 2 * SEEDS; seed++) {
		const struct shape s = { .blks = 24,
					 .segs = 24,
					 .external = seed / 2 % 2,
					 .lag = seed / 4 % 2,
					 .lie = seed / 4 % 2 ? LIE_RECORDS : 0 };

		attack_start(&w, &s, seed);
		turn_over(&w, 2);
		for (unsigned i = 0; i < 3; i++) {
			at.step++;
			attack_expect(world_hold(&w) == 0, "hold");
			if (rnd_below(&w, 2))
				attack_expect(world_try(&w) == 0, "trial");
			turn_over(&w, 1 + (unsigned)rnd_below(&w, 4));
			if (rnd_below(&w, 2)) {
				world_crash(&w);
				turn_over(&w, 1);
			}
			at.step++;
			if (w.hold == HOLD_YES && rnd_below(&w, 2)) {
				/* what is committed then is lost as well, or not */
				attack_expect(world_ask(&w, true) == 0, "order to go back");
				turn_over(&w, (unsigned)rnd_below(&w, 2));
				if (rnd_below(&w, 2)) {
					take_over(&w);
					attack_expect(w.back == BACK_YES, "not back");
				}
				if (rnd_below(&w, 4) == 0)
					attack_expect(world_ask(&w, false) == 0, "back is off");
				else if (rnd_below(&w, 2))
					world_crash(&w);
			}
			at.step++;
			if (w.hold == HOLD_YES)
				attack_expect((w.back == BACK_NO && rnd_below(&w, 2)
						       ? world_back
						       : world_release)(&w) == 0,
					      "end of a hold");
			if (w.back == BACK_MAYBE && rnd_below(&w, 2))
				turn_over(&w, 1);
			if (rnd_below(&w, 2))
				world_crash(&w);
			at.step++;
			if (w.hold == HOLD_YES)
				attack_expect(world_release(&w) == 0, "release");
			turn_over(&w, 1);
			attack_expect(world_checkpoint(&w, RECORD_TAIL, 0) == 0, "checkpoint");
		}
		world_free(&w);
	}
}

/* The log gets full while a generation is held: commits are refused, and the rest goes on. */
void attack_hold_full(void)
{
	struct world w;

	for (uint64_t seed = 0; seed < 2 * SEEDS; seed++) {
		const struct shape s = { .blks = 24,
					 .full = seed / 2 % 2,
					 .lag = seed / 4 % 2,
					 .segs = seed / 4 % 2 ? 14 : 9 };
		int r = 0;

		attack_start(&w, &s, seed);
		attack_commit_ok(&w);
		attack_expect(world_hold(&w) == 0, "hold");
		for (unsigned i = 0; r == 0 && i < 200; i++) {
			at.step++;
			attack_write_run(&w, 1 + (unsigned)rnd_below(&w, 10), 8);
			r = world_commit(&w);
			attack_expect(!w.bill.spilled, "spilled beside a hold");
			if (r == 0 && i % 7 == 3)
				world_crash(&w);
			if (w.hold != HOLD_YES)
				break;
		}
		if (w.hold == HOLD_YES) {
			attack_expect(r == -EFBIG && w.bill.held, "not refused");
			live_revert(&w);
			for (unsigned i = 0; i < 3; i++)
				world_crash(&w);
			at.step++;
			attack_expect((seed % 2 ? world_back : world_release)(&w) == 0,
				      "end of a hold");
		}
		attack_write_run(&w, 2, 8);
		attack_commit_ok(&w);
		attack_expect(world_checkpoint(&w, RECORD_TAIL, 0) == 0, "checkpoint");
		world_free(&w);
	}
}
