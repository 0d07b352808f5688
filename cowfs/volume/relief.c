/* SPDX-License-Identifier: MIT */
/*
 * RAM that comes back without a commit (export/view_relief.c): `compress`, and blocks that are the same
 * as on the card. The monitor thread asks for a pass every two seconds while RAM is in use, the commit
 * thread makes it. It makes way for any other job.
 *
 * A block that is the same as on the card is forgotten only if the committed file system uses it.
 * Whatever writes to the card then keeps it: a commit overwrites used blocks only with the content of
 * the next generation, and a commit of paths first keeps those that the live file system still needs
 * (diverged.h). That is also why there is no comparison while the live file system has diverged.
 */
#include "base/invariant.h"
#include "fs/reader.h"
#include "volume/private.h"

#define REST_SHARE 3u /* a pause is so many times as long as the pass before it */
#define USE_SHARE 4u  /* of the limit: below it, nothing is compressed */

void relief_look(struct volume *v, const struct pressure_plan *plan, const struct pressure_use *u,
		 enum pressure_level level, uint64_t now)
{
	bool compares = level >= LEVEL_WARN, worth = u->memory_low;

	worth |= u->used_bytes >= plan->limit_bytes / USE_SHARE;
	if (now < max_u64(v->relief.next_ns, v->relief.rest_until_ns) || v->halted ||
	    v->life != VOLUME_RUNNING || invariant_broken() ||
	    !(compares || (v->relief.compress && worth)))
		return;
	v->relief.compares = compares;
	if (volume_ask_relief(v))
		v->relief.next_ns = now + v->relief.every_ns;
}

struct relief {
	struct volume *v;
	struct fsmap *committed;
	bool known; /* the map was opened */
};

/* Nothing may be concluded from the bitmaps of an image whose journal is not empty. */
static bool open_map(struct relief *rf)
{
	const struct blk_reader r = volume_committed(rf->v);

	if (!rf->known && fsmap_open(&rf->committed, &r) < 0)
		rf->committed = NULL;
	rf->known = true;
	return rf->committed && !(fsmap_alarms(rf->committed) & FSMAP_NEEDS_RECOVERY);
}

static bool is_used(void *ctx, uint64_t blk)
{
	struct relief *rf = ctx;
	enum blk_use use = USE_FREE;
	uint64_t n;

	/* used for certain: a commit of paths asks again */
	return !renew_wants(rf->v, blk) && open_map(rf) &&
	       fsmap_run(rf->committed, blk, 1, &use, &n) == 0 && use != USE_FREE &&
	       !fsmap_doubts(rf->committed);
}

static bool must_stop(void *ctx)
{
	struct relief *rf = ctx;

	return volume_job_waits(rf->v) || rf->v->life != VOLUME_RUNNING;
}

void relief_do(struct volume *v)
{
	struct relief rf = { .v = v };
	struct view_relief vr = { .compress = v->relief.compress,
				  .zeros = !log_ledger(v->log)->trims,
				  .must_stop = must_stop,
				  .ctx = &rf };
	struct scratch *s = volume_scratch(v);
	uint64_t start_ns = now_ns(), end_ns;

	scratch_unref(s);
	if (v->relief.compares && !s && !v->diverged && !v->diverged_lost && !v->failed_below &&
	    !log_doubt(v->log) && v->opened.state != LOG_FOREIGN)
		vr.is_used = is_used;
	/* what was not done stays as it is, and the next pass continues */
	(void)!view_relieve(v->view, &vr);
	fsmap_close(rf.committed);
	/* whoever rewrites what was just compressed must not keep a processor, or the card, busy with it */
	end_ns = now_ns();
	v->relief.rest_until_ns = end_ns + REST_SHARE * (end_ns - start_ns);
	v->relief.forgotten_blks += vr.forgotten_blks;
}
