/* SPDX-License-Identifier: MIT */
/*
 * Checks the rules of docs/FORMAT.md for writes to a card: private to log/. Each function
 * returns 0, or -ENOTRECOVERABLE if a rule is broken (base/invariant.h). In that case no part of
 * the write may happen. They neither block nor allocate.
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

/* Call before blocks of the ring are written. Not for a record (rules_record) and not for a new
 * life (rules_void_ring). */
int rules_ring_write(const struct log *l, uint64_t lblk, uint64_t blks) MUST_CHECK;
void rules_ring_written(struct log *l, uint64_t lblk, uint64_t blks); /* call after it */
int rules_void_ring(const struct log *l) MUST_CHECK;
/* Call before a record is written, with all its fields; then after its write, before its FLUSH. */
int rules_record(const struct log *l, const struct log_record *rec) MUST_CHECK;
void rules_record_written(struct log *l);
int rules_record_durable(const struct log *l) MUST_CHECK; /* call before it counts */
/* Call before the superblock gets a new life of the ring. */
int rules_super(const struct log *l) MUST_CHECK;
/* Call before and after a copy of it (0: A, 1: B) is written. */
int rules_copy(const struct log *l, unsigned i) MUST_CHECK;
void rules_copy_written(struct log *l, unsigned i);
bool rules_copies_durable(const struct log *l); /* of this session */
/* Call before and after a checkpoint writes blocks of the volume. (An attempt calls
 * log_may_write.) */
int rules_home_write(const struct log *l, uint64_t blk, uint64_t blks) MUST_CHECK;
void rules_home_written(struct log *l);
/* A later FLUSH does not make durable what was lost: a checkpoint writes it again. */
void rules_lost(struct log *l);
/* Nothing is left to be written home. */
void rules_home_empty(struct log *l);
/* Call before the superblock gets the guard, or (off) loses it. */
int rules_guard_write(const struct log *l, bool off) MUST_CHECK;

#endif
