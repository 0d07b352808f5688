/* SPDX-License-Identifier: MIT */
/*
 * Cards that go away at a read, write or FLUSH of a job, and are there again when it has failed. What was
 * not flushed is lost, or not. The session goes on, with the log that it has in memory.
 */
#include <errno.h>
#include <string.h>

#include "attacks.h"
#include "fs/guard.h"

static bool is_gone(struct card *c)
{
	return c->ops->gone(c);
}

void world_unplug_at(struct world *w, unsigned which, uint64_t n, bool lost)
{
	log_wear_load(w->log); /* as world_fail_at */
	w->armed = true;
	w->failed = w->fault = false;
	w->unplug = which;
	w->loses = lost;
	if (which & UNPLUG_BASE || w->c.base == w->c.log)
		sim_unplug_at(w->c.base, n);
	if (which & UNPLUG_LOG && w->c.base != w->c.log)
		sim_unplug_at(w->c.log, n);
}

void away_failed(struct world *w)
{
	if (w->unplug == UNPLUG_BOTH && (is_gone(w->c.base) || is_gone(w->c.log))) {
		sim_unplug(w->c.base);
		sim_unplug(w->c.log);
	}
}

static unsigned cards_of(const struct world *w, struct card *ret[2])
{
	ret[0] = w->c.log;
	ret[1] = w->c.base;
	return w->c.base == w->c.log ? 1 : 2;
}

/* false: none is away */
static bool look(struct world *w)
{
	struct card *c[2];
	unsigned n = cards_of(w, c);
	bool away = false;

	w->unplug = 0;
	for (unsigned i = 0; i < n; i++) {
		sim_unplug_at(c[i], 0);
		away |= card_look(c[i]);
	}
	if (!away)
		return false;
	w->last = 0;
	w->mute = false;
	cut_here(w);
	return true;
}

/* As the daemon does it. */
static int come_back(struct world *w, bool lost)
{
	struct card *c[2];
	unsigned n = cards_of(w, c);
	int r;

	for (unsigned i = 0; i < n; i++)
		if (card_is_away(c[i])) {
			card_examine(c[i], true);
			sim_replug(c[i], lost);
		}
	r = log_recheck(w->log);
	say("back, what was not flushed is %s: %s", lost ? "lost" : "there", strerror(-r));
	if (r == 0)
		r = log_lost_writes(w->log);
	for (unsigned i = 0; i < n; i++)
		if (card_is_away(c[i]))
			card_back(c[i]);
	total.returns++;
	w->returned = true;
	w->last = 0;
	return r;
}

/* The card has lost what it had acknowledged. The session ends. */
static void __attribute__((noreturn)) refused(struct world *w)
{
	struct cards c;

	total.refusals++;
	cards_clone(&c, &w->c);
	judge(w, &c);
	longjmp(w->refused, 1);
}

void away_return(struct world *w)
{
	/* what was found in a cache only, when the log was opened, may be lost for good: away_at_rest */
	bool lost = w->loses && w->settled && !(w->lie && w->view);
	int r = look(w) ? come_back(w, lost) : 0;

	if (r == -ESTALE && lost && w->lie)
		refused(w);
	if (r < 0)
		fail("the card that was away is refused: %s", strerror(-r));
}

static void open_anew(struct world *w)
{
	world_close(w);
	world_open(w);
	live_revert(w);
}

/* A session that has not written yet. What it has found may be lost; if that is its newest record, it goes on
 * with nothing. */
static void away_at_rest(struct world *w)
{
	int r;

	sim_unplug(w->c.base);
	sim_unplug(w->c.log);
	attack_expect(look(w), "a card that was unplugged is there");
	r = come_back(w, true);
	if (r == -ESTALE)
		open_anew(w);
	else if (r < 0)
		fail("the card that was away is refused: %s", strerror(-r));
}

/* ---- the sweep ---- */

enum { LOST = 1, ANEW = 2 };
enum job {
	JOB_VIRGIN,
	JOB_COMMIT,
	JOB_FULL,
	JOB_CHECKPOINT,
	JOB_RETIRE,
	JOB_HOLD,
	JOB_RELEASE,
	JOB_TRIM,
	JOBS
};

static void do_job(struct world *w, enum job job)
{
	switch (job) {
	case JOB_CHECKPOINT:
		(void)!world_checkpoint(w, RECORD_TAIL, RECORD_CLEAN);
		break;
	case JOB_RETIRE:
		(void)!world_checkpoint(w, RECORD_RETIRED, RECORD_CLEAN);
		break;
	case JOB_HOLD:
		(void)!world_hold(w);
		break;
	case JOB_RELEASE:
		(void)!world_release(w);
		break;
	case JOB_TRIM:
		world_trim(w);
		break;
	default:
		(void)!world_commit(w);
	}
	world_disarm(w);
}

/* The n-th request finds no card. false: there is no such request. */
static bool sweep_one(const struct shape *s, enum job job, unsigned which, uint64_t n, unsigned how,
		      unsigned round)
{
	bool lost = how & LOST, anew = how & ANEW;
	uint64_t before = total.returns;
	struct world w;

	attack_start(&w, s, (round * 64 + n) * 16 + job);
	w.mute = true;
	if (job != JOB_VIRGIN) {
		attack_write_run(&w, 2, 5);
		live_free(&w, 20);
		live_free(&w, 21);
		attack_commit_ok(&w);
	}
	if (job == JOB_FULL)
		attack_fill(&w);
	if (job == JOB_RELEASE)
		attack_expect(world_hold(&w) == 0, "hold");
	at.step++;
	if (job < JOB_HOLD) {
		attack_write_run(&w, 4, 4);
		attack_write_run(&w, 20, 2);
		live_write(&w, 8, 0);
	}
	world_unplug_at(&w, which, n, lost);
	do_job(&w, job); /* the first n - 1 requests were cut before */
	w.mute = false;
	at.step++;
	if (anew) {
		open_anew(&w);
		if (n & 4)
			away_at_rest(&w);
	}
	if (job > JOB_FULL)
		do_job(&w, job);
	attack_write_run(&w, 3, 2);
	attack_commit_ok(&w);
	world_crash(&w);
	w.mute = true;
	attack_write_run(&w, 3, 2);
	attack_commit_ok(&w);
	world_cut(&w, NULL, NULL);
	world_free(&w);
	return total.returns > before;
}

static void sweep(const struct shape *s, enum job job, unsigned which, bool always_lost,
		  unsigned round)
{
	uint64_t misses = 0, n = 0;

	while (misses < 2) {
		unsigned how = always_lost ? LOST
					   : (unsigned[]){ 0, ANEW, LOST | ANEW }[(n + round) % 3];

		misses = sweep_one(s, job, which, ++n, how, round) ? 0 : misses + 1;
	}
	attack_expect(n > 2 || which != UNPLUG_BOTH, "no card went away");
}

static void poke_super(struct world *w, uint8_t *blk)
{
	if (sim_poke(w->c.base, blk_to_bytes(BITMAP_BLK), blk, COW_BLK_BYTES) < 0)
		fail("poke");
}

/* While the base is away, its superblock is replaced: by one without a guard, with that of another log, and by its
 * own again. */
static void changed_base(uint64_t seed)
{
	static uint8_t own[COW_BLK_BYTES], other[COW_BLK_BYTES];
	struct world w;

	attack_start(&w, &PLAIN, seed);
	w.mute = true;
	attack_write_run(&w, 2, 5);
	attack_commit_ok(&w);
	if (sim_peek(w.c.base, blk_to_bytes(BITMAP_BLK), own, sizeof(own)) < 0)
		fail("peek");
	attack_expect(guard_is(own, NULL), "no guard");
	sim_unplug(w.c.base);
	attack_expect(look(&w), "a card that was unplugged is there");
	w.mute = true;
	card_examine(w.c.base, true);
	sim_replug(w.c.base, true);
	memcpy(other, content_of(super_content(77)), sizeof(other));
	poke_super(&w, other);
	attack_expect(log_recheck(w.log) == -ESTALE, "another superblock");
	guard_put(other, 1234);
	poke_super(&w, other);
	attack_expect(log_recheck(w.log) == -ESTALE, "the guard of another log");
	poke_super(&w, own);
	attack_expect(log_recheck(w.log) == 0, "its own superblock");
	card_back(w.c.base);
	world_free(&w);
}

void attack_away(void)
{
	const uint64_t was_thin = thin;

	for (uint64_t seed = 0; seed < SEEDS; seed++)
		changed_base(seed);
	for (unsigned layout = 0; layout < 3; layout++) {
		const struct shape s = { .blks = 24,
					 .full = true,
					 .external = layout == 1,
					 .lag = layout == 2,
					 .segs = layout == 2 ? 10 : 0 };

		for (enum job job = 0; job < JOBS; job++) {
			/* where the superblock of the log is written, what is lost matters more */
			bool supers = job == JOB_VIRGIN || job == JOB_HOLD;
			unsigned rounds = supers ? 6 : 1;

			/* few images of each cut: there are many cuts */
			thin = was_thin * (supers ? 4 : 24);
			for (unsigned which = s.external ? UNPLUG_BASE : UNPLUG_BOTH;
			     which <= UNPLUG_BOTH; which++)
				for (unsigned round = 0; round < rounds; round++)
					sweep(&s, job, which, true, round);
			for (unsigned round = 0; round < 3; round++)
				sweep(&s, job, UNPLUG_BOTH, false, round);
		}
	}
	thin = was_thin;
}
