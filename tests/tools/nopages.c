/* SPDX-License-Identifier: MIT */
/*
 * LD_PRELOAD library for tests: fstat says of each large file in a tmpfs that it has no pages. So what the RAM
 * layer counts is not in its store, which an error of cowfs could cause and nothing else (ram/generation.h).
 */
#define _FILE_OFFSET_BITS 64 /* fstat is what the programs call by this name */
#define _TIME_BITS 64
#include <dlfcn.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>

#if __TIMESIZE == 32
#define SYMBOL "__fstat64_time64"
#else
#define SYMBOL "fstat64"
#endif

int fstat(int fd, struct stat *st)
{
	int (*next)(int, struct stat *) = (int (*)(int, struct stat *))dlsym(RTLD_NEXT, SYMBOL);
	int r = next(fd, st);
	struct statfs fs;

	if (r == 0 && S_ISREG(st->st_mode) && st->st_size >= 32 << 20 && fstatfs(fd, &fs) == 0 &&
	    fs.f_type == TMPFS_MAGIC)
		st->st_blocks = 0;
	return r;
}
