/* SPDX-License-Identifier: MIT */
/* Chooses the places of the blocks of a commit where there is a choice. */
#include <errno.h>
#include <string.h>

#include "commit/job.h"
#include "commit/plan.h"

/* extents of 24 bytes: a descriptor block always holds this number, in addition to the CRCs */
#define SPILL_EXTENTS_PER_BLK 100u

static bool goes_home_anyway(void *ctx, uint64_t blk, uint64_t blks)
{
	struct job *j = ctx;
	struct log_index *ix = log_index_of(j->log);
	bool ret = extents_covered_bytes(&j->logged, blk_to_bytes(blk), blk_to_bytes(blk + blks)) >
		   0;
	enum log_where where;

	for (uint64_t i = 0; i < blks && !ret; i += log_index_run(ix, blk + i, blks - i, &where)) {
		log_index_run(ix, blk + i, 1, &where);
		ret = where != LOG_HOME;
	}
	log_index_unref(ix);
	return ret;
}

/*
 * How much may be moved to the log, and whether a checkpoint follows this commit. One follows if
 * it is asked for, or if the blocks that must go to the log make it due; then the whole ring can
 * be used. Otherwise the moved blocks should not make one due. To exceed the limit a little is
 * better than a merge for each of a few blocks. To write everything home directly after this
 * commit for them is not. Beside a generation that is held no checkpoint becomes due, and no room
 * comes back: then the second half of the ring is for what must go there.
 */
static uint64_t log_room(struct job *j, bool *ret_home_follows)
{
	uint64_t capacity = job_capacity_blks(j), room = log_room_blks(j->log),
		 need = j->rep.need_blks, data;
	uint64_t due = j->held ? capacity / 2 : price_due_blks(j->log, j->opt), limit;
	struct log_index *ix = log_index_of(j->log);

	data = log_index_data_blks(ix);
	log_index_unref(ix);
	if (need > room) { /* a checkpoint comes first */
		/* if that is not enough, payload is spilled to free blocks, after the gaps were
		 * written */
		room = capacity;
		data = 0;
	}
	*ret_home_follows = j->home_asked || (!j->held && data + j->rep.logged > due);
	if (*ret_home_follows)
		limit = capacity;
	else if (j->held || j->opt->cause == CAUSE_SHUTDOWN)
		limit = due > data + need ? due - data - need : 0;
	else
		limit = capacity / 16;
	room = room > need ? room - need : 0;
	/* each moved run also takes some room in a descriptor */
	return min_u64(limit, room - min_u64(room, room / 8 + 16));
}

static int plan_direct(struct job *j)
{
	struct plan_query q = { .profile = j->opt->profile,
				.disk_off_bytes = j->base->geo.disk_off_bytes,
				.volume_blks = j->src->volume_blks,
				.direct = &j->direct,
				.last = job_is_last(j),
				.is_visited = goes_home_anyway,
				/* the content of a gap in RAM may be metadata (commit.h,
				 * metadata_uuid) */
				.is_free = j->src->metadata_uuid ? NULL : classify_is_free,
				.ctx = j };
	struct plan p = { 0 };
	int r;

	q.log_blks = log_room(j, &q.home_follows);
	r = plan_make(&p, &q);

	if (r == 0)
		r = extents_merge(&j->logged, &p.logged);
	if (r == 0) {
		struct extents all = j->direct;

		j->direct = p.direct;
		j->runs = p.runs;
		p.direct = all;
		p.runs = (struct extents){ 0 };
		j->rep.moved = extents_blks(&p.logged);
		j->rep.padded = extents_blks(&j->runs) - extents_blks(&j->direct);
		j->rep.units = p.units;
		j->rep.model_ns = p.ns;
	}
	plan_clear(&p);
	return r;
}

/* Estimates the direct blocks without a plan: no block moved, no gap bridged. */
static int price_direct(struct job *j)
{
	struct plan_query q = { .profile = j->rep.profile,
				.disk_off_bytes = j->base->geo.disk_off_bytes,
				.volume_blks = j->src->volume_blks,
				.direct = &j->direct };
	struct plan p = { 0 };
	int r = plan_make(&p, &q);

	if (r == 0) {
		j->rep.units = p.units;
		j->rep.model_ns = p.ns;
	}
	plan_clear(&p);
	return r;
}

int decide_direct(struct job *j)
{
	struct commit_report *rep = &j->rep;
	bool planned = false;
	int r = 0;

	rep->profile = j->opt->profile || !j->opt->dry_run ? j->opt->profile : j->opt->price_by;
	if (j->opt->profile && rep->direct) {
		r = plan_direct(j);
		planned = r == 0;
	}
	if (planned)
		price(j);
	else if (r == 0 ||
		 r == -ENOMEM) /* a commit under pressure must not fail for lack of a plan */
		r = extents_merge(&j->runs, &j->direct);
	if (r == 0 && !planned && rep->profile && price_direct(j) < 0)
		rep->profile = NULL; /* no estimate */
	/* records and payload are appended, in two steps */
	if (r == 0 && rep->profile && (rep->direct || rep->logged || rep->zero))
		rep->model_ns += plan_append_ns(rep->profile,
						rep->logged - rep->moved + rep->meta) +
				 2 * rep->profile->sync_ns;
	return r;
}

/* Collects blocks that neither image uses, about max_blks of them, and what must not go there. */
static int find_spill(struct job *j, uint64_t max_blks)
{
	const struct commit_source *s = j->src;
	struct extents rest = { 0 };
	int r = 0;

	if (j->spill_known || j->opt->only_changed || !s->run_sealed || !s->run_committed)
		return 0;
	j->spill_known = true;
	for (size_t i = 0; i < j->logged.n && r == 0; i++)
		r = classify_metadata(j, j->logged.e[i].blk, j->logged.e[i].blks, &j->stays, &rest);
	extents_clear(&rest);
	for (uint64_t blk = 0, n;
	     r == 0 && blk < s->volume_blks && extents_blks(&j->spill) < max_blks; blk += n) {
		enum blk_use use;

		r = classify_all(j, blk, s->volume_blks - blk, &use, &n);
		if (r == 0 && use == USE_FREE)
			r = extents_add(&j->spill, blk, n);
	}
	return r;
}

/* Number of spill runs that together hold `blks` blocks. */
static size_t spill_runs(const struct job *j, uint64_t blks)
{
	size_t n = 0;

	for (uint64_t have = 0; n < j->spill.n && have < blks; n++)
		have += j->spill.e[n].blks;
	return n;
}

/* Puts as much payload into the ring as it holds, metadata first, and the rest into free blocks. Their
 * extents need descriptors, which need room in the ring; a run of metadata can add two. */
int decide_spill(struct job *j)
{
	struct commit_report *rep = &j->rep;
	uint64_t stays;
	int r;

	if (j->held) /* H5: what lies elsewhere must be written home at once */
		return -EFBIG;
	r = find_spill(j, rep->logged);
	if (r < 0)
		return r;
	stays = extents_blks(&j->stays);
	for (uint64_t extra = 1; rep->meta + extra <= rep->room_blks; extra *= 2) {
		j->ring_payload_blks = min_u64(rep->logged, rep->room_blks - rep->meta - extra);
		rep->spilled = rep->logged - j->ring_payload_blks;
		if (j->ring_payload_blks < stays || extents_blks(&j->spill) < rep->spilled)
			break;
		if (spill_runs(j, rep->spilled) + 2 * j->stays.n <= extra * SPILL_EXTENTS_PER_BLK)
			return 0;
	}
	rep->spilled = 0;
	rep->free_unknown = !j->src->run_sealed;
	if (stays + rep->meta >= rep->room_blks) /* no free block helps */
		rep->need_blks = stays + rep->meta + 1;
	else
		rep->room_blks += extents_blks(&j->spill);
	return -EFBIG;
}
