/* SPDX-License-Identifier: MIT */
/* Computes what a commit will write, and when a checkpoint is due. */
#include "commit/job.h"
#include "commit/plan.h"

/* a start reads every record of the chain; more records make it slow on a card */
#define MAX_CHAIN_RECORDS 200u

/* Erase blocks that a run touches, except `last`, the last one of the previous run. */
static uint64_t run_erase_blocks(const struct card_geometry *g, uint64_t blk, uint64_t blks,
				 uint64_t *last)
{
	uint64_t off = g->disk_off_bytes + blk_to_bytes(blk), a = off / g->erase_block_bytes;
	uint64_t b = (off + blk_to_bytes(blks) - 1) / g->erase_block_bytes,
		 n = b - a + (a != *last);

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
	uint64_t eb_bytes = j->base->geo.erase_block_bytes,
		 log_bytes = blk_to_bytes(j->rep.logged + j->rep.meta);

	j->rep.erase_blocks += extents_erase_blocks(j, &j->direct) +
			       (log_bytes + eb_bytes - 1) / eb_bytes;
}

void price(struct job *j)
{
	struct commit_report *r = &j->rep;
	uint64_t listed = log_super(j->log)->lag ? r->loose : 0; /* write_loose */

	r->erase_blocks = 0;
	r->direct = extents_blks(&j->direct);
	r->logged = extents_blks(&j->logged);
	r->zero = extents_blks(&j->zero) + extents_blks(&j->punched);
	r->direct_extents = j->direct.n;
	r->logged_extents = j->logged.n + j->zero.n + j->punched.n;
	/* runs are cut at CHUNK_BLKS */
	r->meta = log_meta_blks(j->log, r->logged, r->direct + listed,
				r->direct_extents + r->logged_extents + (listed ? j->loose.n : 0) +
					(r->direct + listed + r->logged) / CHUNK_BLKS);
	r->need_blks = r->logged + r->meta;
	r->room_blks = log_room_blks(j->log);
	count_erase_blocks(j);
}

/* Half of the log. With a profile, a checkpoint that was not asked for delays a shutdown only if
 * the log is nearly full. */
uint64_t price_due_blks(struct log *log, const struct commit_options *opt)
{
	uint64_t capacity = log_capacity_blks(log);

	return opt && opt->profile && opt->cause == CAUSE_SHUTDOWN ? capacity - capacity / 16
								   : capacity / 2;
}

/* Would a checkpoint be due if the log held this number of blocks and records? opt may be NULL. */
static bool price_is_due(struct log *log, const struct commit_options *opt, uint64_t data_blks,
			 uint64_t records)
{
	return !log_holds(log, NULL) &&
	       (data_blks > price_due_blks(log, opt) || records > MAX_CHAIN_RECORDS);
}

bool commit_checkpoint_due(struct log *log, const struct commit_options *opt)
{
	struct log_index *ix = log_index_of(log);
	uint64_t data_blks = log_index_data_blks(ix);

	log_index_unref(ix);
	return price_is_due(log, opt, data_blks, log_chain_records(log));
}

static uint64_t chunks(const struct extents *x)
{
	struct extents_chunk c = { 0 };
	uint64_t n = 0;

	while (extents_next_chunk(x, &c, CHUNK_BLKS))
		n++;
	return n;
}

static void estimate_home(struct commit_report *r, uint64_t blks, uint64_t extents,
			  uint64_t erase_blocks)
{
	/* begin record, home writes, tail record */
	r->checkpoint += blks;
	r->home_erase_blocks += erase_blocks + 2;
	r->meta += 2;
	r->flushes += 3;
	r->write_calls += 2 + blks / CHUNK_BLKS + extents;
}

/* Subtracts from *data and *zero the blocks of x in the index: a newer version replaces them. */
static void take_out(const struct log_index *ix, const struct extents *x, uint64_t *data,
		     uint64_t *zero)
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

/* One before the commit if the ring is short (write_all), and one after it if it is due or asked
 * for. */
static void estimate_checkpoints(struct job *j, bool nothing)
{
	struct commit_report *r = &j->rep;
	struct log_index *ix = log_index_of(j->log);
	uint64_t data = log_index_data_blks(ix), zero = log_index_zero_blks(ix),
		 records = log_chain_records(j->log);
	uint64_t capacity = log_capacity_blks(j->log), home_ebs = 0;

	if (!nothing && !j->held && (log_spilled(j->log) || r->need_blks > log_room_blks(j->log))) {
		estimate_home(r, data + zero, 0, index_erase_blocks(j, ix));
		data = zero = records = 0;
	} else {
		const struct extents *newer[] = { &j->direct, &j->logged, &j->zero, &j->punched };

		for (size_t i = 0; i < ARRAY_SIZE(newer); i++)
			take_out(ix, newer[i], &data, &zero);
		if (data || zero) /* blocks with a newer version in this commit may be among them */
			home_ebs = index_erase_blocks(j, ix);
	}
	log_index_unref(ix);
	if (!nothing && r->need_blks > capacity)
		r->spilled = r->need_blks - capacity;
	/* a log at rest has nothing to write home */
	if (price_is_due(j->log, j->opt, data + r->logged, records + !nothing) ||
	    (j->home_asked && (data || zero || r->logged || r->zero)))
		estimate_home(r, data + zero + r->logged + r->zero, r->logged_extents,
			      home_ebs + extents_erase_blocks(j, &j->logged) +
				      extents_erase_blocks(j, &j->zero) +
				      extents_erase_blocks(j, &j->punched));
}

void price_estimate(struct job *j)
{
	bool nothing = !j->rep.direct && !j->rep.logged && !j->rep.zero;
	struct commit_report *r = &j->rep;

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
	r->written_bytes =
		blk_to_bytes(r->direct + r->padded + r->logged + r->meta + r->checkpoint);
}
