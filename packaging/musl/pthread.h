/* SPDX-License-Identifier: MIT */
/* musl has no kinds of read-write locks: a seal may have to wait for a pause of the writers. */
#include_next <pthread.h>
#ifndef COWFS_MUSL_PTHREAD_H
#define COWFS_MUSL_PTHREAD_H

#define PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP 0

static inline int pthread_rwlockattr_setkind_np(pthread_rwlockattr_t *attr, int kind)
{
	(void)attr;
	(void)kind;
	return 0;
}

#endif
