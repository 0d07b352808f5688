/* SPDX-License-Identifier: MIT */
/*
 * cowctl factory-reset: a composed root becomes its image again. A mark on the volume makes the
 * next boot begin a new upper, because this one is in use. The mark is committed at once.
 */
#include "cli/cmd.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "attach/compose.h"
#include "config/conf.h"

/* Also if this boot refused to compose it. */
static bool is_composed(void)
{
	struct compose_state s;
	struct conf *c = NULL;
	char why[512];
	bool yes = compose_load(&s);

	if (!yes && conf_load(&c, why, sizeof(why)) == 0) {
		yes = conf_has_root(c) &&
		      strcmp(conf_root_text(c, ROOTOPT_COMPOSE), "overlay") == 0;
		conf_free(c);
	}
	return yes;
}

static int mark(const struct options *o)
{
	struct failure err;
	struct facts f;

	client_facts(ROOT_NAME, false, &f);
	if (!f.device[FACT_LOOP].rdev)
		return cmd_fail(o, EXIT_NOT_RUNNING, -ESRCH, "no volume is attached as " ROOT_NAME);
	return compose_mark_reset(f.device[FACT_LOOP].path, &err) < 0 ? cmd_failed(o, &err)
								      : EXIT_OK;
}

int cmd_factory_reset(const struct options *o)
{
	struct options commit = { .operand = { ROOT_NAME }, .operands = 1 };
	int exit;

	if (!is_composed())
		return cmd_usage(
			o,
			"the root is not composed of an image and its changes: no factory reset");
	if (!cmd_can_ask(o))
		return cmd_usage(o, "factory-reset: nobody can be asked: add --yes");
	if (!cmd_confirm(o, "Drop all changes of the image at the next boot?"))
		return cmd_fail(o, EXIT_FAILED, -ECANCELED, "nothing was changed");
	exit = mark(o);
	commit.value[OPT_JSON] = o->value[OPT_JSON];
	if (exit == EXIT_OK)
		exit = cmd_commit(&commit);
	if (exit == EXIT_OK && !has_option(o, OPT_JSON))
		puts(ROOT_NAME ": the next boot begins with the image alone");
	return exit;
}
