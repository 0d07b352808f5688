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

static unsigned pass_value(const struct options *o, int id, char *name, char **argv)
{
	if (!has_option(o, id))
		return 0;
	argv[0] = name;
	argv[1] = (char *)(uintptr_t)o->value[id];
	return 2;
}

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

static int run(const struct options *o, char *what)
{
	static char dry_run[] = "--dry-run", yes[] = "--yes", json[] = "--json",
		    swap_off[] = "--swap-off", force[] = "--force", no_trial[] = "--no-trial",
		    root[] = "--root", image[] = "--image", lower[] = "--lower";
	char path[PATH_MAX], *argv[16];
	unsigned n = 0;
	int e = cmd_lib_path(path, SCRIPT);

	argv[n++] = path;
	argv[n++] = what;
	if (has_option(o, OPT_DRY_RUN))
		argv[n++] = dry_run;
	if (has_option(o, OPT_YES))
		argv[n++] = yes;
	if (has_option(o, OPT_JSON))
		argv[n++] = json;
	if (has_option(o, OPT_SWAP_OFF))
		argv[n++] = swap_off;
	if (has_option(o, OPT_FORCE))
		argv[n++] = force;
	if (has_option(o, OPT_NO_TRIAL))
		argv[n++] = no_trial;
	n += pass_value(o, OPT_ROOT, root, argv + n);
	n += pass_value(o, OPT_IMAGE, image, argv + n);
	n += pass_value(o, OPT_LOWER, lower, argv + n);
	argv[n] = NULL;
	if (enter_image(o) != EXIT_OK)
		return EXIT_FAILED;
	if (e == 0) {
		execv(path, argv);
		e = -errno;
	}
	return cmd_fail(o, EXIT_FAILED, e, "%s: %s", path, strerrordesc_np(-e));
}

int cmd_setup(const struct options *o)
{
	static char what[] = "setup";

	return run(o, what);
}

int cmd_disable(const struct options *o)
{
	static char what[] = "disable";

	return run(o, what);
}
