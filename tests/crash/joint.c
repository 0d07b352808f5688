/* SPDX-License-Identifier: MIT */
/*
 * Joint commits. The other volumes are not here: their part is what the leader decides. Until this
 * volume has its record no leader has one; then it gets one, or not. A cut is tried on both sides of
 * that moment.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "attacks.h"

static struct world *joined;

static uint64_t bit_of(uint64_t seq)
{
	return UINT64_C(1) << seq % 64;
}

/* Is the record of the leader one of its generations? */
static int ask(const struct log_joint *j, char *why, size_t why_bytes)
{
	snprintf(why, why_bytes, "it is unknown");
	if (j->seq > joined->joint_seq || j->seq + 64 <= joined->joint_seq)
		return -ENOLINK;
	return !!(joined->joint_counts & bit_of(j->seq));
}

static int lead(void *ctx, const struct log_joint *self, struct log_joint *ret_leader)
{
	(void)ctx, (void)self;
	*ret_leader = (struct log_joint){ 0 };
	return 0;
}

static int follow(void *ctx, const struct log_joint *self, struct log_joint *ret_leader)
{
	struct world *w = ctx;

	(void)self;
	*ret_leader = (struct log_joint){ .log_id = "the leader", .epoch = 7, .seq = w->joint_seq };
	return 0;
}

static int before_record(void *ctx)
{
	(void)ctx;
	return 0;
}

static int decided_by_itself(void *ctx)
{
	return before_record(ctx);
}

static int decided(void *ctx)
{
	struct world *w = ctx;

	w->last = 0;
	cut_here(w);
	if (rnd_below(w, 6) == 0) {
		w->armed = w->failed = w->fault = true;
		w->joint = JOINT_NONE;
		return -ECANCELED;
	}
	w->joint_counts |= bit_of(w->joint_seq);
	w->joint = JOINT_DECIDED;
	w->last = 0;
	cut_here(w);
	return 0;
}

void joint_judged(struct world *w, const struct image *im, const uint8_t *volume)
{
	const struct image *last = w->n_tried ? &w->tried[w->n_tried - 1] : NULL;

	if (!last || w->joint == JOINT_NONE)
		return;
	/* an attempt before it, which failed, may have had the same image: its record counts */
	for (size_t i = 0; i + 1 < w->n_tried && w->joint == JOINT_OPEN; i++)
		if (image_differs(&w->tried[i], volume, w->shape.blks) < 0)
			return;
	if (w->joint == JOINT_OPEN && im == last &&
	    image_differs(&w->n, volume, w->shape.blks) >= 0)
		fail("a joint commit counts before its leader does");
	if (w->joint == JOINT_DECIDED && image_differs(last, volume, w->shape.blks) >= 0)
		fail("a joint commit does not count, but its leader does");
}

int world_commit_joint(struct world *w)
{
	bool leads = rnd_below(w, 4) == 0;
	const struct log_together together = { leads ? lead : follow, before_record,
					       leads ? decided_by_itself : decided, w };
	int r;

	joined = w;
	log_set_joint_ask(ask);
	w->joint_seq++;
	w->joint_counts &= ~bit_of(w->joint_seq);
	w->joint = leads ? JOINT_NONE : JOINT_OPEN;
	r = world_commit_as(
		w, &(struct commit_options){ .cause = CAUSE_MANUAL, .together = &together });
	w->joint = JOINT_NONE;
	total.joint += r == 0;
	return r;
}

/* Commits of one volume that others decide, with checkpoints and cuts in between. */
void attack_joint(void)
{
	struct world w;

	for (uint64_t seed = 0; seed < 2 * SEEDS; seed++) {
		const struct shape s = { .blks = 24,
					 .full = true,
					 .segs = 24,
					 .external = seed / 2 % 2,
					 .lag = seed / 4 % 2 };

		attack_start(&w, &s, seed);
		for (unsigned i = 0; i < 8; i++) {
			at.step++;
			attack_write_run(&w, i % 3, 1 + i);
			(void)!world_commit_joint(&w);
			if (i % 3 == 2)
				attack_expect(world_checkpoint(&w, RECORD_TAIL,
							       i == 5 ? RECORD_CLEAN : 0) == 0,
					      "checkpoint");
			if (seed & 8 && i % 2)
				world_crash(&w);
			attack_write_run(&w, 4, 1);
			if (seed & 16)
				attack_commit_ok(&w);
		}
		world_free(&w);
	}
}
