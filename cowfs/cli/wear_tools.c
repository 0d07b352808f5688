/* SPDX-License-Identifier: MIT */
/* cowctl wear --html, --outlook, --prometheus: programs of cowfs-tools make these of the document (docs/WEAR.md). */
#include "cli/cmd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attach/rootstate.h"

int wear_tool(const struct options *o, enum cmd_option form, struct json_object *doc)
{
	static const enum cmd_option passed[] = { OPT_CMD56, OPT_FLASH };
	char tool[32];
	const char *argv[8] = { tool };
	unsigned n = 1 + cmd_pass_on(o, passed, ARRAY_SIZE(passed), argv + 1);
	_cleanup_free_ char *text = NULL;
	size_t bytes;
	int exit;

	snprintf(tool, sizeof(tool), "wear-%s", options_spec(o, form)->name);
	if (!has_option(o, OPT_FROM))
		argv[n++] = "--here";
	if (has_option(o, OPT_OUTLOOK) && !has_option(o, OPT_JSON))
		argv[n++] = "--text";
	exit = cmd_filter(o, argv, doc, &text, &bytes);
	if (exit == EXIT_OK)
		exit = cmd_write_file(o, form, form == OPT_OUTLOOK ? "-" : o->value[form], text,
				      bytes);
	return exit;
}

/* Adds {"name":...,"status":...,"wear":...}. */
static int add_volume(struct json_object *volumes, const struct options *o, const char *which)
{
	struct json_object *v = json_object_new_object(), *part;
	struct failure err;
	struct client c;
	int exit = EXIT_OK;

	if (client_open(&c, which, &err) < 0) {
		json_object_put(v);
		return cmd_failed(o, &err);
	}
	json_object_object_add(v, "name", json_object_new_string(c.name));
	part = client_ask(&c, COMMAND_STATUS, &err);
	client_close(&c);
	if (part) {
		json_object_object_add(v, "status", part);
		exit = wear_gather(o, c.name, &part);
		if (exit == EXIT_OK)
			json_object_object_add(v, "wear", part);
	} else {
		exit = cmd_failed(o, &err);
	}
	if (exit == EXIT_OK)
		json_object_array_add(volumes, v);
	else
		json_object_put(v);
	return exit;
}

int wear_prometheus(const struct options *o)
{
	char names[CLIENT_VOLUMES][RUNDIR_NAME_BYTES], why[512];
	size_t n = o->operands ? 1 : client_volumes(names);
	struct json_object *doc = json_answer(true), *volumes = json_object_new_array();
	enum root_state root = rootstate_read(why, sizeof(why));
	int exit = EXIT_OK, e;

	json_object_object_add(doc, "version", json_object_new_string(COWFS_VERSION));
	json_object_object_add(
		doc, "root_unprotected",
		json_object_new_boolean(root == ROOT_FAILED || root == ROOT_BYPASSED));
	json_object_object_add(doc, "volumes", volumes);
	for (size_t i = 0; i < n; i++) {
		e = add_volume(volumes, o, o->operands ? o->operand[0] : names[i]);
		exit = exit ? exit : e;
	}
	if (!exit || !o->operands) {
		e = wear_tool(o, OPT_PROMETHEUS, doc);
		exit = exit ? exit : e;
	}
	json_object_put(doc);
	return exit;
}
