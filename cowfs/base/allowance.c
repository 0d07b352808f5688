/* SPDX-License-Identifier: MIT */
#include "base/allowance.h"

#include <time.h>

uint64_t allowance_use(struct allowance *a, uint64_t now, uint64_t cost_ns)
{
	a->used_ns = max_u64(a->used_ns, now) + cost_ns;
	return a->used_ns - min_u64(a->used_ns, now + ALLOWANCE_NS);
}

uint64_t cpu_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}
