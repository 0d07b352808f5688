/* SPDX-License-Identifier: MIT */
#include "cli/cmd.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attach/compose.h"
#include "base/clean.h"
#include "base/path.h"
#include "wire/render.h"

int cmd_failed(const struct options *o, const struct failure *f)
{
	return failure_print(f, f->exit, has_option(o, OPT_JSON));
}

int cmd_fail(const struct options *o, enum exit_code exit, int error, const char *fmt, ...)
{
	struct failure f;
	va_list ap;

	va_start(ap, fmt);
	failure_vset(&f, exit, error, fmt, ap);
	va_end(ap);
	return cmd_failed(o, &f);
}

int cmd_excludes(const struct options *o, const char *what, ...)
{
	int exit = EXIT_OK, id;
	va_list ap;

	va_start(ap, what);
	while (exit == EXIT_OK && (id = va_arg(ap, int)) != OPT_END)
		if (o->value[id])
			exit = cmd_usage(o, "%s and --%s are mutually exclusive", what,
					 options_spec(o, (unsigned)id)->name);
	va_end(ap);
	return exit;
}

unsigned cmd_pass_on(const struct options *o, const enum cmd_option *ids, size_t n,
		     const char **argv)
{
	unsigned words = 0;

	for (size_t i = 0; i < n; i++) {
		const struct option_spec *spec = options_spec(o, ids[i]);
		char *word;

		if (!has_option(o, ids[i]) || asprintf(&word, "--%s", spec->name) < 0)
			continue;
		argv[words++] = word; /* lives as long as this program */
		if (spec->arg)
			argv[words++] = o->value[ids[i]];
	}
	return words;
}

void cmd_row(const char *label, const char *fmt, ...)
{
	char text[5 * KIB];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	printf("  %-14s %s\n", label, clean_text(text));
}

void cmd_progress(void *ctx, enum commit_phase phase, uint64_t done_blks, uint64_t total_blks)
{
	progress_show(ctx, phase_name(phase), blk_to_bytes(done_blks), blk_to_bytes(total_blks));
}

bool cmd_can_ask(const struct options *o)
{
	return has_option(o, OPT_YES) || (!has_option(o, OPT_JSON) && isatty(STDIN_FILENO));
}

bool cmd_asks(const struct options *o)
{
	return !has_option(o, OPT_YES) && cmd_can_ask(o) && isatty(STDOUT_FILENO);
}

bool cmd_confirm(const struct options *o, const char *question)
{
	char line[16];

	if (has_option(o, OPT_YES))
		return true;
	printf("%s [y/N] ", question);
	fflush(stdout);
	return fgets(line, sizeof(line), stdin) && (line[0] == 'y' || line[0] == 'Y');
}

struct json_object *cmd_composed(struct json_object *status)
{
	struct compose_state s;
	char where[PATH_MAX];

	if (!status || strcmp(json_fact(status, FACT_NAME), ROOT_NAME) || !compose_load(&s))
		return status;
	compose_where(&s, where);
	json_object_object_add(status, "mountpoint", json_object_new_string(where));
	json_object_object_add(status, "lower", json_object_new_string(s.lower));
	return status;
}

static void report_written(const struct options *o, const char *path, size_t len)
{
	struct jsonw *w;

	if (!has_option(o, OPT_JSON))
		return;
	w = json_begin(true);
	jsonw_str(w, "output", path);
	jsonw_u64(w, "output_bytes", len);
	json_end(w);
}

int cmd_write_file(const struct options *o, enum cmd_option option, const char *path,
		   const char *text, size_t len)
{
	char why[2 * PATH_MAX];
	int e;

	if (!strcmp(path, "-")) {
		fwrite(text, 1, len, stdout);
		return EXIT_OK;
	}
	e = path_replace_file(path, text, len, why, sizeof(why));
	if (e == -ENAMETOOLONG)
		return cmd_fail(o, EXIT_USAGE, e, "--%s %s is too long",
				options_spec(o, option)->name, path);
	if (e < 0)
		return cmd_fail(o, EXIT_FAILED, e, "%s cannot be written: %s", path,
				*why	       ? why
				: e == -EINVAL ? "it is not a regular file"
					       : strerrordesc_np(-e));
	report_written(o, path, len);
	return EXIT_OK;
}
