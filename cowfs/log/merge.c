/* SPDX-License-Identifier: MIT */
#include "log/merge.h"

#include <errno.h>
#include <string.h>

#include "base/array.h"

static bool entry_at(const void *ctx, size_t i, struct index_entry *ret)
{
	const struct merge_list *l = ctx;

	if (i >= l->n)
		return false;
	*ret = l->e[i];
	return true;
}

static void put(void *to, const struct index_entry *e)
{
	struct merge_list *l = to;

	l->e[l->n++] = *e;
}

/* Merges `newer` over `older` into *ret and frees both. */
static int overlay(struct merge_list *older, struct merge_list *newer, struct merge_list *ret)
{
	struct merge_list to = { .e = malloc((older->n + 2 * newer->n + 1) * sizeof(*to.e)) };

	if (!to.e)
		return -ENOMEM;
	index_overlay(entry_at, older, newer->e, newer->n, put, &to);
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
	if (r == 0)
		r = index_sort(l->e, l->n);
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
