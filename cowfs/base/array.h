/* SPDX-License-Identifier: MIT */
/* Arrays and texts that grow at their end. */
#ifndef COWFS_BASE_ARRAY_H
#define COWFS_BASE_ARRAY_H

#include "base/util.h"

/*
 * Makes room for need items in total. Returns items unchanged if the room is enough. Otherwise it
 * returns the new place of the array and raises *cap (at least doubled, at least 16). New items are
 * not initialised. NULL: out of memory; items and *cap are unchanged.
 *
 * 	void *p = array_grow(x->item, &x->cap, x->n + 1, sizeof(*x->item));
 *
 * 	if (!p)
 * 		return -ENOMEM;
 * 	x->item = p;
 */
void *array_grow(void *items, size_t *cap, size_t need, size_t item_bytes) MUST_CHECK;

/* Texts one behind the other. Zero-initialise; free(text). */
struct text_pool {
	char *text;
	size_t bytes, cap;
};
/* Appends len bytes and a zero byte. *ret: offset of the copy, because text moves. -ENOMEM. */
int text_pool_add(struct text_pool *p, const char *text, size_t len, uint64_t *ret) MUST_CHECK;

#endif
