/* SPDX-License-Identifier: MIT */
#include "base/thread.h"

#include <errno.h>
#include <limits.h>
#include <linux/close_range.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#define CALL_STACK_BYTES (64 * KIB)

int thread_start(pthread_t *ret, const char *name, size_t stack_bytes, void *(*main)(void *arg),
		 void *arg)
{
	pthread_attr_t attr;
	sigset_t all, old;
	int r;

	r = -pthread_attr_init(&attr);
	if (r < 0)
		return r;
	/* the minimum is 128 KiB on arm64 */
	r = -pthread_attr_setstacksize(
		&attr, max_u64(stack_bytes, (uint64_t)sysconf(_SC_THREAD_STACK_MIN)));
	if (r == 0) {
		sigfillset(&all);
		pthread_sigmask(SIG_SETMASK, &all, &old); /* the new thread inherits the mask */
		r = -pthread_create(ret, &attr, main, arg);
		pthread_sigmask(SIG_SETMASK, &old, NULL);
	}
	pthread_attr_destroy(&attr);
	if (r == 0 && name)
		(void)pthread_setname_np(*ret, name);
	return r;
}

struct call {
	const char *name;
	int fd, result;
	int (*make)(int fd);
};

static void *call_main(void *arg)
{
	struct call *c = arg;

	prctl(PR_SET_NAME, c->name); /* naming another thread needs a file of /proc */
	/* the first call gives this thread a descriptor table of its own */
	if (close_range((unsigned)c->fd + 1, UINT_MAX, CLOSE_RANGE_UNSHARE) < 0 ||
	    (c->fd > 3 && close_range(3, (unsigned)c->fd - 1, 0) < 0)) {
		c->result = -errno;
		return NULL;
	}
	c->result = c->make(c->fd) < 0 ? -errno : 0;
	/*
	 * the thread exits a moment after its end is visible; ThreadSanitizer mistakes a close()
	 * for one of the shared table
	 */
	(void)!close_range((unsigned)c->fd, (unsigned)c->fd, 0);
	return NULL;
}

int thread_call_alone(const char *name, int fd, int (*make)(int fd))
{
	struct call c = { .name = name, .fd = fd, .make = make };
	pthread_t thread;
	int r = thread_start(&thread, NULL, CALL_STACK_BYTES, call_main, &c);

	if (r < 0)
		return r;
	pthread_join(thread, NULL);
	return c.result;
}

void thread_cond_init(pthread_cond_t *c)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(c, &attr);
	pthread_condattr_destroy(&attr);
}

void thread_cond_wait_until(pthread_cond_t *c, pthread_mutex_t *lock, uint64_t at_ns)
{
	const struct timespec until = { .tv_sec = (time_t)(at_ns / 1000000000u),
					.tv_nsec = (long)(at_ns % 1000000000u) };

	pthread_cond_timedwait(c, lock, &until);
}
