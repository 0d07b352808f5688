/* SPDX-License-Identifier: MIT */
/* cowctl commit --all: each volume by itself, in turn. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli/cmd.h"

struct all {
	const struct options *o;
	struct request rq;
	struct json_object *list; /* with --json; NULL: text */
};

/* NULL with *err, or an answer that may be {"ok":false}. */
static struct json_object *ask_for_commit(const struct all *a, const char *name,
					  struct failure *err)
{
	struct json_object *answer;
	struct client c;

	commit_metadata_home(name, &a->rq);
	if (client_open(&c, name, err) < 0)
		return NULL;
	answer = ask_client(&c, &a->rq, err);
	if (json_true(answer, "ok"))
		commit_add_life(&c, a->o, answer);
	client_close(&c);
	return answer;
}

/* answer NULL: the failure in its place */
static void add_to_list(struct all *a, const char *name, struct json_object *answer,
			const struct failure *err)
{
	struct json_object *row = answer ? json_object_get(answer) : json_answer(false);

	if (!answer) {
		json_object_object_add(row, "error", json_object_new_string(err->why));
		json_object_object_add(row, "exit", json_object_new_int((int)err->exit));
	}
	json_object_object_add(row, "name", json_object_new_string(name));
	json_object_array_add(a->list, row);
}

static int commit_turn(void *ctx, const char *name, bool left_out, bool *ret_committed)
{
	struct failure err = { 0 };
	struct all *a = ctx;
	struct json_object *answer = NULL;
	bool ok;
	int exit;

	if (left_out)
		turn_left_out(&err, name);
	else
		answer = ask_for_commit(a, name, &err);
	ok = json_true(answer, "ok");
	*ret_committed = turn_committed(answer);
	exit = ok ? EXIT_OK : answer ? (int)json_u64(answer, "exit") : (int)err.exit;
	if (a->list)
		add_to_list(a, name, answer, &err);
	else if (ok)
		print_commit(name, a->o, answer);
	else
		fprintf(stderr, "cowctl: %s: %s\n", name,
			answer ? json_text(answer, "error") : err.why);
	json_object_put(answer);
	return exit;
}

static int print_list(struct json_object *list, int exit)
{
	struct json_object *all = json_answer(exit == EXIT_OK);

	if (exit != EXIT_OK)
		json_object_object_add(all, "exit", json_object_new_int(exit));
	json_object_object_add(all, "volumes", list);
	json_print(all);
	json_object_put(all);
	return exit;
}

int commit_all(const struct options *o)
{
	int exit = cmd_excludes(o, "--all", OPT_DEADLINE, OPT_TIMER, OPT_END);
	char dead[CLIENT_VOLUMES][RUNDIR_NAME_BYTES];
	struct all a = { .o = o };
	struct turns t;
	size_t n;

	if (o->operands)
		return cmd_usage(o, "--all takes no volume and no path");
	if (exit == EXIT_OK)
		exit = commit_request(o, &a.rq);
	if (exit != EXIT_OK)
		return exit;
	n = client_dead_volumes(dead);
	for (size_t i = 0; i < n; i++)
		fprintf(stderr, "cowctl: volume %s takes no part: its daemon died\n", dead[i]);
	turns_of_all(&t);
	if (!t.n)
		return cmd_fail(o, EXIT_NOT_RUNNING, -ESRCH, "no volume is attached");
	a.list = has_option(o, OPT_JSON) ? json_object_new_array() : NULL;
	exit = turns_take(&t, !a.rq.dry_run, commit_turn, &a);
	return a.list ? print_list(a.list, exit) : exit;
}
