/* SPDX-License-Identifier: MIT */
/* Chooses the way of each dirty block: the table in commit.c. */
#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "base/io.h"
#include "commit/job.h"

/* after 16 MiB without an equal block, only every 16th chunk is compared, until one is found */
#define COMPARE_BLKS 4096u
#define COMPARE_EVERY 16u
#define CLASSIFY_BLKS (64 * KIB) /* classified per step */

typedef int run_fn(void *ctx, uint64_t blk, uint64_t max_blks, enum blk_use *ret,
		   uint64_t *ret_blks);

/* Use of blk, and the number of blocks from it on with this use. Without a classifier: all used. */
static int use_run(const struct commit_source *s, run_fn *run, uint64_t blk, uint64_t max_blks,
		   enum blk_use *ret, uint64_t *ret_blks)
{
	if (run)
		return run(s->ctx, blk, max_blks, ret, ret_blks);
	*ret = USE_USED;
	*ret_blks = max_blks;
	return 0;
}

/* USE_USED if a generation that recovery may choose before this commit is durable uses these blocks. *ret_blks: number of blocks from
 * blk on with this answer, at most max_blks. */
static int classify_candidates(struct job *j, uint64_t blk, uint64_t max_blks, enum blk_use *ret,
			       uint64_t *ret_blks)
{
	const struct commit_source *s = j->src;
	bool held = false;
	int r = use_run(s, s->run_committed, blk, max_blks, ret, ret_blks);

	if (r == 0 && *ret == USE_FREE && j->older)
		r = use_run(s, s->run_older, blk, *ret_blks, ret, ret_blks);
	if (r == 0 && *ret == USE_FREE && j->held) /* H1 */
		r = use_run(s, s->run_held, blk, *ret_blks, ret, ret_blks);
	if (r == 0 && *ret == USE_FREE)
		*ret_blks = log_held_run(j->log, blk, *ret_blks, &held);
	if (held)
		*ret = USE_USED;
	return r;
}

int classify_all(struct job *j, uint64_t blk, uint64_t max_blks, enum blk_use *ret,
		 uint64_t *ret_blks)
{
	const struct commit_source *s = j->src;
	int r = classify_candidates(j, blk, max_blks, ret, ret_blks);

	if (r == 0 && *ret == USE_FREE && s->loose)
		r = use_run(s, s->run_loose, blk, *ret_blks, ret, ret_blks);
	return r == 0 && *ret == USE_FREE && j->sealed
		       ? use_run(s, s->run_sealed, blk, *ret_blks, ret, ret_blks)
		       : r;
}

int classify_in_no_candidate(struct job *j, uint64_t blk, uint64_t blks, bool *ret)
{
	enum blk_use use = USE_FREE;
	uint64_t n;
	int r = 0;

	for (uint64_t i = 0; i < blks && r == 0 && use == USE_FREE; i += n)
		r = classify_candidates(j, blk + i, blks - i, &use, &n);
	*ret = use == USE_FREE;
	return r;
}

int classify_is_free(void *job, uint64_t blk, uint64_t blks, bool *ret)
{
	enum blk_use use = USE_FREE;
	uint64_t n;
	int r = 0;

	for (uint64_t i = 0; i < blks && r == 0 && use == USE_FREE; i += n)
		r = classify_all(job, blk + i, blks - i, &use, &n);
	*ret = use == USE_FREE;
	return r;
}

static bool is_metadata(const uint8_t *p, const uint8_t *uuid)
{
	for (size_t i = 0; i < COW_BLK_BYTES; i += 8)
		if (!memcmp(p + i, uuid, 8) && i + 16 <= COW_BLK_BYTES && !memcmp(p + i, uuid, 16))
			return true;
	return false;
}

int classify_metadata(struct job *j, uint64_t blk, uint64_t blks, struct extents *metadata,
		      struct extents *rest)
{
	const uint8_t *uuid = j->src->metadata_uuid;
	uint64_t n;
	int r = 0;

	if (!uuid)
		return extents_add(rest, blk, blks);
	for (; blks && r == 0; blk += n, blks -= n) {
		n = min_u64(blks, CHUNK_BLKS);
		r = j->src->read_sealed(j->src->ctx, blk, n, j->buf);
		for (uint64_t i = 0; i < n && r == 0; i++)
			r = extents_add(is_metadata(j->buf + blk_to_bytes(i), uuid) ? metadata
										    : rest,
					blk + i, 1);
	}
	return r;
}

/* Content of a free block for the live file system. An entry of the log would be read in its place, and a checkpoint
 * would write over it. */
static int classify_loose(struct job *j, uint64_t blk, uint64_t max_blks, uint64_t *ret_blks)
{
	struct log_index *ix = log_index_of(j->log);
	enum log_where where;
	enum blk_use old;
	uint64_t n = log_index_run(ix, blk, max_blks, &where);
	int r = classify_candidates(j, blk, n, &old, ret_blks);

	log_index_unref(ix);
	if (r < 0)
		return r;
	if (old != USE_FREE || where != LOG_HOME ||
	    j->src->note_loose(j->src->ctx, blk, *ret_blks) < 0) {
		j->rep.skipped_free += *ret_blks;
		return 0;
	}
	j->rep.loose += *ret_blks;
	return extents_add(&j->loose, blk, *ret_blks);
}

/* Classifies the blocks from blk on that go the same way; *ret_blks: their number. */
static int classify_run(struct job *j, uint64_t blk, uint64_t max_blks, bool hole,
			uint64_t *ret_blks)
{
	const struct commit_source *s = j->src;
	enum blk_use use, old;
	uint64_t n;
	int r = use_run(s, s->run_sealed, blk, max_blks, &use, &n);

	if (r < 0)
		return r;
	*ret_blks = n;
	if (use == USE_FREE && !hole && s->read_loose)
		return classify_loose(j, blk, n, ret_blks);
	if (use != USE_USED) {
		*(hole		    ? &j->rep.skipped_holes
		  : use == USE_FREE ? &j->rep.skipped_free
				    : &j->rep.skipped_journal) += n;
		return 0;
	}
	if (hole)
		return extents_add(&j->punched, blk, n);
	r = classify_candidates(j, blk, n, &old, ret_blks);
	if (r < 0)
		return r;
	/* free in the committed image: written in place */
	return old == USE_FREE ? classify_metadata(j, blk, *ret_blks, &j->in_use, &j->direct)
			       : extents_add(&j->in_use, blk, *ret_blks);
}

int classify_use(struct job *j)
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
		job_progress(j, PHASE_CLASSIFY, j->rep.dirty + j->rep.holes, 0);
	}
	return 0;
}

static bool is_renewed(const struct job *j, const struct extents_chunk *c)
{
	return j->opt->renew && extents_covered_bytes(j->opt->renew, blk_to_bytes(c->blk),
						      blk_to_bytes(c->blk + c->blks));
}

/* Does the card fail to read what these blocks were before? */
static bool read_old(struct job *j, const struct extents_chunk *c, int *ret)
{
	int r = j->src->read_committed(j->src->ctx, c->blk, c->blks, j->old);
	bool fails = io_lost(r);

	*ret = fails ? 0 : r;
	return fails;
}

/* As in job.h. */
int classify_content(struct job *j)
{
	struct extents_chunk c = { 0 };
	/* consecutive compared blocks that differed */
	uint64_t differed = j->opt->differed ? *j->opt->differed : 0;

	for (uint64_t n = 0; extents_next_chunk(&j->in_use, &c, CHUNK_BLKS); n++) {
		/* for a file overwritten with other content, reading the old content is useless,
		 * except for a sample */
		bool renewed = is_renewed(j, &c);
		bool fails = false;
		bool compare = !log_doubt(j->log) && !renewed &&
			       (differed < COMPARE_BLKS || n % COMPARE_EVERY == 0);
		int r = j->src->read_sealed(j->src->ctx, c.blk, c.blks, j->buf);

		if (r == 0 && compare)
			fails = read_old(j, &c, &r);
		/* what cannot be read is written, also where it is zero */
		renewed |= fails;
		compare &= !fails;
		for (uint64_t i = 0; i < c.blks && r == 0; i++) {
			const uint8_t *p = j->buf + blk_to_bytes(i);

			bool same = compare && !memcmp(p, j->old + blk_to_bytes(i), COW_BLK_BYTES),
			     free = false;

			/* a trimmed block that reads as zeros today may read as anything else tomorrow */
			if (same && log_ledger(j->log)->trims)
				same = !bytes_all_zero(p, COW_BLK_BYTES);
			/* metadata in a free block, which does not keep its content once it is trimmed */
			if (same && j->src->metadata_uuid)
				r = classify_in_no_candidate(j, c.blk + i, 1, &free);
			same &= !free;
			differed = same ? 0 : differed + compare;
			j->rep.skipped_same += same;
			if (!same && r == 0)
				/* a checkpoint writes no zeroes where it reads zeroes */
				r = extents_add(!renewed && bytes_all_zero(p, COW_BLK_BYTES)
							? &j->zero
							: &j->logged,
						c.blk + i, 1);
		}
		if (r < 0)
			return r;
	}
	if (j->opt->differed)
		*j->opt->differed = differed;
	return 0;
}
