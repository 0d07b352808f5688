/* SPDX-License-Identifier: MIT */
/* cowctl status: of one volume, of all, and of a root that should be protected and is not. */
#include "cli/cmd.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "attach/keep.h"
#include "attach/leftover.h"
#include "attach/rootstate.h"
#include "base/clean.h"
#include "config/conf.h"

/* From the daemon, or, for users without that permission, from its world-readable file. */
static int get_status(const struct options *o, struct json_object **ret)
{
	const struct request rq = { .command = COMMAND_STATUS };
	struct failure err;
	struct client c;
	int exit;

	if (geteuid() != 0) {
		*ret = cmd_composed(client_status_file(which_volume(o), &err));
		return *ret ? EXIT_OK : cmd_failed(o, &err);
	}
	exit = ask_volume(&c, o, &rq, ret);
	if (exit == EXIT_OK) {
		client_close(&c);
		*ret = cmd_composed(*ret);
	}
	return exit;
}

/* What is kept, and when it was last committed: not known to the daemon. */
static void add_keep(struct json_object *status)
{
	const char *name = json_fact(status, FACT_NAME), *paths;
	struct json_object *keep;
	struct keep_state s;
	struct conf *c;
	char why[512];

	if (conf_load(&c, why, sizeof(why)) < 0)
		return;
	paths = conf_text(c, name, ROOTOPT_KEEP);
	if (*paths) {
		keep = json_object_new_object();
		keep_read(name, &s);
		json_object_object_add(keep, "paths", json_object_new_string(paths));
		json_object_object_add(
			keep, "interval",
			json_object_new_string(conf_text(c, name, ROOTOPT_KEEP_INTERVAL)));
		json_object_object_add(keep, "last_unix_seconds", json_object_new_uint64(s.last_s));
		json_object_object_add(keep, "error", json_object_new_string(s.error));
		json_object_object_add(status, "keep", keep);
	}
	conf_free(c);
}

static int show_status(const struct options *o, struct json_object *answer)
{
	int exit = EXIT_OK;

	if (!has_option(o, OPT_JSON))
		answer = status_for_people(answer);
	add_keep(answer);
	if (has_option(o, OPT_JSON))
		json_print(answer);
	else
		print_status(answer, has_option(o, OPT_VERBOSE));
	if (json_true(answer, "degraded") ||
	    json_true(json_object_object_get(answer, "undone"), "trial_failed"))
		exit = EXIT_DEGRADED;
	json_object_put(answer);
	return exit;
}

static int show_one(const struct options *o)
{
	struct json_object *answer;
	int exit = get_status(o, &answer);

	return exit == EXIT_OK ? show_status(o, answer) : exit;
}

struct answers {
	struct json_object *status[CLIENT_VOLUMES];
	struct failure err[CLIENT_VOLUMES];
};

static int show_nth(const struct options *o, size_t nth, void *ctx)
{
	struct answers *a = ctx;

	if (!a->status[nth])
		return cmd_failed(o, &a->err[nth]);
	if (nth && !has_option(o, OPT_JSON))
		putchar('\n');
	return show_status(o, cmd_composed(a->status[nth]));
}

static int show_all(const struct options *o, char names[][RUNDIR_NAME_BYTES], size_t n)
{
	struct answers a;

	client_statuses(names, n, a.status, a.err);
	return each_volume(o, names, n, show_nth, &a);
}

/*
 * True for a root that should be protected and is not, if it is requested by its name or by none.
 * False: no such root.
 */
static bool root_is_bare(const struct options *o, char *why, size_t why_bytes)
{
	char reason[512];
	enum root_state s = rootstate_read(reason, sizeof(reason));

	if ((s != ROOT_FAILED && s != ROOT_BYPASSED) ||
	    (which_volume(o) && strcmp(which_volume(o), ROOT_NAME)))
		return false;
	snprintf(why, why_bytes, "the root is NOT PROTECTED%s: %s",
		 s == ROOT_FAILED ? ", and read-only" : "", reason);
	return true;
}

static int follow(const struct options *o)
{
	if (!status_follow)
		return cmd_usage(
			o,
			"status --follow: not in an initramfs, only in the cowctl of the system");
	if (o->operands)
		return cmd_usage(o, "--follow shows all volumes and takes none");
	return status_follow(o);
}

int cmd_status(const struct options *o)
{
	char names[CLIENT_VOLUMES][RUNDIR_NAME_BYTES];
	size_t n = which_volume(o) ? 0 : client_volumes(names);
	struct failure err;
	struct client c;
	struct leftover_volume dead[CLIENT_VOLUMES];
	char why[600];
	bool bare = root_is_bare(o, why, sizeof(why));
	int exit;

	if (has_option(o, OPT_ONCE) && !has_option(o, OPT_FOLLOW))
		return cmd_usage(o, "--once needs --follow");
	if (has_option(o, OPT_FOLLOW)) {
		exit = cmd_excludes(o, "--follow", OPT_BRIEF, OPT_END);
		return exit == EXIT_OK ? follow(o) : exit;
	}
	if (has_option(o, OPT_BRIEF)) {
		exit = cmd_excludes(o, "--brief", OPT_JSON, OPT_END);
		return exit == EXIT_OK ? status_brief() : exit;
	}
	if (bare && client_open(&c, which_volume(o), &err) < 0)
		return cmd_fail(o, EXIT_DEGRADED, -EROFS, "%s", why);
	if (bare) {
		client_close(&c);
		fprintf(stderr, "cowctl: %s\n", CLEAN(why));
	}
	if (has_option(o, OPT_JSON))
		leftover_clear(dead);
	else
		leftover_clear_and_tell(false);
	exit = n > 1 ? show_all(o, names, n) : show_one(o);
	return exit == EXIT_OK && bare ? EXIT_DEGRADED : exit;
}
