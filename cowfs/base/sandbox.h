/* SPDX-License-Identifier: MIT */
/* The two steps by which a process gives up what it does not need. */
#ifndef COWFS_BASE_SANDBOX_H
#define COWFS_BASE_SANDBOX_H

#include <seccomp.h>

#include "base/util.h"

/* Keeps what is permitted and in the mask, nothing that programs inherit; ambient capabilities go
 * with it. Of the calling thread. */
int sandbox_capabilities(uint64_t keep) MUST_CHECK;

/*
 * A filter of system calls for all threads of the process. rules fills it; calls that it does not
 * name get `others`, refused ones are logged by the kernel if log. -errno of the kernel, of
 * libseccomp or of rules: no filter is in force.
 */
int sandbox_filter(uint32_t others, bool log, int (*rules)(scmp_filter_ctx filter, void *ctx),
		   void *ctx) MUST_CHECK;

#endif
