/* SPDX-License-Identifier: MIT */
/*
 * A session ends by an error, and the next one finds what the card still has in its cache. What that one says or builds on
 * must not go with the power, and of the two copies of the superblock one is whole at every moment.
 */
#include <errno.h>

#include "attacks.h"

enum job {
	JOB_COMMIT, /* of nothing, unless something has changed */
	JOB_CHANGE,
	JOB_CHECKPOINT,
	JOB_RETIRE,
	JOB_HOLD,
	JOB_RELEASE,
	JOB_ASK,
	JOBS
};

static void do_job(struct world *w, enum job job)
{
	at.step++;
	switch (job) {
	case JOB_CHANGE:
		attack_write_run(w, 3, 3);
		(void)!world_commit(w);
		break;
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
	case JOB_ASK:
		(void)!world_ask(w, true);
		break;
	default:
		(void)!world_commit(w);
	}
}

static void next_session(struct world *w)
{
	world_disarm(w);
	world_close(w);
	world_open(w);
	live_revert(w);
}

/* The n-th request of these kinds of the job fails. twice: so does one of the next session. false: there is no n-th. */
static bool ends_at(const struct shape *s, enum job job, unsigned ops, uint64_t n, unsigned twice)
{
	static const enum job next[] = { JOB_COMMIT, JOB_HOLD, JOB_CHECKPOINT, JOB_RELEASE,
					 JOB_CHANGE };
	uint64_t before = total.faults;
	struct world w;
	bool hit;

	attack_start(&w, s, n * 64 + job * 8 + twice);
	w.mute = true;
	if (job != JOB_COMMIT) {
		attack_write_run(&w, 2, 5);
		attack_commit_ok(&w);
	}
	if (job == JOB_RELEASE || job == JOB_ASK)
		attack_expect(world_hold(&w) == 0, "hold");
	if (job == JOB_COMMIT) /* the first use */
		attack_write_run(&w, 2, 5);
	world_fail_at(&w, ops, n, false);
	do_job(&w, job);
	hit = total.faults > before;
	w.mute = false;
	next_session(&w);
	if (twice) {
		world_fail_at(&w, twice == 2 ? SIM_WRITE : SIM_FLUSH, 1 + n % 7, false);
		do_job(&w, next[(n + job) % ARRAY_SIZE(next)]);
		next_session(&w);
	}
	do_job(&w, next[(n + twice) % ARRAY_SIZE(next)]);
	do_job(&w, JOB_HOLD);
	if (world_crash(&w))
		do_job(&w, JOB_CHANGE);
	world_free(&w);
	return hit;
}

void attack_ends(void)
{
	const unsigned lies[] = { 0, 2, LIE_RECORDS };
	const uint64_t was_thin = thin;

	/* few images of each cut: there are many cuts */
	thin = was_thin * 30;
	for (unsigned layout = 0; layout < 2 * ARRAY_SIZE(lies); layout++) {
		const struct shape s = { .blks = 24,
					 .full = true,
					 .segs = 14,
					 .external = layout % 2,
					 .lag = layout > 1,
					 .lie = lies[layout / 2] };

		for (enum job job = 0; job < JOBS; job++)
			for (unsigned i = 0; i < 6; i++)
				for (uint64_t n = 1;
				     ends_at(&s, job, i % 2 ? SIM_WRITE : SIM_FLUSH, n, i / 2);)
					n++;
	}
	thin = was_thin;
}
