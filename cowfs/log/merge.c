/* SPDX-License-Identifier: MIT */
#include "log/merge.h"

#include <errno.h>
#include <string.h>

#include "base/array.h"

static int by_blk(const void *a, const void *b)
{
	const struct index_entry *x = a, *y = b;

	return x->blk < y->blk ? -1 : x->blk > y->blk;
}

static uint64_t end_of(const struct index_entry *e)
{
	return e->blk + e->blks;
}

/* Adds the part of e from blk up to end. */
static void put(struct merge_list *to, const struct index_entry *e, uint64_t blk, uint64_t end)
{
	struct index_entry *p;

	if (blk >= end)
		return;
	p = &to->e[to->n++];
	*p = *e;
	p->blk = blk;
	p->blks = end - blk;
	p->lblk += blk - e->blk;
	p->crc = e->crc ? e->crc + (blk - e->blk) : NULL;
}

/* Merges `newer` over `older` into *ret and frees both. */
static int overlay(struct merge_list *older, struct merge_list *newer, struct merge_list *ret)
{
	/* an entry of the newer list splits at most one of the older list */
	struct merge_list to = { .e = malloc((older->n + 2 * newer->n + 1) * sizeof(*to.e)) };
	size_t j = 0;

	if (!to.e)
		return -ENOMEM;
	for (size_t i = 0; i < older->n; i++) {
		const struct index_entry *o = &older->e[i];
		uint64_t pos = o->blk;

		for (; j < newer->n && newer->e[j].blk < end_of(o); j++) {
			put(&to, o, pos, newer->e[j].blk);
			pos = max_u64(pos, end_of(&newer->e[j]));
			if (end_of(&newer->e[j]) > end_of(o))
				break; /* it also covers a part of the next one */
			to.e[to.n++] = newer->e[j];
		}
		put(&to, o, pos, end_of(o));
	}
	for (; j < newer->n; j++)
		to.e[to.n++] = newer->e[j];
	free(older->e);
	free(newer->e);
	*ret = to;
	return 0;
}

static int merge_last_two(struct merge *m)
{
	int r = overlay(&m->list[m->n - 2], &m->list[m->n - 1], &m->list[m->n - 2]);

	if (r == 0)
		m->n--;
	return r;
}

static int keep_crcs(struct merge *m, struct index_list *l)
{
	if (ARRAY_ADD(m->crcs, m->n_crcs, m->cap_crcs, l->crcs) < 0)
		return -ENOMEM;
	for (size_t i = 0; i < l->n; i++)
		l->e[i].crc = l->crcs ? l->crcs + l->e[i].crc_pos : NULL;
	l->crcs = NULL;
	return 0;
}

int merge_add(struct merge *m, struct index_list *l)
{
	int r = l->n ? 0 : 1;

	m->bytes += l->n * sizeof(*l->e) + l->n_crcs * sizeof(*l->crcs);
	if (r == 0)
		r = keep_crcs(m, l);
	if (r == 0) {
		qsort(l->e, l->n, sizeof(*l->e), by_blk);
		for (size_t i = 1; i < l->n && r == 0; i++)
			r = end_of(&l->e[i - 1]) > l->e[i].blk ? -EINVAL : 0;
	}
	if (r == 0) {
		m->list[m->n++] = (struct merge_list){ .e = l->e, .n = l->n };
		l->e = NULL;
	}
	while (r == 0 && m->n > 1 && m->list[m->n - 2].n <= 2 * m->list[m->n - 1].n)
		r = merge_last_two(m);
	index_list_clear(l);
	return r < 0 ? r : 0;
}

int merge_finish(struct merge *m, struct card *base, struct card *card, uint64_t ring_off_bytes,
		 struct log_index **ret)
{
	struct log_index *empty = log_index_empty();
	int r = empty ? 0 : -ENOMEM;

	while (r == 0 && m->n > 1)
		r = merge_last_two(m);
	if (r == 0)
		r = log_index_overlay(ret, empty, m->list[0].e, m->n ? m->list[0].n : 0, base, card,
				      ring_off_bytes);
	log_index_unref(empty);
	return r;
}

void merge_clear(struct merge *m)
{
	for (unsigned i = 0; i < m->n; i++)
		free(m->list[i].e);
	for (size_t i = 0; i < m->n_crcs; i++)
		free(m->crcs[i]);
	free(m->crcs);
	*m = (struct merge){ 0 };
}
