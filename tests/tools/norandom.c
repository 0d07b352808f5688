/* SPDX-License-Identifier: MIT */
/*
 * LD_PRELOAD library for tests: a kernel whose random numbers are not there yet, as in the first
 * second of a boot. What would wait there for them ends the program instead; getrandom with
 * GRND_NONBLOCK says EAGAIN.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static void refuse(const char *what)
{
	fprintf(stderr, "norandom: %s would wait for random numbers\n", what);
	abort();
}

ssize_t getrandom(void *buf, size_t bytes, unsigned flags)
{
	if (!(flags & GRND_NONBLOCK))
		refuse("getrandom");
	errno = EAGAIN;
	return -1;
}

static int open_file(const char *symbol, const char *path, int flags, mode_t mode)
{
	int (*next)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT,
										     symbol);

	if (!strcmp(path, "/dev/random") || !strcmp(path, "/dev/urandom"))
		refuse(path);
	return next(path, flags, mode);
}

#define OPEN(name)                                                                                 \
	int name(const char *path, int flags, ...)                                                 \
	{                                                                                          \
		mode_t mode = 0;                                                                   \
		va_list ap;                                                                        \
                                                                                                   \
		va_start(ap, flags);                                                               \
		if (flags & (O_CREAT | __O_TMPFILE))                                               \
			mode = va_arg(ap, mode_t);                                                 \
		va_end(ap);                                                                        \
		return open_file(#name, path, flags, mode);                                        \
	}

OPEN(open)
OPEN(open64)
