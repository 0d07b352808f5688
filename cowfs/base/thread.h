/* SPDX-License-Identifier: MIT */
/* Threads as the daemon wants them: no signal is ever taken by one, and the stack is no larger than
 * needed (it is locked). */
#ifndef COWFS_BASE_THREAD_H
#define COWFS_BASE_THREAD_H

#include <pthread.h>
#include <stddef.h>

#include "base/util.h"

/* name: at most 15 characters, as `ps -L` shows it; NULL: that of the caller. 0 or -errno. */
int thread_start(pthread_t *ret, const char *name, size_t stack_bytes, void *(*main)(void *arg),
		 void *arg) MUST_CHECK;

/*
 * call(fd) in a thread that has no other open descriptor, for a call that sleeps unkillably in I/O
 * which this process answers. A killed process keeps the descriptors of a thread that sleeps so:
 * with /dev/fuse among them it would wait for itself, and with it everybody who uses the volume.
 * Returns when the call does: 0, -errno of the call, or of what it takes to begin it.
 */
int thread_call_alone(const char *name, int fd, int (*call)(int fd)) MUST_CHECK;

/* A condition for thread_cond_wait_until. */
void thread_cond_init(pthread_cond_t *c);
/* Until it is signalled, or now_ns() is at_ns, or for no reason. Under lock. */
void thread_cond_wait_until(pthread_cond_t *c, pthread_mutex_t *lock, uint64_t at_ns);

#endif
