/* SPDX-License-Identifier: MIT */
/* Making log indexes: private to log/. */
#ifndef COWFS_LOG_INDEX_BUILD_H
#define COWFS_LOG_INDEX_BUILD_H

#include "card/card.h"
#include "log/index.h"

enum index_kind { INDEX_DATA, INDEX_SPILL, INDEX_LENT, INDEX_ZERO, INDEX_HOME };

/* crc: `blks` CRCs for INDEX_DATA, INDEX_SPILL and INDEX_LENT, copied by the overlay; else NULL */
struct index_entry {
	enum index_kind kind;
	uint64_t blk, blks;
	/* INDEX_DATA: in the ring; INDEX_SPILL: block of the volume; INDEX_LENT: of the lent
	 * room */
	uint64_t lblk;
	const uint32_t *crc;
	size_t crc_pos; /* of an index_list: where crc will point, set by index_list_overlay */
};

/*
 * A new index: `old` with the entries laid over it (INDEX_HOME takes blocks out). Entries are
 * sorted by blk here and must not overlap each other (-EINVAL). base is where spilled payload lies,
 * ring_off_bytes where lblk 0 lies on card.
 */
int log_index_overlay(struct log_index **ret, const struct log_index *old,
		      struct index_entry *entries, size_t n, struct card *base, struct card *card,
		      uint64_t ring_off_bytes) MUST_CHECK;

/* Where INDEX_LENT lies: right after it was made. One that is laid over it has the same. */
void log_index_set_lent(struct log_index *ix, struct card *lent);

/* A growing list of entries with their CRCs; neighbours of one kind are joined as they come.
 * Zero-initialise. */
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

/* i-th extent, in block order; false behind the last. crc may be NULL in the result (zero
 * extents). */
bool log_index_extent(const struct log_index *ix, size_t i, struct index_entry *ret);

#endif
