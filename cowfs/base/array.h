/* SPDX-License-Identifier: MIT */
/* Arrays that grow at their end. */
#ifndef COWFS_BASE_ARRAY_H
#define COWFS_BASE_ARRAY_H

#include "base/util.h"

/*
 * Room for need items in all: items itself if it has that, else where it lies now, *cap raised (at
 * least doubled, at least 16). What is new is not initialised. NULL: no memory; items and *cap are
 * as they were.
 *
 * 	void *p = array_grow(x->item, &x->cap, x->n + 1, sizeof(*x->item));
 *
 * 	if (!p)
 * 		return -ENOMEM;
 * 	x->item = p;
 */
void *array_grow(void *items, size_t *cap, size_t need, size_t item_bytes) MUST_CHECK;

#endif
