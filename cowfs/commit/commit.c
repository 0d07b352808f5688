/* SPDX-License-Identifier: MIT */
/*
 * One commit. Every dirty block of the sealed image goes one of these ways, first match wins:
 *
 *	free in the sealed file system			nothing is written
 *	inside its jbd2 log (empty when sealed, and going on from the committed one)	nothing is written
 *	discarded (a hole)				zero record, unread: the checkpoint looks whether home is zero
 *	free in the committed file system		direct: in place, before the record (with lag: and in the one before,
 *							and no candidate reads it back)
 *	as in the committed image			nothing is written
 *	all zero					zero record
 *	else						logged: to the ring, or, if that cannot hold it, spilled to
 *							blocks that are free in both images
 *
 * I1  Before the record is durable nothing is written that the committed generation uses: direct targets are free
 *     in it, the rest goes to the ring.
 * I2  "Same" is asked only of blocks that the committed file system uses (no attempt ever writes those in place) and
 *     never after a failed attempt (R8).
 * I3  Spilled payload is home, and the tail record that says so durable, before anything else is written (R10): so no
 *     direct block and no checkpoint of a later commit can hit it.
 */
#include "commit/commit.h"

#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "base/io.h"
#include "commit/extents.h"
#include "commit/plan.h"

#define CHUNK_BLKS 256u /* 1 MiB: one read, one write */
/* after 16 MiB without an equal block only every 16th chunk is compared, until one is found */
#define COMPARE_BLKS 4096u
#define COMPARE_EVERY 16u
#define CLASSIFY_BLKS (64 * KIB) /* looked at in one go */
#define MAX_CHAIN_RECORDS 200u	/* a start-up reads every record of the chain: more make it slow on a card */
#define SPILL_EXTENTS_PER_BLK 100u /* of 24 bytes: what a descriptor block holds for certain beside the CRCs */

struct job {
	struct log *log;
	struct card *base;
	const struct commit_source *src;
	const struct commit_options *opt;
	struct commit_report rep;
	bool older; /* recovery may choose another image than the committed one (lag) */
	struct extents direct, in_use, logged, zero, punched;
	struct extents runs; /* direct, and gaps between them that are written, too (plan.h) */
	struct extents spill; /* where payload goes that the ring cannot hold; once spill_known */
	bool spill_known;
	uint64_t ring_payload_blks; /* what it can */
	uint8_t *buf, *old; /* CHUNK_BLKS blocks each */
};

static void progress(const struct job *j, enum commit_phase phase, uint64_t done, uint64_t total)
{
	if (j->opt->progress)
		j->opt->progress(j->opt->progress_ctx, phase, done, total);
}

/* ---- classify ---- */

typedef int use_fn(void *ctx, uint64_t blk, enum blk_use *ret);
typedef int run_fn(void *ctx, uint64_t blk, uint64_t max_blks, enum blk_use *ret, uint64_t *ret_blks);

/* Use of blk, and of how many blocks from it on: all that are asked for without a classifier. */
static int use_run(const struct commit_source *s, use_fn *use, run_fn *run, uint64_t blk, uint64_t max_blks,
		   enum blk_use *ret, uint64_t *ret_blks)
{
	if (run)
		return run(s->ctx, blk, max_blks, ret, ret_blks);
	*ret = USE_USED;
	*ret_blks = use ? 1 : max_blks;
	return use ? use(s->ctx, blk, ret) : 0;
}

/* Does no generation that recovery may choose use these blocks? USE_USED if one does. */
static int use_candidates(struct job *j, uint64_t blk, uint64_t max_blks, enum blk_use *ret, uint64_t *ret_blks)
{
	const struct commit_source *s = j->src;
	bool held = false;
	int r = use_run(s, s->use_committed, s->run_committed, blk, max_blks, ret, ret_blks);

	if (r == 0 && *ret == USE_FREE && j->older)
		r = use_run(s, NULL, s->run_older, blk, *ret_blks, ret, ret_blks);
	if (r == 0 && *ret == USE_FREE)
		*ret_blks = log_held_run(j->log, blk, *ret_blks, &held);
	if (held)
		*ret = USE_USED;
	return r;
}

/* How many blocks from blk on go the same way, and which. */
static int classify_run(struct job *j, uint64_t blk, uint64_t max_blks, bool hole, uint64_t *ret_blks)
{
	const struct commit_source *s = j->src;
	enum blk_use use, old;
	uint64_t n;
	int r = use_run(s, s->use_sealed, s->run_sealed, blk, max_blks, &use, &n);

	if (r < 0)
		return r;
	*ret_blks = n;
	if (use != USE_USED) {
		*(hole ? &j->rep.skipped_holes : use == USE_FREE ? &j->rep.skipped_free : &j->rep.skipped_journal) += n;
		return 0;
	}
	if (hole)
		return extents_add(&j->punched, blk, n);
	r = use_candidates(j, blk, n, &old, ret_blks);
	if (r < 0)
		return r;
	return extents_add(old == USE_FREE ? &j->direct : &j->in_use, blk, *ret_blks);
}

static int classify_use(struct job *j)
{
	uint64_t blk = 0, n, m;
	enum blk_state state;

	for (; j->src->next(j->src->ctx, &blk, CLASSIFY_BLKS, &n, &state); blk += n) {
		*(state == BLK_HOLE ? &j->rep.holes : &j->rep.dirty) += n;
		for (uint64_t i = 0; i < n; i += m) {
			int r = classify_run(j, blk + i, n - i, state == BLK_HOLE, &m);

			if (r < 0)
				return r;
		}
		progress(j, PHASE_CLASSIFY, j->rep.dirty + j->rep.holes, 0);
	}
	return 0;
}

/* What is used in both images is compared by content, and zeros are found. */
static int classify_content(struct job *j)
{
	struct extents_chunk c = { 0 };
	uint64_t differed = j->opt->differed ? *j->opt->differed : 0; /* blocks in a row, of those compared */

	for (uint64_t n = 0; extents_next_chunk(&j->in_use, &c, CHUNK_BLKS); n++) {
		/* a file overwritten with other content: its old content is not read for nothing, but for a sample */
		bool compare = !log_doubt(j->log) && (differed < COMPARE_BLKS || n % COMPARE_EVERY == 0);
		int r = j->src->read_sealed(j->src->ctx, c.blk, c.blks, j->buf);

		if (r == 0 && compare)
			r = j->src->read_committed(j->src->ctx, c.blk, c.blks, j->old);
		for (uint64_t i = 0; i < c.blks && r == 0; i++) {
			const uint8_t *p = j->buf + blk_to_bytes(i);

			bool same = compare && !memcmp(p, j->old + blk_to_bytes(i), COW_BLK_BYTES);

			differed = same ? 0 : differed + compare;
			j->rep.skipped_same += same;
			if (!same)
				r = extents_add(bytes_all_zero(p, COW_BLK_BYTES) ? &j->zero : &j->logged, c.blk + i, 1);
		}
		if (r < 0)
			return r;
	}
	if (j->opt->differed)
		*j->opt->differed = differed;
	return 0;
}

/* ---- price ---- */

/* Erase blocks that a run touches beside `last`, the last one of the run before. */
static uint64_t run_erase_blocks(const struct card_geometry *g, uint64_t blk, uint64_t blks, uint64_t *last)
{
	uint64_t off = g->disk_off_bytes + blk_to_bytes(blk), a = off / g->erase_block_bytes;
	uint64_t b = (off + blk_to_bytes(blks) - 1) / g->erase_block_bytes, n = b - a + (a != *last);

	*last = b;
	return n;
}

static uint64_t extents_erase_blocks(const struct job *j, const struct extents *x)
{
	uint64_t last = UINT64_MAX, n = 0;

	for (size_t i = 0; i < x->n; i++)
		n += run_erase_blocks(&j->base->geo, x->e[i].blk, x->e[i].blks, &last);
	return n;
}

static uint64_t index_erase_blocks(const struct job *j, const struct log_index *ix)
{
	uint64_t last = UINT64_MAX, n = 0, run;
	enum log_where where;

	for (uint64_t blk = 0; blk < j->src->volume_blks; blk += run) {
		run = log_index_run(ix, blk, j->src->volume_blks - blk, &where);
		n += where == LOG_HOME ? 0 : run_erase_blocks(&j->base->geo, blk, run, &last);
	}
	return n;
}

static void count_erase_blocks(struct job *j)
{
	uint64_t eb_bytes = j->base->geo.erase_block_bytes, log_bytes = blk_to_bytes(j->rep.logged + j->rep.meta);

	j->rep.erase_blocks += extents_erase_blocks(j, &j->direct) + (log_bytes + eb_bytes - 1) / eb_bytes;
}

static void price(struct job *j)
{
	struct commit_report *r = &j->rep;

	r->erase_blocks = 0;
	r->direct = extents_blks(&j->direct);
	r->logged = extents_blks(&j->logged);
	r->zero = extents_blks(&j->zero) + extents_blks(&j->punched);
	r->direct_extents = j->direct.n;
	r->logged_extents = j->logged.n + j->zero.n + j->punched.n;
	/* runs are cut at CHUNK_BLKS */
	r->meta = log_meta_blks(j->log, r->logged, r->direct,
				r->direct_extents + r->logged_extents + (r->direct + r->logged) / CHUNK_BLKS);
	r->need_blks = r->logged + r->meta;
	r->room_blks = log_room_blks(j->log);
	count_erase_blocks(j);
}

#define LAST_DUE_BLKS(capacity) ((capacity) - (capacity) / 16)

/* By a profile no checkpoint holds up a shutdown that did not ask for it. */
static bool is_last(const struct commit_options *opt)
{
	return opt && opt->profile && opt->cause == CAUSE_SHUTDOWN;
}

static bool is_due(struct log *log, const struct commit_options *opt, uint64_t data_blks, uint64_t records)
{
	uint64_t capacity = log_capacity_blks(log);

	return data_blks > (is_last(opt) ? LAST_DUE_BLKS(capacity) : capacity / 2) || records > MAX_CHAIN_RECORDS;
}

bool commit_checkpoint_due(struct log *log, const struct commit_options *opt)
{
	struct log_index *ix = log_index_of(log);
	uint64_t data_blks = log_index_data_blks(ix);

	log_index_unref(ix);
	return is_due(log, opt, data_blks, log_chain_records(log));
}

/* No image that recovery may choose before this commit is durable uses one of these blocks. */
static int free_in_candidates(void *ctx, uint64_t blk, uint64_t blks, bool *ret)
{
	enum blk_use use = USE_FREE;
	uint64_t n;
	int r = 0;

	for (uint64_t i = 0; i < blks && r == 0 && use == USE_FREE; i += n)
		r = use_candidates(ctx, blk + i, blks - i, &use, &n);
	*ret = use == USE_FREE;
	return r;
}

/* Nor does the sealed one. */
static int in_no_image(void *ctx, uint64_t blk, uint64_t blks, bool *ret)
{
	const struct commit_source *s = ((struct job *)ctx)->src;
	enum blk_use use = USE_FREE;
	uint64_t n;
	int r = free_in_candidates(ctx, blk, blks, ret);

	for (uint64_t i = 0; i < blks && r == 0 && *ret && use == USE_FREE; i += n)
		r = use_run(s, s->use_sealed, s->run_sealed, blk + i, blks - i, &use, &n);
	*ret = *ret && use == USE_FREE;
	return r;
}

static bool goes_home_anyway(void *ctx, uint64_t blk, uint64_t blks)
{
	struct job *j = ctx;
	struct log_index *ix = log_index_of(j->log);
	bool ret = extents_covered_bytes(&j->logged, blk_to_bytes(blk), blk_to_bytes(blk + blks)) > 0;
	enum log_where where;

	for (uint64_t i = 0; i < blks && !ret; i += log_index_run(ix, blk + i, blks - i, &where)) {
		log_index_run(ix, blk + i, 1, &where);
		ret = where != LOG_HOME;
	}
	log_index_unref(ix);
	return ret;
}

/*
 * What may be moved to the log. It is due for a checkpoint when it is half full; to go a little beyond that is better than a
 * merge for each of a few blocks, to bring everything home right behind this commit for their sake is not. The commit of a shutdown
 * may fill it: the next one will make room.
 */
static uint64_t plan_log_blks(struct job *j)
{
	uint64_t capacity = log_capacity_blks(j->log), room = log_room_blks(j->log), data, need = j->rep.need_blks;
	uint64_t limit = is_last(j->opt) ? LAST_DUE_BLKS(capacity) : capacity / 2 + capacity / 16;
	struct log_index *ix = log_index_of(j->log);

	data = log_index_data_blks(ix);
	log_index_unref(ix);
	if (need > room) { /* a checkpoint comes first */
		room = capacity;
		data = 0;
	}
	limit = limit > data + need ? limit - data - need : 0;
	room = room > need ? room - need : 0;
	/* each moved run takes some room in a descriptor as well */
	return min_u64(limit, room - min_u64(room, room / 8 + 16));
}

static int plan_direct(struct job *j)
{
	struct plan_query q = { .profile = j->opt->profile,
				.disk_off_bytes = j->base->geo.disk_off_bytes,
				.volume_blks = j->src->volume_blks,
				.direct = &j->direct,
				.log_blks = plan_log_blks(j),
				.home_follows = j->opt->checkpoint_asked,
				.is_visited = goes_home_anyway,
				.is_free = in_no_image,
				.ctx = j };
	struct plan p = { 0 };
	int r = plan_make(&p, &q);

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

/* What nothing was moved of, and no gap bridged. */
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

/* Plans, if there is a profile to do it by, and prices. */
static int plan(struct job *j)
{
	bool may_move = j->opt->profile && j->rep.direct && j->rep.need_blks <= log_capacity_blks(j->log);
	struct commit_report *rep = &j->rep;
	int r = may_move ? plan_direct(j) : extents_merge(&j->runs, &j->direct);

	rep->profile = j->opt->profile || !j->opt->dry_run ? j->opt->profile : j->opt->price_by;
	if (may_move && r == 0)
		price(j);
	if (!may_move && r == 0 && rep->profile)
		r = price_direct(j);
	if (r == 0 && rep->profile && (rep->direct || rep->logged || rep->zero)) /* records and payload are appended, in two steps */
		rep->model_ns += plan_append_ns(rep->profile, rep->logged - rep->moved + rep->meta) + 2 * flash_sync_ns(rep->profile);
	return r;
}

static uint64_t chunks(const struct extents *x)
{
	struct extents_chunk c = { 0 };
	uint64_t n = 0;

	while (extents_next_chunk(x, &c, CHUNK_BLKS))
		n++;
	return n;
}

static void estimate_home(struct commit_report *r, uint64_t blks, uint64_t extents, uint64_t erase_blocks)
{
	/* begin record, home writes, tail record */
	r->checkpoint += blks;
	r->home_erase_blocks += erase_blocks + 2;
	r->meta += 2;
	r->flushes += 3;
	r->write_calls += 2 + blks / CHUNK_BLKS + extents;
}

/* What the index will not have any more once these blocks have a newer version. */
static void take_out(const struct log_index *ix, const struct extents *x, uint64_t *data, uint64_t *zero)
{
	for (size_t i = 0; i < x->n; i++) {
		for (uint64_t k = 0, n; k < x->e[i].blks; k += n) {
			enum log_where where;

			n = log_index_run(ix, x->e[i].blk + k, x->e[i].blks - k, &where);
			*data -= where == LOG_DATA ? n : 0;
			*zero -= where == LOG_ZERO ? n : 0;
		}
	}
}

/* One before the commit if the ring is short (write_all), and one behind it if that is due or asked for. */
static void estimate_checkpoints(struct job *j, bool nothing)
{
	struct commit_report *r = &j->rep;
	struct log_index *ix = log_index_of(j->log);
	uint64_t data = log_index_data_blks(ix), zero = log_index_zero_blks(ix), records = log_chain_records(j->log);
	uint64_t capacity = log_capacity_blks(j->log), home_ebs = 0;

	if (!nothing && (log_spilled(j->log) || r->need_blks > log_room_blks(j->log))) {
		estimate_home(r, data + zero, 0, index_erase_blocks(j, ix));
		data = zero = records = 0;
	} else {
		const struct extents *newer[] = { &j->direct, &j->logged, &j->zero, &j->punched };

		for (size_t i = 0; i < ARRAY_SIZE(newer); i++)
			take_out(ix, newer[i], &data, &zero);
		if (data || zero) /* what is newer in this commit may be among them */
			home_ebs = index_erase_blocks(j, ix);
	}
	log_index_unref(ix);
	if (!nothing && r->need_blks > capacity)
		r->spilled = r->need_blks - capacity;
	/* a log at rest has nothing to bring home */
	if (is_due(j->log, j->opt, data + r->logged, records + !nothing) ||
	    (j->opt->checkpoint_asked && (data || zero || r->logged || r->zero)))
		estimate_home(r, data + zero + r->logged + r->zero, r->logged_extents,
			      home_ebs + extents_erase_blocks(j, &j->logged) + extents_erase_blocks(j, &j->zero) +
				      extents_erase_blocks(j, &j->punched));
}

static void estimate(struct job *j)
{
	bool nothing = !j->rep.direct && !j->rep.logged && !j->rep.zero;
	struct commit_report *r = &j->rep;
	struct wear_ledger life;

	if (nothing) {
		r->meta = r->erase_blocks = 0;
	} else {
		r->flushes = 2;
		r->write_calls = chunks(&j->runs) + (r->logged + r->meta) / CHUNK_BLKS + 2;
	}
	if (!nothing && log_wants_open(j->log)) {
		r->meta += 2;
		r->flushes += 2;
		r->write_calls++;
	}
	estimate_checkpoints(j, nothing);
	r->estimate = !nothing || r->checkpoint;
	r->written_bytes = blk_to_bytes(r->direct + r->padded + r->logged + r->meta + r->checkpoint);
	/* at the speed that this card had in its life so far */
	log_totals(j->log, &life);
	if (life.written_bytes)
		r->writable_ns = (uint64_t)((__uint128_t)r->written_bytes * life.writable_ns / life.written_bytes);
}

/* ---- write ---- */

/* Both cards or none; on the way back each for itself. */
static int set_writable(struct log *log, struct card *base, bool on)
{
	struct card *lc = log_card(log);
	int r = card_set_writable(base, on), rl, off = 0;

	if (lc == base || (r < 0 && on))
		return r;
	rl = card_set_writable(lc, on);
	if (rl < 0 && on)
		off = card_set_writable(base, false);
	(void)off; /* it shows in the next attempt */
	return r < 0 ? r : rl;
}

/* The blocks of j->direct in this chunk of j->runs, from the sealed image; what is between them is zero. *i: the first run
 * of j->direct that may reach into it. */
static int read_direct(struct job *j, const struct extents_chunk *c, size_t *i)
{
	uint64_t end = c->blk + c->blks;

	if (j->rep.padded)
		memset(j->buf, 0, blk_to_bytes(c->blks));
	for (size_t k = *i; k < j->direct.n && j->direct.e[k].blk < end; k++) {
		const struct extent_run *e = &j->direct.e[k];
		uint64_t from = max_u64(e->blk, c->blk), to = min_u64(e->blk + e->blks, end);
		int r = from < to ? j->src->read_sealed(j->src->ctx, from, to - from, j->buf + blk_to_bytes(from - c->blk)) : 0;

		if (r < 0)
			return r;
		*i = k;
	}
	return 0;
}

static int write_direct(struct job *j)
{
	struct extents_chunk c = { 0 };
	uint64_t done = 0;
	size_t i = 0;

	while (extents_next_chunk(&j->runs, &c, CHUNK_BLKS)) {
		size_t first = i;
		uint64_t end = c.blk + c.blks, direct = 0;
		int r = read_direct(j, &c, &i);

		if (r == 0)
			r = card_write(j->base, blk_to_bytes(c.blk), j->buf, blk_to_bytes(c.blks));
		for (size_t k = first; k <= i && k < j->direct.n && r == 0; k++) {
			const struct extent_run *e = &j->direct.e[k];
			uint64_t from = max_u64(e->blk, c.blk), to = min_u64(e->blk + e->blks, end);

			if (from >= to)
				continue;
			r = log_add_direct(j->log, from, to - from, j->buf + blk_to_bytes(from - c.blk));
			direct += to - from;
		}
		if (r < 0)
			return r;
		log_ledger(j->log)->padded_blks += c.blks - direct;
		done += direct;
		progress(j, PHASE_DIRECT, done, j->rep.direct + j->rep.logged);
	}
	return 0;
}

/* A chunk of payload, first to the ring while that has room, then to the spill blocks. */
static int write_payload(struct job *j, const struct extents_chunk *c, struct extents_chunk *to)
{
	uint64_t n = min_u64(c->blks, j->ring_payload_blks);
	int r = n ? log_add_logged(j->log, c->blk, n, j->buf) : 0;

	j->ring_payload_blks -= n;
	while (n < c->blks && r == 0) {
		if (!extents_next_chunk(&j->spill, to, c->blks - n))
			return -EFBIG; /* not reached: plan_spill counted them */
		r = log_add_spilled(j->log, c->blk + n, to->blks, to->blk, j->buf + blk_to_bytes(n));
		n += to->blks;
	}
	return r;
}

static int write_zeros(struct job *j, const struct extents *x)
{
	int r = 0;

	for (size_t i = 0; i < x->n && r == 0; i++)
		r = log_add_zero(j->log, x->e[i].blk, x->e[i].blks);
	return r;
}

static int write_logged(struct job *j)
{
	struct extents_chunk c = { 0 }, to = { 0 };
	uint64_t done = j->rep.direct;
	int r;

	while (extents_next_chunk(&j->logged, &c, CHUNK_BLKS)) {
		r = j->src->read_sealed(j->src->ctx, c.blk, c.blks, j->buf);
		if (r == 0)
			r = write_payload(j, &c, &to);
		if (r < 0)
			return r;
		done += c.blks;
		progress(j, PHASE_LOG, done, j->rep.direct + j->rep.logged);
	}
	r = write_zeros(j, &j->zero);
	return r < 0 ? r : write_zeros(j, &j->punched);
}

struct home_progress {
	commit_progress *fn;
	void *ctx;
};

static int home_progress(void *ctx, uint64_t done, uint64_t total)
{
	struct home_progress *p = ctx;

	if (p->fn)
		p->fn(p->ctx, PHASE_CHECKPOINT, done, total);
	return 0;
}

struct gaps {
	const struct commit_options *opt;
	uint64_t disk_off_bytes;
	int error;
};

static bool bridge(void *ctx, uint64_t end_blk, uint64_t next_blk, uint64_t written_blks, uint64_t next_blks)
{
	struct gaps *g = ctx;
	bool free = false;

	if (g->error || !plan_bridges(g->opt->profile, g->disk_off_bytes, end_blk, next_blk, written_blks, next_blks))
		return false;
	g->error = g->opt->is_free(g->opt->is_free_ctx, end_blk, next_blk - end_blk, &free);
	return !g->error && free; /* a gap that cannot be looked at is none; what is wrong there shows where it matters */
}

/* Log home, readers moved off the old index, then the record that carries the new tail. */
static int checkpoint(struct log *log, struct card *base, const struct commit_options *opt, const struct log_content *content,
		      void (*publish)(void *ctx, struct log_index *index), void *publish_ctx, enum record_type type,
		      uint32_t flags, uint64_t *ret_blks)
{
	struct home_progress hp = { .fn = opt->progress, .ctx = opt->progress_ctx };
	struct gaps gaps = { .opt = opt, .disk_off_bytes = base->geo.disk_off_bytes };
	struct log_content cheap = content ? *content : (struct log_content){ 0 };
	uint64_t before = log_ledger(log)->checkpoint_blks;
	struct log_index *ix;
	int r;

	/* payload that was spilled waits in free blocks */
	cheap.bridge = opt->profile && opt->is_free && !log_spilled(log) ? bridge : NULL;
	cheap.bridge_ctx = &gaps;
	r = log_checkpoint(log, &cheap, home_progress, &hp, &ix);

	*ret_blks = log_ledger(log)->checkpoint_blks - before;
	if (r < 0)
		return r;
	if (publish)
		publish(publish_ctx, ix);
	else
		log_index_unref(ix);
	return log_put_tail(log, type, flags, opt->cause);
}

static void count_skips(struct job *j, bool add)
{
	struct wear_ledger *l = log_ledger(j->log);
	uint64_t sign = add ? 1 : UINT64_MAX; /* modulo 2^64: minus one */

	l->free_blks += sign * j->rep.skipped_free;
	l->journal_blks += sign * j->rep.skipped_journal;
	l->same_blks += sign * j->rep.skipped_same;
	l->hole_blks += sign * j->rep.skipped_holes;
}

/* Blocks that neither image uses, about max_blks of them. */
static int find_spill(struct job *j, uint64_t max_blks)
{
	const struct commit_source *s = j->src;

	if (j->spill_known || !(s->use_sealed || s->run_sealed) || !(s->use_committed || s->run_committed))
		return 0;
	j->spill_known = true;
	for (uint64_t blk = 0, n; blk < s->volume_blks && extents_blks(&j->spill) < max_blks; blk += n) {
		enum blk_use a, b = USE_USED;
		int r = use_candidates(j, blk, s->volume_blks - blk, &a, &n);

		if (r == 0 && a == USE_FREE)
			r = use_run(s, s->use_sealed, s->run_sealed, blk, n, &b, &n);
		if (r == 0 && b == USE_FREE)
			r = extents_add(&j->spill, blk, n);
		if (r < 0)
			return r;
	}
	return 0;
}

/* How many of the spill runs hold `blks` blocks. */
static size_t spill_runs(const struct job *j, uint64_t blks)
{
	size_t n = 0;

	for (uint64_t have = 0; n < j->spill.n && have < blks; n++)
		have += j->spill.e[n].blks;
	return n;
}

/* The ring is too small: as much payload there as it holds, the rest to free blocks. Their extents need descriptors,
 * which need room in the ring. */
static int plan_spill(struct job *j)
{
	struct commit_report *rep = &j->rep;
	int r = find_spill(j, rep->logged);

	if (r < 0)
		return r;
	for (uint64_t extra = 1; rep->meta + extra <= rep->room_blks; extra *= 2) {
		j->ring_payload_blks = min_u64(rep->logged, rep->room_blks - rep->meta - extra);
		rep->spilled = rep->logged - j->ring_payload_blks;
		if (extents_blks(&j->spill) < rep->spilled)
			break;
		if (spill_runs(j, rep->spilled) <= extra * SPILL_EXTENTS_PER_BLK)
			return 0;
	}
	rep->room_blks += extents_blks(&j->spill);
	rep->spilled = 0;
	return -EFBIG;
}

/* The card is writable. */
static int write_all(struct job *j, void (*publish)(void *ctx, struct log_index *index), void *publish_ctx,
		     struct log_index **ret_index)
{
	struct commit_options opt = *j->opt; /* of a checkpoint before it */
	int r = log_recheck(j->log);

	opt.is_free = free_in_candidates;
	opt.is_free_ctx = j;
	if (r == 0)
		r = log_prepare(j->log);
	if (r == 0 && (log_spilled(j->log) || j->rep.need_blks > log_room_blks(j->log)))
		r = checkpoint(j->log, j->base, &opt, NULL, publish, publish_ctx, RECORD_TAIL, 0, &j->rep.checkpoint);
	if (r < 0)
		return r;
	j->rep.room_blks = log_room_blks(j->log);
	j->ring_payload_blks = j->rep.logged;
	j->rep.spilled = 0;
	if (j->rep.need_blks > j->rep.room_blks)
		r = plan_spill(j);
	if (r == 0)
		r = log_begin(j->log);
	if (r < 0)
		return r;
	r = write_direct(j);
	if (r == 0)
		r = write_logged(j);
	if (r == 0) {
		count_skips(j, true);
		r = log_end(j->log, j->opt->cause, j->opt->record_flags, ret_index);
		if (r < 0)
			count_skips(j, false);
	}
	if (r < 0)
		log_abort(j->log);
	return r;
}

void commit_bill(struct commit_report *rep, const struct log *log, const struct wear_ledger *before)
{
	struct wear_ledger now;

	log_totals(log, &now);
	rep->written_bytes += now.written_bytes - before->written_bytes;
	rep->write_calls += now.write_calls - before->write_calls;
	rep->flushes += now.flushes - before->flushes;
	rep->writable_ns += now.writable_ns - before->writable_ns;
	rep->meta += now.meta_blks - before->meta_blks;
	rep->visits += now.visits - before->visits;
}

static int run(struct job *j, void (*publish)(void *ctx, struct log_index *index), void *publish_ctx,
	       struct log_index **ret_index)
{
	uint64_t start_ns = now_ns();
	struct wear_ledger before;
	bool nothing;
	int r = classify_use(j), off;

	if (r == 0)
		r = classify_content(j);
	if (r == -EBADMSG && log_recheck(j->log) == -ESTALE)
		r = -ESTALE; /* another card in the slot has other content where the log was */
	if (r < 0)
		return r;
	price(j);
	r = plan(j);
	if (r < 0)
		return r;
	nothing = !j->rep.direct && !j->rep.logged && !j->rep.zero;
	if (!nothing && j->rep.need_blks > log_capacity_blks(j->log)) {
		/* said before anything is written; planned again when the room is known */
		j->rep.room_blks = log_capacity_blks(j->log);
		r = plan_spill(j);
		if (r < 0)
			return r;
	}
	if (j->opt->dry_run) {
		estimate(j);
		j->rep.duration_ns = now_ns() - start_ns;
		return 0;
	}
	if (nothing) {
		/* no used block differs: the committed state is this state */
		j->rep.meta = j->rep.erase_blocks = 0;
		count_skips(j, true);
		*ret_index = log_index_of(j->log);
		return 0;
	}
	log_totals(j->log, &before);
	r = set_writable(j->log, j->base, true);
	if (r < 0)
		return r;
	r = write_all(j, publish, publish_ctx, ret_index);
	/* the outcome stands; a card that stays writable shows in the next attempt */
	off = set_writable(j->log, j->base, false);
	(void)off;
	j->rep.meta = 0; /* it was an estimate */
	commit_bill(&j->rep, j->log, &before);
	j->rep.duration_ns = now_ns() - start_ns;
	return r;
}

int commit_run(struct log *log, struct card *base, const struct commit_source *src, const struct commit_options *opt,
	       void (*publish)(void *ctx, struct log_index *index), void *publish_ctx,
	       struct commit_report *ret_report, struct log_index **ret_index)
{
	struct job j = { .log = log, .base = base, .src = src, .opt = opt };
	struct log_index *older = log_older_index(log);
	int r;

	j.older = older;
	log_index_unref(older);
	j.buf = io_alloc(CHUNK_BLKS * COW_BLK_BYTES);
	j.old = io_alloc(CHUNK_BLKS * COW_BLK_BYTES);
	r = j.buf && j.old ? run(&j, publish, publish_ctx, ret_index) : -ENOMEM;
	*ret_report = j.rep;
	free(j.buf);
	free(j.old);
	extents_clear(&j.direct);
	extents_clear(&j.in_use);
	extents_clear(&j.logged);
	extents_clear(&j.zero);
	extents_clear(&j.punched);
	extents_clear(&j.spill);
	extents_clear(&j.runs);
	return r;
}

int commit_checkpoint(struct log *log, struct card *base, const struct commit_options *opt,
		      void (*publish)(void *ctx, struct log_index *index), void *publish_ctx,
		      enum record_type tail_type, uint64_t *ret_blks)
{
	int r, off;

	*ret_blks = 0;
	if (log_super(log)->state == SUPER_VIRGIN || log_rests(log, tail_type, opt->record_flags))
		return 0;
	r = set_writable(log, base, true);
	if (r < 0)
		return r;
	r = log_recheck(log);
	if (r == 0)
		r = log_prepare(log);
	if (r == 0)
		r = checkpoint(log, base, opt, opt->content, publish, publish_ctx, tail_type, opt->record_flags, ret_blks);
	off = set_writable(log, base, false);
	return r < 0 ? r : off;
}
