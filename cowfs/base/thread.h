/* SPDX-License-Identifier: MIT */
/*
 * Threads for the daemon: they take no signals, and their stacks are no larger than needed (a stack
 * is locked memory).
 */
#ifndef COWFS_BASE_THREAD_H
#define COWFS_BASE_THREAD_H

#include <pthread.h>
#include <stddef.h>

#include "base/util.h"

/* name: at most 15 characters, as `ps -L` shows it; NULL: the name of the caller. 0 or -errno. */
int thread_start(pthread_t *ret, const char *name, size_t stack_bytes, void *(*main)(void *arg),
		 void *arg) MUST_CHECK;

/*
 * Runs call(fd) in a thread that has no other open descriptor. For a call that sleeps
 * uninterruptibly in I/O which this process answers. A killed process keeps the descriptors of a
 * thread in such a sleep: with /dev/fuse among them it would wait for itself, and so would all
 * users of the volume. Returns when the call does: 0, -errno of the call, or -errno of the steps
 * before it.
 */
int thread_call_alone(const char *name, int fd, int (*call)(int fd)) MUST_CHECK;

/* Initialises a condition for thread_cond_wait_until. */
void thread_cond_init(pthread_cond_t *c);
/*
 * Waits until the condition is signalled, or now_ns() is at_ns, or a spurious wakeup. The caller
 * holds lock.
 */
void thread_cond_wait_until(pthread_cond_t *c, pthread_mutex_t *lock, uint64_t at_ns);

static inline void thread_unlockp(pthread_mutex_t **lock)
{
	pthread_mutex_unlock(*lock);
}

/* Takes the lock until the end of the block, which may return a value that is read under it. */
#define LOCKED(mutex)                                                                              \
	__attribute__((cleanup(thread_unlockp), unused)) pthread_mutex_t *locked = (mutex);        \
	pthread_mutex_lock(mutex)

#endif
