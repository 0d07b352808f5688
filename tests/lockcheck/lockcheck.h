/* SPDX-License-Identifier: MIT */
/*
 * The lock order of docs/design/serving.md, checked at run time. Included before everything else
 * in builds with SAN=thread, so that the sources stay as they are: each lock and unlock tells
 * which lock it is by its file and its expression.
 *
 * ThreadSanitizer reports an inversion when it has seen both orders; this reports the first lock
 * that is taken in another order than the table's, whether the other way round ever happened or
 * not.
 */
#ifndef COWFS_TESTS_LOCKCHECK_H
#define COWFS_TESTS_LOCKCHECK_H

#include <pthread.h>

/* Says what is wrong on stderr as "WARNING: lockcheck: ..." and in the file COWFS_LOCKCHECK_LOG
 * names, and goes on. Reports of ThreadSanitizer go there, too. */
void lockcheck_take(const char *file, int line, const char *what, const void *lock);
void lockcheck_drop(const void *lock);

#define LOCKCHECK(call, lock) (lockcheck_take(__FILE__, __LINE__, #lock, lock), call(lock))

#define pthread_mutex_lock(m) LOCKCHECK(pthread_mutex_lock, m)
#define pthread_rwlock_rdlock(l) LOCKCHECK(pthread_rwlock_rdlock, l)
#define pthread_rwlock_wrlock(l) LOCKCHECK(pthread_rwlock_wrlock, l)
#define pthread_mutex_unlock(m) (lockcheck_drop(m), pthread_mutex_unlock(m))
#define pthread_rwlock_unlock(l) (lockcheck_drop(l), pthread_rwlock_unlock(l))
/* Who waits with another lock in hand may wait for its owner. */
#define pthread_cond_wait(c, m) (lockcheck_wait(__FILE__, __LINE__, m), pthread_cond_wait(c, m))
#define pthread_cond_timedwait(c, m, t)                                                            \
	(lockcheck_wait(__FILE__, __LINE__, m), pthread_cond_timedwait(c, m, t))
void lockcheck_wait(const char *file, int line, const void *lock);

#endif
