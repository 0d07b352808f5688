/* SPDX-License-Identifier: MIT */
/*
 * Makes an ext2/3/4 file system smaller, and the log behind it, in one atomic step: one commit
 * writes everything that the smaller image changes on the card. Crash argument: docs/FORMAT.md,
 * "Shrink". Independent of the daemon and of programs, so that the simulated card can try every
 * cut.
 */
#ifndef COWFS_COMMIT_SHRINK_H
#define COWFS_COMMIT_SHRINK_H

#include "commit/commit.h"

/* The smaller image over the card. */
struct shrink_image {
	void *ctx;
	uint64_t fs_bytes; /* size of the smaller file system */
	uint8_t lag;	   /* of the log that stays */
	/* next run that may differ from the card at or after *blk, see generation_next */
	bool (*next)(void *ctx, uint64_t *blk, uint64_t max_blks, uint64_t *ret_blks,
		     enum blk_state *ret_state);
	int (*read)(void *ctx, uint64_t blk, uint64_t blks, void *buf);
};

struct shrink_report {
	struct commit_report commit;
	uint64_t home_blks;
	struct log_super super; /* of the log that exists now */
	/* with an error: the smaller file system is valid nevertheless, and shrink_finish completes
	 * it */
	bool committed;
	char why[200]; /* sentence for a user, set on error */
};

/*
 * Commits the image, writes it home and writes the log's superblock. The card is unmounted, its
 * file system clean and its bitmaps correct (e2fsck found nothing). After any error before
 * `committed` the card holds the untouched old file system. -ENOSPC: free blocks have no place for
 * the superblock of the log or for the short log; -EFBIG: the commit does not fit there; -EUCLEAN:
 * a bitmap or the journal is not valid; never -ECANCELED.
 */
int shrink_commit(struct card *base, const struct shrink_image *img,
		  const struct commit_options *opt, struct shrink_report *ret) MUST_CHECK;

/*
 * Completes a shrink after a cut. pending: as super_find found it. flags as for log_open.
 * 0: finished. -ESTALE: committed, but then another program changed the file system: nothing was
 * written; -EUCLEAN: the committed content is damaged, nothing was written.
 */
int shrink_finish(struct card *base, const struct log_super *pending, unsigned flags,
		  const struct commit_options *opt, struct shrink_report *ret) MUST_CHECK;

/* Removes an unfinished shrink: the present file system is the valid one. */
int shrink_forget(struct card *base, const struct log_super *pending) MUST_CHECK;

#endif
