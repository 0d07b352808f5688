// SPDX-License-Identifier: MIT
#include "fs/owners.h"

#include <errno.h>

#include "base/array.h"

void owner_claim(struct owner *o, const struct owners_query *q, uint64_t start_bytes,
		 uint64_t end_bytes)
{
	o->bytes += extents_covered_bytes(q->all, start_bytes, end_bytes);
	o->fresh_bytes += extents_covered_bytes(q->fresh, start_bytes, end_bytes);
	if (q->rewrites)
		tally_covered_bytes(q->rewrites, start_bytes, end_bytes, o->rewritten_bytes);
}

bool owner_has_some(const struct owner *o)
{
	return o->bytes || o->rewritten_bytes[TALLY_ABSORBED] || o->rewritten_bytes[TALLY_LATER];
}

int owners_keep(struct owners *w, struct owner *o)
{
	void *p;

	if (!owner_has_some(o))
		return 0;
	p = array_grow(w->o, &w->cap, w->n + 1, sizeof(*w->o));
	if (!p)
		return -ENOMEM;
	w->o = p;
	w->o[w->n++] = *o;
	o->path = NULL;
	return 0;
}

int owners_add_rest(struct owners *w, const struct owners_query *q)
{
	struct owner rest = { .kind = OWNER_OTHER };
	uint64_t bytes = 0, fresh = 0, *left = rest.rewritten_bytes;

	if (q->rewrites)
		tally_covered_bytes(q->rewrites, 0, UINT64_MAX, left);
	for (size_t i = 0; i < w->n; i++) {
		bytes += w->o[i].bytes;
		fresh += w->o[i].fresh_bytes;
		for (unsigned kind = 0; kind < TALLY_KINDS; kind++)
			left[kind] -= min_u64(left[kind], w->o[i].rewritten_bytes[kind]);
	}
	/* blocks that two files share count for both */
	rest.bytes = blk_to_bytes(q->all->blks) - min_u64(bytes, blk_to_bytes(q->all->blks));
	rest.fresh_bytes = min_u64(rest.bytes,
				   blk_to_bytes(q->fresh->blks) -
					   min_u64(fresh, blk_to_bytes(q->fresh->blks)));
	return owners_keep(w, &rest);
}

void owners_clear(struct owners *w)
{
	for (size_t i = 0; i < w->n; i++)
		free(w->o[i].path);
	free(w->o);
	*w = (struct owners){ 0 };
}
