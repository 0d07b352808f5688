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
	bool older;  /* recovery may choose another image than the committed one (lag) */
	bool sealed; /* there is a sealed image: not in a checkpoint alone */
	struct extents direct, in_use, logged, zero, punched;
	struct extents runs;  /* direct, and gaps between them that are written, too (plan.h) */
	struct extents spill; /* where payload goes that the ring cannot hold; once spill_known */
	bool spill_known;
	uint64_t ring_payload_blks; /* what it can */
	uint8_t *buf, *old;	    /* CHUNK_BLKS blocks each */
};

static inline void job_progress(const struct job *j, enum commit_phase phase, uint64_t done,
				uint64_t total)
{
	if (j->opt->progress)
		j->opt->progress(j->opt->progress_ctx, phase, done, total);
}

/* ---- classify.c: fills direct, logged, zero and punched, and what is skipped ---- */

int classify_use(struct job *j) MUST_CHECK;
/* What is used in both images is compared by content, and zeros are found. */
int classify_content(struct job *j) MUST_CHECK;
/* Does no generation that recovery may choose before this commit is durable use these blocks?
 * USE_USED if one does. For how many blocks from blk on, at most max_blks. */
int classify_candidates(struct job *j, uint64_t blk, uint64_t max_blks, enum blk_use *ret,
			uint64_t *ret_blks) MUST_CHECK;
/* Nor the sealed image: if the newest of those generations was not frozen, the live file system may
 * have something there. */
int classify_all(struct job *j, uint64_t blk, uint64_t max_blks, enum blk_use *ret,
		 uint64_t *ret_blks) MUST_CHECK;
/* The same of all blocks of a range; job is a struct job. */
int classify_is_free(void *job, uint64_t blk, uint64_t blks, bool *ret) MUST_CHECK;
/* No image that recovery may choose before this commit is durable uses one of these blocks. */
int classify_in_no_candidate(struct job *j, uint64_t blk, uint64_t blks, bool *ret) MUST_CHECK;

/* ---- estimate.c ---- */

/* The bill as far as it follows from the lists. */
void price(struct job *j);
/* What a dry run says. */
void price_estimate(struct job *j);
/* Would the log be due for a checkpoint with so many blocks and records in it? opt may be NULL. */
bool price_is_due(struct log *log, const struct commit_options *opt, uint64_t data_blks,
		  uint64_t records);
/* From so many blocks on. */
uint64_t price_due_blks(struct log *log, const struct commit_options *opt);

/* ---- decide.c: where the blocks go ---- */

/* By the profile of the card, if there is one (plan.h): moves some of direct to logged. Fills runs,
 * and what the bill has of the plan. */
int decide_direct(struct job *j) MUST_CHECK;
/* The ring is too small: as much payload there as it holds, the rest to free blocks, or else to
 * lent room. -EFBIG: not enough. */
int decide_spill(struct job *j) MUST_CHECK;

#endif
