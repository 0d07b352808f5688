/* SPDX-License-Identifier: MIT */
/*
 * LD_PRELOAD library for tests: what the owner of a folder can do between two calls of a program of root's. The names COWFS_SWAP_A and
 * COWFS_SWAP_B are exchanged once, if there are both, before call COWFS_SWAP_AT of those that look at a file or change a name, and that
 * this call was reached is said.
 */
#include <stdio.h>
#include <sys/stat.h>

#include "shim.h"

static void count(void)
{
	static int calls;

	if (++calls != atoi(getenv("COWFS_SWAP_AT")))
		return;
	fputs("reached\n", stderr);
	((int (*)(int, const char *, int, const char *, unsigned))real("renameat2"))(
		AT_FDCWD, getenv("COWFS_SWAP_A"), AT_FDCWD, getenv("COWFS_SWAP_B"),
		RENAME_EXCHANGE);
}

int statx(int fd, const char *restrict path, int flags, unsigned mask, struct statx *restrict st)
{
	if (flags & (AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW)) /* not a descriptor of some process */
		count();
	return ((int (*)(int, const char *, int, unsigned, struct statx *))real("statx"))(
		fd, path, flags, mask, st);
}

int renameat2(int a, const char *from, int b, const char *to, unsigned flags)
{
	count();
	return ((int (*)(int, const char *, int, const char *, unsigned))real("renameat2"))(
		a, from, b, to, flags);
}

int unlinkat(int fd, const char *path, int flags)
{
	count();
	return ((int (*)(int, const char *, int))real("unlinkat"))(fd, path, flags);
}

int mkdirat(int fd, const char *path, mode_t mode)
{
	count();
	return ((int (*)(int, const char *, mode_t))real("mkdirat"))(fd, path, mode);
}
