/* SPDX-License-Identifier: MIT */
/*
 * Each cache line is a set: five blocks with their counters. A block belongs to one set.
 *
 * Entries without rewrites are evicted first. If all entries of a set have rewrites, a rewrite of a
 * block that is not in the set takes one from the block with the fewest, until that block has none
 * left. So blocks that are written again and again get in and stay. Rewrites that are lost this way
 * are counted (untracked), so no block gets more rewrites than it had.
 */
#include "ram/rewrites.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#define LINE_BYTES 64
#define WAYS 5u
#define RUN_BLKS 64u
#define NOBODY UINT32_MAX

struct entry {
	uint32_t blk, absorbed, later;
};

struct set {
	struct entry e[WAYS];
	uint32_t hand; /* entry to evict next */
};
_Static_assert(sizeof(struct set) == LINE_BYTES, "a set is a cache line");

struct rewrites {
	pthread_mutex_t lock;
	unsigned shift; /* 32 - log2(sets) */
	uint32_t sets;	/* a power of two */
	struct rewrites_totals t;
	struct set *set;
};

int rewrites_new(struct rewrites **ret, size_t max_bytes)
{
	struct rewrites *w = malloc(sizeof(*w));
	unsigned bits = 0;

	while (bits < 31 && (size_t)LINE_BYTES << (bits + 1) <= max_bytes)
		bits++;
	if (!w)
		return -ENOMEM;
	*w = (struct rewrites){ .shift = 32 - bits, .sets = 1u << bits };
	w->t.max_blks = w->sets * WAYS;
	w->set = aligned_alloc(LINE_BYTES, w->sets * sizeof(*w->set));
	if (!w->set) {
		free(w);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < w->sets; i++) {
		w->set[i].hand = 0;
		for (unsigned k = 0; k < WAYS; k++)
			w->set[i].e[k] = (struct entry){ .blk = NOBODY };
	}
	pthread_mutex_init(&w->lock, NULL);
	*ret = w;
	return 0;
}

void rewrites_free(struct rewrites *w)
{
	if (!w)
		return;
	pthread_mutex_destroy(&w->lock);
	free(w->set);
	free(w);
}

/* Runs of neighbours are distributed evenly, and neighbours go to neighbouring sets, which the
 * processor prefetches. */
static struct set *set_of(const struct rewrites *w, uint32_t blk)
{
	uint64_t start = (uint64_t)(blk / RUN_BLKS * 0x9e3779b1u) >> w->shift;

	return &w->set[(start + blk % RUN_BLKS) & (w->sets - 1)];
}

static struct entry *find(struct set *s, uint32_t blk)
{
	for (unsigned k = 0; k < WAYS; k++)
		if (s->e[k].blk == blk)
			return &s->e[k];
	return NULL;
}

static void add(uint32_t *counter)
{
	*counter += *counter < UINT32_MAX;
}

static struct entry *idle_place(struct set *s)
{
	for (unsigned k = 0; k < WAYS; k++) {
		struct entry *e = &s->e[(s->hand + k) % WAYS];

		if (!e->absorbed && !e->later) {
			s->hand = (s->hand + k + 1) % WAYS;
			return e;
		}
	}
	return NULL;
}

static void take_from_least(struct rewrites *w, struct set *s)
{
	struct entry *least = &s->e[0];

	for (unsigned k = 1; k < WAYS; k++)
		if ((uint64_t)s->e[k].absorbed + s->e[k].later <
		    (uint64_t)least->absorbed + least->later)
			least = &s->e[k];
	if (least->absorbed) {
		least->absorbed--;
		w->t.untracked++;
	} else {
		least->later--;
	}
}

static void count_blk(struct rewrites *w, uint32_t blk, bool was_data)
{
	struct set *s = set_of(w, blk);
	struct entry *e = find(s, blk);

	w->t.absorbed += was_data;
	if (e) {
		add(was_data ? &e->absorbed : &e->later);
		return;
	}
	e = idle_place(s);
	if (e) {
		*e = (struct entry){ .blk = blk, .absorbed = was_data };
	} else if (was_data) {
		w->t.untracked++;
		take_from_least(w, s);
	}
}

void rewrites_count(struct rewrites *w, uint64_t blk, uint64_t blks, const uint64_t *was_data)
{
	if (!w)
		return;
	pthread_mutex_lock(&w->lock);
	for (uint64_t i = 0; i < blks; i++) {
		bool again = was_data[i / 64] >> i % 64 & 1;

		if (blk + i < NOBODY) {
			count_blk(w, (uint32_t)(blk + i), again);
		} else { /* blocks above 16 TiB */
			w->t.absorbed += again;
			w->t.untracked += again;
		}
	}
	pthread_mutex_unlock(&w->lock);
}

static void forget(struct rewrites *w, struct entry *e)
{
	w->t.discarded += e->absorbed;
	*e = (struct entry){ .blk = NOBODY };
}

void rewrites_forget(struct rewrites *w, uint64_t blk, uint64_t blks)
{
	uint64_t end = min_u64(blk + blks, NOBODY);

	if (!w)
		return;
	pthread_mutex_lock(&w->lock);
	for (; blk < end; blk++) {
		struct entry *e = find(set_of(w, (uint32_t)blk), (uint32_t)blk);

		if (e)
			forget(w, e);
	}
	pthread_mutex_unlock(&w->lock);
}

void rewrites_take_part(struct rewrites *w, uint32_t first, struct rewrites_part *ret)
{
	uint32_t i = first / WAYS;

	ret->totals = (struct rewrites_totals){ 0 };
	ret->n = ret->next = 0;
	if (!w)
		return;
	pthread_mutex_lock(&w->lock);
	for (; i < w->sets && ret->n + WAYS <= REWRITES_PART_BLKS; i++) {
		for (unsigned k = 0; k < WAYS; k++) {
			const struct entry *e = &w->set[i].e[k];

			if (!e->absorbed && !e->later)
				continue;
			ret->e[ret->n].blk = e->blk;
			ret->e[ret->n].absorbed = e->absorbed;
			ret->e[ret->n++].later = e->later;
		}
	}
	ret->totals = w->t;
	pthread_mutex_unlock(&w->lock);
	ret->next = i < w->sets ? i * WAYS : 0;
}
