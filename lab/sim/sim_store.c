/* SPDX-License-Identifier: MIT */
/* Copy-on-write table of blocks for the simulator. */
#include "sim/sim_store.h"

#include <errno.h>
#include <string.h>

static void ref(_Atomic uint32_t *refs)
{
	atomic_fetch_add_explicit(refs, 1, memory_order_relaxed);
}

/* true: that was the last reference */
static bool unref(_Atomic uint32_t *refs)
{
	return atomic_fetch_sub_explicit(refs, 1, memory_order_acq_rel) == 1;
}

static void *alloc_or_abort(size_t len_bytes)
{
	void *p = malloc(len_bytes);

	if (!p)
		abort();
	return p;
}

struct sim_block *sim_block_new(void)
{
	struct sim_block *b = alloc_or_abort(sizeof(*b));

	atomic_init(&b->refs, 1);
	return b;
}

struct sim_block *sim_block_copy(const struct sim_block *from)
{
	struct sim_block *b = sim_block_new();

	sim_block_read(from, 0, b->bytes, sizeof(b->bytes));
	return b;
}

struct sim_block *sim_block_ref(struct sim_block *b)
{
	if (b)
		ref(&b->refs);
	return b;
}

void sim_block_unref(struct sim_block *b)
{
	if (b && unref(&b->refs))
		free(b);
}

/* Never freed: it is born with a reference of its own. */
struct sim_block sim_noise = { .refs = 1 };

/* Zeros now and then: what cards answer most, and what cowfs could take for content. */
static void read_noise(uint8_t *buf, size_t len_bytes)
{
	static _Atomic uint64_t reads;
	uint64_t n = atomic_fetch_add_explicit(&reads, 1, memory_order_relaxed);

	for (size_t i = 0; i < len_bytes; i++)
		buf[i] = n % 3 ? 0 : (uint8_t)((n + i) * 0x9e3779b9u >> 11);
}

void sim_block_read(const struct sim_block *b, size_t from, void *buf, size_t len_bytes)
{
	if (b == &sim_noise)
		read_noise(buf, len_bytes);
	else if (b)
		memcpy(buf, b->bytes + from, len_bytes);
	else
		memset(buf, 0, len_bytes);
}

static void leaf_unref(struct sim_leaf *l)
{
	if (!l || !unref(&l->refs))
		return;
	for (size_t i = 0; i < SIM_LEAF_BLKS; i++)
		sim_block_unref(l->blks[i]);
	free(l);
}

/* Makes the leaf in *slot private to this store. */
static struct sim_leaf *leaf_own(struct sim_leaf **slot)
{
	struct sim_leaf *old = *slot, *l;

	if (old && atomic_load_explicit(&old->refs, memory_order_acquire) == 1)
		return old;
	l = alloc_or_abort(sizeof(*l));
	atomic_init(&l->refs, 1);
	for (size_t i = 0; i < SIM_LEAF_BLKS; i++)
		l->blks[i] = old ? sim_block_ref(old->blks[i]) : NULL;
	leaf_unref(old);
	*slot = l;
	return l;
}

int sim_store_init(struct sim_store *s, uint64_t blks)
{
	size_t leaves = (size_t)(round_up_u64(blks, SIM_LEAF_BLKS) / SIM_LEAF_BLKS);
	struct sim_leaf **leaf = calloc(leaves, sizeof(struct sim_leaf *));

	if (!leaf)
		return -ENOMEM;
	*s = (struct sim_store){ .leaves = leaves, .leaf = leaf };
	return 0;
}

int sim_store_clone(struct sim_store *s, const struct sim_store *from)
{
	struct sim_leaf **leaf = malloc(from->leaves * sizeof(struct sim_leaf *));

	if (!leaf)
		return -ENOMEM;
	for (size_t i = 0; i < from->leaves; i++) {
		leaf[i] = from->leaf[i];
		if (leaf[i])
			ref(&leaf[i]->refs);
	}
	*s = (struct sim_store){ .leaves = from->leaves, .leaf = leaf };
	return 0;
}

void sim_store_free(struct sim_store *s)
{
	for (size_t i = 0; i < s->leaves; i++)
		leaf_unref(s->leaf[i]);
	free(s->leaf);
	*s = (struct sim_store){ 0 };
}

struct sim_block *sim_store_get(const struct sim_store *s, uint64_t blk)
{
	const struct sim_leaf *l = s->leaf[blk / SIM_LEAF_BLKS];

	return l ? l->blks[blk % SIM_LEAF_BLKS] : NULL;
}

void sim_store_set(struct sim_store *s, uint64_t blk, struct sim_block *b)
{
	struct sim_leaf *l;

	if (sim_store_get(s, blk) == b)
		return;
	l = leaf_own(&s->leaf[blk / SIM_LEAF_BLKS]);
	sim_block_ref(b);
	sim_block_unref(l->blks[blk % SIM_LEAF_BLKS]);
	l->blks[blk % SIM_LEAF_BLKS] = b;
}
