/* SPDX-License-Identifier: MIT */
/*
 * Asynchronous reads of a card: Linux AIO (libaio), and one thread that takes the answers. Only
 * this header depends on libaio. Only for cards with a descriptor for direct I/O, because on others
 * a submission would block.
 */
#ifndef COWFS_CARD_ASYNC_H
#define COWFS_CARD_ASYNC_H

#include <libaio.h>

#include "card/card.h"

struct async;

/* One read. Caller-owned; reusable once done() is called. */
struct async_read {
	/* r: as card_read. Called from async's thread; may submit. */
	void (*done)(struct async_read *io, int r);
	/* private */
	struct card *card;
	struct iocb iocb;
	_Atomic bool armed;
};

/* depth: maximum number of reads in flight. -ENOTSUP: not available for this card or this kernel.
 * The caller keeps ownership of the card, which must outlive it. */
int async_new(struct async **ret, struct card *c, unsigned depth) MUST_CHECK;
void async_free(struct async *a); /* NULL allowed; nothing in flight */

/* Ranges as card_read. 0: done will be called, once, possibly before this returns. On any error
 * done is not called, and the caller uses card_read instead: -EAGAIN depth is used up, -EINVAL, or
 * an error of the kernel. */
int async_read(struct async *a, struct async_read *io, uint64_t off_bytes, void *buf,
	       size_t len_bytes) MUST_CHECK;

#endif
