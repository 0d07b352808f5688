/* SPDX-License-Identifier: MIT */
/* cowctl wear: the document of wear_gather, or one that was saved, in the form that was asked for. */
#include "cli/cmd.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "wear/card_life.h"

/* Reads a document that was written elsewhere or earlier. */
static int read_document(const struct options *o, const char *path, struct json_object **ret)
{
	bool std = !strcmp(path, "-");
	struct json_object *wear = std ? json_object_from_fd(STDIN_FILENO)
				       : json_object_from_file(path);

	if (!wear && !std && access(path, R_OK) < 0)
		return cmd_fail(o, EXIT_FAILED, -errno, "%s cannot be read: %s", path,
				strerrordesc_np(errno));
	if (!json_true(wear, "ok") || json_u64(wear, "schema") != JSON_SCHEMA ||
	    !json_object_is_type(json_object_object_get(wear, "totals"), json_type_object)) {
		json_object_put(wear);
		return cmd_fail(o, EXIT_FAILED, -EINVAL,
				"%s is not what 'cowctl wear --json' prints (schema %d)",
				std ? "standard input" : path, JSON_SCHEMA);
	}
	*ret = wear;
	return EXIT_OK;
}

/* The file of --html or --prometheus. */
static int check_file(const struct options *o, enum cmd_option form)
{
	const char *name = options_spec(o, form)->name, *path = o->value[form];

	if (!*path)
		return cmd_usage(o, "--%s: the name of the file is empty", name);
	if (!strcmp(path, "-") && has_option(o, OPT_JSON))
		return cmd_usage(o, "--json with --%s needs a file; wear --json has the figures",
				 name);
	if (!strcmp(path, "-") && has_option(o, OPT_HTML) && isatty(STDOUT_FILENO))
		return cmd_usage(o, "a page of HTML is not for a terminal: name a file");
	return EXIT_OK;
}

/* Do the options fit each other? form: what a tool is to make; OPT_END: nothing. */
static int check_options(const struct options *o, enum cmd_option form)
{
	int exit = EXIT_OK;

	if (has_option(o, OPT_FROM))
		exit = cmd_excludes(o, "--from", OPT_LOG, OPT_CMD56, OPT_PROMETHEUS, OPT_END);
	if (exit == EXIT_OK && has_option(o, OPT_FROM) && o->operands)
		exit = cmd_usage(o, "--from takes no volume");
	if (exit == EXIT_OK && form == OPT_HTML)
		exit = cmd_excludes(o, "--html", OPT_PROMETHEUS, OPT_OUTLOOK, OPT_END);
	if (exit == EXIT_OK && form == OPT_OUTLOOK)
		exit = cmd_excludes(o, "--outlook", OPT_PROMETHEUS, OPT_END);
	if (exit == EXIT_OK && form == OPT_PROMETHEUS)
		exit = cmd_excludes(o, "--prometheus", OPT_CMD56, OPT_LOG, OPT_END);
	if (exit == EXIT_OK && form == OPT_END &&
	    (has_option(o, OPT_FLASH) || has_option(o, OPT_CMD56)))
		exit = cmd_usage(o, "%s needs --outlook, --html or --prometheus",
				 has_option(o, OPT_FLASH) ? "--flash" : "--cmd56");
	if (exit == EXIT_OK && has_option(o, OPT_FLASH) && !flash_kind_of(o->value[OPT_FLASH]))
		exit = cmd_usage(o, "--flash %s is not one of slc, mlc, tlc, qlc, unknown",
				 o->value[OPT_FLASH]);
	return exit != EXIT_OK || form == OPT_END || form == OPT_OUTLOOK ? exit
									 : check_file(o, form);
}

/* The form that a tool makes; OPT_END: none. */
static enum cmd_option find_form(const struct options *o)
{
	return has_option(o, OPT_HTML)	       ? OPT_HTML
	       : has_option(o, OPT_OUTLOOK)    ? OPT_OUTLOOK
	       : has_option(o, OPT_PROMETHEUS) ? OPT_PROMETHEUS
					       : OPT_END;
}

int cmd_wear(const struct options *o)
{
	enum cmd_option form = find_form(o);
	struct json_object *wear;
	int exit = check_options(o, form);

	if (exit != EXIT_OK)
		return exit;
	if (form == OPT_PROMETHEUS)
		return wear_prometheus(o);
	exit = has_option(o, OPT_FROM) ? read_document(o, o->value[OPT_FROM], &wear)
				       : wear_gather(o, o->operands ? o->operand[0] : NULL, &wear);
	if (exit != EXIT_OK)
		return exit;
	if (!has_option(o, OPT_FROM))
		past_add(wear);
	if (form != OPT_END)
		exit = wear_tool(o, form, wear);
	else if (has_option(o, OPT_JSON))
		json_print(wear);
	else
		print_wear(wear);
	json_object_put(wear);
	return exit;
}
