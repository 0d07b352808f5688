/* SPDX-License-Identifier: MIT */
#include "base/array.h"

#include <errno.h>
#include <string.h>

#define FIRST_ITEMS 16u

void *array_grow(void *items, size_t *cap, size_t need, size_t item_bytes)
{
	size_t n, bytes;
	void *p;

	if (need <= *cap && items)
		return items;
	n = max_u64(max_u64(need, FIRST_ITEMS), *cap <= SIZE_MAX / 2 ? 2 * *cap : 0);
	if (__builtin_mul_overflow(n, item_bytes, &bytes))
		return NULL;
	p = realloc(items, bytes);
	if (p)
		*cap = n;
	return p;
}

int text_pool_add(struct text_pool *p, const char *text, size_t len, uint64_t *ret)
{
	char *to = array_grow(p->text, &p->cap, p->bytes + len + 1, 1);

	if (!to)
		return -ENOMEM;
	p->text = to;
	memcpy(to + p->bytes, text, len);
	to[p->bytes + len] = '\0';
	*ret = p->bytes;
	p->bytes += len + 1;
	return 0;
}
