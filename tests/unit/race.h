/* SPDX-License-Identifier: MIT */
/* Shared by tests with threads: the first error. */
#ifndef COWFS_TESTS_RACE_H
#define COWFS_TESTS_RACE_H

#include "test.h"
#include "base/msg.h"

struct race {
	_Atomic bool stop, failed;
};

static inline void race_fail(struct race *r, const char *fmt, ...) PRINTF(2, 3);
/* Ends the race. Only the first error is reported; assertions are for the main thread. */
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
