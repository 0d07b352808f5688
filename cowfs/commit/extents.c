/* SPDX-License-Identifier: MIT */
#include "commit/extents.h"

#include <errno.h>

#include "base/array.h"

int extents_add(struct extents *x, uint64_t blk, uint64_t blks)
{
	if (x->n && x->e[x->n - 1].blk + x->e[x->n - 1].blks == blk) {
		x->e[x->n - 1].blks += blks;
	} else {
		void *p = array_grow(x->e, &x->cap, x->n + 1, sizeof(*x->e));

		if (!p)
			return -ENOMEM;
		x->e = p;
		x->e[x->n++] = (struct extent_run){ blk, blks };
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

uint64_t extents_blks(const struct extents *x)
{
	return x->blks;
}

void extents_clear(struct extents *x)
{
	free(x->e);
	*x = (struct extents){ 0 };
}
