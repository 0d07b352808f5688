/* SPDX-License-Identifier: MIT */
/*
 * A toy volume on a simulated card, for tests that need a log with a history: an array of blocks,
 * each used or free, with one of 32768 contents. Small enough for a full comparison at every step.
 *
 * It has the superblock of an f2fs, so that records carry a fingerprint: blocks 0 to 3 are its
 * marks.
 */
#ifndef COWFS_TESTS_TOY_H
#define COWFS_TESTS_TOY_H

#include "sim/sim.h"
#include "commit/commit.h"
#include "log/log.h"

enum {
	TOY_BLKS = 96,
	TOY_SEG_BLKS = 16,
	TOY_SEGS = 6,
	TOY_SUPER = 0x8000,
	TOY_MAGIC = 0x7f00,
	TOY_ENV = 0x7ff0
};

struct toy_image {
	uint8_t use[TOY_BLKS]; /* enum blk_use */
	/* 0: zeroes; from TOY_MAGIC on: begins as a record does; from TOY_ENV on: an environment block of
	 * GRUB; from TOY_SUPER on: the f2fs superblock */
	uint16_t content[TOY_BLKS];
};

struct toy {
	struct card *base, *card; /* may be the same */
	struct log *log;
	struct log_index *index;
	struct log_open_report rep;
	struct toy_image n, live; /* committed, and as programs see it */
	bool dirty[TOY_BLKS];
	bool direct[TOY_BLKS]; /* written in place by the last commit */
	/* called around every operation of the simulator; NULL: not called */
	void (*pause)(bool on);
	const struct log_mark *mark; /* of the process before, for toy_open; NULL: none */
};

void toy_content(uint16_t content, uint8_t buf[COW_BLK_BYTES]);
/* Makes a card with a first image and an empty log of the smallest size. Aborts without memory. */
void toy_format(struct toy *t, bool external);
/* 0, or the error of super_read or log_open. Compares nothing. */
int toy_open(struct toy *t, unsigned flags) MUST_CHECK;
void toy_close(struct toy *t); /* the log only */
void toy_free(struct toy *t);  /* the log and the cards */
/* Makes another toy on copies of the cards. It is not open. */
void toy_clone(struct toy *to, const struct toy *from);
/* Every operation of the cards runs between pause(true) and pause(false). */
void toy_pause(struct toy *t, void (*pause)(bool on));

void toy_write(struct toy *t, unsigned blk, uint16_t content);
void toy_drop(struct toy *t, unsigned blk);	/* frees the block */
int toy_commit(struct toy *t) MUST_CHECK;	/* on 0 live is committed */
struct commit_source toy_source(struct toy *t); /* the source of such a commit */
/* for commit_run and commit_checkpoint; takes over ix */
void toy_publish(void *toy, struct log_index *ix);
int toy_checkpoint(struct toy *t, enum record_type type, uint32_t flags) MUST_CHECK;

/* Reads the whole volume through index and base. */
int toy_view(struct toy *t, uint8_t buf[TOY_BLKS * COW_BLK_BYTES]) MUST_CHECK;
/* The first used block of the image that differs; -1: none. */
int toy_differs(const struct toy_image *im, const uint8_t *view);

/*
 * Histories: together they contain everything that can lie in a ring. Each leaves the toy open.
 * *each (or NULL) is called after every record that changes the newest generation.
 */
enum toy_story {
	TOY_LIVE,
	TOY_RETIRED,
	TOY_CUT_CHECKPOINT,
	TOY_CHAIN,
	TOY_VIRGIN,
	TOY_STORIES,
	/* not among the others: it makes another promise about a cut */
	TOY_LAG = TOY_STORIES,
	TOY_ESCAPED,
	TOY_HELD,
	TOY_BACK,
};
void toy_tell(struct toy *t, enum toy_story story, void (*each)(struct toy *t, void *ctx),
	      void *ctx);

#endif
