/* SPDX-License-Identifier: MIT */
/* Arrays and texts that grow at their end. */
#ifndef COWFS_BASE_ARRAY_H
#define COWFS_BASE_ARRAY_H

#include <errno.h>

#include "base/util.h"

/*
 * Makes room for need items in total: items may move, and cap is raised (at least doubled, at least 16). New items are
 * not initialised. -ENOMEM: items and cap are unchanged. All but need are lvalues.
 */
#define ARRAY_ROOM(items, cap, need) array_room(&(items), &(cap), (need), sizeof(*(items)))
/* The same for one more, which is the value behind cap. */
#define ARRAY_ADD(items, n, cap, ...)                                                              \
	(ARRAY_ROOM(items, cap, (n) + 1) < 0 ? -ENOMEM : ((items)[(n)++] = __VA_ARGS__, 0))

/*
 * The first index i of n, an identifier, for which the expression `holds`, as it does for all behind it. n: for none.
 */
#define ARRAY_FIRST(i, n, holds)                                                                   \
	({                                                                                         \
		size_t low_ = 0, high_ = (n);                                                      \
                                                                                                   \
		while (low_ < high_) {                                                             \
			const size_t i = low_ + (high_ - low_) / 2;                                \
                                                                                                   \
			if (holds)                                                                 \
				high_ = i;                                                         \
			else                                                                       \
				low_ = i + 1;                                                      \
		}                                                                                  \
		low_;                                                                              \
	})

/* items: address of the pointer */
int array_room(void *items, size_t *cap, size_t need, size_t item_bytes) MUST_CHECK;

/* Texts one behind the other. Zero-initialise; free(text). */
struct text_pool {
	char *text;
	size_t bytes, cap;
};
/* Appends len bytes and a zero byte. *ret: offset of the copy, because text moves. -ENOMEM. */
int text_pool_add(struct text_pool *p, const char *text, size_t len, uint64_t *ret) MUST_CHECK;

#endif
