/* SPDX-License-Identifier: MIT */
/* The generations of a story of toy.h, oldest first: toy_tell calls note() after each. Behind
 * cmocka.h. */
#ifndef COWFS_TESTS_GENS_H
#define COWFS_TESTS_GENS_H

#include "toy.h"

enum { MAX_GENS = 32 };

static struct {
	uint64_t seq;
	struct toy_image image;
} gens[MAX_GENS];
static unsigned n_gens;

static inline void note(struct toy *t, void *ctx)
{
	assert_true(n_gens < MAX_GENS);
	gens[n_gens].seq = log_newest(t->log)->seq;
	gens[n_gens++].image = t->n;
}

#endif
