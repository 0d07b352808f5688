/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "cli/cmd.h"

#define TOOL "cowfs-measure"

int cmd_tool(char **argv)
{
	struct options o = { 0 };
	char path[PATH_MAX], built[PATH_MAX];
	int e = cmd_lib_path(path, TOOL), argc = 0;

	/* programs that were built and not installed lie in one folder */
	if (e == 0 && access(path, F_OK) < 0 && cmd_beside(built, "", TOOL) == 0 &&
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
