/* SPDX-License-Identifier: MIT */
/* Generations that are held: generations, undo, accept. */
#include "cli/cmd.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clean.h"
#include "base/parse.h"
#include "offline/offline.h"
#include "wire/render.h"

/* What does the operand name? A path that no daemon has is a card. */
static bool is_card(const struct options *o)
{
	struct failure err;
	struct client c;

	if (!o->operands || !strchr(o->operand[0], '/'))
		return false;
	if (client_open(&c, o->operand[0], &err) < 0)
		return err.exit == EXIT_NOT_RUNNING;
	client_close(&c);
	return false;
}

/* ---- generations ---- */

struct generation_line {
	uint64_t number, time_s;
	bool held;
};

static void print_generations(const struct options *o, const char *name,
			      const struct generation_line *g, size_t n)
{
	char text[4 * KIB];
	struct jsonw w;

	if (!has_option(o, OPT_JSON)) {
		printf("%-12s %-26s\n", "generation", "time");
		for (size_t i = 0; i < n; i++)
			printf("%-12s %-26s %s\n", with_commas(g[i].number),
			       format_time(g[i].time_s), g[i].held ? "held" : "newest");
		return;
	}
	jsonw_init(&w, text, sizeof(text));
	answer_ok(&w);
	jsonw_str(&w, "name", name);
	jsonw_array(&w, "generations");
	for (size_t i = 0; i < n; i++) {
		jsonw_object(&w, NULL);
		jsonw_u64(&w, "generation", g[i].number);
		jsonw_u64(&w, "time_unix_seconds", g[i].time_s);
		jsonw_bool(&w, "held", g[i].held);
		jsonw_end(&w);
	}
	jsonw_end(&w);
	if (jsonw_finish(&w))
		fputs(text, stdout);
}

static int of_card(const struct options *o, struct generation_line g[2], size_t *n)
{
	struct held_report rep;
	struct failure fail;

	if (offline_held(o->operand[0], o->value[OPT_LOG], HELD_LOOK, &rep, &fail) < 0)
		return cmd_failed(o, &fail);
	g[(*n)++] = (struct generation_line){ rep.newest.ledger.commits, rep.newest.time_s, false };
	if (rep.held)
		g[(*n)++] = (struct generation_line){ rep.hold.generation, rep.hold.time_s, true };
	return EXIT_OK;
}

static int of_daemon(const struct options *o, char name[RUNDIR_NAME_BYTES],
		     struct generation_line g[2], size_t *n)
{
	const struct request rq = { .command = COMMAND_STATUS };
	struct json_object *answer, *held;
	struct client c;
	int exit = ask_volume(&c, o, &rq, &answer);

	if (exit != EXIT_OK)
		return exit;
	memcpy(name, c.name, RUNDIR_NAME_BYTES);
	client_close(&c);
	held = json_object_object_get(answer, "held");
	g[(*n)++] = (struct generation_line){ json_u64(answer, "generation"),
					      json_u64(answer, "generation_unix_seconds"), false };
	if (held)
		g[(*n)++] = (struct generation_line){ json_u64(held, "generation"),
						      json_u64(held, "time_unix_seconds"), true };
	json_object_put(answer);
	return EXIT_OK;
}

int cmd_generations(const struct options *o)
{
	struct generation_line g[2];
	char name[RUNDIR_NAME_BYTES] = "";
	size_t n = 0;
	bool card = is_card(o);
	int exit = card ? of_card(o, g, &n) : of_daemon(o, name, g, &n);

	if (exit == EXIT_OK)
		print_generations(o, card ? o->operand[0] : name, g, n);
	return exit;
}

/* ---- undo, accept ---- */

static void print_end(const struct options *o, const char *name, bool back,
		      const struct held_report *rep, bool dry)
{
	char text[2 * KIB];
	struct jsonw w;
	uint64_t held = rep->hold.generation, newest = rep->newest.ledger.commits;

	if (has_option(o, OPT_JSON)) {
		jsonw_init(&w, text, sizeof(text));
		answer_ok(&w);
		jsonw_str(&w, "name", name);
		jsonw_u64(&w, "held_generation", held);
		jsonw_u64(&w, "newest_generation", newest);
		jsonw_bool(&w, "dry_run", dry);
		jsonw_u64(&w, "written_bytes", rep->written_bytes);
		if (jsonw_finish(&w))
			fputs(text, stdout);
		return;
	}
	printf("%s: ", CLEAN(name));
	if (!back)
		printf("generation %s is no longer held\n", with_commas(held));
	else if (newest == held)
		printf("%s generation %s, and nothing was committed since\n",
		       dry ? "would go back to" : "back at", with_commas(held));
	else
		printf("%s generation %s of %s; %s commit%s since %s lost\n",
		       dry ? "would go back to" : "back at", with_commas(held),
		       format_time(rep->hold.time_s), with_commas(newest - held),
		       plural(newest - held),
		       dry		    ? "would be"
		       : newest - held == 1 ? "is"
					    : "are");
}

static int end_of_card(const struct options *o, enum held_what what)
{
	bool dry = what == HELD_LOOK;
	struct held_report rep;
	struct failure fail;

	if (offline_held(o->operand[0], o->value[OPT_LOG], what, &rep, &fail) < 0)
		return cmd_failed(o, &fail);
	if (dry && !rep.held)
		return cmd_fail(o, EXIT_FAILED, -ENOENT, "%s: no generation is held",
				o->operand[0]);
	print_end(o, o->operand[0], what != HELD_ACCEPT, &rep, dry);
	return EXIT_OK;
}

int cmd_undo(const struct options *o)
{
	return end_of_card(o, has_option(o, OPT_DRY_RUN) ? HELD_LOOK : HELD_BACK);
}

static void print_accepted(const char *name, const struct options *o, struct json_object *answer)
{
	(void)o;
	(void)answer;
	printf("%s: no generation is held any more\n", name);
}

int cmd_accept(const struct options *o)
{
	const struct request rq = { .command = COMMAND_ACCEPT };

	return is_card(o) ? end_of_card(o, HELD_ACCEPT) : ask_and_print(o, &rq, print_accepted);
}
