/* SPDX-License-Identifier: MIT */
/* The volatile cache of the simulated card, and the fate of its content. Notes in sim_private.h. */
#include <string.h>

#include "base/array.h"
#include "sim/sim_private.h"

/* splitmix64, https://prng.di.unimi.it/splitmix64.c (public domain) */
uint64_t sim_random(struct sim *s)
{
	uint64_t z = (s->state.random += 0x9e3779b97f4a7c15u);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

struct sim_bias sim_random_bias(struct sim *s, unsigned n)
{
	static const unsigned strength[] = { 0, 0, 32, 56, 63 };
	uint64_t r = sim_random(s);

	return (struct sim_bias){ (unsigned)(r >> 32) % n,
				  strength[(uint32_t)r % ARRAY_SIZE(strength)] };
}

unsigned sim_random_fate(struct sim *s, unsigned n, struct sim_bias bias)
{
	uint64_t r = sim_random(s);

	return r % 64 < bias.in_64 ? bias.favourite : (unsigned)(r >> 32) % n;
}

/* ---- losing and settling ---- */

/*
 * Restores I1 after pending or durable has changed: the blocks of old (n_old entries) may differ
 * now.
 */
void sim_view_refresh(struct sim *s, const struct sim_pending *old, size_t n_old)
{
	for (size_t i = 0; i < n_old; i++)
		sim_store_set(&s->view, old[i].blk, sim_store_get(&s->durable, old[i].blk));
	for (size_t i = 0; i < s->n_pending; i++)
		sim_store_set(&s->view, s->pending[i].blk, s->pending[i].block);
}

/*
 * After a failed write or flush each pending write is durable, pending or lost. Writes that a
 * lying flush covered stay pending.
 */
void sim_scramble_pending(struct sim *s)
{
	enum { DURABLE, PENDING, LOST, KINDS };
	struct sim_bias bias = sim_random_bias(s, KINDS);
	size_t n_old = s->n_pending, kept = 0;
	struct sim_pending *old = malloc((n_old + 1) * sizeof(*old));

	if (!old)
		abort();
	for (size_t i = 0; i < n_old; i++) {
		struct sim_pending *p = &s->pending[i];

		old[i] = *p;
		switch (p->epoch < s->state.epoch ? PENDING : sim_random_fate(s, KINDS, bias)) {
		case PENDING:
			s->pending[kept++] = *p;
			continue;
		case DURABLE:
			sim_store_set(&s->durable, p->blk, p->block);
			break;
		}
		sim_block_unref(p->block);
	}
	s->n_pending = kept;
	sim_view_refresh(s, old, n_old);
	free(old);
}

void sim_settle_pending(struct sim *s, size_t n)
{
	n = min_u64(n, s->n_pending);
	for (size_t i = 0; i < n; i++) {
		sim_store_set(&s->durable, s->pending[i].blk, s->pending[i].block);
		sim_block_unref(s->pending[i].block);
	}
	s->n_pending -= n;
	if (s->n_pending && n)
		memmove(s->pending, s->pending + n, s->n_pending * sizeof(*s->pending));
}

void sim_forget_pending(struct sim *s)
{
	while (s->n_pending)
		sim_block_unref(s->pending[--s->n_pending].block);
}

/* ---- filling and flushing ---- */

void sim_cache_add(struct sim *s, uint64_t blk, const void *buf)
{
	struct sim_block *b = sim_block_new();

	memcpy(b->bytes, buf, COW_BLK_BYTES);
	if (ARRAY_ADD(s->pending, s->n_pending, s->pending_room,
		      (struct sim_pending){ blk, s->state.epoch, b }) < 0)
		abort(); /* as sim_store.h says */
	sim_store_set(&s->view, blk, b);
}

/* Handles a successful flush: the last `lie` epochs stay in the cache. */
void sim_cache_flush(struct sim *s)
{
	size_t n = 0;

	s->state.epoch++;
	while (n < s->n_pending && s->pending[n].epoch + s->state.lie < s->state.epoch)
		n++;
	sim_settle_pending(s, n);
}
