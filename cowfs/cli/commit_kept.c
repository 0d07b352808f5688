/* SPDX-License-Identifier: MIT */
/*
 * cowctl commit --kept: commits the paths that keep= of cowfs.conf names, and nothing else. One commit takes
 * all of them. If it fails, each path gets its own, so that a bad one does not hold the others
 * back.
 */
#include "cli/cmd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "attach/keep.h"
#include "base/clean.h"
#include "base/path.h"
#include "cli/place.h"
#include "config/conf.h"

#define PATHS_MAX 100 /* a line of the file has 198 bytes */

struct keep {
	const struct options *o;
	char name[RUNDIR_NAME_BYTES];
	char *path[PATHS_MAX];
	size_t n;
	bool unmounted;
	struct json_object *kept, *problems;
	uint64_t generation, last_s; /* last_s: of the last keep */
	struct keep_state state;     /* mountpoint: of now, or of the last keep */
};

static void add_problem(struct keep *k, const char *path, const struct failure *f)
{
	struct json_object *p = json_object_new_object();
	const char *why = f->why;
	size_t n = strlen(path);

	if (!strncmp(why, path, n) && why[n] == ':') /* the message begins with it, too */
		why += n + 1 + strspn(why + n + 1, " ");

	json_object_object_add(p, "path", json_object_new_string(path));
	json_object_object_add(p, "error", json_object_new_string(why));
	json_object_array_add(k->problems, p);
	if (!has_option(k->o, OPT_JSON))
		fprintf(stderr, "cowctl: %s: not kept: %s\n", CLEAN(path), CLEAN(why));
	if (!*k->state.error)
		snprintf(k->state.error, sizeof(k->state.error), "%.100s: %.150s", path, why);
}

/* A path of the mounted volume, or of one that was unmounted since the last keep. */
static int add(struct keep *k, struct places *p, const char *path, struct failure *err)
{
	return k->unmounted ? places_add_below(p, k->state.mountpoint, path, err)
			    : places_add(p, path, err);
}

/* Commits these paths: 0, or -errno with *err. */
static int commit_paths(struct keep *k, char *const path[], size_t n, struct failure *err)
{
	struct places places = { .must_exist = true };
	struct json_object *answer;
	char name[RUNDIR_NAME_BYTES];
	int e = 0;

	strcpy(places.name, k->name);
	for (size_t i = 0; i < n && e == 0; i++)
		e = add(k, &places, path[i], err);
	if (e == 0)
		e = commit_files(k->o, &places, &answer, name, err);
	places_clear(&places);
	if (e < 0)
		return e;
	k->generation = json_u64(answer, "generation");
	json_object_put(answer);
	return 0;
}

static void note_kept(struct keep *k, char *const path[], size_t n)
{
	for (size_t i = 0; i < n; i++)
		json_object_array_add(k->kept, json_object_new_string(path[i]));
}

/* Is it there, on this volume, and reached without a link of another user? */
static bool is_there(struct keep *k, const char *path)
{
	struct places one = { 0 };
	char why[2 * PATH_MAX];
	struct failure err;
	int fd, e;

	if (k->unmounted) /* shown by the commit */
		return true;
	strcpy(one.name, k->name);
	e = places_add(&one, path, &err);
	places_clear(&one);
	if (e < 0) {
		add_problem(k, path, &err);
		return false;
	}
	fd = path_open(path, O_PATH | O_NOFOLLOW, why, sizeof(why));
	if (fd >= 0) {
		close(fd);
		return true;
	}
	failure(&err, fd, "%s", *why ? why : strerrordesc_np(-fd));
	add_problem(k, path, &err);
	return false;
}

static void keep_all(struct keep *k)
{
	struct failure err;
	char *there[PATHS_MAX];
	size_t n = 0;
	int e = 0;

	for (size_t i = 0; i < k->n; i++)
		if (is_there(k, k->path[i]))
			there[n++] = k->path[i];
	if (n)
		e = commit_paths(k, there, n, &err);
	if (n && e == 0)
		note_kept(k, there, n);
	for (size_t i = 0; i < n && e < 0; i++) {
		int each = n > 1 && e != -EINTR ? commit_paths(k, &there[i], 1, &err) : e;

		if (each == 0)
			note_kept(k, &there[i], 1);
		else
			add_problem(k, there[i], &err);
	}
}

static int report(struct keep *k)
{
	size_t kept = json_object_array_length(k->kept),
	       problems = json_object_array_length(k->problems);
	struct json_object *answer;

	if (!has_option(k->o, OPT_JSON)) {
		if (kept)
			printf("%s: kept %zu path%s as generation %s\n", k->name, kept,
			       plural(kept), with_commas(k->generation));
		return problems ? EXIT_FAILED : EXIT_OK;
	}
	answer = json_answer(!problems);
	json_object_object_add(answer, "name", json_object_new_string(k->name));
	if (problems) {
		json_object_object_add(answer, "error", json_object_new_string(k->state.error));
		json_object_object_add(answer, "code", json_object_new_string("EIO"));
		json_object_object_add(answer, "exit", json_object_new_uint64(EXIT_FAILED));
	}
	json_object_object_add(answer, "generation", json_object_new_uint64(k->generation));
	json_object_object_add(answer, "kept", json_object_get(k->kept));
	json_object_object_add(answer, "problems", json_object_get(k->problems));
	json_print(answer);
	json_object_put(answer);
	return problems ? EXIT_FAILED : EXIT_OK;
}

/* The volume and its paths. text: caller-owned, holds them. */
static int find(struct keep *k, char **ret_text)
{
	struct json_object *status;
	struct keep_state before;
	struct failure err;
	struct client c;
	struct conf *conf;
	char why[512], *rest;
	double inhibit_s;
	int e;

	if (client_open(&c, k->o->operands ? k->o->operand[0] : NULL, &err) < 0)
		return cmd_failed(k->o, &err);
	snprintf(k->name, sizeof(k->name), "%s", c.name);
	client_close(&c);
	status = fresh_status(k->name);
	inhibit_s = json_number(status, "inhibit_left_seconds");
	snprintf(k->state.mountpoint, sizeof(k->state.mountpoint), "%s",
		 json_fact(status, FACT_MOUNTPOINT));
	json_object_put(status);
	keep_read(k->name, &before);
	k->last_s = before.last_s;
	k->unmounted = !*k->state.mountpoint;
	if (k->unmounted)
		memcpy(k->state.mountpoint, before.mountpoint, sizeof(before.mountpoint));
	if (has_option(k->o, OPT_TIMER) && inhibit_s > 0)
		return cmd_fail(k->o, EXIT_FAILED, -EBUSY, "%s: timer commits are inhibited",
				k->name);
	e = conf_load(&conf, why, sizeof(why));
	if (e < 0)
		return cmd_fail(k->o, e == -EINVAL ? EXIT_USAGE : EXIT_FAILED, e, "%s", why);
	*ret_text = rest = strdup(conf_text(conf, k->name, ROOTOPT_KEEP));
	conf_free(conf);
	for (char *p; rest && k->n < PATHS_MAX && (p = strsep(&rest, " \t"));)
		if (*p)
			k->path[k->n++] = p;
	if (!k->n)
		return cmd_fail(k->o, EXIT_FAILED, -ENOENT,
				"%s: no path is kept: set keep = PATH... in its section of %s",
				k->name, conf_path());
	return *k->state.mountpoint
		       ? EXIT_OK
		       : cmd_fail(k->o, EXIT_FAILED, -ENODEV,
				  "%s: is not mounted, and its kept paths were never committed: "
				  "nothing is kept",
				  k->name);
}

int commit_kept(const struct options *o)
{
	struct keep k = { .o = o };
	_cleanup_free_ char *text = NULL;
	int exit = cmd_excludes(o, "--kept", OPT_ALL, OPT_DRY_RUN, OPT_FORCE, OPT_DEADLINE,
				OPT_CHECKPOINT, OPT_NO_WAIT, OPT_END);

	if (exit == EXIT_OK && o->operands > 1)
		exit = cmd_usage(o, "--kept takes no path: cowfs.conf names them");
	if (exit == EXIT_OK)
		exit = find(&k, &text);
	if (exit != EXIT_OK)
		return exit;
	k.kept = json_object_new_array();
	k.problems = json_object_new_array();
	keep_all(&k);
	k.state.last_s = *k.state.error ? k.last_s : (uint64_t)time(NULL);
	keep_write(k.name, &k.state);
	exit = report(&k);
	json_object_put(k.kept);
	json_object_put(k.problems);
	return exit;
}
