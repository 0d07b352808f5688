/* SPDX-License-Identifier: MIT */
/*
 * Read-ahead of the base across files. Small reads that stay close to each other are served from a
 * few windows, each filled by one request. The windows take a fixed 512 KiB per volume, locked like
 * all memory of the daemon. The base is not cached a second time.
 */
#ifndef COWFS_EXPORT_AHEAD_H
#define COWFS_EXPORT_AHEAD_H

#include "base/util.h"
#include "card/async.h"
#include "card/card.h"

struct ahead;

/* An asynchronous read. Caller-owned; reusable once done() is called. */
struct ahead_read {
	/* from another thread, possibly before ahead_start returns */
	void (*done)(struct ahead_read *rd, int r);
	/* private */
	struct ahead *ahead;
	struct ahead_read *next;
	struct window *window;
	uint64_t blk, blks;
	void *buf;
	struct async_read io;
};

/* depth: maximum number of reads in flight of ahead_start. With 0 ahead_start always returns
 * -EAGAIN. */
int ahead_new(struct ahead **ret, struct card *base, unsigned depth) MUST_CHECK;
void ahead_free(struct ahead *a); /* NULL allowed; no reads in flight */

/*
 * Reads blocks of the base, like card_read. Any number of threads. epoch names the layer stack that
 * the caller has pinned. While a stack is published, no block changes in the base that the stack
 * shows from there and that its file system uses. A window that was read under one epoch is never
 * used under another.
 */
int ahead_read(struct ahead *a, uint64_t epoch, uint64_t blk, uint64_t blks, void *buf) MUST_CHECK;

/* The same without blocking. 0: buf is filled. AHEAD_PENDING: done will be called, and the stack
 * stays pinned until then. -EAGAIN: the read would block; nothing was done. */
#define AHEAD_PENDING 1
int ahead_start(struct ahead *a, uint64_t epoch, uint64_t blk, uint64_t blks, void *buf,
		struct ahead_read *rd) MUST_CHECK;

#endif
