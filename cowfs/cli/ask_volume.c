/* SPDX-License-Identifier: MIT */
/* One request to the daemon of a volume, or to those of several. */
#include "cli/cmd.h"

#include <stdio.h>

const char *which_volume(const struct options *o)
{
	return o->operands ? o->operand[0] : NULL;
}

/* Reports an answer that is {"ok":false}. Returns its exit code. */
static int answer_failed(const struct options *o, struct json_object *answer)
{
	uint64_t exit = json_u64(answer, "exit");

	if (has_option(o, OPT_JSON))
		json_print(answer);
	else
		fprintf(stderr, "cowctl: %s\n", json_text(answer, "error"));
	return exit >= EXIT_FAILED && exit <= EXIT_AWAY ? (int)exit : EXIT_FAILED;
}

static const char *explain_interrupt(unsigned nth, bool *ret_end)
{
	*ret_end = nth > 1;
	return nth > 1 ? "cowctl: not waiting any longer; the daemon goes on, see cowctl status\n"
		       : "cowctl: the daemon goes on with it, and the card is safe at any moment. "
			 "Ctrl-C again: do not wait for its end\n";
}

bool detach_volume(struct client *c)
{
	struct failure err;
	struct json_object *answer = client_ask(c, COMMAND_DETACH, &err);
	bool ok = json_true(answer, "ok");

	json_object_put(answer);
	return ok;
}

struct json_object *ask_client(struct client *c, const struct request *rq, struct failure *err)
{
	struct progress progress;
	struct json_object *answer;

	if (rq->command == COMMAND_COMMIT || rq->command == COMMAND_DETACH)
		interrupt_begin(explain_interrupt);
	progress_start(&progress);
	answer = client_call(c, rq, progress_event, &progress, err);
	progress_end(&progress);
	interrupt_end();
	return answer;
}

int ask_volume(struct client *c, const struct options *o, const struct request *rq,
	       struct json_object **ret)
{
	struct failure err;
	struct json_object *answer;
	int exit;

	if (client_open(c, which_volume(o), &err) < 0)
		return cmd_failed(o, &err);
	answer = ask_client(c, rq, &err);
	if (!answer) {
		client_close(c);
		return cmd_failed(o, &err);
	}
	if (json_true(answer, "ok")) {
		*ret = answer;
		return EXIT_OK;
	}
	exit = answer_failed(o, answer);
	json_object_put(answer);
	client_close(c);
	return exit;
}

void show_answer(const char *name, const struct options *o, struct json_object *answer,
		 print_answer_fn *print)
{
	if (has_option(o, OPT_JSON))
		json_print(answer);
	else
		print(name, o, answer);
	json_object_put(answer);
}

int ask_and_print(const struct options *o, const struct request *rq, print_answer_fn *print)
{
	struct json_object *answer;
	struct client c;
	int exit = ask_volume(&c, o, rq, &answer);

	if (exit != EXIT_OK)
		return exit;
	show_answer(c.name, o, answer, print);
	client_close(&c);
	return EXIT_OK;
}

int each_volume(const struct options *o, char names[][RUNDIR_NAME_BYTES], size_t n,
		int (*fn)(const struct options *o, size_t nth, void *ctx), void *ctx)
{
	int exit = EXIT_OK;

	for (size_t i = 0; i < n; i++) {
		struct options one = *o;
		int e;

		one.operand[0] = names[i];
		one.operands = 1;
		e = fn(&one, i, ctx);
		exit = exit == EXIT_OK ? e : exit;
	}
	return exit;
}
