/* SPDX-License-Identifier: MIT */
#include "base/array.h"

#include <errno.h>
#include <string.h>

#define FIRST_ITEMS 16u

int array_room(void *items, size_t *cap, size_t need, size_t item_bytes)
{
	size_t n, bytes;
	void *p;

	memcpy(&p, items, sizeof(p));
	if (need <= *cap && p)
		return 0;
	n = max_u64(max_u64(need, FIRST_ITEMS), *cap <= SIZE_MAX / 2 ? 2 * *cap : 0);
	if (__builtin_mul_overflow(n, item_bytes, &bytes))
		return -ENOMEM;
	p = realloc(p, bytes);
	if (!p)
		return -ENOMEM;
	memcpy(items, &p, sizeof(p));
	*cap = n;
	return 0;
}

int text_pool_add(struct text_pool *p, const char *text, size_t len, uint64_t *ret)
{
	char *to;

	if (ARRAY_ROOM(p->text, p->cap, p->bytes + len + 1) < 0)
		return -ENOMEM;
	to = p->text;
	memcpy(to + p->bytes, text, len);
	to[p->bytes + len] = '\0';
	*ret = p->bytes;
	p->bytes += len + 1;
	return 0;
}
