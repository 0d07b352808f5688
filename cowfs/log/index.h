/* SPDX-License-Identifier: MIT */
/*
 * The log index: the blocks of the volume whose newest version is in the log and not at home. It
 * is immutable once built, and reference-counted, so a reader that pinned a view may use it
 * while a newer index is published. Sorted extents, binary search.
 */
#ifndef COWFS_LOG_INDEX_H
#define COWFS_LOG_INDEX_H

#include "base/util.h"
#include "card/card.h"

enum log_where {
	LOG_HOME = 0, /* not in the log: read the base */
	LOG_DATA = 1, /* payload in the ring, or spilled to a free block */
	LOG_ZERO = 2, /* a zero record: reads zero */
};

struct log_index;

/* An empty index with count 1, for volumes without a live log and for tests. NULL if out of
 * memory. */
struct log_index *log_index_empty(void);
struct log_index *log_index_ref(struct log_index *ix);
void log_index_unref(struct log_index *ix); /* NULL allowed */

/* Where blk is. Returns how many blocks from it on (at most max_blks, at least 1) are in the
 * same place; for LOG_DATA they are contiguous on the card as well. Any thread, never blocks. */
uint64_t log_index_run(const struct log_index *ix, uint64_t blk, uint64_t max_blks,
		       enum log_where *ret_where);
bool log_index_has(const struct log_index *ix, uint64_t blk);
/* Reads blocks of one LOG_DATA run from the ring and checks the CRC of each: -EBADMSG if one is
 * wrong. buf is aligned to COW_BLK_BYTES. Any thread; blocks on the card. */
int log_index_read(const struct log_index *ix, uint64_t blk, uint64_t blks, void *buf) MUST_CHECK;

/* Reads the merged view of index and base: a block that is not in the log is read from the base. */
int log_index_read_volume(const struct log_index *ix, struct card *base, uint64_t blk,
			  uint64_t blks, void *buf) MUST_CHECK;

/* Where payload lies that the index reads: blks blocks of the volume from blk on. */
struct log_place {
	struct card *card; /* NULL: a zero record, which lies nowhere */
	uint64_t off_bytes, blk, blks;
};
/* The place of the i-th extent, in the order of the volume; false past the last one. */
bool log_index_place(const struct log_index *ix, size_t i, struct log_place *ret);

uint64_t log_index_data_blks(const struct log_index *ix);
uint64_t log_index_zero_blks(const struct log_index *ix);
uint64_t log_index_blks(const struct log_index *ix); /* both; 0: it is empty */
/* part of data_blks: blocks outside the ring */
uint64_t log_index_spilled_blks(const struct log_index *ix);

#endif
