/* SPDX-License-Identifier: MIT */
/* Private to commit/: one commit on its way through classify.c, estimate.c, decide.c and
 * commit.c. */
#ifndef COWFS_COMMIT_JOB_H
#define COWFS_COMMIT_JOB_H

#include "commit/commit.h"
#include "fs/extents.h"

#define CHUNK_BLKS 256u /* 1 MiB: one read, one write */

struct job {
	struct log *log;
	struct card *base;
	const struct commit_source *src;
	const struct commit_options *opt;
	struct commit_report rep;
	bool held;	 /* a generation is held */
	bool home_asked; /* a checkpoint is asked for, and nothing is held */
	bool older;	 /* recovery may choose an image other than the committed one (lag) */
	bool sealed;	 /* there is a sealed image; false for a checkpoint alone */
	struct extents direct, in_use, logged, zero, punched, loose;
	struct extents runs;  /* direct, and the gaps between them that are also written (plan.h) */
	struct extents spill; /* for payload that the ring cannot hold; valid once spill_known */
	struct extents stays; /* part of logged that does not go there: metadata; likewise */
	bool spill_known;
	uint64_t ring_payload_blks; /* payload that the ring can hold */
	uint8_t *buf, *old;	    /* CHUNK_BLKS blocks each */
};

/* What the ring can hold, also for a plan as if nothing were held. */
static inline uint64_t job_capacity_blks(const struct job *j)
{
	return !j->held && log_holds(j->log, NULL) ? super_capacity_blks(log_super(j->log))
						   : log_capacity_blks(j->log);
}

/* The last one of a session? */
static inline bool job_is_last(const struct job *j)
{
	return j->opt->cause == CAUSE_SHUTDOWN || j->opt->cause == CAUSE_DETACH;
}

static inline void job_progress(const struct job *j, enum commit_phase phase, uint64_t done,
				uint64_t total)
{
	if (j->opt->progress)
		j->opt->progress(j->opt->progress_ctx, phase, done, total);
}

/* ---- classify.c: fills direct, logged, zero, punched and loose, and the skip counters ---- */

int classify_use(struct job *j) MUST_CHECK;
/* Compares the content of blocks that are used in both images, and finds zeros. */
int classify_content(struct job *j) MUST_CHECK;
/* Are these blocks free in every generation that recovery may choose before this commit is durable, and
 * in the sealed image? USE_USED if one uses them, or the live file system may (loose of
 * commit_source). *ret_blks: number of blocks from blk on with this answer, at most max_blks. */
int classify_all(struct job *j, uint64_t blk, uint64_t max_blks, enum blk_use *ret,
		 uint64_t *ret_blks) MUST_CHECK;
/* May something else be written over these blocks? As classify_all for all of a range; job is a struct job. */
int classify_is_free(void *job, uint64_t blk, uint64_t blks, bool *ret) MUST_CHECK;
/* *ret: no image that recovery may choose before this commit is durable uses one of these
 * blocks. */
int classify_in_no_candidate(struct job *j, uint64_t blk, uint64_t blks, bool *ret) MUST_CHECK;

/* Adds these blocks of the sealed image to one of two lists. A commit that is cut must not leave metadata
 * (commit.h, metadata_uuid) in free blocks. Uses j->buf. */
int classify_metadata(struct job *j, uint64_t blk, uint64_t blks, struct extents *metadata,
		      struct extents *rest) MUST_CHECK;

/* ---- estimate.c ---- */

/* Fills the parts of the report that follow from the lists. */
void price(struct job *j);
/* Fills the report of a dry run. */
void price_estimate(struct job *j);
/* A checkpoint is due above this number of blocks. */
uint64_t price_due_blks(struct log *log, const struct commit_options *opt);

/* ---- decide.c: the places of the blocks ---- */

/* With a profile of the card (plan.h), moves some blocks of direct to logged. Fills runs, and the
 * figures of the plan in the report. */
int decide_direct(struct job *j) MUST_CHECK;
/* For a ring that is too small: it gets as much payload as it can hold. The rest goes to free
 * blocks. -EFBIG: not enough room. */
int decide_spill(struct job *j) MUST_CHECK;

#endif
