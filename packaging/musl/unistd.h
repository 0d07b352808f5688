/* SPDX-License-Identifier: MIT */
/* System calls that musl has no function for. */
#include_next <unistd.h>
#ifndef COWFS_MUSL_UNISTD_H
#define COWFS_MUSL_UNISTD_H

#include <sys/syscall.h>

static inline int close_range(unsigned first, unsigned last, int flags)
{
	return (int)syscall(SYS_close_range, first, last, flags);
}

#endif
