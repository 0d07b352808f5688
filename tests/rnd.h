/* SPDX-License-Identifier: MIT */
/* The pseudo-random numbers of all tests: splitmix64, https://prng.di.unimi.it/splitmix64.c (public domain). */
#ifndef COWFS_TESTS_RND_H
#define COWFS_TESTS_RND_H

#include <stddef.h>
#include <stdint.h>

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

/* the sequence of the main thread; a test sets it, to be independent of the tests before it */
static uint64_t rnd_state = 1;

static inline uint64_t rnd(uint64_t below)
{
	return rnd_of(&rnd_state, below);
}

static inline void rnd_fill(void *buf, size_t len)
{
	for (size_t i = 0; i < len; i++)
		((uint8_t *)buf)[i] = (uint8_t)rnd(256);
}

#endif
