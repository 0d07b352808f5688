/* SPDX-License-Identifier: MIT */
/*
 * LD_PRELOAD library for tests: fstat says of each file that was never linked that it has no pages. So what the RAM
 * layer counts is not in its store, which an error of cowfs could cause and nothing else (ram/generation.h).
 */
#include <dlfcn.h>
#include <sys/stat.h>

int fstat64(int fd, struct stat64 *st)
{
	int (*next)(int, struct stat64 *) = (int (*)(int, struct stat64 *))dlsym(RTLD_NEXT,
										 "fstat64");
	int r = next(fd, st);

	if (r == 0 && S_ISREG(st->st_mode) && !st->st_nlink)
		st->st_blocks = 0;
	return r;
}
