/* SPDX-License-Identifier: MIT */
/* What cowfs.conf says about a volume: for scripts, so that nobody else parses that file. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "control/cmd.h"
#include "control/conf.h"

static int print_key(const struct options *o, const struct conf *c, const char *volume,
		     const char *key)
{
	enum rootopt setting = rootopt_find(key);
	enum volopt opt = volopt_find(key, strlen(key));
	const char *value;

	if (setting == ROOTOPTS && opt == VOLOPTS)
		return cmd_fail(o, EXIT_USAGE, -EINVAL, "--key %s is no key of cowfs.conf", key);
	value = setting != ROOTOPTS ? conf_text(c, volume, setting) : conf_option(c, volume, opt);
	puts(value ? value : "");
	return EXIT_OK;
}

static void print_all(const struct conf *c, const char *volume)
{
	printf("%s[%s]\n", conf_has_volume(c, volume) ? "" : "# there is no section ", volume);
	for (enum volopt id = 0; id < VOLOPTS; id++) {
		const char *value = conf_option(c, volume, id);

		printf("%s%s = %s\n", value ? "" : "#", volopt_name(id), value ? value : "");
	}
	for (enum rootopt id = 0; id < ROOTOPTS; id++)
		printf("# %s\n%s = %s\n", rootopt_help(id), rootopt_name(id),
		       conf_text(c, volume, id));
}

static void print_json(const struct conf *c, const char *volume)
{
	char text[8192];
	struct jsonw w;

	jsonw_init(&w, text, sizeof(text));
	answer_ok(&w);
	jsonw_str(&w, "volume", volume);
	jsonw_bool(&w, "configured", conf_has_volume(c, volume));
	for (enum volopt id = 0; id < VOLOPTS; id++)
		if (conf_option(c, volume, id))
			jsonw_str(&w, volopt_name(id), conf_option(c, volume, id));
	for (enum rootopt id = 0; id < ROOTOPTS; id++)
		jsonw_str(&w, rootopt_name(id), conf_text(c, volume, id));
	if (jsonw_finish(&w))
		fputs(text, stdout);
}

static void print_name(const char *name)
{
	puts(name);
}

int cmd_config(const struct options *o)
{
	const char *volume = o->operands ? o->operand[0] : ROOT_NAME, *key = o->value[OPT_KEY];
	struct conf *c;
	char why[512];
	int exit = EXIT_OK, e = conf_load(&c, why, sizeof(why));

	if (e < 0)
		return cmd_fail(o, e == -EINVAL ? EXIT_USAGE : EXIT_FAILED, e, "%s", why);
	if (has_option(o, OPT_LIST))
		conf_each_volume(c, print_name);
	else if (key)
		exit = print_key(o, c, volume, key);
	else if (has_option(o, OPT_JSON))
		print_json(c, volume);
	else
		print_all(c, volume);
	conf_free(c);
	return exit;
}
