/* SPDX-License-Identifier: MIT */
/*
 * cowctl keep: commits the paths that keep= of cowfs.conf names, and nothing else. One commit takes
 * all of them. If it fails, each path gets its own, so that a bad one does not hold the others
 * back.
 */
#include "cli/cmd.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "attach/keep.h"
#include "base/clean.h"
#include "base/program.h"
#include "config/conf.h"

#define PATHS_MAX 100 /* a line of the file has 198 bytes */

struct keep {
	const struct options *o;
	char name[RUNDIR_NAME_BYTES];
	char *path[PATHS_MAX];
	size_t n;
	struct json_object *kept, *problems;
	uint64_t generation;
	struct keep_state state;
};

static void add_problem(struct keep *k, const char *path, const char *why)
{
	struct json_object *p = json_object_new_object();

	json_object_object_add(p, "path", json_object_new_string(path));
	json_object_object_add(p, "error", json_object_new_string(why));
	json_object_array_add(k->problems, p);
	if (!has_option(k->o, OPT_JSON))
		fprintf(stderr, "cowctl: %s: not kept: %s\n", CLEAN(path), CLEAN(why));
	if (!*k->state.error)
		snprintf(k->state.error, sizeof(k->state.error), "%s: %s", path, why);
}

/* Commits these paths. False: why has the reason. */
static bool commit_paths(struct keep *k, char *const path[], size_t n, char *why, size_t why_bytes)
{
	const char *argv[PATHS_MAX + 5] = { "/proc/self/exe", "commit", k->name };
	_cleanup_close_ int fd = memfd_create("commit", MFD_CLOEXEC);
	struct json_object *answer = NULL;
	char text[16 * KIB];
	ssize_t len;
	bool ok;

	for (size_t i = 0; i < n; i++)
		argv[3 + i] = path[i];
	argv[3 + n] = "--json";
	snprintf(why, why_bytes, "cowctl commit cannot be run");
	if (fd < 0 || program_run(argv, fd) == 127)
		return false;
	len = pread(fd, text, sizeof(text) - 1, 0);
	text[len > 0 ? len : 0] = '\0';
	answer = json_tokener_parse(text);
	ok = json_true(answer, "ok");
	if (ok)
		k->generation = json_u64(answer, "generation");
	else
		snprintf(why, why_bytes, "%.500s", answer ? json_raw(answer, "error") : text);
	json_object_put(answer);
	return ok;
}

static void note_kept(struct keep *k, char *const path[], size_t n)
{
	for (size_t i = 0; i < n; i++)
		json_object_array_add(k->kept, json_object_new_string(path[i]));
}

static void keep_all(struct keep *k)
{
	char *there[PATHS_MAX], why[1024];
	size_t n = 0;
	struct stat st;

	for (size_t i = 0; i < k->n; i++) {
		if (lstat(k->path[i], &st) < 0)
			add_problem(k, k->path[i], strerrordesc_np(errno));
		else
			there[n++] = k->path[i];
	}
	if (n && commit_paths(k, there, n, why, sizeof(why))) {
		note_kept(k, there, n);
		return;
	}
	for (size_t i = 0; i < n; i++) {
		if (n > 1 && commit_paths(k, &there[i], 1, why, sizeof(why)))
			note_kept(k, &there[i], 1);
		else
			add_problem(k, there[i], why);
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
	struct failure err;
	struct client c;
	struct conf *conf;
	char why[512], *rest;
	double hold_s;
	int e;

	if (client_open(&c, k->o->operands ? k->o->operand[0] : NULL, &err) < 0)
		return cmd_failed(k->o, &err);
	snprintf(k->name, sizeof(k->name), "%s", c.name);
	client_close(&c);
	status = fresh_status(k->name);
	hold_s = json_number(status, "hold_left_seconds");
	snprintf(k->state.mountpoint, sizeof(k->state.mountpoint), "%s",
		 json_raw(status, "mountpoint"));
	json_object_put(status);
	if (has_option(k->o, OPT_TIMER) && hold_s > 0)
		return cmd_fail(k->o, EXIT_FAILED, -EBUSY, "%s: timer commits are on hold",
				k->name);
	e = conf_load(&conf, why, sizeof(why));
	if (e < 0)
		return cmd_fail(k->o, e == -EINVAL ? EXIT_USAGE : EXIT_FAILED, e, "%s", why);
	*ret_text = rest = strdup(conf_text(conf, k->name, ROOTOPT_KEEP));
	conf_free(conf);
	for (char *p; rest && k->n < PATHS_MAX && (p = strsep(&rest, " \t"));)
		if (*p)
			k->path[k->n++] = p;
	return k->n ? EXIT_OK
		    : cmd_fail(k->o, EXIT_FAILED, -ENOENT,
			       "%s: no path is kept: set keep = PATH... in its section of %s",
			       k->name, conf_path());
}

int cmd_keep(const struct options *o)
{
	struct keep k = { .o = o };
	struct keep_state before;
	_cleanup_free_ char *text = NULL;
	int exit = find(&k, &text);

	if (exit != EXIT_OK)
		return exit;
	k.kept = json_object_new_array();
	k.problems = json_object_new_array();
	keep_all(&k);
	keep_read(k.name, &before);
	k.state.last_s = *k.state.error ? before.last_s : (uint64_t)time(NULL);
	if (!*k.state.mountpoint)
		memcpy(k.state.mountpoint, before.mountpoint, sizeof(before.mountpoint));
	keep_write(k.name, &k.state);
	exit = report(&k);
	json_object_put(k.kept);
	json_object_put(k.problems);
	return exit;
}
