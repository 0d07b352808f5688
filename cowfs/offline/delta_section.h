/* SPDX-License-Identifier: MIT */
/* A section of a delta, as both sides have it in memory. Private to offline/delta_*.c. */
#ifndef COWFS_OFFLINE_DELTA_SECTION_H
#define COWFS_OFFLINE_DELTA_SECTION_H

#include "base/util.h"
#include "offline/delta.h"

#define SECTION_RUNS 4096u
#define SECTION_DATA_BLKS 512u
#define SECTION_KEPT_BLKS 65536u
#define SECTION_META_BYTES                                                                         \
	(16u + DELTA_SUM_BYTES + 8u * SECTION_RUNS + DELTA_SUM_BYTES * SECTION_DATA_BLKS)
#define SECTION_BYTES (SECTION_META_BYTES + SECTION_DATA_BLKS * COW_BLK_BYTES)
#define SECTION_RUN_BLKS 256u /* of a run at most */
/* all but the last section have as many: they end when no other run has room. So the head bounds the table */
#define SECTION_LEAST_BLKS (SECTION_DATA_BLKS - SECTION_RUN_BLKS)

struct section_run {
	uint64_t blk;
	uint32_t blks;
	bool kept;
	bool replaces; /* data, in blocks that the base uses */
};

struct section {
	struct section_run run[SECTION_RUNS];
	uint32_t runs, data_blks, kept_blks, replaced;
	uint8_t kept_sum[DELTA_SUM_BYTES];
	/* what the base has in each run that replaces it, in order */
	uint8_t replaced_sum[SECTION_DATA_BLKS][DELTA_SUM_BYTES];
};

/* An entry of the table. */
struct section_entry {
	uint32_t packed_bytes, bytes;
	uint8_t sum[DELTA_SUM_BYTES]; /* of the packed bytes */
};
#define SECTION_ENTRY_BYTES (8u + DELTA_SUM_BYTES)

void section_sum(const void *data, size_t bytes, uint8_t ret[DELTA_SUM_BYTES]);
/* The checksum of kept blocks: that of the checksums of their runs. Zero-initialised. */
struct section_sums {
	uint8_t sum[SECTION_RUNS][DELTA_SUM_BYTES];
	size_t n;
};
void section_add_sum(struct section_sums *s, const void *data, uint64_t blks);
void section_end_sums(struct section_sums *s, uint8_t ret[DELTA_SUM_BYTES]);

/* Bytes in front of the data. */
size_t section_put(uint8_t *buf, const struct section *s);
/*
 * Of a section that begins at or behind *at, which is then its end. *ret_data: in buf. -EBADMSG: not a section of this
 * volume.
 */
int section_get(const uint8_t *buf, size_t bytes, uint64_t volume_blks, uint64_t *at,
		struct section *ret, const uint8_t **ret_data) MUST_CHECK;

void section_put_entry(uint8_t *buf, const struct section_entry *e);
struct section_entry section_get_entry(const uint8_t *buf);

#endif
