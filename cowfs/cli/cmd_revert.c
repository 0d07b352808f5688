/* SPDX-License-Identifier: MIT */
/* cowctl revert: brings files back from the committed generation. */
#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "attach/compose.h"
#include "attach/view_mount.h"
#include "base/array.h"
#include "base/clean.h"
#include "base/mounts.h"
#include "base/path.h"
#include "cli/cmd.h"
#include "cli/open_files.h"
#include "cli/place.h"
#include "cli/top.h"
#include "files/copy.h"

#define LINES_MAX 40 /* of changes that are listed before the question */

struct job {
	const struct options *o;
	struct places places;
	struct client client;
	struct view_mount view;
	int composed_fd;      /* the view composed with the image, as the live root is; else -1 */
	int live_fd;	      /* the root of the mounted file system */
	int from_fd;	      /* the same folder of the view */
	int upper_fd;	      /* of a composed view: its upper layer of from_fd, -1: none */
	struct sample sample; /* runs: what differs between the view and now */
	struct touched differs;
	struct copy *copy;
	uint64_t lines;
	unsigned said;
	struct json_object *changes, *open, *others, *problems;
	char *removed; /* the last folder that is removed: what is in it is not listed */
	struct open_file *touched;
	size_t n_touched, cap_touched;
	bool no_memory;
};

/* ---- what it says ---- */

/* The path as the user would write it. The caller frees it; NULL: out of memory. */
static char *shown(const struct job *j, const char *path)
{
	const struct place *p = j->places.p, *end = p + j->places.n;
	size_t len;
	char *text;

	while (p < end && !path_is_below(path, p->path))
		p++;
	if (p == end) /* a folder on the way to the operand */
		return strdup(path);
	path += strlen(p->path);
	for (len = strlen(p->operand); len > 1 && p->operand[len - 1] == '/';)
		len--;
	if (asprintf(&text, "%.*s%s%s", (int)len, p->operand, *path && *path != '/' ? "/" : "",
		     path) < 0)
		return NULL;
	return text;
}

static void add_object(struct json_object *list, const char *key, const char *value,
		       const char *path)
{
	struct json_object *one = json_object_new_object();

	if (key)
		json_object_object_add(one, key, json_object_new_string(value));
	json_object_object_add(one, "path", json_object_new_string(path));
	json_object_array_add(list, one);
}

static bool is_below(const char *path, const char *dir)
{
	size_t n = dir ? strlen(dir) : 0;

	return n && !strncmp(path, dir, n) && path[n] == '/';
}

static void touch(struct job *j, const struct copy_to *to, const char *path)
{
	char *copy = strdup(path);

	if (copy && ARRAY_ADD(j->touched, j->n_touched, j->cap_touched,
			      (struct open_file){ to->dev, to->ino, copy }) == 0)
		return;
	j->no_memory = true;
	free(copy);
}

/* A line of the list. The heading comes with the first one, so that errors before it stand alone. */
static void say_heading(struct job *j)
{
	if (!j->said++)
		printf("%s: to generation %s:\n", j->client.name, with_commas(j->view.generation));
}

static void on_change(void *ctx, enum copy_act act, const char *path, const struct copy_to *to)
{
	static const char *const names[] = { "create", "replace", "metadata", "delete" };
	static const char *const words[] = { "bring back", "replace", "metadata", "delete" };
	struct job *j = ctx;
	char *text = shown(j, path);

	if (!text) {
		j->no_memory = true;
		return;
	}
	if (to->ino && act != COPY_UPDATE)
		touch(j, to, text);
	if (act == COPY_REMOVE && is_below(text, j->removed)) {
		free(text);
		return;
	}
	if (has_option(j->o, OPT_JSON)) {
		add_object(j->changes, "action", names[act], text);
	} else if (j->lines++ < LINES_MAX || has_option(j->o, OPT_DRY_RUN)) {
		say_heading(j);
		printf("  %-10s  %s%s\n", words[act], clean_text(text),
		       act == COPY_REMOVE && S_ISDIR(to->type) ? "/ with all that is in it" : "");
	}
	if (act == COPY_REMOVE && S_ISDIR(to->type)) {
		free(j->removed);
		j->removed = text;
	} else {
		free(text);
	}
}

static void on_problem(void *ctx, const char *path, int error, const char *what)
{
	struct job *j = ctx;
	char *text = shown(j, path);

	if (has_option(j->o, OPT_JSON))
		add_object(j->problems, "what", what, text ? text : path);
	else
		fprintf(stderr, "cowctl: %s: %s (%s)\n", text ? clean_text(text) : CLEAN(path),
			what, place_copy_error(error));
	free(text);
}

static void on_open(void *ctx, const struct open_file *f, const char *holder)
{
	struct job *j = ctx;

	if (has_option(j->o, OPT_JSON)) {
		add_object(j->open, "process", holder, f->path);
		return;
	}
	printf("  open        %s by %s, which keeps the present file until it opens it again\n",
	       CLEAN(f->path), holder);
}

static void on_other_names(void *ctx, const char *path, uint64_t others)
{
	struct job *j = ctx;
	char *text = shown(j, path), number[24];

	snprintf(number, sizeof(number), "%llu", (unsigned long long)others);
	if (has_option(j->o, OPT_JSON))
		add_object(j->others, "names", number, text ? text : path);
	else
		printf("  hard link   %s has %s more name%s, which keep%s the present content\n",
		       text ? clean_text(text) : CLEAN(path), number, others == 1 ? "" : "s",
		       others == 1 ? "s" : "");
	free(text);
}

static void count_files(struct json_object *to, const struct copy_report *r)
{
	json_object_object_add(to, "created", json_object_new_uint64(r->created));
	json_object_object_add(to, "replaced", json_object_new_uint64(r->replaced));
	json_object_object_add(to, "metadata", json_object_new_uint64(r->updated));
	json_object_object_add(to, "deleted", json_object_new_uint64(r->removed));
	json_object_object_add(to, "unchanged", json_object_new_uint64(r->same));
}

static int print_result(struct job *j, const struct copy_report *r)
{
	struct json_object *answer;

	if (!has_option(j->o, OPT_JSON)) {
		printf("%s: %s %llu file%s to generation %s: %llu brought back, %llu replaced, "
		       "%llu deleted, %llu with other metadata\n",
		       j->client.name, has_option(j->o, OPT_DRY_RUN) ? "would revert" : "reverted",
		       (unsigned long long)(r->created + r->replaced + r->removed + r->updated),
		       r->created + r->replaced + r->removed + r->updated == 1 ? "" : "s",
		       with_commas(j->view.generation), (unsigned long long)r->created,
		       (unsigned long long)r->replaced, (unsigned long long)r->removed,
		       (unsigned long long)r->updated);
		return EXIT_OK;
	}
	answer = json_answer(true);
	json_object_object_add(answer, "name", json_object_new_string(j->client.name));
	json_object_object_add(answer, "generation", json_object_new_uint64(j->view.generation));
	json_object_object_add(answer, "dry_run",
			       json_object_new_boolean(has_option(j->o, OPT_DRY_RUN)));
	count_files(answer, r);
	json_object_object_add(answer, "changes", json_object_get(j->changes));
	json_object_object_add(answer, "open", json_object_get(j->open));
	json_object_object_add(answer, "hard_links", json_object_get(j->others));
	json_print(answer);
	json_object_put(answer);
	return EXIT_OK;
}

/* ---- where ---- */

struct live {
	int proc_fd;
	dev_t dev;
	int fd;
	char root[PATH_MAX]; /* folder of the file system that fd is, "" or "a/b" */
	const struct places *places;
	bool readonly;
};

/* The mount that shows all of the paths, and as much as possible. */
static int look_at_mount(void *ctx, int root_fd, struct mount_entry *m)
{
	struct live *l = ctx;
	const char *root;
	int fd;

	if (!mounts_shows(root_fd, m, l->dev))
		return 0;
	mounts_unescape(m->root);
	root = m->root + strspn(m->root, "/");
	for (size_t i = 0; i < l->places->n; i++)
		if (!path_is_below(l->places->p[i].path, root))
			return 0;
	if (l->fd >= 0 && strlen(root) >= strlen(l->root) && !l->readonly)
		return 0;
	fd = mounts_open(l->proc_fd, root_fd, m);
	if (fd < 0)
		return 0;
	if (l->fd >= 0)
		close(l->fd);
	l->fd = fd;
	l->readonly = m->readonly;
	snprintf(l->root, sizeof(l->root), "%s", root);
	return 0;
}

/* The same mount without what is mounted below it. */
static int alone(int fd)
{
	int copy = (int)syscall(SYS_open_tree, fd, "",
				AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
	int root = copy < 0 ? -1 : openat(copy, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (copy >= 0)
		close(copy);
	if (root < 0)
		return fd;
	close(fd);
	return root;
}

/* The device number of the live file system. */
static int find_device(struct job *j, dev_t *ret)
{
	struct compose_state composed;
	struct facts f;

	if (j->places.composed && compose_load(&composed)) {
		*ret = composed.dev;
		return EXIT_OK;
	}
	client_facts(j->client.name, false, &f);
	*ret = f.device[FACT_LOOP].rdev;
	return *ret ? EXIT_OK
		    : cmd_fail(j->o, EXIT_FAILED, -ENODEV, "%s: its disk is gone", j->client.name);
}

/* A folder of the view, "" its root. */
static int open_source(struct job *j, const char *path)
{
	char upper[PATH_MAX + 8];

	if (!*path)
		path = ".";
	snprintf(upper, sizeof(upper), "upper/%s", path);
	if (j->places.composed)
		j->upper_fd = path_open_below(j->view.dir_fd, upper,
					      O_PATH | O_DIRECTORY | O_NOFOLLOW);
	j->from_fd = path_open_below(j->places.composed ? j->composed_fd : j->view.dir_fd, path,
				     O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
	return j->from_fd < 0 ? j->from_fd : 0;
}

static int compose_view(struct job *j)
{
	struct failure err;

	if (!j->places.composed)
		return EXIT_OK;
	if (compose_check(j->view.dir_fd, &err) < 0)
		return cmd_fail(j->o, EXIT_FAILED, err.error, "generation %s: %s: commit first",
				with_commas(j->view.generation), err.why);
	j->composed_fd = compose_open(j->view.dir_fd, false, &err);
	return j->composed_fd < 0 ? cmd_failed(j->o, &err) : EXIT_OK;
}

/* Opens the root of the live file system, or of the part of it that is mounted, and the same folder
 * of the view. */
static int open_roots(struct job *j)
{
	struct live l = { .fd = -1, .places = &j->places };
	int exit = find_device(j, &l.dev), e;

	if (exit == EXIT_OK)
		exit = compose_view(j);
	if (exit != EXIT_OK)
		return exit;
	l.proc_fd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	e = mounts_each(l.proc_fd, "self", look_at_mount, &l);
	if (l.proc_fd >= 0)
		close(l.proc_fd);
	if (e < 0)
		return cmd_fail(j->o, EXIT_FAILED, e, "%s: %s", j->client.name,
				strerrordesc_np(-e));
	if (l.fd < 0)
		return cmd_fail(
			j->o, EXIT_FAILED, -ENOENT,
			"%s: is not mounted where all of these files can be reached: mount it, then revert",
			j->client.name);
	j->live_fd = alone(l.fd);
	if (l.readonly)
		return cmd_fail(j->o, EXIT_FAILED, -EROFS, "%s: is mounted read-only",
				j->client.name);
	e = open_source(j, l.root);
	if (e < 0)
		return cmd_fail(j->o, EXIT_FAILED, e, "%s: %s does not exist in generation %s",
				j->client.name, CLEAN(l.root), with_commas(j->view.generation));
	/* paths below these folders */
	for (size_t i = 0; i < j->places.n; i++) {
		char *path = j->places.p[i].path;
		size_t n = strlen(l.root);

		n += path[n] == '/';
		memmove(path, path + n, strlen(path + n) + 1);
	}
	return EXIT_OK;
}

/* ---- the command ---- */

static bool is_covered(const struct places *p, size_t i)
{
	for (size_t k = 0; k < p->n; k++)
		if (k != i && path_is_below(p->p[i].path, p->p[k].path) &&
		    (strcmp(p->p[k].path, p->p[i].path) || k < i))
			return true;
	return false;
}

static int interrupted(struct job *j)
{
	return cmd_fail(j->o, EXIT_FAILED, -EINTR,
			"interrupted: each file is as before or reverted");
}

static int ask(struct job *j)
{
	if (!cmd_confirm(j->o, "Revert these files? Their present content is lost."))
		return cmd_fail(j->o, EXIT_FAILED, -ECANCELED, "nothing was reverted");
	return EXIT_OK;
}

static int out_of_memory(struct job *j)
{
	return cmd_fail(j->o, EXIT_FAILED, -ENOMEM, "out of memory");
}

static int plan(struct job *j, struct copy_report *ret)
{
	int e;

	for (size_t i = 0; i < j->places.n; i++) {
		const struct place *p = &j->places.p[i];

		if (is_covered(&j->places, i))
			continue;
		e = copy_plan(j->copy, p->path);
		if (e == -EINTR)
			return interrupted(j);
		if (e == -ENOENT)
			return cmd_fail(j->o, EXIT_USAGE, e,
					"%s: exists neither now nor in generation %s", p->operand,
					with_commas(j->view.generation));
	}
	e = copy_planned(j->copy, ret);
	return e == -EINTR ? interrupted(j) : e < 0 ? out_of_memory(j) : EXIT_OK;
}

/* What is on the list */
static int say_plan(struct job *j)
{
	copy_each(j->copy, on_change, j);
	if (!has_option(j->o, OPT_JSON) && !has_option(j->o, OPT_DRY_RUN) && j->lines > LINES_MAX)
		printf("  and %llu more: --dry-run lists all\n",
		       (unsigned long long)(j->lines - LINES_MAX));
	open_files_find(j->touched, j->n_touched, on_open, j);
	return copy_other_names(j->copy, on_other_names, j) < 0 || j->no_memory ? out_of_memory(j)
										: EXIT_OK;
}

static int fail_some(struct job *j, const struct copy_report *r)
{
	bool json = has_option(j->o, OPT_JSON);

	return cmd_fail(j->o, EXIT_FAILED, -EIO, "%s: %llu file%s %s%s%s", j->client.name,
			(unsigned long long)r->problems, r->problems == 1 ? "" : "s",
			has_option(j->o, OPT_DRY_RUN) ? "cannot be reverted"
			: r->refused		      ? "cannot be reverted, so nothing was"
			: r->problems == 1	      ? "was not reverted"
						      : "were not reverted",
			json ? ", the first: " : "",
			json ? json_text(json_object_array_get_idx(j->problems, 0), "path") : "");
}

static int revert(struct job *j)
{
	struct copy_report r;
	int exit = plan(j, &r), e = 0;

	if (exit == EXIT_OK && r.refused)
		exit = fail_some(j, &r);
	if (exit == EXIT_OK)
		exit = say_plan(j);
	if (exit != EXIT_OK)
		return exit;
	if (!has_option(j->o, OPT_DRY_RUN)) {
		if (r.created + r.replaced + r.updated + r.removed)
			exit = ask(j);
		if (exit != EXIT_OK)
			return exit;
		e = copy_apply(j->copy, &r);
		if (e == -EINTR)
			return interrupted(j);
	}
	return r.problems || e < 0 ? fail_some(j, &r) : print_result(j, &r);
}

/* What differed when the command began: files that are changed from then on stay. */
static bool find_differing(struct job *j)
{
	struct view_mount now;
	struct failure err;
	bool found;

	if (j->places.composed || view_mount_open(&j->client, VIEW_NOW, &now, &err) < 0)
		return false;
	found = !now.unsynced &&
		touched_between(&j->client, &j->view, &now, &j->sample, &j->differs);
	view_mount_close(&now);
	return found;
}

static int with_view(struct job *j)
{
	int exit = open_roots(j);
	bool found = exit == EXIT_OK && find_differing(j);
	const struct copy_options opt = { .overlay = j->places.composed,
					  .upper_fd = j->upper_fd,
					  .touched = found ? &j->differs : NULL,
					  .stop = &interrupt_stop,
					  .problem = on_problem,
					  .ctx = j };

	if (exit == EXIT_OK && copy_new(&j->copy, j->from_fd, j->live_fd, &opt) < 0)
		exit = out_of_memory(j);
	if (exit == EXIT_OK)
		exit = revert(j);
	copy_free(j->copy);
	touched_clear(&j->differs);
	top_sample_clear(&j->sample);
	cleanup_closep(&j->from_fd);
	cleanup_closep(&j->upper_fd);
	cleanup_closep(&j->composed_fd);
	cleanup_closep(&j->live_fd);
	return exit;
}

static int run(struct job *j)
{
	struct failure err;
	int exit = places_resolve(j->o, &j->places);

	if (exit != EXIT_OK)
		return exit;
	if (!j->places.n)
		return cmd_usage(j->o, "revert: name the files or folders to bring back");
	if (client_open(&j->client, places_volume(&j->places), &err) < 0)
		return cmd_failed(j->o, &err);
	interrupt_catch();
	if (view_mount_open(&j->client, VIEW_COMMITTED, &j->view, &err) < 0) {
		client_close(&j->client);
		return cmd_failed(j->o, &err);
	}
	exit = with_view(j);
	view_mount_close(&j->view);
	client_close(&j->client);
	return exit;
}

int cmd_revert(const struct options *o)
{
	struct job j = { .o = o,
			 .composed_fd = -1,
			 .live_fd = -1,
			 .from_fd = -1,
			 .upper_fd = -1,
			 .changes = json_object_new_array(),
			 .open = json_object_new_array(),
			 .others = json_object_new_array(),
			 .problems = json_object_new_array() };
	int exit;

	if (!has_option(o, OPT_DRY_RUN) && !cmd_can_ask(o))
		exit = cmd_usage(
			o,
			"revert: nobody can be asked: add --yes, or --dry-run to see what would be done");
	else
		exit = run(&j);
	places_clear(&j.places);
	for (size_t i = 0; i < j.n_touched; i++)
		free((char *)(uintptr_t)j.touched[i].path);
	free(j.touched);
	free(j.removed);
	json_object_put(j.changes);
	json_object_put(j.open);
	json_object_put(j.others);
	json_object_put(j.problems);
	return exit;
}
