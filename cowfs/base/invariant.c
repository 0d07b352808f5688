/* SPDX-License-Identifier: MIT */
#include "base/invariant.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/msg.h"

static bool survive;
static char text[128];
static atomic_flag taken = ATOMIC_FLAG_INIT;
static _Atomic(const char *) broken;

bool invariant_fail(const char *rule, const char *file, int line)
{
	msg(MSG_ERR, "internal error: rule \"%s\" violated at %s:%d%s", rule, file, line,
	    survive ? "; no more writes to the card" : "");
	if (!survive)
		abort();
	if (!atomic_flag_test_and_set(&taken)) {
		snprintf(text, sizeof(text), "%s (%s:%d)", rule, file, line);
		atomic_store(&broken, text);
	}
	return false;
}

const char *invariant_broken(void)
{
	return atomic_load_explicit(&broken, memory_order_acquire);
}

void invariant_survive(void)
{
	const char *wanted = secure_getenv("COWFS_INVARIANT");

	survive = !wanted || strcmp(wanted, "abort");
}
