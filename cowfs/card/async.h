/* SPDX-License-Identifier: MIT */
/*
 * Reads of a card that nobody waits for: Linux AIO (libaio), and one thread that takes the answers.
 * The only header that knows of libaio. For cards with a descriptor for direct I/O alone: on others
 * a submission would block.
 */
#ifndef COWFS_CARD_ASYNC_H
#define COWFS_CARD_ASYNC_H

#include <libaio.h>

#include "card/card.h"

struct async;

/* One read. The caller's memory; his to use again from the call of done on. */
struct async_read {
	/* r: as card_read. From async's thread; may submit */
	void (*done)(struct async_read *io, int r);
	/* private */
	struct iocb iocb;
	_Atomic bool armed;
};

/* depth: reads in flight at most. -ENOTSUP: this card, or this kernel, has none. The card is the
 * caller's and outlives it. */
int async_new(struct async **ret, struct card *c, unsigned depth) MUST_CHECK;
void async_free(struct async *a); /* NULL allowed; nothing in flight */

/* Ranges as card_read. 0: done will be called, once, maybe before this returns. Otherwise it will
 * not, and the caller reads by card_read: -EAGAIN depth is used up, -EINVAL, or what the kernel
 * says. */
int async_read(struct async *a, struct async_read *io, uint64_t off_bytes, void *buf,
	       size_t len_bytes) MUST_CHECK;

#endif
