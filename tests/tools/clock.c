/* SPDX-License-Identifier: MIT */
/*
 * LD_PRELOAD library for tests: time() is ahead of the clock by the number of seconds in the file COWFS_CLOCK (8 bytes,
 * negative: behind), which a test may change at any moment. The file is mapped at the start, because the worker opens none later.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *ahead_s;

static __attribute__((constructor)) void map(void)
{
	const char *path = getenv("COWFS_CLOCK");
	int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	void *at;

	if (fd < 0)
		return;
	at = mmap(NULL, sizeof(*ahead_s), PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	if (at != MAP_FAILED)
		ahead_s = at;
}

time_t time(time_t *ret)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	now.tv_sec += ahead_s ? (time_t)*ahead_s : 0;
	if (ret)
		*ret = now.tv_sec;
	return now.tv_sec;
}
