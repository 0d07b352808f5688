/* SPDX-License-Identifier: MIT */
/* The two steps by which a process drops the privileges that it does not need. */
#ifndef COWFS_BASE_SANDBOX_H
#define COWFS_BASE_SANDBOX_H

#include <seccomp.h>

#include "base/util.h"

/*
 * Keeps the capabilities that are permitted and in the mask, and makes none inheritable; this also
 * drops ambient capabilities. Applies to the calling thread.
 */
int sandbox_capabilities(uint64_t keep) MUST_CHECK;

/*
 * Installs a filter of system calls for all threads of the process. rules fills it; calls that it
 * does not name get `others`. If log, the kernel logs refused calls. -errno of the kernel, of
 * libseccomp or of rules: no filter is in force. -ENOSYS: the kernel was built without filters.
 */
int sandbox_filter(uint32_t others, bool log, int (*rules)(scmp_filter_ctx filter, void *ctx),
		   void *ctx) MUST_CHECK;

#endif
