/* SPDX-License-Identifier: MIT */
/* Builds log indexes: private to log/. */
#ifndef COWFS_LOG_INDEX_BUILD_H
#define COWFS_LOG_INDEX_BUILD_H

#include "card/card.h"
#include "log/index.h"

enum index_kind { INDEX_DATA, INDEX_SPILL, INDEX_ZERO, INDEX_HOME };

/* crc: `blks` CRCs for INDEX_DATA and INDEX_SPILL, copied by the overlay; else NULL */
struct index_entry {
	enum index_kind kind;
	uint64_t blk, blks;
	/* INDEX_DATA: in the ring; INDEX_SPILL: block of the volume */
	uint64_t lblk;
	const uint32_t *crc;
	/* of an index_list: position that crc will point to, set by index_list_overlay */
	size_t crc_pos;
};

/* Orders entries by blk. -EINVAL: they overlap each other. */
int index_sort(struct index_entry *e, size_t n) MUST_CHECK;
/*
 * Lays sorted entries over those that `older` returns as the i-th (false: past the last one), and passes
 * what that makes to `put`, in order. Each newer entry makes at most one more of an older one.
 */
void index_overlay(bool (*older)(const void *ctx, size_t i, struct index_entry *ret),
		   const void *ctx, const struct index_entry *newer, size_t n,
		   void (*put)(void *to, const struct index_entry *e), void *to);
/*
 * A new index: `old` with the entries laid over it (INDEX_HOME removes blocks). This call sorts
 * the entries by blk. They must not overlap each other (-EINVAL). Spilled payload lies on base,
 * and ring_off_bytes is the offset of lblk 0 on card.
 */
int log_index_overlay(struct log_index **ret, const struct log_index *old,
		      struct index_entry *entries, size_t n, struct card *base, struct card *card,
		      uint64_t ring_off_bytes) MUST_CHECK;

/* A growing list of entries with their CRCs. Neighbours of one kind are joined as they are
 * added. Zero-initialise. */
struct index_list {
	struct index_entry *e;
	size_t n, cap;
	uint32_t *crcs;
	size_t n_crcs, cap_crcs;
};

int index_list_add(struct index_list *l, enum index_kind kind, uint64_t blk, uint64_t blks,
		   uint64_t lblk, const uint32_t *crc) MUST_CHECK;
int index_list_overlay(struct log_index **ret, const struct log_index *old, struct index_list *l,
		       struct card *base, struct card *card, uint64_t ring_off_bytes) MUST_CHECK;
void index_list_clear(struct index_list *l);

/* The i-th extent, in block order; false past the last one. crc in the result is NULL for zero
 * extents. */
bool log_index_extent(const struct log_index *ix, size_t i, struct index_entry *ret);
/* The CRC of a block that the log has with content. */
bool log_index_crc(const struct log_index *ix, uint64_t blk, uint32_t *ret);

#endif
