/* SPDX-License-Identifier: MIT */
/*
 * cowctl diff: which files differ between the newest committed generation, or the held one, and now. Two views show
 * both states, and the list of uncommitted blocks says where to look. All three must belong to one
 * generation: if a commit came in between, they are taken again.
 */
#include "cli/cmd.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "attach/compose.h"
#include "attach/view_mount.h"
#include "base/boxed.h"
#include "base/clean.h"
#include "base/io.h"
#include "base/parse.h"
#include "cli/place.h"
#include "cli/top.h"
#include "base/path.h"
#include "files/diff.h"
#include "fs/fs_ops.h"

enum { TRIES = 5 };
#define MANY_FILES 20000u
#define MANY_BYTES (4 * GIB) /* of a file system that does not count its files */

struct comparison {
	const struct options *o;
	struct places places;
	struct client c;
	struct sample sample; /* status and runs */
	struct view_mount old_view, new_view;
	struct diff diff;
	bool held; /* the old one is the generation that is held */
	bool walked;
	bool composed; /* the volume is the upper of the root */
	int old_root_fd,
		new_root_fd; /* what is compared: of the views, or composed with the image */
	uint64_t taken_ns;
};

/* ---- both states ---- */

static void close_views(struct comparison *x)
{
	if (x->composed) {
		cleanup_closep(&x->old_root_fd);
		cleanup_closep(&x->new_root_fd);
		x->composed = false;
	}
	view_mount_close(&x->old_view);
	view_mount_close(&x->new_view);
}

/* ret_again: a commit came in between. */
static int take_once(struct comparison *x, bool *ret_again)
{
	struct failure err;
	int exit;

	close_views(x);
	if (view_mount_open_both(&x->c, x->held ? VIEW_HELD : VIEW_COMMITTED, &x->old_view,
				 &x->new_view, &err) < 0)
		return cmd_failed(x->o, &err);
	/* after the snapshot: the list has all that was changed before it */
	exit = top_runs(&x->c, &x->sample, ret_again, &err) < 0 ? cmd_failed(x->o, &err) : EXIT_OK;
	/* the list is not used then */
	if (x->held)
		*ret_again = false;
	else if (x->old_view.generation != x->new_view.generation ||
		 x->sample.generation_seq != x->new_view.generation)
		*ret_again = true;
	return exit;
}

static int take_states(struct comparison *x)
{
	bool again = true;
	struct failure err;
	int exit = EXIT_OK;

	if (client_open(&x->c, places_volume(&x->places), &err) < 0)
		return cmd_failed(x->o, &err);
	x->sample.status = cmd_composed(client_ask(&x->c, COMMAND_STATUS, &err));
	if (!x->sample.status)
		return cmd_failed(x->o, &err);
	if (has_option(x->o, OPT_GENERATION))
		exit = choose_generation(x->o, &x->c, NULL, &x->held);
	for (int i = 0; i < TRIES && again && exit == EXIT_OK; i++)
		exit = take_once(x, &again);
	if (exit == EXIT_OK && again)
		return cmd_fail(x->o, EXIT_FAILED, -EAGAIN,
				"volume %s: commits follow each other too fast to compare with one",
				x->c.name);
	if (exit == EXIT_OK)
		cmd_view_warn(&x->new_view, x->c.name);
	return exit;
}

static int compose_views(struct comparison *x)
{
	struct failure err;

	x->old_root_fd = x->old_view.dir_fd;
	x->new_root_fd = x->new_view.dir_fd;
	x->composed = *json_fact(x->sample.status, FACT_LOWER);
	if (!x->composed)
		return EXIT_OK;
	x->old_root_fd = compose_open(x->old_view.dir_fd, false, &err);
	x->new_root_fd = x->old_root_fd < 0 ? -1 : compose_open(x->new_view.dir_fd, false, &err);
	return x->new_root_fd < 0 ? cmd_failed(x->o, &err) : EXIT_OK;
}

static bool look(int root_fd, const char *path, struct stat *ret)
{
	_cleanup_close_ int fd = path_open_below(root_fd, *path ? path : ".", O_PATH | O_NOFOLLOW);

	return fd >= 0 && fstat(fd, ret) == 0;
}

static int check_paths(const struct comparison *x)
{
	for (size_t i = 0; i < x->places.n; i++) {
		const struct place *p = &x->places.p[i];
		struct stat st;

		if (!look(x->new_root_fd, p->path, &st) && !look(x->old_root_fd, p->path, &st))
			return cmd_fail(x->o, EXIT_FAILED, -ENOENT,
					"%s: exists neither in generation %llu nor now", p->operand,
					(unsigned long long)x->old_view.generation);
		if (S_ISLNK(st.st_mode) && !has_option(x->o, OPT_JSON))
			fprintf(stderr,
				"cowctl: %s: is a symbolic link: the link itself is compared, not "
				"what it leads to\n",
				CLEAN(p->operand));
	}
	return EXIT_OK;
}

/* ---- comparing ---- */

/* A walk of two trees takes its time on a slow card. */
static void announce_walk(const struct comparison *x)
{
	struct statvfs st;

	if (has_option(x->o, OPT_JSON) || fstatvfs(x->new_view.dir_fd, &st) < 0)
		return;
	if (st.f_files - st.f_ffree > MANY_FILES ||
	    (!st.f_files && (st.f_blocks - st.f_bfree) * st.f_frsize > MANY_BYTES))
		fprintf(stderr,
			"cowctl: volume %s: all directories are compared, which may take minutes (%s)\n",
			x->c.name, x->new_view.fs_type);
}

static int explain(const struct comparison *x, int e)
{
	const char *checker = fs_ops_named(x->new_view.fs_type)->checker;

	if (e == -EUCLEAN || e == -EOWNERDEAD)
		return cmd_fail(x->o, EXIT_FAILED, e,
				"volume %s: %s: check the file system offline%s%s", x->c.name,
				e == -EUCLEAN ? "the file system is damaged" : boxed_error(e),
				checker ? " with " : "", checker ? checker : "");
	return cmd_fail(x->o, EXIT_FAILED, e, "volume %s: cannot compare the files: %s", x->c.name,
			strerrordesc_np(-e));
}

/* ---- a composed root: files of the upper say where its trees can differ ---- */

#define UPPER "upper/"

static int touch(struct touched *t, const char *path)
{
	return path && !strncmp(path, UPPER, strlen(UPPER)) ? touched_add(t, path + strlen(UPPER))
							    : 0;
}

/* x->diff has the files of the volume; afterwards those of the root. */
static int compare_composed(struct comparison *x, const struct diff_progress *progress)
{
	struct diff of_volume = x->diff;
	struct touched t = { 0 };
	int e = 0;

	x->diff = (struct diff){ .too_long = of_volume.too_long };
	for (size_t i = 0; i < of_volume.n && e == 0; i++) {
		e = touch(&t, of_volume.f[i].path);
		if (e == 0)
			e = touch(&t, of_volume.f[i].from);
	}
	touched_sort(&t);
	if (e == 0)
		e = walk_diff(&x->diff, x->old_root_fd, x->new_root_fd, true, &t, progress);
	touched_clear(&t);
	diff_clear(&of_volume);
	return e;
}

static int compare(struct comparison *x)
{
	const struct fs_ops *ops = fs_ops_named(x->new_view.fs_type);
	struct touched t = { 0 };
	struct progress p;
	struct diff_progress progress = { progress_show, &p };
	int e;

	progress_start(&p);
	e = touched_find(&x->old_view, &x->new_view, x->held ? NULL : &x->sample.runs, true,
			 &progress, &t);
	x->walked = e == -EOPNOTSUPP;
	if (x->walked)
		announce_walk(x);
	if (e == 0 || x->walked)
		e = walk_diff(&x->diff, x->old_view.dir_fd, x->new_view.dir_fd,
			      ops->keeps_inode_numbers, x->walked ? NULL : &t, &progress);
	touched_clear(&t);
	if (e == 0 && x->composed)
		e = compare_composed(x, &progress);
	progress_end(&p);
	x->taken_ns = now_ns() - x->taken_ns;
	return e < 0 ? explain(x, e) : EXIT_OK;
}

static bool is_asked(void *ctx, const char *path)
{
	const struct places *p = ctx;

	for (size_t i = 0; i < p->n; i++)
		if (path_is_below(path, p->p[i].path))
			return true;
	return !p->n;
}

/* ---- printing ---- */

static const char kind_letter[DIFF_KINDS] = {
	[DIFF_ADDED] = 'A', [DIFF_DELETED] = 'D', [DIFF_CHANGED] = 'M',
	[DIFF_META] = 'm',  [DIFF_RENAMED] = 'R',
};

static const char *const kind_name[DIFF_KINDS] = {
	[DIFF_ADDED] = "added",	  [DIFF_DELETED] = "deleted", [DIFF_CHANGED] = "changed",
	[DIFF_META] = "metadata", [DIFF_RENAMED] = "renamed",
};

static const char *what_letters(unsigned what, char text[sizeof(DIFF_LETTERS)])
{
	size_t n = 0;

	for (size_t i = 0; DIFF_LETTERS[i]; i++)
		if (what & 1u << i)
			text[n++] = DIFF_LETTERS[i];
	text[n] = '\0';
	return text;
}

static void print_path(const char *mount, const char *path, mode_t type)
{
	char *text;

	if (asprintf(&text, "%s/%s%s", mount, path, S_ISDIR(type) && *path ? "/" : "") < 0)
		return;
	fputs(clean_text(text), stdout);
	free(text);
}

static void print_file(const struct comparison *x, const struct diff_file *f)
{
	char letters[sizeof(DIFF_LETTERS)];

	printf("%c %-*s ", kind_letter[f->kind], (int)sizeof(DIFF_LETTERS) - 1,
	       what_letters(f->what, letters));
	if (f->from) {
		print_path(top_mount_prefix(&x->sample), f->from, f->type);
		fputs(" -> ", stdout);
	}
	print_path(top_mount_prefix(&x->sample), f->path, f->type);
	putchar('\n');
}

static void print_null(const struct comparison *x, const struct diff_file *f)
{
	char letters[sizeof(DIFF_LETTERS)];

	printf("%c%s%c", kind_letter[f->kind], what_letters(f->what, letters), '\0');
	if (f->from)
		printf("%s/%s%c", top_mount_prefix(&x->sample), f->from, '\0');
	printf("%s/%s%c", top_mount_prefix(&x->sample), f->path, '\0');
}

struct totals {
	uint64_t files, old_bytes, new_bytes;
};

static void add_up(const struct diff *d, struct totals t[DIFF_KINDS])
{
	for (size_t i = 0; i < d->n; i++) {
		struct totals *k = &t[d->f[i].kind];

		k->files++;
		k->old_bytes += d->f[i].old_bytes;
		k->new_bytes += d->f[i].new_bytes;
	}
}

static void print_totals(const struct comparison *x)
{
	struct totals t[DIFF_KINDS] = { 0 };

	add_up(&x->diff, t);
	for (size_t i = 0; i < DIFF_KINDS; i++) {
		printf("%c  %11s %s", kind_letter[i], with_commas(t[i].files), kind_name[i]);
		if (t[i].files && i == DIFF_ADDED)
			printf(", %s", FORMAT_SIZE(t[i].new_bytes));
		else if (t[i].files && i == DIFF_DELETED)
			printf(", %s", FORMAT_SIZE(t[i].old_bytes));
		else if (t[i].files && t[i].old_bytes != t[i].new_bytes)
			printf(", %s, was %s", FORMAT_SIZE(t[i].new_bytes),
			       FORMAT_SIZE(t[i].old_bytes));
		putchar('\n');
	}
}

/* ---- JSON ---- */

static const char *type_name(mode_t type)
{
	switch (type) {
	case S_IFREG:
		return "file";
	case S_IFDIR:
		return "directory";
	case S_IFLNK:
		return "symlink";
	case S_IFIFO:
		return "fifo";
	case S_IFSOCK:
		return "socket";
	default:
		return "device";
	}
}

/* Prints what is in w, without the characters at the end that finish it. */
static int print_open(struct jsonw *w, const char *end)
{
	size_t len = jsonw_finish(w), n = strlen(end);

	if (!len || len < n || strcmp(w->p + len - n, end) != 0)
		return -ENOBUFS;
	printf("%.*s", (int)(len - n), w->p);
	return 0;
}

static int print_json_file(const struct comparison *x, const struct diff_file *f)
{
	static const char *const what[] = { "content", "permissions", "owner", "time",
					    "xattrs",  "acl",	      "flags" };
	const char *mount = top_mount_prefix(&x->sample);
	size_t longest = strlen(mount) + 2 + strlen(f->path) + (f->from ? strlen(f->from) : 0);
	size_t room = 1024 + 12 * longest;
	_cleanup_free_ char *text = malloc(room), *path = malloc(longest);
	struct jsonw w;

	if (!text || !path)
		return -ENOMEM;
	jsonw_init(&w, text, room);
	jsonw_object(&w, NULL);
	jsonw_str(&w, "kind", kind_name[f->kind]);
	jsonw_str(&w, "type", type_name(f->type));
	snprintf(path, longest, "%s/%s", mount, f->path);
	jsonw_str(&w, "path", path);
	if (f->from) {
		snprintf(path, longest, "%s/%s", mount, f->from);
		jsonw_str(&w, "from", path);
	}
	jsonw_array(&w, "differs");
	for (size_t i = 0; i < ARRAY_SIZE(what); i++)
		if (f->what & 1u << i)
			jsonw_str(&w, NULL, what[i]);
	jsonw_end(&w);
	if (f->kind != DIFF_ADDED)
		jsonw_u64(&w, "old_bytes", f->old_bytes);
	if (f->kind != DIFF_DELETED)
		jsonw_u64(&w, "new_bytes", f->new_bytes);
	return print_open(&w, "\n");
}

static void render_head(const struct comparison *x, struct jsonw *w)
{
	struct totals t[DIFF_KINDS] = { 0 };

	add_up(&x->diff, t);
	top_render_head(w, &x->sample);
	jsonw_u64(w, "generation", x->old_view.generation);
	jsonw_u64(w, "generation_unix_seconds", x->old_view.time_s);
	jsonw_u64(w, "now_unix_seconds", x->new_view.time_s);
	jsonw_bool(w, "walked", x->walked);
	jsonw_u64(w, "too_long", x->diff.too_long);
	jsonw_seconds(w, "comparison_seconds", x->taken_ns);
	jsonw_object(w, "totals");
	for (size_t i = 0; i < DIFF_KINDS; i++) {
		jsonw_object(w, kind_name[i]);
		jsonw_u64(w, "files", t[i].files);
		jsonw_u64(w, "old_bytes", t[i].old_bytes);
		jsonw_u64(w, "new_bytes", t[i].new_bytes);
		jsonw_end(w);
	}
	jsonw_end(w);
}

/* One document, a file after the other: there may be many. */
static int print_json(const struct comparison *x)
{
	_cleanup_free_ char *text = malloc(64 * KIB);
	struct jsonw w;
	int e;

	if (!text)
		return -ENOMEM;
	jsonw_init(&w, text, 64 * KIB);
	render_head(x, &w);
	if (has_option(x->o, OPT_STAT))
		return print_open(&w, "") ? -ENOBUFS : 0;
	e = print_open(&w, "}\n");
	fputs(",\"files\":[", stdout);
	for (size_t i = 0; i < x->diff.n && !e; i++) {
		if (i)
			putchar(',');
		e = print_json_file(x, &x->diff.f[i]);
	}
	puts("]}");
	return e;
}

/* Its names are shown without the key. */
static bool tell_encrypted(const struct comparison *x, char *path)
{
	bool found = false;

	for (char *end = strchr(path, '/'); end && !found; end = strchr(end + 1, '/')) {
		*end = '\0';
		found = place_is_encrypted(x->new_root_fd, path) ||
			place_is_encrypted(x->old_root_fd, path);
		if (found)
			fprintf(stderr,
				"cowctl: volume %s: %s is encrypted (fscrypt): names in it are shown without the key\n",
				x->c.name, CLEAN(path));
		*end = '/';
	}
	return found;
}

static int print(const struct comparison *x)
{
	int e = 0;

	if (has_option(x->o, OPT_JSON))
		e = print_json(x);
	else if (has_option(x->o, OPT_STAT))
		print_totals(x);
	else
		for (size_t i = 0; i < x->diff.n; i++)
			has_option(x->o, OPT_NULL) ? print_null(x, &x->diff.f[i])
						   : print_file(x, &x->diff.f[i]);
	for (size_t i = 0; i < x->diff.n && !has_option(x->o, OPT_JSON); i++)
		if (tell_encrypted(x, x->diff.f[i].path))
			break;
	if (x->diff.too_long && !has_option(x->o, OPT_JSON))
		fprintf(stderr,
			"cowctl: volume %s: %llu name%s left out: the path is longer than %d bytes\n",
			x->c.name, (unsigned long long)x->diff.too_long,
			x->diff.too_long == 1 ? "" : "s", PATH_MAX - 1);
	return e < 0 ? explain(x, e) : EXIT_OK;
}

/* ---- */

static int run(struct comparison *x)
{
	int exit = places_resolve(x->o, &x->places);

	if (exit == EXIT_OK)
		exit = take_states(x);
	if (exit == EXIT_OK)
		exit = compose_views(x);
	if (exit == EXIT_OK)
		exit = check_paths(x);
	x->taken_ns = now_ns();
	if (exit == EXIT_OK)
		exit = compare(x);
	if (exit != EXIT_OK)
		return exit;
	diff_filter(&x->diff, is_asked, &x->places);
	diff_sort(&x->diff);
	return print(x);
}

int cmd_diff(const struct options *o)
{
	struct comparison x = { .o = o,
				.c = { .fd = -1, .pass_fd = -1 },
				.old_root_fd = -1,
				.new_root_fd = -1,
				.old_view = { .dir_fd = -1, .disk_fd = -1 },
				.new_view = { .dir_fd = -1, .disk_fd = -1 } };
	int exit;

	if (has_option(o, OPT_NULL) && (has_option(o, OPT_JSON) || has_option(o, OPT_STAT)))
		return cmd_usage(o, "--null excludes --json and --stat");
	exit = run(&x);
	diff_clear(&x.diff);
	close_views(&x);
	top_sample_clear(&x.sample);
	if (x.c.fd >= 0)
		client_close(&x.c);
	places_clear(&x.places);
	return exit;
}
