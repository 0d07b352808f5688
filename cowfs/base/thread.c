/* SPDX-License-Identifier: MIT */
#include "base/thread.h"

#include <signal.h>

int thread_start(pthread_t *ret, const char *name, size_t stack_bytes, void *(*main)(void *arg), void *arg)
{
	pthread_attr_t attr;
	sigset_t all, old;
	int r;

	r = -pthread_attr_init(&attr);
	if (r < 0)
		return r;
	r = -pthread_attr_setstacksize(&attr, stack_bytes);
	if (r == 0) {
		sigfillset(&all);
		pthread_sigmask(SIG_SETMASK, &all, &old); /* inherited */
		r = -pthread_create(ret, &attr, main, arg);
		pthread_sigmask(SIG_SETMASK, &old, NULL);
	}
	pthread_attr_destroy(&attr);
	if (r == 0)
		(void)pthread_setname_np(*ret, name);
	return r;
}
