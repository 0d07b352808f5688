// SPDX-License-Identifier: MIT
#include "fs/owners.h"

#include <errno.h>

#include "base/array.h"

void owner_claim(struct owner *o, const struct owners_query *q, uint64_t start_bytes,
		 uint64_t end_bytes)
{
	o->bytes += extents_covered_bytes(q->all, start_bytes, end_bytes);
	o->fresh_bytes += extents_covered_bytes(q->fresh, start_bytes, end_bytes);
}

int owners_keep(struct owners *w, struct owner *o)
{
	if (!o->bytes && !o->differs)
		return 0;
	if (ARRAY_ADD(w->o, w->n, w->cap, *o) < 0)
		return -ENOMEM;
	o->path = NULL;
	return 0;
}

int owners_add_rest(struct owners *w, const struct owners_query *q)
{
	struct owner rest = { .kind = OWNER_OTHER };
	uint64_t bytes = 0, fresh = 0;

	for (size_t i = 0; i < w->n; i++) {
		bytes += w->o[i].bytes;
		fresh += w->o[i].fresh_bytes;
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
