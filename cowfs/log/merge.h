/* SPDX-License-Identifier: MIT */
/*
 * The index of a chain of records, in n log n steps: the lists of single records are merged
 * pairwise, the newer one over the older one, lists of about one length at a time. Private to log/.
 */
#ifndef COWFS_LOG_MERGE_H
#define COWFS_LOG_MERGE_H

#include "log/index_build.h"

struct merge_list {
	struct index_entry *e; /* by block, apart; INDEX_HOME takes blocks out of older lists */
	size_t n;
};

/* Zero-initialise. */
struct merge {
	struct merge_list list[64]; /* oldest first; each more than twice as long as the next */
	unsigned n;
	uint32_t **crcs; /* of all records: the entries point into them */
	size_t n_crcs, cap_crcs;
	uint64_t bytes; /* of the entries and CRCs that were added */
};

/* What the next newer record says. Takes the list's content, also when it fails. -EINVAL: its
 * extents overlap. */
int merge_add(struct merge *m, struct index_list *l) MUST_CHECK;
int merge_finish(struct merge *m, struct card *base, struct card *card, uint64_t ring_off_bytes,
		 struct log_index **ret) MUST_CHECK;
void merge_clear(struct merge *m);

#endif
