/* SPDX-License-Identifier: MIT */
/*
 * The layer stack: generations over a log index over the base. A stack is immutable once published,
 * so a pinned stack needs no lock. The view publishes a new stack for every change. Only this code
 * knows which layer answers for a block.
 */
#ifndef COWFS_EXPORT_LAYERS_H
#define COWFS_EXPORT_LAYERS_H

#include "card/card.h"
#include "export/readahead.h"
#include "log/index.h"
#include "ram/generation.h"

struct layers {
	struct card *base;
	struct readahead *readahead; /* for reads of the whole stack; NULL: none */
	uint64_t epoch;		     /* differs from the epochs of all earlier stacks */
	struct log_index *index;
	unsigned n, room; /* number of generations; capacity */
	unsigned kept;	  /* from LAYER_SEALED on: those that view_release_keeping has kept */
	/* list of stacks that only old pins use; belongs to the commit thread */
	struct layers *retired;
	struct generation *gen[]; /* newest first: active, sealed, failed ones */
};

/* Where a look-up starts: at the top, below the active generation, or (l->n) at the content of the
 * card. */
enum { LAYER_ACTIVE = 0, LAYER_SEALED = 1 };

struct layers *layers_alloc(unsigned room); /* free() it; NULL: out of memory */
/* Frees the stack and the references that it holds; NULL allowed. */
void layers_free(struct layers *l);

/* Where blk is, of the layers from `first` down. Returns how many blocks from it on (at most max_blks,
 * at least 1) are in the same place. */
enum layers_place { PLACE_RAM, PLACE_ZERO, PLACE_LOG, PLACE_BASE };
uint64_t layers_find(const struct layers *l, unsigned first, uint64_t blk, uint64_t max_blks,
		     enum layers_place *ret);

/* Bytes of the image that the layers from `first` down show. Any alignment, inside the volume. May
 * block on the card. Passes on -EIO and -EBADMSG. */
int layers_read(const struct layers *l, unsigned first, uint64_t off_bytes, void *buf,
		size_t len_bytes) MUST_CHECK;
/* The same from LAYER_ACTIVE down, without blocking on the card. The stack is pinned. 0 or
 * READAHEAD_PENDING, as readahead_start. -EAGAIN: the read would block; buf may be changed. */
int layers_start(const struct layers *l, uint64_t off_bytes, void *buf, size_t len_bytes,
		 struct readahead_read *rd) MUST_CHECK;
/* Whole blocks, if the generations from `first` down have all of them as data; otherwise
 * -ENODATA. */
int layers_peek(const struct layers *l, unsigned first, uint64_t blk, uint64_t blks,
		void *buf) MUST_CHECK;
/* Next run at or after *blk that is in one of the generations from `first` down, as
 * generation_next. */
bool layers_next(const struct layers *l, unsigned first, uint64_t *blk, uint64_t max_blks,
		 uint64_t *ret_blks, enum blk_state *ret_state);

#endif
