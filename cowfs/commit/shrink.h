/* SPDX-License-Identifier: MIT */
/*
 * Makes an ext2/3/4 file system smaller, and the log behind it, in one atomic step: what a smaller
 * image needs changed on the card goes there as one commit. Crash argument: docs/FORMAT.md,
 * "Shrink". Knows no daemon and no programs, so that the simulated card can try every cut.
 */
#ifndef COWFS_COMMIT_SHRINK_H
#define COWFS_COMMIT_SHRINK_H

#include "commit/commit.h"

/* The smaller image over the card. */
struct shrink_image {
	void *ctx;
	uint64_t fs_bytes; /* its size */
	uint8_t lag;	   /* of the log that will stay */
	/* next run that may differ from the card at or after *blk, see generation_next */
	bool (*next)(void *ctx, uint64_t *blk, uint64_t max_blks, uint64_t *ret_blks,
		     enum blk_state *ret_state);
	int (*read)(void *ctx, uint64_t blk, uint64_t blks, void *buf);
};

struct shrink_report {
	struct commit_report commit;
	uint64_t home_blks;
	uint64_t ring_bytes;	/* of the log that this one commit used */
	struct log_super super; /* of the log that is there now */
	/* with an error: the smaller file system stands all the same, shrink_finish goes on */
	bool committed;
	char why[200]; /* sentence for people when error */
};

/*
 * The largest log that fits behind a file system of this size, for erase blocks of base->geo.
 * -ENOSPC, -EINVAL.
 */
int shrink_plan(struct card *base, uint64_t fs_bytes, struct log_super *ret) MUST_CHECK;

/*
 * Commits the image, brings it home and writes the log's super record. The card is unmounted, its
 * file system clean and its bitmaps right (e2fsck found nothing). Any error before `committed`: the
 * card holds the old file system, nothing of it was touched. -ENOSPC: no place for the super record
 * or the short log in free blocks; -EFBIG: the commit does not fit into that; -EUCLEAN: a bitmap or
 * the journal is not as it should be; -ECANCELED never.
 */
int shrink_commit(struct card *base, const struct shrink_image *img,
		  const struct commit_options *opt, struct shrink_report *ret) MUST_CHECK;

/*
 * Goes on where a cut ended it. pending: as super_find found it. flags as for log_open.
 * 0: finished. -ESTALE: committed, but the file system was changed since by another program:
 * nothing was written; -EUCLEAN: what was committed is damaged, nothing was written.
 */
int shrink_finish(struct card *base, const struct log_super *pending, unsigned flags,
		  const struct commit_options *opt, struct shrink_report *ret) MUST_CHECK;

/* The file system as it is now is right: forgets a shrink that waits. */
int shrink_forget(struct card *base, const struct log_super *pending) MUST_CHECK;

#endif
