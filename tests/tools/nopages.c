/* SPDX-License-Identifier: MIT */
/*
 * LD_PRELOAD library for tests: fstat says of each file that was never linked that it has no pages. So what the RAM
 * layer counts is not in its store, which an error of cowfs could cause and nothing else (ram/generation.h).
 */
#define _FILE_OFFSET_BITS 64 /* fstat is what the programs call by this name */
#define _TIME_BITS 64
#include <dlfcn.h>
#include <sys/stat.h>

#if __TIMESIZE == 32
#define SYMBOL "__fstat64_time64"
#else
#define SYMBOL "fstat64"
#endif

int fstat(int fd, struct stat *st)
{
	int (*next)(int, struct stat *) = (int (*)(int, struct stat *))dlsym(RTLD_NEXT, SYMBOL);
	int r = next(fd, st);

	if (r == 0 && S_ISREG(st->st_mode) && !st->st_nlink)
		st->st_blocks = 0;
	return r;
}
