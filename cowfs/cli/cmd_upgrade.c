/* SPDX-License-Identifier: MIT */
/*
 * The worker that takes the request ends without an answer if it succeeds. The next one says in its
 * status how it came to serve.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "cli/cmd.h"

#define BUSY_NS (30 * 1000000000ull)
#define BUSY_LOOK_MS 100

/* NULL with *err */
static struct json_object *call(struct client *c, enum proto_command command, struct failure *err)
{
	const struct request rq = { .command = command };

	return client_call(c, &rq, NULL, NULL, err);
}

/* The same. A view may be that of a command that ends soon, such as commit PATH: then it waits. */
static struct json_object *ask(struct client *c, struct failure *err)
{
	uint64_t until_ns = now_ns() + BUSY_NS;
	struct json_object *answer = call(c, COMMAND_UPGRADE, err);

	while (answer && !strcmp(json_text(answer, "code"), "EBUSY") && now_ns() < until_ns) {
		json_object_put(answer);
		poll(NULL, 0, BUSY_LOOK_MS);
		answer = call(c, COMMAND_UPGRADE, err);
	}
	return answer;
}

static const char *when(const char *name)
{
	return strcmp(name, ROOT_NAME) ? "when it is attached again" : "at the next boot";
}

static int refused(const struct options *o, const char *name, int error, const char *why)
{
	return cmd_fail(o, EXIT_FAILED, error, "%s: %s; the installed version serves %s", name, why,
			when(name));
}

static void report(const struct options *o, const char *name, const char *before,
		   struct json_object *status)
{
	const char *now = json_text(status, "version");
	struct json_object *answer;

	if (!has_option(o, OPT_JSON)) {
		printf("%s: version %s replaced by %s\n", name, before, now);
		return;
	}
	answer = json_answer(true);
	json_object_object_add(answer, "name", json_object_new_string(name));
	json_object_object_add(answer, "version_before", json_object_new_string(before));
	json_object_object_add(answer, "version", json_object_new_string(now));
	json_print(answer);
	json_object_put(answer);
}

/* c is connected to the next worker. */
static int examine(const struct options *o, const struct client *c, const char *before,
		   struct json_object *status)
{
	const char *end = json_text(status, "upgrade");

	if (!strcmp(end, "failed"))
		return refused(o, c->name, -EIO,
			       "the installed version could not take over, see the kernel log");
	if (strcmp(end, "done"))
		return refused(o, c->name, -EAGAIN, "its worker died before the upgrade");
	report(o, c->name, before, status);
	return EXIT_OK;
}

static int upgrade(const struct options *o, const char *which)
{
	struct json_object *first, *answer, *status;
	struct failure err;
	struct client c, next;
	int exit;

	if (client_open(&c, which, &err) < 0)
		return cmd_failed(o, &err);
	first = call(&c, COMMAND_STATUS, &err);
	answer = first ? ask(&c, &err) : NULL;
	client_close(&c);
	if (answer) {
		exit = refused(o, c.name, -EBUSY, json_text(answer, "error"));
		json_object_put(answer);
	} else if (!first || err.error != -EPIPE) {
		exit = cmd_failed(o, &err);
	} else if (client_open(&next, c.name, &err) < 0) {
		exit = cmd_failed(o, &err);
	} else {
		status = call(&next, COMMAND_STATUS, &err);
		exit = status ? examine(o, &next, json_text(first, "version"), status)
			      : cmd_failed(o, &err);
		json_object_put(status);
		client_close(&next);
	}
	json_object_put(first);
	return exit;
}

int cmd_upgrade(const struct options *o)
{
	char names[CLIENT_VOLUMES][RUNDIR_NAME_BYTES];
	size_t n = o->operands ? 0 : client_volumes(names);
	int exit = o->operands ? upgrade(o, o->operand[0]) : EXIT_OK;

	for (size_t i = 0; i < n; i++) {
		int e = upgrade(o, names[i]);

		exit = exit ? exit : e;
	}
	return exit;
}
