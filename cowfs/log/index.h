/* SPDX-License-Identifier: MIT */
/*
 * The log index: which blocks of the volume have a newer version in the log than at
 * home. Immutable once built and counted, so a reader that pinned a view may use it
 * while a newer one is published. Sorted extents, binary search.
 */
#ifndef COWFS_LOG_INDEX_H
#define COWFS_LOG_INDEX_H

#include "base/util.h"
#include "card/card.h"

enum log_where {
	LOG_HOME = 0, /* the log knows nothing of it: read the base */
	LOG_DATA = 1, /* payload in the ring, or spilled to a free block */
	LOG_ZERO = 2, /* a zero record: reads zero */
};

struct log_index;

/* An empty index, for volumes without a live log and for tests. Count 1. NULL without memory. */
struct log_index *log_index_empty(void);
struct log_index *log_index_ref(struct log_index *ix);
void log_index_unref(struct log_index *ix); /* NULL allowed */

/* Where blk is, and how many blocks from it on (at most max_blks, at least 1) are in the same place
 * (for LOG_DATA: contiguous on the card as well). Any thread, never blocks. */
uint64_t log_index_run(const struct log_index *ix, uint64_t blk, uint64_t max_blks,
		       enum log_where *ret_where);
/* Reads blocks of one LOG_DATA run from the ring and checks each block's CRC: -EBADMSG if rotten.
 * buf is aligned to COW_BLK_BYTES. Any thread; blocks on the card. */
int log_index_read(const struct log_index *ix, uint64_t blk, uint64_t blks, void *buf) MUST_CHECK;

/* Reads blocks of the volume as the index and the base show them together: home where the log knows
 * nothing. */
int log_index_read_volume(const struct log_index *ix, struct card *base, uint64_t blk,
			  uint64_t blks, void *buf) MUST_CHECK;

uint64_t log_index_data_blks(const struct log_index *ix);
uint64_t log_index_zero_blks(const struct log_index *ix);
/* those of data_blks that are outside the ring */
uint64_t log_index_spilled_blks(const struct log_index *ix);

#endif
