/* SPDX-License-Identifier: MIT */
/* cowctl commit: of a volume, of all volumes, of paths, of the kept paths. */
#include "cli/cmd.h"

#include <errno.h>
#include <string.h>

#include "cli/place.h"
#include "wire/rundir.h"

static int commit_paths(const struct options *o, const struct places *p)
{
	char name[RUNDIR_NAME_BYTES];
	struct json_object *answer;
	struct failure err;
	int exit;

	exit = cmd_excludes(o, "a PATH", OPT_DRY_RUN, OPT_HOLD, OPT_FORCE, OPT_TIMER, OPT_DEADLINE,
			    OPT_END);
	if (exit != EXIT_OK)
		return exit;
	if (!commit_files)
		return cmd_usage(
			o, "commit PATH: not in an initramfs, only in the cowctl of the system");
	if (commit_files(o, p, &answer, name, &err) < 0)
		return cmd_failed(o, &err);
	show_answer(name, o, answer, print_commit);
	return EXIT_OK;
}

static bool is_root(const struct options *o)
{
	return o->operands == 1 && !strcmp(o->operand[0], ROOT_NAME);
}

/* One operand may be a volume as well as a file. */
int cmd_commit(const struct options *o)
{
	struct places places = { 0 };
	int exit;

	if (has_option(o, OPT_TRIAL) && !is_root(o))
		return cmd_usage(o,
				 "--trial is for the root alone: cowctl commit root --trial BOOTS");
	exit = has_option(o, OPT_TRIAL)
		       ? cmd_excludes(o, "--trial", OPT_HOLD, OPT_ALL, OPT_TIMER, OPT_KEPT,
				      OPT_CHECKPOINT, OPT_DRY_RUN, OPT_END)
	       : has_option(o, OPT_HOLD)
		       ? cmd_excludes(o, "--hold", OPT_ALL, OPT_TIMER, OPT_KEPT, OPT_END)
		       : EXIT_OK;
	if (exit == EXIT_OK && has_option(o, OPT_TRIAL) && !has_option(o, OPT_FORCE) &&
	    commit_trial_check)
		exit = commit_trial_check(o, -1);
	if (exit != EXIT_OK)
		return exit;
	if ((has_option(o, OPT_ALL) && !commit_all) || (has_option(o, OPT_KEPT) && !commit_kept))
		return cmd_usage(
			o,
			"commit --all and --kept: not in an initramfs, only in the cowctl of the system");
	if (has_option(o, OPT_KEPT))
		return commit_kept(o);
	if (has_option(o, OPT_ALL))
		return commit_all(o);
	exit = o->operands ? places_resolve(o, &places) : EXIT_OK;
	if (exit == EXIT_OK)
		exit = places.n ? commit_paths(o, &places) : commit_volume(o);
	places_clear(&places);
	return exit;
}
