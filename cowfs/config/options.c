/* SPDX-License-Identifier: MIT */
#include "config/options.h"

#include <errno.h>
#include <string.h>

#include "config/volopt.h"

#define HELP_COLUMN 32

static const struct option_spec *find(const struct option_spec *specs, const char *name, size_t len)
{
	for (; specs->name; specs++)
		if (strlen(specs->name) == len && !memcmp(specs->name, name, len))
			return specs;
	return NULL;
}

/* Handles one option at argv[0]. Returns the number of words used, or -EINVAL. */
static int take_option(int argc, char *const *argv, const struct option_spec *specs,
		       struct options *ret, char *why, size_t why_bytes)
{
	const char *name = argv[0] + 2, *eq = strchr(name, '=');
	const struct option_spec *spec = NULL;

	if (!strcmp(argv[0], "-h"))
		spec = find(specs, "help", 4);
	else if (argv[0][1] != '-')
		spec = argv[0][2] ? NULL : find(specs, argv[0] + 1, 1);
	else if (name[0] && name[1] && name[1] != '=')
		spec = find(specs, name, eq ? (size_t)(eq - name) : strlen(name));
	if (!spec) {
		size_t len = eq ? (size_t)(eq - argv[0]) : strlen(argv[0]);
		const char *removed = len > 2 ? volopt_removed(name, len - 2) : NULL;

		if (removed)
			snprintf(why, why_bytes, "%.*s %s", (int)len, argv[0], removed);
		else
			snprintf(why, why_bytes, "unknown option %s", argv[0]);
		return -EINVAL;
	}
	if (!spec->arg) {
		if (argv[0][1] == '-' && eq) {
			snprintf(why, why_bytes, "--%s takes no argument", spec->name);
			return -EINVAL;
		}
		ret->value[spec->id] = "";
		return 1;
	}
	if (!eq && argc < 2) {
		snprintf(why, why_bytes, "%s needs an argument: %s", argv[0], spec->arg);
		return -EINVAL;
	}
	ret->value[spec->id] = eq ? eq + 1 : argv[1];
	return eq ? 1 : 2;
}

int options_parse(int argc, char *const *argv, const struct option_spec *specs, struct options *ret,
		  char *why, size_t why_bytes)
{
	struct options o = { .specs = specs };
	bool only_operands = false;

	while (argc > 0) {
		int words = 1;

		if (!only_operands && !strcmp(argv[0], "--")) {
			only_operands = true;
		} else if (!only_operands && argv[0][0] == '-' && argv[0][1]) {
			words = take_option(argc, argv, specs, &o, why, why_bytes);
			if (words < 0)
				return words;
		} else if (o.operands == OPERANDS_MAX) {
			snprintf(why, why_bytes, "too many operands at %s", argv[0]);
			return -EINVAL;
		} else {
			o.operand[o.operands++] = argv[0];
		}
		argc -= words;
		argv += words;
	}
	*ret = o;
	return 0;
}

const struct option_spec *options_spec(const struct options *o, unsigned id)
{
	const struct option_spec *found = NULL;

	for (const struct option_spec *s = o->specs; s && s->name; s++)
		if (s->id == id)
			found = s;
	return found;
}

bool options_name_given(int argc, char *const *argv, const char *name)
{
	size_t len = strlen(name);

	for (int i = 0; i < argc; i++)
		if (!strncmp(argv[i], "--", 2) && !strncmp(argv[i] + 2, name, len) &&
		    (!argv[i][2 + len] || argv[i][2 + len] == '='))
			return true;
	return false;
}

void options_help(FILE *f, const struct option_spec *specs)
{
	for (; specs->name; specs++) {
		int n;

		if (!specs->help)
			continue;
		n = fprintf(f, "  %s%s%s%s", specs->name[1] ? "--" : "-", specs->name,
			    specs->arg ? " " : "", specs->arg ? specs->arg : "");

		fprintf(f, "%*s%s\n", n < HELP_COLUMN ? HELP_COLUMN - n : 1, "", specs->help);
	}
}
