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

/* What is held, and what came since: of a card, or from a status. */
static int look_at_card(const struct options *o, struct held_report *ret)
{
	struct failure fail;

	return offline_held(o->operand[0], o->value[OPT_LOG], HELD_LOOK, ret, &fail) < 0
		       ? cmd_failed(o, &fail)
		       : EXIT_OK;
}

static enum commit_cause cause_of(const char *text)
{
	for (enum commit_cause c = CAUSE_MANUAL; c <= CAUSE_RECOVER; c++)
		if (!strcmp(text, cause_name(c)))
			return c;
	return 0;
}

struct running {
	char name[RUNDIR_NAME_BYTES];
	bool mounted;
};

static void take_status(struct json_object *status, struct held_report *ret)
{
	struct json_object *held = json_object_object_get(status, "held");

	*ret = (struct held_report){ .held = held,
				     .live_blks = json_u64(status, "log_live_blocks") };
	ret->newest.ledger.commits = json_u64(status, "generation");
	ret->newest.time_s = json_u64(status, "generation_unix_seconds");
	ret->newest.cause = cause_of(json_text(status, "generation_cause"));
	ret->hold.generation = json_u64(held, "generation");
	ret->hold.time_s = json_u64(held, "time_unix_seconds");
	ret->hold.cause = cause_of(json_text(held, "cause"));
	ret->hold.back = json_true(held, "undo_pending");
	ret->hold.trial = json_true(held, "trial");
	ret->hold.boots = (unsigned)json_u64(held, "boots_left");
}

static int look_at_volume(const struct options *o, struct running *ret_volume,
			  struct held_report *ret)
{
	const struct request rq = { .command = COMMAND_STATUS };
	struct json_object *answer;
	struct client c;
	int exit = ask_volume(&c, o, &rq, &answer);

	if (exit != EXIT_OK)
		return exit;
	memcpy(ret_volume->name, c.name, RUNDIR_NAME_BYTES);
	client_close(&c);
	ret_volume->mounted = *json_text(answer, "mountpoint");
	take_status(answer, ret);
	json_object_put(answer);
	return EXIT_OK;
}

int choose_generation(const struct options *o, struct client *c, const char *device, bool *ret_held)
{
	const char *text = o->value[OPT_GENERATION];
	struct json_object *status = NULL;
	struct held_report r;
	struct failure err;
	uint64_t n = 0;

	if (strcmp(text, "held") && parse_u64(text, &n) < 0)
		return cmd_usage(o, "--generation %s is neither a number nor held", text);
	if (c ? !(status = client_ask(c, COMMAND_STATUS, &err))
	      : offline_held(device, o->value[OPT_LOG], HELD_LOOK, &r, &err) < 0)
		return cmd_failed(o, &err);
	if (c)
		take_status(status, &r);
	json_object_put(status);
	*ret_held = r.held && (!n || n == r.hold.generation);
	if (*ret_held || (n && n == r.newest.ledger.commits))
		return EXIT_OK;
	if (r.held)
		return cmd_fail(o, EXIT_FAILED, -ENOENT,
				"generation %s is not on the card: there are %llu, the newest, and "
				"%llu, which is held",
				text, (unsigned long long)r.newest.ledger.commits,
				(unsigned long long)r.hold.generation);
	return cmd_fail(o, EXIT_FAILED, -ENOENT,
			"no generation is held: the card has generation %llu only",
			(unsigned long long)r.newest.ledger.commits);
}

/* ---- generations ---- */

static void print_generation(uint64_t number, uint64_t time_s, enum commit_cause cause)
{
	printf("%-12s %-26s %-10s ", with_commas(number), format_time(time_s),
	       cause ? cause_name(cause) : "-");
}

static void print_generations(const struct held_report *r)
{
	uint64_t newest = r->newest.ledger.commits, held = r->hold.generation;

	printf("%-12s %-26s %s\n", "generation", "time", "cause");
	print_generation(newest, r->newest.time_s, r->newest.cause);
	printf("newest, %s in the log\n", FORMAT_SIZE(blk_to_bytes(r->live_blks)));
	if (!r->held)
		return;
	print_generation(held, r->hold.time_s, r->hold.cause);
	if (r->hold.back)
		printf("held, and the next attach goes back to it (cowctl undo)\n");
	else if (r->hold.trial)
		printf("held: the newest is on trial, for %u more boot%s\n", r->hold.boots,
		       plural(r->hold.boots));
	else
		printf("held: undo loses %s commit%s\n", with_commas(newest - held),
		       plural(newest - held));
}

static void json_generation(struct jsonw *w, uint64_t number, uint64_t time_s,
			    enum commit_cause cause, bool held)
{
	jsonw_object(w, NULL);
	jsonw_u64(w, "generation", number);
	jsonw_u64(w, "time_unix_seconds", time_s);
	if (cause)
		jsonw_str(w, "cause", cause_name(cause));
	jsonw_bool(w, "held", held);
	jsonw_end(w);
}

static void json_generations(const char *name, const struct held_report *r)
{
	struct jsonw *w = json_begin(true);

	jsonw_str(w, "name", name);
	jsonw_bool(w, "undo_pending", r->hold.back);
	jsonw_bool(w, "trial", r->hold.trial);
	jsonw_u64(w, "boots_left", r->hold.boots);
	jsonw_u64(w, "log_live_blocks", r->live_blks);
	jsonw_array(w, "generations");
	json_generation(w, r->newest.ledger.commits, r->newest.time_s, r->newest.cause, false);
	if (r->held)
		json_generation(w, r->hold.generation, r->hold.time_s, r->hold.cause, true);
	jsonw_end(w);
	json_end(w);
}

int cmd_generations(const struct options *o)
{
	struct held_report rep = { 0 };
	struct running v = { 0 };
	bool card = is_card(o);
	int exit = card ? look_at_card(o, &rep) : look_at_volume(o, &v, &rep);

	if (exit == EXIT_OK && has_option(o, OPT_JSON))
		json_generations(card ? o->operand[0] : v.name, &rep);
	else if (exit == EXIT_OK)
		print_generations(&rep);
	return exit;
}

/* ---- undo, accept ---- */

/* when: what undo waits for; NULL: nothing, it is done */
struct outcome {
	const char *name, *when;
	bool dry;
};

static void print_undo(const struct outcome *out, const struct held_report *r)
{
	uint64_t since = r->newest.ledger.commits - r->hold.generation;

	if (out->dry)
		printf("would go back to");
	else
		printf(out->when ? "goes back to" : "back at");
	printf(" generation %s of %s", with_commas(r->hold.generation),
	       format_time(r->hold.time_s));
	if (out->when)
		printf(" %s", out->when);
	if (since)
		printf("; %s commit%s since %s lost", with_commas(since), plural(since),
		       out->dry	    ? "would be"
		       : since == 1 ? "is"
				    : "are");
	else
		printf("; no commit was made since");
	if (!out->dry)
		printf("%s. %scowctl undo --cancel takes that back",
		       !out->when ? ""
		       : since	  ? ", and so is what follows"
				  : "; what follows is lost",
		       out->when ? "" : "Until the next commit ");
	printf("\n");
}

static void print_accept(const struct outcome *out, const struct held_report *r)
{
	if (!r->held) {
		printf("the alarm about writes that failed has ended\n");
		return;
	}
	printf("generation %s %s held%s", with_commas(r->hold.generation),
	       out->dry ? "would no longer be" : "is no longer",
	       r->hold.back ? ", and nothing goes back to it" : "");
	if (out->dry)
		printf(": %s of the log can be checkpointed then",
		       FORMAT_SIZE(blk_to_bytes(r->live_blks)));
	printf("\n");
}

static void print_end(const struct options *o, const struct outcome *out, enum held_what what,
		      const struct held_report *r)
{
	struct jsonw *w;

	if (has_option(o, OPT_JSON)) {
		w = json_begin(true);
		jsonw_str(w, "name", out->name);
		jsonw_u64(w, "held_generation", r->hold.generation);
		jsonw_u64(w, "newest_generation", r->newest.ledger.commits);
		jsonw_u64(w, "log_live_blocks", r->live_blks);
		jsonw_bool(w, "dry_run", out->dry);
		jsonw_bool(w, "undo_pending", what == HELD_BACK && !out->dry);
		jsonw_u64(w, "written_bytes", r->written_bytes);
		json_end(w);
		return;
	}
	printf("%s: ", CLEAN(out->name));
	if (what == HELD_BACK)
		print_undo(out, r);
	else if (what == HELD_ACCEPT)
		print_accept(out, r);
	else
		printf("%s at generation %s, and generation %s %s held: the card is no plain file system until cowctl "
		       "accept\n",
		       out->dry ? "would stay" : "stays", with_commas(r->newest.ledger.commits),
		       with_commas(r->hold.generation), out->dry ? "would stay" : "is still");
}

static int none_held(const struct options *o, const char *name)
{
	return cmd_fail(o, EXIT_FAILED, -ENOENT, "%s: no generation is held", name);
}

static int end_of_card(const struct options *o, enum held_what what)
{
	const struct outcome out = { .name = o->operand[0], .dry = has_option(o, OPT_DRY_RUN) };
	struct held_report rep;
	struct failure fail;

	if (offline_held(o->operand[0], o->value[OPT_LOG], out.dry ? HELD_LOOK : what, &rep,
			 &fail) < 0)
		return cmd_failed(o, &fail);
	if (!rep.held)
		return none_held(o, o->operand[0]);
	print_end(o, &out, what, &rep);
	return EXIT_OK;
}

/* Nothing is mounted: the volume does not have to stay. */
static bool detached(const struct options *o)
{
	struct failure err;
	struct client c;
	bool ok;

	if (client_open(&c, which_volume(o), &err) < 0)
		return false;
	ok = detach_volume(&c);
	client_close(&c);
	return ok;
}

static int end_of_volume(const struct options *o, enum held_what what)
{
	const struct request rq = { .command = what == HELD_ACCEPT ? COMMAND_ACCEPT : COMMAND_UNDO,
				    .cancel = what == HELD_STAY,
				    .on_trial = has_option(o, OPT_TRIAL) };
	struct running v = { 0 };
	struct outcome out = { .name = v.name, .dry = has_option(o, OPT_DRY_RUN) };
	struct json_object *answer;
	struct held_report rep;
	struct client c;
	int exit = look_at_volume(o, &v, &rep);
	/* what a person holds is not the unit's to end: only the initramfs is accepted then */
	bool root = !strcmp(v.name, ROOT_NAME), silent = rq.on_trial && !rep.hold.trial;

	if (exit != EXIT_OK || (silent && out.dry))
		return exit;
	out.when = root	       ? "at the next boot"
		   : v.mounted ? "when it is attached again: unmount it, then detach it"
			       : NULL;
	if (out.dry) {
		if (!rep.held)
			return none_held(o, v.name);
		print_end(o, &out, what, &rep);
		return EXIT_OK;
	}
	if (what == HELD_BACK && rep.held && cmd_asks(o)) {
		out.dry = true;
		print_end(o, &out, what, &rep);
		out.dry = false;
		if (!cmd_confirm(o, "Go on?"))
			return cmd_fail(o, EXIT_FAILED, -ECANCELED, "nothing was changed");
	}
	exit = ask_volume(&c, o, &rq, &answer);
	if (exit != EXIT_OK)
		return exit;
	client_close(&c);
	rep.written_bytes = json_u64(json_object_object_get(answer, "report"), "written_bytes");
	json_object_put(answer);
	if (what == HELD_BACK && !out.when && !detached(o))
		out.when = "when it is attached again: detach it";
	if (!silent)
		print_end(o, &out, what, &rep);
	return EXIT_OK;
}

static int end(const struct options *o, enum held_what what)
{
	return is_card(o) ? end_of_card(o, what) : end_of_volume(o, what);
}

int cmd_undo(const struct options *o)
{
	return end(o, has_option(o, OPT_CANCEL) ? HELD_STAY : HELD_BACK);
}

int cmd_accept(const struct options *o)
{
	return has_option(o, OPT_TRIAL) ? end_of_volume(o, HELD_ACCEPT) : end(o, HELD_ACCEPT);
}
