/* SPDX-License-Identifier: MIT */
/* cowctl wear: the document of wear_gather, or one that was saved, in the form that was asked for. */
#include "cli/cmd.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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

/* Do the options fit each other? */
static int check_options(const struct options *o)
{
	const char *word = has_option(o, OPT_HTML) ? "--html" : "--prometheus";
	const char *path = o->value[has_option(o, OPT_HTML) ? OPT_HTML : OPT_PROMETHEUS];
	int exit = EXIT_OK;

	if (has_option(o, OPT_FROM))
		exit = cmd_excludes(o, "--from", OPT_LOG, "--log", OPT_FLASH, "--flash", OPT_CMD56,
				    "--cmd56", OPT_PROMETHEUS, "--prometheus", OPT_END);
	if (exit == EXIT_OK && has_option(o, OPT_FROM) && o->operands)
		exit = cmd_fail(o, EXIT_USAGE, -EINVAL, "--from takes no volume");
	if (exit == EXIT_OK && has_option(o, OPT_HTML))
		exit = cmd_excludes(o, "--html", OPT_PROMETHEUS, "--prometheus", OPT_END);
	if (exit == EXIT_OK && has_option(o, OPT_PROMETHEUS))
		exit = cmd_excludes(o, "--prometheus", OPT_CMD56, "--cmd56", OPT_LOG, "--log",
				    OPT_END);
	if (exit != EXIT_OK || !path)
		return exit;
	if (!wear_html)
		return cmd_fail(o, EXIT_USAGE, -EINVAL,
				"wear %s: not in an initramfs, only in the cowctl of the system",
				word);
	if (!*path)
		return cmd_fail(o, EXIT_USAGE, -EINVAL, "%s: the name of the file is empty", word);
	if (!strcmp(path, "-") && has_option(o, OPT_JSON))
		return cmd_fail(o, EXIT_USAGE, -EINVAL,
				"--json with %s needs a file; wear --json has the figures", word);
	if (!strcmp(path, "-") && has_option(o, OPT_HTML) && isatty(STDOUT_FILENO))
		return cmd_fail(o, EXIT_USAGE, -EINVAL,
				"a page of HTML is not for a terminal: name a file");
	return EXIT_OK;
}

int cmd_wear(const struct options *o)
{
	struct json_object *wear;
	int exit = check_options(o);

	if (exit != EXIT_OK)
		return exit;
	if (has_option(o, OPT_PROMETHEUS))
		return wear_prometheus(o);
	exit = has_option(o, OPT_FROM) ? read_document(o, o->value[OPT_FROM], &wear)
				       : wear_gather(o, o->operands ? o->operand[0] : NULL, &wear);
	if (exit != EXIT_OK)
		return exit;
	if (!has_option(o, OPT_FROM))
		past_add(wear);
	if (has_option(o, OPT_HTML))
		exit = wear_html(o, wear);
	else if (has_option(o, OPT_JSON))
		json_print(wear);
	else
		print_wear(wear);
	json_object_put(wear);
	return exit;
}
