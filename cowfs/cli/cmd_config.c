/* SPDX-License-Identifier: MIT */
/*
 * Prints the settings of a volume in cowfs.conf for scripts, so that no other program parses that
 * file.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clean.h"
#include "cli/cmd.h"
#include "config/conf.h"

static bool is_key(const char *key)
{
	return rootopt_find(key) != ROOTOPTS || volopt_find(key, strlen(key)) != VOLOPTS;
}

static const char *value_of(const struct conf *c, const char *volume, const char *key)
{
	enum rootopt setting = rootopt_find(key);
	enum volopt opt = volopt_find(key, strlen(key));
	const char *value = setting != ROOTOPTS ? conf_text(c, volume, setting)
						: conf_option(c, volume, opt);

	return value ? value : "";
}

static void print_all(const struct conf *c, const char *volume)
{
	printf("%s[%s]\n", conf_has_volume(c, volume) ? "" : "# no section ", CLEAN(volume));
	for (enum volopt id = 0; id < VOLOPTS; id++) {
		const char *value = conf_option(c, volume, id);

		printf("%s%s = %s\n", value ? "" : "#", volopt_name(id), value ? CLEAN(value) : "");
	}
	for (enum rootopt id = 0; id < ROOTOPTS; id++)
		/* an interval without paths is an error */
		printf("# %s\n%s%s = %s\n", rootopt_help(id),
		       id == ROOTOPT_KEEP_INTERVAL && !*conf_text(c, volume, ROOTOPT_KEEP) ? "#"
											   : "",
		       rootopt_name(id), conf_text(c, volume, id));
}

static void print_json(const struct conf *c, const char *volume)
{
	struct jsonw *w = json_begin(true);

	jsonw_str(w, "volume", volume);
	jsonw_bool(w, "configured", conf_has_volume(c, volume));
	for (enum volopt id = 0; id < VOLOPTS; id++)
		if (conf_option(c, volume, id))
			jsonw_str(w, volopt_name(id), conf_option(c, volume, id));
	for (enum rootopt id = 0; id < ROOTOPTS; id++)
		jsonw_str(w, rootopt_name(id), conf_text(c, volume, id));
	json_end(w);
}

/* --key: a key, or with --list several keys separated by commas. */
struct keys {
	const struct conf *c;
	char text[256];
	const char *key[ROOTOPTS + VOLOPTS];
	size_t n;
	struct json_object *volumes; /* of --list --json */
};

static int take_keys(const struct options *o, struct keys *k)
{
	const char *text = o->value[OPT_KEY];
	char *rest = k->text, *key;

	if (strlen(text) >= sizeof(k->text))
		return cmd_usage(o, "--key %s is too long", text);
	strcpy(k->text, text);
	while ((key = strsep(&rest, has_option(o, OPT_LIST) ? "," : ""))) {
		if (!is_key(key))
			return cmd_usage(o, "--key %s is not a key of cowfs.conf", key);
		if (k->n == ARRAY_SIZE(k->key))
			return cmd_usage(o, "--key %s: too many keys", text);
		k->key[k->n++] = key;
	}
	return EXIT_OK;
}

/*
 * Prints a line for each key, or only the name if there are no keys. The defaults then print
 * nothing.
 */
static void print_volume(void *ctx, const char *name)
{
	const struct keys *k = ctx;

	for (size_t i = 0; i < k->n; i++)
		printf("%s %s %s\n", name, k->key[i], value_of(k->c, name, k->key[i]));
	if (!k->n)
		puts(name);
}

static void add_volume(void *ctx, const char *name)
{
	const struct keys *k = ctx;
	struct json_object *o = json_object_new_object();

	json_object_object_add(o, "volume", json_object_new_string(name));
	for (size_t i = 0; i < k->n; i++)
		json_object_object_add(o, k->key[i],
				       json_object_new_string(value_of(k->c, name, k->key[i])));
	json_object_array_add(k->volumes, o);
}

static void print_list_json(struct keys *k)
{
	struct json_object *o = json_answer(true);

	k->volumes = json_object_new_array();
	conf_each_volume(k->c, add_volume, k);
	json_object_object_add(o, "volumes", k->volumes);
	json_print(o);
	json_object_put(o);
}

static void print_key(const struct keys *k, const char *volume, bool json)
{
	const char *value = value_of(k->c, volume, k->key[0]);
	struct jsonw *w;

	if (!json) {
		puts(value);
		return;
	}
	w = json_begin(true);
	jsonw_str(w, "volume", volume);
	jsonw_str(w, k->key[0], value);
	json_end(w);
}

static void print_list(struct keys *k)
{
	/* no volume and no section has this name: print the settings that apply to every volume */
	for (size_t i = 0; i < k->n; i++)
		printf("- %s %s\n", k->key[i], value_of(k->c, "-", k->key[i]));
	conf_each_volume(k->c, print_volume, k);
}

struct keep_check {
	const struct conf *c;
	char why[1024];
};

/* Paths that are kept lie below the mount point of their volume; known while it is mounted. */
static void check_keep(void *ctx, const char *name)
{
	struct keep_check *k = ctx;
	const char *path = conf_text(k->c, name, ROOTOPT_KEEP), *where;
	struct json_object *status;
	size_t n;

	/* on its way to /, the root is mounted elsewhere */
	if (!*path || *k->why || !strcmp(name, ROOT_NAME) || !(status = fresh_status(name)))
		return;
	where = json_fact(status, FACT_MOUNTPOINT);
	n = strcmp(where, "/") ? strlen(where) : 0;
	for (size_t len; *where && *(path += strspn(path, " \t")); path += len) {
		len = strcspn(path, " \t");
		if (len <= n + 1 || strncmp(path, where, n) || path[n] != '/') {
			snprintf(k->why, sizeof(k->why),
				 "%s: keep = %.*s of [%s] is not below %s, where the volume is "
				 "mounted",
				 conf_path(), (int)len, path, name, where);
			break;
		}
	}
	json_object_put(status);
}

int cmd_config(const struct options *o)
{
	const char *volume = o->operands ? o->operand[0] : ROOT_NAME;
	struct keys keys = { .n = 0 };
	struct keep_check check = { .why = "" };
	struct conf *c;
	bool json = has_option(o, OPT_JSON);
	char why[512];
	int e, exit = o->value[OPT_KEY] ? take_keys(o, &keys) : EXIT_OK;

	if (exit != EXIT_OK)
		return exit;
	/* --key and --list are for scripts, which call this often */
	e = keys.n || has_option(o, OPT_LIST) ? conf_load(&c, why, sizeof(why))
					      : conf_load_and_tell(&c, why, sizeof(why));
	if (e < 0)
		return cmd_fail(o, e == -EINVAL ? EXIT_USAGE : EXIT_FAILED, e, "%s", why);
	keys.c = check.c = c;
	conf_each_volume(c, check_keep, &check);
	if (*check.why) {
		conf_free(c);
		return cmd_usage(o, "%s", check.why);
	}
	if (has_option(o, OPT_LIST) && json)
		print_list_json(&keys);
	else if (has_option(o, OPT_LIST))
		print_list(&keys);
	else if (keys.n)
		print_key(&keys, volume, json);
	else if (json)
		print_json(c, volume);
	else
		print_all(c, volume);
	conf_free(c);
	return EXIT_OK;
}
