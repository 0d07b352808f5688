/* SPDX-License-Identifier: MIT */
/*
 * Read-ahead of the base across files. Small reads that stay close to each other are served from a
 * few windows, each filled by one request. The windows take a fixed 512 KiB per volume, locked like
 * all memory of the daemon. The base is not cached a second time.
 */
#ifndef COWFS_EXPORT_READAHEAD_H
#define COWFS_EXPORT_READAHEAD_H

#include "base/util.h"
#include "card/async.h"
#include "card/card.h"

struct readahead;

/* An asynchronous read. Caller-owned; reusable once done() is called. */
struct readahead_read {
	/* from another thread, possibly before readahead_start returns */
	void (*done)(struct readahead_read *rd, int r);
	/* private */
	struct readahead *readahead;
	struct readahead_read *next;
	struct window *window;
	uint64_t blk, blks;
	void *buf;
	struct async_read io;
};

/* depth: maximum number of reads in flight of readahead_start. With 0 readahead_start always returns
 * -EAGAIN. */
int readahead_new(struct readahead **ret, struct card *base, unsigned depth) MUST_CHECK;
void readahead_free(struct readahead *a); /* NULL allowed; no reads in flight */

/*
 * Reads blocks of the base, like card_read. Any number of threads. epoch names the layer stack that
 * the caller has pinned. While a stack is published, no block changes in the base that the stack
 * shows from there and that its file system uses. A window that was read under one epoch is never
 * used under another.
 */
int readahead_read(struct readahead *a, uint64_t epoch, uint64_t blk, uint64_t blks,
		   void *buf) MUST_CHECK;

/* The same without blocking. 0: buf is filled. READAHEAD_PENDING: done will be called, and the stack
 * stays pinned until then. -EAGAIN: the read would block; nothing was done. */
#define READAHEAD_PENDING 1
int readahead_start(struct readahead *a, uint64_t epoch, uint64_t blk, uint64_t blks, void *buf,
		    struct readahead_read *rd) MUST_CHECK;

#endif
