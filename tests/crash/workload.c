/* SPDX-License-Identifier: MIT */
/* A random workload: all operations of a session, in any order, with failing operations and power
 * cuts. */
#include <errno.h>
#include <string.h>

#include "crash.h"

enum { ROUNDS = 4, STEPS = 14 };

static struct shape random_shape(struct world *w)
{
	static const unsigned lies[] = { 0, 1, 2, 2, LIE_RECORDS, LIE_RECORDS };
	struct shape s = { .blks = (unsigned)(24 + rnd_below(w, 41)) };

	if (rnd_below(w, 4) == 0)
		s.segs = (unsigned)(6 + rnd_below(w, 3));
	if (rnd_below(w, 6) == 0)
		s.segs_per_eb = 2;
	if (rnd_below(w, 6) == 0)
		s.seg_blks = 32;
	s.external = rnd_below(w, 6) == 0;
	s.no_classifier = rnd_below(w, 5) == 0;
	s.full = rnd_below(w, 8) == 0;
	s.heavy = rnd_below(w, 3) == 0;
	if (s.heavy) {
		s.blks = TOY_BLKS;
		s.full = s.no_classifier = false;
		s.segs = s.seg_blks = s.segs_per_eb = 0;
	}
	if (rnd_below(w, 4) == 0) {
		s.lag = 1;
		s.lie = lies[rnd_below(w, ARRAY_SIZE(lies))];
		s.segs += s.segs || s.heavy ? 2 : 1 + (unsigned)rnd_below(w, 3);
	}
	if (force_ext4 ? force_ext4 > 0 : rnd_below(w, 10) == 0) {
		s = (struct shape){ .ext4 = 1 + (unsigned)rnd_below(w, EXT4_KINDS),
				    .blks = MAX_BLKS,
				    .lag = s.lag,
				    .lie = s.lie,
				    .segs = 7 + (unsigned)rnd_below(w, 6),
				    .external = s.external };
	}
	s.lag = force_lag < 0 ? s.lag : (unsigned)force_lag;
	s.lie = force_lie < 0 ? s.lie : (unsigned)force_lie;
	s.deep = rnd_below(w, 16) == 0;
	s.marked = !s.ext4 && rnd_below(w, 3) == 0;
	return s;
}

static void change_block(struct world *w, unsigned blk)
{
	switch (blk == BITMAP_BLK ? 3 : !blk ? 11 : rnd_below(w, 12)) {
	case 0: /* allocated, or overwritten, with its present content */
		live_write(w, blk, w->live.content[blk]);
		break;
	case 1: /* back to the committed content */
		live_write(w, blk, w->n.content[blk]);
		break;
	case 2: /* discarded and used */
		live_punch(w, blk);
		break;
	case 3:
		live_write(w, blk, 0);
		break;
	case 4:
	case 5: /* freed, with or without a trace */
		if (w->shape.no_classifier)
			break;
		live_free(w, blk);
		if (rnd_below(w, 2))
			live_dirty(w, blk);
		break;
	case 6: /* the journal is written all the time, and sometimes moves */
		if (w->shape.no_classifier || (w->live.use[blk] != USE_JOURNAL && rnd_below(w, 6)))
			break;
		live_write(w, blk, (unsigned)rnd_below(w, CONTENTS));
		w->live.use[blk] = USE_JOURNAL;
		break;
	default:
		live_write(w, blk,
			   rnd_below(w, 16) ? (unsigned)rnd_below(w, CONTENTS)
					    : ENVS + (unsigned)rnd_below(w, ENVS_N));
	}
}

static void change(struct world *w)
{
	static const unsigned sizes[] = { 1, 2, 3, 3, 6, 6, 12, 24, 48 };
	uint64_t n = 1 + rnd_below(w, sizes[rnd_below(w, ARRAY_SIZE(sizes))]);
	unsigned blk = (unsigned)rnd_below(w, w->shape.blks), b = MAX_BLKS;

	/* all used blocks get new content: more than a small ring holds */
	if (w->shape.heavy && !rnd_below(w, 3))
		b = 0;
	for (; b < w->shape.blks; b++)
		if (w->live.use[b] == USE_USED) {
			live_write(w, b, 1 + (unsigned)rnd_below(w, CONTENTS - 1));
			if (!IS_FIXED(b) && rnd_below(w, 16) == 0)
				live_free(w, b);
		}
	while (n--) {
		change_block(w, blk);
		/* runs, mostly */
		blk = rnd_below(w, 4) ? (blk + 1) % w->shape.blks
				      : (unsigned)rnd_below(w, w->shape.blks);
	}
}

static void arm(struct world *w)
{
	static const unsigned kinds[] = { SIM_WRITE, SIM_FLUSH, SIM_WRITE | SIM_FLUSH, SIM_FLUSH,
					  SIM_READ };
	unsigned ops = kinds[rnd_below(w, ARRAY_SIZE(kinds))];
	uint64_t n = 1 + rnd_below(w, ops == SIM_FLUSH ? 4 : 8);

	if (force_away) {
		n = 1 + rnd_below(w, 40);
		world_unplug_at(w, 1 + (unsigned)rnd_below(w, 3), n, rnd_below(w, 4));
		say("request %llu finds no card", (unsigned long long)n);
		return;
	}
	world_fail_at(w, ops, n, rnd_below(w, 4) == 0);
	say("operation %llu of kind %u will fail", (unsigned long long)n, ops);
}

static void commit(struct world *w)
{
	int r;

	if (w->shape.ext4)
		ext4_change(w);
	else
		change(w);
	if (w->n_tried < MAX_TRIED - 2 && rnd_below(w, 6) == 0)
		arm(w);
	r = world_commit(w);
	world_disarm(w);
	if (r == -EFBIG)
		live_revert(w);
}

static void change_and_arm(struct world *w)
{
	change(w);
	if (rnd_below(w, 6) == 0)
		arm(w);
}

/* Several in a row, while the live image changes. */
static void commit_paths(struct world *w)
{
	for (uint64_t n = 1 + rnd_below(w, 4); n--;) {
		if (rnd_below(w, 2))
			change(w);
		if (w->n_tried >= MAX_TRIED - 2)
			return;
		(void)!world_commit_paths(w, change_and_arm);
		world_disarm(w);
	}
}

/* Closes and attaches again, with the power on: with or without a checkpoint and the record that
 * says so. */
static void reattach(struct world *w, bool clean)
{
	uint64_t ops = world_ops(w);
	bool done = clean && world_checkpoint(w, RECORD_TAIL, RECORD_CLEAN) == 0 &&
		    world_ops(w) != ops;

	world_close(w);
	world_open(w);
	live_revert(w);
	if (done && w->rep.state != LOG_CLEAN)
		fail("not clean after a clean detach: state %d", w->rep.state);
	if (done && w->rep.live_blks + w->rep.zero_blks)
		fail("blocks in the log after a clean detach");
}

static void recover(struct world *w)
{
	uint64_t writes;

	if (world_checkpoint(w, RECORD_RETIRED, RECORD_CLEAN) < 0)
		return;
	total.recoveries++;
	world_close(w);
	world_open(w);
	/* its mending failed, which makes nothing else fail: it is tried again */
	if (log_super_trouble(w->log)) {
		if (world_checkpoint(w, RECORD_RETIRED, RECORD_CLEAN) < 0)
			return;
		world_close(w);
		world_open(w);
	}
	writes = world_writes(w);
	if (world_checkpoint(w, RECORD_RETIRED, RECORD_CLEAN) < 0 || world_writes(w) != writes)
		fail("a second recovery writes");
	live_revert(w);
}

static void step(struct world *w)
{
	uint64_t dice = rnd_below(w, 100);

	at.step++;
	at.cut = at.variant = 0;
	if (setjmp(w->refused)) {
		world_disarm(w);
		world_crash(w);
		w->returned = false;
		return;
	}
	if (rnd_below(w, 4) == 0) {
		if (force_away && rnd_below(w, 4) == 0)
			arm(w);
		world_trim(w);
	}
	if (rnd_below(w, w->hold == HOLD_YES ? 8 : 4) == 0) {
		if (rnd_below(w, 6) == 0)
			arm(w);
		(void)!(w->hold == HOLD_NO     ? world_hold(w)
			: rnd_below(w, 4) == 0 ? world_try(w)
			: rnd_below(w, 3) == 0 ? world_ask(w, w->back == BACK_NO)
			: rnd_below(w, 2)      ? world_release(w)
					       : world_back(w));
		world_disarm(w);
	}
	if (dice < 20 && !w->shape.ext4 && !w->shape.marked) {
		commit_paths(w);
	} else if (dice < 70) {
		commit(w);
	} else if (dice < 82) {
		if (rnd_below(w, 4) == 0)
			arm(w);
		(void)!world_checkpoint_units(w, RECORD_TAIL, 0, (unsigned)rnd_below(w, 4));
	} else if (dice < 88) {
		if (rnd_below(w, 4) == 0)
			arm(w);
		(void)!world_checkpoint(w, RECORD_TAIL, RECORD_CLEAN);
	} else if (dice < 91) {
		reattach(w, true);
	} else if (dice < 94) {
		reattach(w, false);
	} else if (dice < 96) {
		recover(w);
	} else {
		world_crash(w);
	}
	world_disarm(w);
	if (w->returned && rnd_below(w, 4) == 0)
		reattach(w, false);
	w->returned = false;
}

void workload_run(uint64_t seed)
{
	struct world w = { .rnd = seed };
	struct shape s = random_shape(&w);

	s.plan = seed % 4;
	at.seed = seed;
	at.step = at.cut = at.variant = 0;
	world_new(&w, &s, seed ^ 0x5bd1e995);
	for (unsigned round = 0; round < ROUNDS; round++) {
		uint64_t n = 2 + rnd_below(&w, STEPS);

		while (n--)
			step(&w);
		if (!world_crash(&w))
			break;
	}
	world_free(&w);
	total.workloads++;
}
