/* SPDX-License-Identifier: MIT */
/*
 * What has to hold when a card is written to, by docs/FORMAT.md: private to log/. Each returns 0, or
 * -ENOTRECOVERABLE if a rule is broken (base/invariant.h), and nothing of the write must happen then. They neither
 * block nor allocate.
 */
#ifndef COWFS_LOG_RULES_H
#define COWFS_LOG_RULES_H

#include <errno.h>

#include "base/invariant.h"
#include "log/ring.h"

#define RULE(name, condition)                                                                      \
	do {                                                                                       \
		if (!INVARIANT(name, condition))                                                   \
			return -ENOTRECOVERABLE;                                                   \
	} while (0)

/* Before blocks of the ring are written; not for a record (rules_record) and not for a new life (rules_void_ring). */
int rules_ring_write(const struct log *l, uint64_t lblk, uint64_t blks) MUST_CHECK;
void rules_ring_written(struct log *l, uint64_t lblk, uint64_t blks); /* after it */
int rules_void_ring(const struct log *l) MUST_CHECK;
/* Before a record is written, with all that it says; after it was written, before its FLUSH. */
int rules_record(const struct log *l, const struct log_record *rec) MUST_CHECK;
void rules_record_written(struct log *l);
int rules_record_durable(const struct log *l) MUST_CHECK; /* before it counts */
/* Before the superblock tells a new life of the ring. */
int rules_super(const struct log *l) MUST_CHECK;
/* Before a checkpoint writes blocks of the volume, and after it (log_may_write: an attempt). */
int rules_home_write(const struct log *l, uint64_t blk, uint64_t blks) MUST_CHECK;
void rules_home_written(struct log *l);

#endif
