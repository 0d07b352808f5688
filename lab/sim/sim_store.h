/* SPDX-License-Identifier: MIT */
/*
 * The memory of a simulated card: a sparse table of 4 KiB blocks, shared copy-on-write between
 * clones. A clone costs a pointer per leaf, and a write one leaf and one block. Reference counts
 * are atomic: clones may belong to different threads, but one store belongs to one thread.
 *
 * These functions abort without memory, because a simulator that lost a block cannot give a
 * correct answer. No daemon contains this code.
 */
#ifndef COWFS_SIM_SIM_STORE_H
#define COWFS_SIM_SIM_STORE_H

#include <stdatomic.h>

#include "base/util.h"

struct sim_block {
	_Atomic uint32_t refs;
	_Alignas(16) uint8_t bytes[COW_BLK_BYTES]; /* immutable once shared */
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

/* Reads of it return something else each time. */
extern struct sim_block sim_noise;
struct sim_block *sim_block_new(void); /* one reference; content undefined */
struct sim_block *sim_block_copy(const struct sim_block *from /* NULL: zeroes */);
struct sim_block *sim_block_ref(struct sim_block *b); /* NULL allowed, here and below */
void sim_block_unref(struct sim_block *b);
void sim_block_read(const struct sim_block *b, size_t from, void *buf, size_t len_bytes);

int sim_store_init(struct sim_store *s, uint64_t blks) MUST_CHECK; /* -ENOMEM for the table */
int sim_store_clone(struct sim_store *s, const struct sim_store *from) MUST_CHECK;
void sim_store_free(struct sim_store *s);

/* Borrowed until this block is set again. NULL: zeroes. */
struct sim_block *sim_store_get(const struct sim_store *s, uint64_t blk);
/* takes its own reference */
void sim_store_set(struct sim_store *s, uint64_t blk, struct sim_block *b);

#endif
