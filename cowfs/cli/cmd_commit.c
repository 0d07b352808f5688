/* SPDX-License-Identifier: MIT */
/* cowctl commit: of a volume, of all volumes, of paths, of the kept paths. */
#include "cli/cmd.h"

#include <errno.h>

#include "cli/place.h"

static int commit_paths(const struct options *o, const struct places *p)
{
	static const enum cmd_option not_with[] = { OPT_DRY_RUN, OPT_FORCE, OPT_LEND, OPT_TIMER,
						    OPT_DEADLINE };
	char name[RUNDIR_NAME_BYTES];
	struct json_object *answer;
	struct failure err;

	for (size_t i = 0; i < ARRAY_SIZE(not_with); i++)
		if (has_option(o, not_with[i]))
			return cmd_fail(
				o, EXIT_USAGE, -EINVAL,
				"commit: --dry-run, --force, --lend, --timer and --deadline "
				"are for all changes, not for a PATH");
	if (!commit_files)
		return cmd_fail(
			o, EXIT_USAGE, -EINVAL,
			"commit PATH: not in an initramfs, only in the cowctl of the system");
	if (commit_files(o, p, &answer, name, &err) < 0)
		return cmd_failed(o, &err);
	if (has_option(o, OPT_JSON))
		json_print(answer);
	else
		print_commit(name, o, answer);
	json_object_put(answer);
	return EXIT_OK;
}

/* One operand may be a volume as well as a file. */
int cmd_commit(const struct options *o)
{
	struct places places = { 0 };
	int exit;

	if ((has_option(o, OPT_ALL) && !commit_all) || (has_option(o, OPT_KEPT) && !commit_kept))
		return cmd_fail(
			o, EXIT_USAGE, -EINVAL,
			"commit --all and --kept: not in an initramfs, only in the cowctl of the system");
	if (has_option(o, OPT_KEPT))
		return commit_kept(o);
	if (has_option(o, OPT_ALL))
		return commit_all(o);
	exit = o->operands ? places_resolve(o, 0, &places) : EXIT_OK;
	if (exit == EXIT_OK)
		exit = places.n ? commit_paths(o, &places) : commit_volume(o);
	places_clear(&places);
	return exit;
}
