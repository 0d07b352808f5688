/* SPDX-License-Identifier: MIT */
#include "fs/extents.h"

#include <errno.h>

#include "base/array.h"

int extents_add(struct extents *x, uint64_t blk, uint64_t blks)
{
	if (x->n && x->e[x->n - 1].blk + x->e[x->n - 1].blks == blk) {
		x->e[x->n - 1].blks += blks;
	} else if (ARRAY_ADD(x->e, x->n, x->cap, (struct extent_run){ blk, blks }) < 0) {
		return -ENOMEM;
	}
	x->blks += blks;
	return 0;
}

bool extents_next_chunk(const struct extents *x, struct extents_chunk *c, uint64_t max_blks)
{
	while (c->i < x->n && c->pos >= x->e[c->i].blks) {
		c->i++;
		c->pos = 0;
	}
	if (c->i >= x->n)
		return false;
	c->blk = x->e[c->i].blk + c->pos;
	c->blks = min_u64(max_blks, x->e[c->i].blks - c->pos);
	c->pos += c->blks;
	return true;
}

size_t extents_at(const struct extents *x, uint64_t start_bytes)
{
	return ARRAY_FIRST(i, x->n, blk_to_bytes(x->e[i].blk + x->e[i].blks) > start_bytes);
}

uint64_t extents_covered_bytes(const struct extents *x, uint64_t start_bytes, uint64_t end_bytes)
{
	uint64_t sum = 0;

	for (size_t i = extents_at(x, start_bytes);
	     i < x->n && blk_to_bytes(x->e[i].blk) < end_bytes; i++)
		sum += min_u64(end_bytes, blk_to_bytes(x->e[i].blk + x->e[i].blks)) -
		       max_u64(start_bytes, blk_to_bytes(x->e[i].blk));
	return sum;
}

int extents_without(struct extents *ret, const struct extents *x, const struct extents *y)
{
	size_t k = 0;

	for (size_t i = 0; i < x->n; i++) {
		uint64_t blk = x->e[i].blk, end = blk + x->e[i].blks;

		while (blk < end) {
			uint64_t to = end;

			while (k < y->n && y->e[k].blk + y->e[k].blks <= blk)
				k++;
			if (k < y->n && y->e[k].blk <= blk) {
				blk = min_u64(end, y->e[k].blk + y->e[k].blks);
				continue;
			}
			if (k < y->n)
				to = min_u64(end, y->e[k].blk);
			if (extents_add(ret, blk, to - blk) < 0)
				return -ENOMEM;
			blk = to;
		}
	}
	return 0;
}

int extents_merge(struct extents *x, const struct extents *y)
{
	struct extents both = { 0 };
	size_t i = 0, k = 0;
	int r = 0;

	while (r == 0 && (i < x->n || k < y->n)) {
		bool first = k == y->n || (i < x->n && x->e[i].blk < y->e[k].blk);
		const struct extent_run *e = first ? &x->e[i++] : &y->e[k++];

		r = extents_add(&both, e->blk, e->blks);
	}
	if (r == 0) {
		struct extents old = *x;

		*x = both;
		both = old;
	}
	extents_clear(&both);
	return r;
}

uint64_t extents_blks(const struct extents *x)
{
	return x->blks;
}

void extents_clear(struct extents *x)
{
	free(x->e);
	*x = (struct extents){ 0 };
}
