/* SPDX-License-Identifier: MIT */
/*
 * The memory of a simulated card: a sparse table of 4 KiB blocks, shared copy-on-write between
 * clones, so that a clone costs a pointer per leaf and a write one leaf and one block.
 * Reference counts are atomic: clones may live in different threads; one store belongs to one.
 *
 * Without memory these functions abort: a simulator that lost a block has no answer to give.
 * It is part of no daemon.
 */
#ifndef COWFS_SIM_SIM_STORE_H
#define COWFS_SIM_SIM_STORE_H

#include <stdatomic.h>

#include "base/util.h"

struct sim_block {
	_Atomic uint32_t refs;
	_Alignas(16) uint8_t bytes[COW_BLK_BYTES]; /* not changed any more once it is shared */
};

#define SIM_LEAF_BLKS 32

struct sim_leaf {
	_Atomic uint32_t refs;
	struct sim_block *blks[SIM_LEAF_BLKS]; /* NULL: zeroes */
};

struct sim_store {
	size_t leaves;
	struct sim_leaf **leaf; /* NULL: zeroes */
};

struct sim_block *sim_block_new(void); /* one reference; content undefined */
struct sim_block *sim_block_copy(const struct sim_block *from /* NULL: zeroes */);
struct sim_block *sim_block_ref(struct sim_block *b); /* NULL allowed, here and below */
void sim_block_unref(struct sim_block *b);
void sim_block_read(const struct sim_block *b, size_t from, void *buf, size_t len_bytes);

int sim_store_init(struct sim_store *s, uint64_t blks) MUST_CHECK; /* -ENOMEM for the table */
int sim_store_clone(struct sim_store *s, const struct sim_store *from) MUST_CHECK;
void sim_store_free(struct sim_store *s);

/* Borrowed until the next set of this block. NULL: zeroes. */
struct sim_block *sim_store_get(const struct sim_store *s, uint64_t blk);
void sim_store_set(struct sim_store *s, uint64_t blk, struct sim_block *b); /* takes its own ref */

#endif
