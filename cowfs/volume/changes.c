/* SPDX-License-Identifier: MIT */
/* The list of uncommitted blocks, in parts of bounded size and cost, for `cowctl top`. */
#include "volume/private.h"

#define STEPS 4096 /* discarded runs are skipped */

static bool add_run(struct volume_changes *c, uint64_t blk, uint64_t blks)
{
	if (c->runs && c->run[c->runs - 1].blk + c->run[c->runs - 1].blks == blk) {
		c->run[c->runs - 1].blks += blks;
		return true;
	}
	if (c->runs == VOLUME_CHANGES_RUNS)
		return false;
	c->run[c->runs].blk = blk;
	c->run[c->runs++].blks = blks;
	return true;
}

void volume_get_changes(struct volume *v, uint64_t first_blk, struct volume_changes *ret)
{
	uint64_t blk = first_blk, blks;
	enum blk_state state;

	ret->runs = 0;
	ret->next_blk = 0;
	for (unsigned i = 0; view_next_live(v->view, &blk, v->volume_blks, &blks, &state); i++) {
		if (i == STEPS || (state == BLK_DATA && !add_run(ret, blk, blks))) {
			ret->next_blk = blk;
			break;
		}
		blk += blks;
	}
	/* behind the runs: a commit publishes its generation before it releases any (commit_thread.c) */
	LOCKED(&v->lock);
	ret->generation = v->of_log.generation;
}
