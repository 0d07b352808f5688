/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cmd.h"

int cmd_beside(char path[PATH_MAX], const char *folder, const char *name)
{
	char exe[PATH_MAX], *slash;
	ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);

	if (n < 0)
		return -errno;
	exe[n] = '\0';
	slash = strrchr(exe, '/');
	if (slash)
		*slash = '\0';
	return snprintf(path, PATH_MAX, "%s%s/%s", exe, folder, name) < PATH_MAX ? 0
										 : -ENAMETOOLONG;
}

int cmd_lib_path(char path[PATH_MAX], const char *name)
{
	const char *dir = secure_getenv("COWFS_LIBDIR");

	if (dir && *dir)
		return snprintf(path, PATH_MAX, "%s/%s", dir, name) < PATH_MAX ? 0 : -ENAMETOOLONG;
	return cmd_beside(path, "/../lib/cowfs", name);
}
