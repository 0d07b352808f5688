/* SPDX-License-Identifier: MIT */
/*
 * Builds the index of a chain of records in n log n steps. It merges the lists of single records
 * pairwise, the newer over the older, lists of about equal length at a time. Private to log/.
 */
#ifndef COWFS_LOG_MERGE_H
#define COWFS_LOG_MERGE_H

#include "log/index_build.h"

struct merge_list {
	/* sorted by block, disjoint; INDEX_HOME removes blocks of older lists */
	struct index_entry *e;
	size_t n;
};

/* Zero-initialise. */
struct merge {
	struct merge_list list[64]; /* oldest first; each is more than twice as long as the next */
	unsigned n;
	uint32_t **crcs; /* of all records; the entries point into them */
	size_t n_crcs, cap_crcs;
	uint64_t bytes; /* of the entries and CRCs added */
};

/* Adds the list of the next newer record. Takes the content of the list, also on error. -EINVAL:
 * its extents overlap. */
int merge_add(struct merge *m, struct index_list *l) MUST_CHECK;
int merge_finish(struct merge *m, struct card *base, struct card *card, uint64_t ring_off_bytes,
		 struct log_index **ret) MUST_CHECK;
void merge_clear(struct merge *m);

#endif
