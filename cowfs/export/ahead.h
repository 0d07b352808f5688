/* SPDX-License-Identifier: MIT */
/*
 * Read-ahead of the base across files: small reads that keep close to each other are served from a
 * few windows that were read in one request. A fixed 512 KiB for a volume, locked like all our
 * memory: the base is not cached a second time.
 */
#ifndef COWFS_EXPORT_AHEAD_H
#define COWFS_EXPORT_AHEAD_H

#include "base/util.h"
#include "card/async.h"
#include "card/card.h"

struct ahead;

/* A read that nobody waits for. The caller's memory; his to use again from the call of done on. */
struct ahead_read {
	/* from another thread, maybe before ahead_start returns */
	void (*done)(struct ahead_read *rd, int r);
	/* private */
	struct ahead *ahead;
	struct ahead_read *next;
	struct window *window;
	uint64_t blk, blks;
	void *buf;
	struct async_read io;
};

/* depth: reads in flight at most, of ahead_start; 0: ahead_start always says -EAGAIN */
int ahead_new(struct ahead **ret, struct card *base, unsigned depth) MUST_CHECK;
void ahead_free(struct ahead *a); /* NULL allowed; nobody reads any more */

/*
 * Blocks of the base, as card_read; any number of threads. epoch names the layer stack that the
 * caller has pinned: while one is published, no block that it shows from the base and that its file
 * system uses changes there, and a window that was read under one epoch is never used under
 * another.
 */
int ahead_read(struct ahead *a, uint64_t epoch, uint64_t blk, uint64_t blks, void *buf) MUST_CHECK;

/* The same without waiting. 0: buf is filled. AHEAD_PENDING: done will be called, and the stack
 * stays pinned until then. -EAGAIN: not without waiting; nothing was done. */
#define AHEAD_PENDING 1
int ahead_start(struct ahead *a, uint64_t epoch, uint64_t blk, uint64_t blks, void *buf,
		struct ahead_read *rd) MUST_CHECK;

#endif
