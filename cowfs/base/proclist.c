/* SPDX-License-Identifier: MIT */
#include "base/proclist.h"

#include <fcntl.h>

DIR *proclist_open(int dirfd, const char *name)
{
	int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);

	if (!dir && fd >= 0)
		close(fd);
	return dir;
}

int proclist_next(DIR *dir)
{
	struct dirent *e;

	while ((e = readdir(dir))) {
		char *end;
		long n = strtol(e->d_name, &end, 10);

		if (!*end && end != e->d_name && n >= 0)
			return (int)n;
	}
	return -1;
}
