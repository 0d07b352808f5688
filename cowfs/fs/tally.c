/* SPDX-License-Identifier: MIT */
#include "fs/tally.h"

#include <errno.h>

#include "base/array.h"

int tally_add(struct tally *t, uint64_t blk, uint64_t absorbed, uint64_t later)
{
	void *p = array_grow(t->b, &t->cap, t->n + 1, sizeof(*t->b));

	if (!p)
		return -ENOMEM;
	t->b = p;
	t->b[t->n++] = (struct tally_blk){
		.blk = blk, .count = { [TALLY_ABSORBED] = absorbed, [TALLY_LATER] = later }
	};
	return 0;
}

static int ascending(const void *a, const void *b)
{
	const struct tally_blk *x = a, *y = b;

	return x->blk < y->blk ? -1 : x->blk > y->blk;
}

/* The first block at or after blk; n: there is none. */
static size_t at_or_after(const struct tally *t, uint64_t blk)
{
	size_t low = 0, n = t->n;

	while (low < n) {
		size_t mid = low + (n - low) / 2;

		if (t->b[mid].blk >= blk)
			n = mid;
		else
			low = mid + 1;
	}
	return low;
}

int tally_finish(struct tally *t, const struct tally *since)
{
	free(t->before);
	t->before = calloc(t->n + 1, sizeof(*t->before));
	if (!t->before)
		return -ENOMEM;
	if (t->n)
		qsort(t->b, t->n, sizeof(*t->b), ascending);
	for (size_t i = 0; i < t->n; i++) {
		uint64_t *count = t->b[i].count, then = 0;
		size_t k = since ? at_or_after(since, t->b[i].blk) : 0;

		if (since && k < since->n && since->b[k].blk == t->b[i].blk)
			then = since->b[k].count[TALLY_ABSORBED];
		count[TALLY_NEW] =
			since ? count[TALLY_ABSORBED] - min_u64(then, count[TALLY_ABSORBED]) : 0;
		for (unsigned kind = 0; kind < TALLY_KINDS; kind++)
			t->before[i + 1].of[kind] = t->before[i].of[kind] + count[kind];
	}
	return 0;
}

void tally_covered_bytes(const struct tally *t, uint64_t start_bytes, uint64_t end_bytes,
			 uint64_t ret[TALLY_KINDS])
{
	size_t from, to;

	if (start_bytes >= end_bytes || !t->n)
		return;
	from = at_or_after(t, start_bytes / COW_BLK_BYTES);
	to = at_or_after(t, (end_bytes - 1) / COW_BLK_BYTES + 1);
	for (unsigned kind = 0; kind < TALLY_KINDS; kind++)
		ret[kind] += (t->before[to].of[kind] - t->before[from].of[kind]) * COW_BLK_BYTES;
	if (from == to)
		return;
	/* subtract the parts of the first and the last block that lie outside */
	for (unsigned kind = 0; kind < TALLY_KINDS; kind++) {
		const struct tally_blk *first = &t->b[from], *last = &t->b[to - 1];

		if (blk_to_bytes(first->blk) < start_bytes)
			ret[kind] -= first->count[kind] * (start_bytes - blk_to_bytes(first->blk));
		if (blk_to_bytes(last->blk + 1) > end_bytes)
			ret[kind] -= last->count[kind] * (blk_to_bytes(last->blk + 1) - end_bytes);
	}
}

void tally_clear(struct tally *t)
{
	free(t->b);
	free(t->before);
	*t = (struct tally){ 0 };
}
