/* SPDX-License-Identifier: MIT */
/* cowctl report: writes an HTML report with charts from the data of `cowctl wear --json`. */
#include "cli/cmd.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "wear/report.h"

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

static int gather(const struct options *o, struct json_object **ret)
{
	const char *from = o->value[OPT_FROM];

	if (!from)
		return wear_gather(o, o->operands ? o->operand[0] : NULL, ret);
	if (o->operands || has_option(o, OPT_LOG) || has_option(o, OPT_FLASH) ||
	    has_option(o, OPT_CMD56))
		return cmd_fail(o, EXIT_USAGE, -EINVAL,
				"--from FILE needs no volume, --log, --flash or --cmd56");
	return read_document(o, from, ret);
}

int cmd_report(const struct options *o)
{
	const char *path = has_option(o, OPT_OUTPUT) ? o->value[OPT_OUTPUT] : "-";
	bool std = !strcmp(path, "-");
	_cleanup_free_ char *page = NULL;
	struct json_object *wear;
	size_t bytes;
	int exit;

	if (!*path)
		return cmd_fail(o, EXIT_USAGE, -EINVAL, "--output: the name of the file is empty");
	if (std && has_option(o, OPT_JSON))
		return cmd_fail(o, EXIT_USAGE, -EINVAL,
				"--json needs --output FILE; wear --json has the figures");
	if (std && isatty(STDOUT_FILENO))
		return cmd_fail(o, EXIT_USAGE, -EINVAL,
				"report prints a page of HTML: name a file with --output FILE");
	exit = gather(o, &wear);
	if (exit != EXIT_OK)
		return exit;
	page = report_page(wear, &bytes);
	json_object_put(wear);
	if (!page)
		return cmd_fail(o, EXIT_FAILED, -ENOMEM, "no memory");
	if (!std)
		return cmd_write_file(o, path, page, bytes);
	fwrite(page, 1, bytes, stdout);
	return EXIT_OK;
}
