/* SPDX-License-Identifier: MIT */
/* What tests with threads have in common: numbers for each thread, and the first thing that went
 * wrong. */
#ifndef COWFS_TESTS_RACE_H
#define COWFS_TESTS_RACE_H

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

#include "base/msg.h"

/* xorshift; the state is the caller's own and not 0 */
static inline uint64_t race_rnd(uint64_t *state, uint64_t below)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return (*state >> 11) % below;
}

struct race {
	_Atomic bool stop, failed;
};

static inline void race_fail(struct race *r, const char *fmt, ...) PRINTF(2, 3);
/* Ends the race. The first one is told; asserting is for the main thread. */
static inline void race_fail(struct race *r, const char *fmt, ...)
{
	char text[200];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (!atomic_exchange(&r->failed, true))
		msg(MSG_ERR, "%s", text);
	r->stop = true;
}

#endif
