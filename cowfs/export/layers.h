/* SPDX-License-Identifier: MIT */
/*
 * The layer stack: which generations lie over which log index over the base. Immutable once
 * published, so who pinned one may use it without any lock; the view publishes another one for
 * every change. Also the only code that knows which layer answers for a block.
 */
#ifndef COWFS_EXPORT_LAYERS_H
#define COWFS_EXPORT_LAYERS_H

#include "card/card.h"
#include "export/ahead.h"
#include "log/index.h"
#include "ram/generation.h"

struct layers {
	struct card *base;
	struct ahead *ahead; /* for reads of the whole stack; NULL: none */
	uint64_t epoch;	     /* differs from that of the stacks before it */
	struct log_index *index;
	unsigned n, room;	  /* generations; how many fit */
	struct layers *retired;	  /* list of those that only old pins use: the commit thread's */
	struct generation *gen[]; /* newest first: active, sealed, failed ones */
};

/* Where a look-up starts: with everything, with what lies under the active generation, or (l->n)
 * with what the card holds. */
enum { LAYER_ACTIVE = 0, LAYER_SEALED = 1 };

struct layers *layers_alloc(unsigned room); /* free() it; NULL without memory */

/* Bytes of the image that the layers from `first` down show. Any alignment, inside the volume. May
 * block on the card. -EIO, -EBADMSG from below. */
int layers_read(const struct layers *l, unsigned first, uint64_t off_bytes, void *buf,
		size_t len_bytes) MUST_CHECK;
/* The same from LAYER_ACTIVE down, without waiting for the card: 0 or AHEAD_PENDING as ahead_start,
 * with the stack pinned; -EAGAIN: not without waiting, buf may be changed. */
int layers_start(const struct layers *l, uint64_t off_bytes, void *buf, size_t len_bytes,
		 struct ahead_read *rd) MUST_CHECK;
/* Whole blocks, if the generations from `first` down have all of them as data: -ENODATA else. */
int layers_peek(const struct layers *l, unsigned first, uint64_t blk, uint64_t blks,
		void *buf) MUST_CHECK;
/* Next run at or after *blk that one of the generations from `first` down has, as generation_next.
 */
bool layers_next(const struct layers *l, unsigned first, uint64_t *blk, uint64_t max_blks,
		 uint64_t *ret_blks, enum blk_state *ret_state);

#endif
