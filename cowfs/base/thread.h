/* SPDX-License-Identifier: MIT */
/* Threads as the daemon wants them: no signal is ever taken by one, and the stack is no larger than needed (it is locked). */
#ifndef COWFS_BASE_THREAD_H
#define COWFS_BASE_THREAD_H

#include <pthread.h>
#include <stddef.h>

#include "base/util.h"

/* name: at most 15 characters, as `ps -L` shows it. 0 or -errno. */
int thread_start(pthread_t *ret, const char *name, size_t stack_bytes, void *(*main)(void *arg), void *arg) MUST_CHECK;

#endif
