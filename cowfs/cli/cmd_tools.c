/* SPDX-License-Identifier: MIT */
/*
 * Programs of their own in ../lib/cowfs: the script of setup, and cowfs-measure, which no initramfs
 * carries.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cmd.h"

#define TOOL "cowfs-measure"

static int beside(char path[PATH_MAX], const char *folder, const char *name)
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
	return beside(path, "/../lib/cowfs", name);
}

int cmd_tool(char **argv)
{
	struct options o = { 0 };
	char path[PATH_MAX], built[PATH_MAX];
	int e = cmd_lib_path(path, TOOL), argc = 0;

	/* programs that were built and not installed lie in one folder */
	if (e == 0 && access(path, F_OK) < 0 && beside(built, "", TOOL) == 0 &&
	    access(built, F_OK) == 0)
		memcpy(path, built, sizeof(path));
	if (e == 0) {
		execv(path, argv);
		e = -errno;
	}
	while (argv[argc])
		argc++;
	if (options_name_given(argc, argv, "json"))
		o.value[OPT_JSON] = "";
	return cmd_fail(&o, EXIT_FAILED, e, "%s: %s%s", path, strerrordesc_np(-e),
			e == -ENOENT ? ": it is a part of the package, but not of an initramfs"
				     : "");
}
