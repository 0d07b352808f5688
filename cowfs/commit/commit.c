/* SPDX-License-Identifier: MIT */
/*
 * One commit. Every dirty block of the sealed image goes one of these ways; the first match wins:
 *
 *	free in the sealed file system		not written. If RAM must get shorter, and the live file
 *						system may need it: in place where no generation
 *						uses the block, without an entry in the log
 *						(with lag: with one)
 *	inside its jbd2 log, which is empty	not written
 *	  when sealed and continues the
 *	  committed one
 *	discarded (a hole)			zero record, unread: the checkpoint checks whether
 *						home is zero
 *	free in the committed file system,	direct: in place, before the record (with lag: also
 *	  and no metadata (metadata_uuid)	free in the previous generation, and read back by no
 *						candidate)
 *	same as in the committed image		not written
 *	all zero				zero record
 *	anything else				logged: to the ring. If the ring cannot hold it, it
 *						is spilled to blocks that are free in both images
 *						and each candidate, except metadata
 *
 * I1  Before the record is durable, no write touches a block that the committed generation uses:
 *     direct targets are free in it, everything else goes to the ring.
 * I2  "Same" is tested only for blocks that no attempt writes in place and no trim takes away: those that
 *     the committed file system uses. It is never tested after a failed attempt (R8).
 * I3  Spilled payload is checkpointed, and the tail record that says so durable, before
 *     anything else is written (R10): so no direct block and no checkpoint of a later commit can
 *     overwrite it.
 */
#include "commit/commit.h"

#include <errno.h>
#include <string.h>

#include "base/invariant.h"
#include "base/io.h"
#include "commit/job.h"
#include "commit/plan.h"

/* ---- write ---- */

/* On: both cards or none. Off: each card on its own. */
static int set_writable(struct log *log, struct card *base, bool on)
{
	struct card *lc = log_card(log);
	int r = card_set_writable(base, on), rl, off = 0;

	if (lc == base || (r < 0 && on))
		return r;
	rl = card_set_writable(lc, on);
	if (rl < 0 && on)
		off = card_set_writable(base, false);
	(void)off; /* the next attempt shows it */
	return r < 0 ? r : rl;
}

/* What was found still holds, and the card is writable until end_write, which is called in any case. */
static int begin_write(struct log *log, struct card *base)
{
	int r = set_writable(log, base, true);

	return r < 0 ? r : log_recheck(log);
}

static int end_write(struct log *log, struct card *base, int r)
{
	int off = set_writable(log, base, false);

	return r < 0 ? r : off;
}

/* Checks I1 again directly before the write. */
static int check_in_place(struct job *j, uint64_t blk, uint64_t blks)
{
	bool free = false;
	int r = classify_in_no_candidate(j, blk, blks, &free);

	if (r == 0 && !INVARIANT("I1 in place", free))
		r = -ENOTRECOVERABLE;
	return r == 0 ? log_may_write(j->log, blk, blks) : r;
}

/* Reads the blocks of j->direct in this chunk of j->runs from the sealed image; the gaps between
 * them become zero. *i: the first run of j->direct that may reach into the chunk. */
static int read_direct(struct job *j, const struct extents_chunk *c, size_t *i)
{
	uint64_t end = c->blk + c->blks;

	if (j->rep.padded)
		memset(j->buf, 0, blk_to_bytes(c->blks));
	for (size_t k = *i; k < j->direct.n && j->direct.e[k].blk < end; k++) {
		const struct extent_run *e = &j->direct.e[k];
		uint64_t from = max_u64(e->blk, c->blk), to = min_u64(e->blk + e->blks, end);
		int r = from < to ? j->src->read_sealed(j->src->ctx, from, to - from,
							j->buf + blk_to_bytes(from - c->blk))
				  : 0;

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
			r = check_in_place(j, c.blk, c.blks);
		if (r == 0)
			r = card_write(j->base, blk_to_bytes(c.blk), j->buf, blk_to_bytes(c.blks));
		for (size_t k = first; k <= i && k < j->direct.n && r == 0; k++) {
			const struct extent_run *e = &j->direct.e[k];
			uint64_t from = max_u64(e->blk, c.blk), to = min_u64(e->blk + e->blks, end);

			if (from >= to)
				continue;
			r = log_add_direct(j->log, from, to - from,
					   j->buf + blk_to_bytes(from - c.blk));
			direct += to - from;
		}
		if (r < 0)
			return r;
		log_ledger(j->log)->padded_blks += c.blks - direct;
		done += direct;
		job_progress(j, PHASE_DIRECT, done, j->rep.direct + j->rep.logged);
	}
	return INVARIANT("commit sums", done == j->rep.direct) ? 0 : -ENOTRECOVERABLE;
}

/* The record has nothing of them: a cut leaves blocks that no generation uses. The next image may use them, and with lag
 * the card may lose them and keep the record of that: then they are read back as direct ones are. */
static int write_loose(struct job *j)
{
	const bool lag = log_super(j->log)->lag;
	struct extents_chunk c = { 0 };
	int r = 0;

	while (r == 0 && extents_next_chunk(&j->loose, &c, CHUNK_BLKS)) {
		r = j->src->read_loose(j->src->ctx, c.blk, c.blks, j->buf);
		if (r == 0)
			r = check_in_place(j, c.blk, c.blks);
		if (r == 0)
			r = card_write(j->base, blk_to_bytes(c.blk), j->buf, blk_to_bytes(c.blks));
		if (r == 0 && lag)
			r = log_add_direct(j->log, c.blk, c.blks, j->buf);
		if (r < 0)
			break;
		log_ledger(j->log)->padded_blks += lag ? 0 : c.blks;
		j->src->wrote_loose(j->src->ctx, c.blk, c.blks);
	}
	return r;
}

/* Writes a chunk of payload: to the ring while it has room, then to the spill blocks. */
static int write_payload(struct job *j, const struct extents_chunk *c, struct extents_chunk *to)
{
	uint64_t n = min_u64(c->blks, j->ring_payload_blks);
	int r = n ? log_add_logged(j->log, c->blk, n, j->buf) : 0;

	j->ring_payload_blks -= n;
	while (n < c->blks && r == 0) {
		bool more = extents_next_chunk(&j->spill, to, c->blks - n);

		if (!INVARIANT("spill room", more)) /* decide_spill counted them */
			return -ENOTRECOVERABLE;
		r = check_in_place(j, to->blk, to->blks);
		if (r == 0)
			r = log_add_spilled(j->log, c->blk + n, to->blks, to->blk,
					    j->buf + blk_to_bytes(n));
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

static int write_list(struct job *j, const struct extents *x, struct extents_chunk *to,
		      uint64_t *done)
{
	struct extents_chunk c = { 0 };
	int r = 0;

	while (r == 0 && extents_next_chunk(x, &c, CHUNK_BLKS)) {
		r = j->src->read_sealed(j->src->ctx, c.blk, c.blks, j->buf);
		if (r == 0)
			r = write_payload(j, &c, to);
		*done += c.blks;
		job_progress(j, PHASE_LOG, *done, j->rep.direct + j->rep.logged);
	}
	return r;
}

static int write_logged(struct job *j)
{
	struct extents_chunk to = { 0 };
	struct extents rest = { 0 };
	uint64_t done = j->rep.direct;
	int r = extents_without(&rest, &j->logged, &j->stays);

	if (r == 0) /* while the ring has room: decide_spill */
		r = write_list(j, &j->stays, &to, &done);
	if (r == 0)
		r = write_list(j, &rest, &to, &done);
	extents_clear(&rest);
	if (r == 0 && !INVARIANT("commit sums", done == j->rep.direct + j->rep.logged))
		return -ENOTRECOVERABLE;
	if (r == 0)
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
	struct job *j;
	int error;
};

static bool bridge(void *ctx, uint64_t end_blk, uint64_t next_blk, uint64_t written_blks,
		   uint64_t next_blks)
{
	struct gaps *g = ctx;
	bool free = false;

	if (g->error || !plan_bridges(g->j->opt->profile, g->j->base->geo.disk_off_bytes, end_blk,
				      next_blk, written_blks, next_blks))
		return false;
	g->error = classify_is_free(g->j, end_blk, next_blk - end_blk, &free);
	/* a gap whose use is unknown is not bridged; an error there shows up where it matters */
	return !g->error && free;
}

/* What a commit writes in place was chosen before its checkpoint. */
static bool writes_in_place(void *ctx, uint64_t blk)
{
	const struct job *j = ctx;
	uint64_t from = blk_to_bytes(blk), to = from + COW_BLK_BYTES;

	return extents_covered_bytes(&j->runs, from, to) ||
	       extents_covered_bytes(&j->spill, from, to);
}

/* Never what this commit replaces: a cut between the checkpoint and its record would leave zeroes, and the error may not last. */
static bool give_up(void *ctx, uint64_t blk)
{
	struct job *j = ctx;
	bool free = false;

	return classify_in_no_candidate(j, blk, 1, &free) == 0 && free;
}

/* Writes the log home, moves readers off the old index, then writes the record with the new
 * tail. */
static int checkpoint(struct job *j, const struct log_content *content,
		      void (*publish)(void *ctx, struct log_index *index), void *publish_ctx,
		      enum record_type type, uint32_t flags)
{
	const struct commit_options *opt = j->opt;
	struct log *log = j->log;
	struct home_progress hp = { .fn = opt->progress, .ctx = opt->progress_ctx };
	struct gaps gaps = { .j = j };
	struct log_content cheap = content ? *content : (struct log_content){ 0 };
	uint64_t before = log_ledger(log)->checkpoint_blks;
	struct log_index *ix;
	int r;

	/* spilled payload waits in free blocks */
	cheap.bridge = opt->profile &&
				       plan_fills(opt->profile, job_is_last(j),
						  extents_blks(&j->direct)) &&
				       j->src && !log_spilled(log)
			       ? bridge
			       : NULL;
	cheap.bridge_ctx = &gaps;
	cheap.writes = writes_in_place;
	cheap.writes_ctx = j;
	if (!cheap.give_up && j->src) {
		cheap.give_up = give_up;
		cheap.give_up_ctx = j;
	}
	cheap.stop = opt->stop;
	cheap.stop_ctx = opt->stop_ctx;
	cheap.unit_bytes = opt->profile && opt->profile->unit_bytes
				   ? opt->profile->unit_bytes
				   : j->base->geo.erase_block_bytes;
	cheap.open_units = plan_open_units(opt->profile);
	cheap.unguards = !j->sealed && !opt->goes_on;
	r = log_checkpoint(log, &cheap, home_progress, &hp, &ix);

	j->rep.checkpoint += log_ledger(log)->checkpoint_blks - before;
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

/* The card is writable. */
static int write_all(struct job *j, void (*publish)(void *ctx, struct log_index *index),
		     void *publish_ctx, struct log_index **ret_index)
{
	const unsigned open_units = plan_open_units(j->opt->profile);
	int r = log_recheck(j->log);

	if (r == 0)
		r = log_prepare(j->log);
	if (r == 0 && !j->held && (log_spilled(j->log) || j->rep.need_blks > log_room_blks(j->log)))
		r = checkpoint(j, NULL, publish, publish_ctx, RECORD_TAIL, 0);
	if (r < 0)
		return r;
	j->rep.room_blks = log_room_blks(j->log);
	j->ring_payload_blks = j->rep.logged;
	j->rep.spilled = 0;
	if (j->rep.need_blks > j->rep.room_blks)
		r = decide_spill(j);
	if (r == 0)
		r = log_begin(j->log);
	if (r < 0)
		return r;
	if (j->home_asked && open_units)
		log_begin_fresh(j->log, j->rep.units, open_units, j->rep.need_blks);
	r = write_direct(j);
	if (r == 0)
		r = write_loose(j);
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

/* Each block in RAM goes exactly one way. */
static bool sums_hold(const struct commit_report *r)
{
	return r->dirty + r->holes == r->skipped_free + r->loose + r->skipped_journal +
					      r->skipped_holes + r->skipped_same + r->direct +
					      r->logged + r->zero;
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

static int run(struct job *j, void (*publish)(void *ctx, struct log_index *index),
	       void *publish_ctx, struct log_index **ret_index)
{
	uint64_t start_ns = now_ns();
	struct wear_ledger before;
	bool nothing;
	int r = classify_use(j);

	if (r == 0)
		r = classify_content(j);
	if (r < 0)
		return log_read_error(j->log, r);
	price(j);
	r = decide_direct(j);
	if (r == 0 && !INVARIANT("commit sums", sums_hold(&j->rep)))
		r = -ENOTRECOVERABLE;
	if (r < 0)
		return r;
	/* after a failed attempt, whose record may be on the card, only a newer record says that the
	 * committed state is still the newest one */
	nothing = !j->rep.direct && !j->rep.logged && !j->rep.zero && !j->rep.loose &&
		  (!log_doubt(j->log) || j->opt->dry_run);
	if (!nothing && j->rep.need_blks > job_capacity_blks(j)) {
		/* report this before anything is written; planned again when the room is known */
		j->rep.room_blks = job_capacity_blks(j);
		r = decide_spill(j);
		if (r < 0)
			return r;
	}
	if (j->opt->dry_run) {
		price_estimate(j);
		j->rep.duration_ns = now_ns() - start_ns;
		return 0;
	}
	if (nothing) {
		/* no used block differs: the committed state is already this state */
		j->rep.meta = j->rep.erase_blocks = 0;
		count_skips(j, true);
		/* what the session has found may be in the cache of the card only */
		r = log_newest(j->log)->seq ? log_settle(j->log) : 0;
		if (r == 0)
			*ret_index = log_index_of(j->log);
		return r;
	}
	log_totals(j->log, &before);
	r = set_writable(j->log, j->base, true);
	if (r < 0)
		return r;
	r = write_all(j, publish, publish_ctx, ret_index);
	/* the result stands; the caller sees a card that stays writable */
	(void)!set_writable(j->log, j->base, false);
	j->rep.meta = 0; /* the estimate */
	commit_bill(&j->rep, j->log, &before);
	j->rep.duration_ns = now_ns() - start_ns;
	return r;
}

static bool has_older(const struct log *log)
{
	struct log_index *older = log_older_index(log);

	log_index_unref(older);
	return older;
}

static int run_job(struct job *j, void (*publish)(void *ctx, struct log_index *index),
		   void *publish_ctx, struct log_index **ret_index)
{
	int r;

	j->buf = io_alloc_raw(CHUNK_BLKS * COW_BLK_BYTES);
	j->old = io_alloc_raw(CHUNK_BLKS * COW_BLK_BYTES);
	r = j->buf && j->old ? run(j, publish, publish_ctx, ret_index) : -ENOMEM;
	free(j->buf);
	free(j->old);
	extents_clear(&j->direct);
	extents_clear(&j->in_use);
	extents_clear(&j->logged);
	extents_clear(&j->zero);
	extents_clear(&j->punched);
	extents_clear(&j->loose);
	extents_clear(&j->spill);
	extents_clear(&j->stays);
	extents_clear(&j->runs);
	return r;
}

/* After a commit that has no room beside a hold: nobody is to end that for one that has none without it either. */
static void try_without_hold(struct job *j)
{
	struct commit_options dry = *j->opt;
	/* the end of a hold also writes records, so there is no older candidate */
	struct job alone = { .log = j->log,
			     .base = j->base,
			     .src = j->src,
			     .opt = &dry,
			     .home_asked = dry.checkpoint_asked,
			     .sealed = true };
	uint64_t differed = dry.differed ? *dry.differed : 0;
	int r;

	dry.dry_run = true;
	dry.progress = NULL;
	dry.differed = dry.differed ? &differed : NULL;
	r = run_job(&alone, NULL, NULL, NULL);
	if (r == -EFBIG)
		j->rep = alone.rep;
	j->rep.held = r != -EFBIG;
}

int commit_run(struct log *log, struct card *base, const struct commit_source *src,
	       const struct commit_options *opt,
	       void (*publish)(void *ctx, struct log_index *index), void *publish_ctx,
	       struct commit_report *ret_report, struct log_index **ret_index)
{
	struct job j = { .log = log,
			 .base = base,
			 .src = src,
			 .opt = opt,
			 .older = has_older(log),
			 .held = log_holds(log, NULL),
			 .sealed = true };
	int r;

	j.home_asked = opt->checkpoint_asked && !j.held;
	r = run_job(&j, publish, publish_ctx, ret_index);
	if (r == -EFBIG && j.held)
		try_without_hold(&j);
	*ret_report = j.rep;
	return r;
}

int commit_checkpoint(struct log *log, struct card *base, const struct commit_options *opt,
		      void (*publish)(void *ctx, struct log_index *index), void *publish_ctx,
		      enum record_type tail_type, uint64_t *ret_blks)
{
	struct job j = {
		.log = log, .base = base, .src = opt->uses, .opt = opt, .older = has_older(log)
	};
	int r;

	*ret_blks = 0;
	if (log_holds(log, NULL))
		return -EBUSY;
	if (log_super(log)->state == SUPER_VIRGIN)
		return 0;
	if (log_rests(log, tail_type, opt->record_flags) && (opt->goes_on || !log_guarded(log)))
		return log_settle(log); /* what rests may do so in the cache of the card only */
	r = begin_write(log, base);
	if (r == 0)
		r = log_prepare(log);
	/* with lag that may have written a record */
	if (r == 0 && !log_rests(log, tail_type, opt->record_flags))
		r = checkpoint(&j, opt->content, publish, publish_ctx, tail_type,
			       opt->record_flags);
	if (r == 0 && !opt->goes_on)
		r = log_unguard(log);
	*ret_blks = j.rep.checkpoint;
	return end_write(log, base, r);
}

int commit_hold(struct log *log, struct card *base, struct log_index **ret_index)
{
	return end_write(log, base, begin_write(log, base) ?: log_hold(log, ret_index));
}

int commit_release(struct log *log, struct card *base)
{
	return end_write(log, base, begin_write(log, base) ?: log_release(log));
}

int commit_go_back(struct log *log, struct card *base, bool on)
{
	return end_write(log, base, begin_write(log, base) ?: log_go_back(log, on));
}

int commit_try(struct log *log, struct card *base, unsigned boots)
{
	return end_write(log, base, begin_write(log, base) ?: log_try(log, boots));
}

int commit_set_image(struct log *log, struct card *base, uint32_t image, uint8_t boots)
{
	return end_write(log, base, begin_write(log, base) ?: log_set_image(log, image, boots));
}

int commit_put_order(struct log *log, struct card *base, const struct log_hold *h)
{
	return end_write(log, base, begin_write(log, base) ?: log_put_order(log, h));
}

int commit_set_imported(struct log *log, struct card *base, uint64_t imported_s, uint64_t offered_s)
{
	return end_write(log, base,
			 begin_write(log, base) ?: log_set_imported(log, imported_s, offered_s));
}

int commit_note(struct log *log, struct card *base)
{
	return end_write(log, base, begin_write(log, base) ?: log_note(log));
}
