/* SPDX-License-Identifier: MIT */
/*
 * LD_PRELOAD library for tests. The file COWFS_CLOCK has two numbers of 8 bytes:
 *
 *	AHEAD_S		time() is ahead of the clock by it (negative: behind). A test may change it at any moment
 *	LOOKS		how often the monitor thread (volume/monitor.h) has looked: 20 times a second, and not once
 *
 * The file is mapped at the start, because the worker opens none later.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define LOOK_MS 50

static struct {
	volatile int64_t ahead_s;
	_Atomic uint64_t looks;
} * clock_file;
static pthread_t monitor;

static __attribute__((constructor)) void map(void)
{
	const char *path = getenv("COWFS_CLOCK");
	int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;

	if (fd < 0)
		return;
	clock_file = mmap(NULL, sizeof(*clock_file), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (clock_file == MAP_FAILED)
		abort();
}

time_t time(time_t *ret)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	now.tv_sec += clock_file ? (time_t)clock_file->ahead_s : 0;
	if (ret)
		*ret = now.tv_sec;
	return now.tv_sec;
}

int pthread_setname_np(pthread_t thread, const char *name)
{
	int (*real)(pthread_t, const char *) = dlsym(RTLD_NEXT, "pthread_setname_np");

	if (!strcmp(name, "cowfs-monitor"))
		monitor = thread;
	return real(thread, name);
}

int poll(struct pollfd *fds, nfds_t n, int timeout_ms)
{
	static int (*real)(struct pollfd *, nfds_t, int);

	if (!real)
		real = dlsym(RTLD_NEXT, "poll");
	if (clock_file && pthread_self() == monitor) {
		clock_file->looks++;
		timeout_ms = LOOK_MS;
	}
	return real(fds, n, timeout_ms);
}
