/* SPDX-License-Identifier: MIT */
/* Settings of glibc's allocator. musl's returns memory by itself and has no arenas. */
#include_next <malloc.h>
#ifndef COWFS_MUSL_MALLOC_H
#define COWFS_MUSL_MALLOC_H

#define M_ARENA_MAX 0
#define M_MMAP_THRESHOLD 0
#define M_TRIM_THRESHOLD 0

static inline int mallopt(int what, int value)
{
	(void)what;
	(void)value;
	return 1;
}

static inline int malloc_trim(size_t pad)
{
	(void)pad;
	return 0;
}

#endif
