/* SPDX-License-Identifier: MIT */
/* The pseudo-random numbers of all tests: splitmix64, https://prng.di.unimi.it/splitmix64.c (public domain). */
#ifndef COWFS_TESTS_RND_H
#define COWFS_TESTS_RND_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/* the next number of a sequence that starts with any state: one for each thread */
static inline uint64_t rnd_next(uint64_t *state)
{
	uint64_t z = (*state += 0x9e3779b97f4a7c15u);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

static inline uint64_t rnd_of(uint64_t *state, uint64_t below)
{
	return rnd_next(state) % below;
}

/* The sequence of the main thread. A test begins one, to be independent of the tests before it; one whose figures are true of a single
 * sequence sets it. */
static uint64_t rnd_state;

/* Sequence N of a run: COWFS_SEED, which tests/seed.sh takes from the commit, or 1. */
static inline void rnd_begin(uint64_t n)
{
	const char *seed = getenv("COWFS_SEED");

	rnd_state = ((seed ? strtoull(seed, NULL, 10) : 0) ?: 1) * 0xd1342543de82ef95u + n;
}

static inline uint64_t rnd(uint64_t below)
{
	if (!rnd_state)
		rnd_begin(0);
	return rnd_of(&rnd_state, below);
}

static inline void rnd_fill(void *buf, size_t len)
{
	for (size_t i = 0; i < len; i++)
		((uint8_t *)buf)[i] = (uint8_t)rnd(256);
}

#endif
