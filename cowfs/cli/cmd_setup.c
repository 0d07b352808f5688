/* SPDX-License-Identifier: MIT */
/*
 * setup, disable: run by a shell script, installed beside the programs in ../lib/cowfs,
 * because they mostly call other programs.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/path.h"
#include "cli/cmd.h"

#define SCRIPT "setup"

/*
 * The script finds the tree as its working directory: its programs will run as root, so no user may
 * choose or exchange it.
 */
static int enter_image(const struct options *o)
{
	const char *image = o->value[OPT_IMAGE];
	_cleanup_close_ int fd = -1;
	char why[2 * PATH_MAX];

	if (!has_option(o, OPT_IMAGE))
		return EXIT_OK;
	fd = path_open(image, O_PATH | O_DIRECTORY, why, sizeof(why));
	if (fd == -ENOENT || fd == -ENOTDIR)
		return cmd_fail(o, EXIT_FAILED, fd, "%s is not a directory", image);
	if (fd < 0 || fchdir(fd) < 0)
		return cmd_fail(o, EXIT_FAILED, fd < 0 ? fd : -errno, "%s: %s", image,
				*why ? why : strerrordesc_np(fd < 0 ? -fd : errno));
	return EXIT_OK;
}

static int run(const struct options *o, const char *what)
{
	static const enum cmd_option passed[] = { OPT_DRY_RUN,	OPT_YES,   OPT_JSON,
						  OPT_SWAP_OFF, OPT_FORCE, OPT_NO_TRIAL,
						  OPT_ROOT,	OPT_IMAGE, OPT_LOWER };
	char path[PATH_MAX];
	const char *argv[2 + 2 * ARRAY_SIZE(passed) + 1] = { path, what };
	int e = cmd_lib_path(path, SCRIPT);

	cmd_pass_on(o, passed, ARRAY_SIZE(passed), argv + 2);
	if (enter_image(o) != EXIT_OK)
		return EXIT_FAILED;
	if (e == 0) {
		execv(path, (char **)(uintptr_t)argv);
		e = -errno;
	}
	return cmd_fail(o, EXIT_FAILED, e, "%s: %s", path, strerrordesc_np(-e));
}

int cmd_setup(const struct options *o)
{
	return run(o, "setup");
}

int cmd_disable(const struct options *o)
{
	return run(o, "disable");
}
