/* SPDX-License-Identifier: MIT */
/*
 * Bounds the work that a process does for one that may be hostile. Each piece of work has a cost in
 * time. ALLOWANCE_NS of it may be used at once, and as much as time passes after that.
 */
#ifndef COWFS_BASE_ALLOWANCE_H
#define COWFS_BASE_ALLOWANCE_H

#include "base/util.h"

#define ALLOWANCE_NS 5000000000ull

/* All zero: nothing was used. For one thread. */
struct allowance {
	uint64_t used_ns; /* the time at which what was used is paid back */
};

/* How long to wait before the next piece of work; 0: not at all. now: of now_ns. */
uint64_t allowance_use(struct allowance *a, uint64_t now, uint64_t cost_ns);

/* Processor time of this process, of all threads. */
uint64_t cpu_now_ns(void);

#endif
