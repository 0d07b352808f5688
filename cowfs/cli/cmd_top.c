/* SPDX-License-Identifier: MIT */
/*
 * cowctl top: shows which files own the uncommitted blocks. The daemon returns its list of blocks in
 * parts, and knows nothing of files. This command finds the file of a block itself (fs/owners.h), beside
 * the daemon and without freezing anything.
 *
 * With --interval each sample is compared with the previous one: new are blocks that were not
 * uncommitted then.
 */
#include "cli/top.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/boxed.h"
#include "base/parse.h"
#include "fs/btrfs.h"
#include "fs/fs_ops.h"

enum { ROWS_DEFAULT = 20 };
#define INTERVAL_MIN_NS 100000000ull
#define INTERVAL_MAX_NS (24 * 3600 * 1000000000ull)

/* ---- owners ---- */

/* True if the tree mounted there, as this process sees it, is that of the volume. */
static bool mounted_here(const char *mountpoint, const char *loop)
{
	struct stat dir, dev;

	/* btrfs has its own device numbers */
	return *mountpoint && !stat(mountpoint, &dir) && !stat(loop, &dev) &&
	       (dir.st_dev == dev.st_rdev || btrfs_lies_on(mountpoint, dev.st_rdev));
}

/* 0 with p->unmapped if the owners cannot be found; -ENOMEM */
static int find_owners(struct picture *p, const struct owners_query *q)
{
	const char *loop = json_fact(p->now->status, FACT_LOOP),
		   *mount = json_fact(p->now->status, FACT_MOUNTPOINT);
	enum fs_owners how = fs_ops_named(json_text(p->now->status, "fs_type"))->owners;
	int e = -EOPNOTSUPP;

	p->unmapped = "";
	if (how == OWNERS_EXT)
		e = owners_ext_boxed(&p->owners, loop, q);
	if (!e || e == -ENOMEM || e == -EOWNERDEAD)
		return e;
	if (!mounted_here(mount, loop))
		p->unmapped = "the volume is not mounted where this command can see it";
	else if (how != OWNERS_NONE)
		e = owners_tree(&p->owners, mount, OWNERS_FILES_MAX, OWNERS_NS_MAX, q);
	if (!e || e == -ENOMEM)
		return e;
	if (!*p->unmapped)
		p->unmapped =
			e == -EOPNOTSUPP
				? "this file system does not report where its files lie on the "
				  "device"
				: strerrordesc_np(-e);
	p->owners.complete = false;
	return owners_add_rest(&p->owners, q);
}

static int find_fresh(struct picture *p)
{
	const struct extents none = { 0 };
	bool same = p->before && p->before->generation_seq == p->now->generation_seq;

	if (!p->before)
		return 0;
	/* after a commit every uncommitted block is new */
	return extents_without(&p->fresh, &p->now->runs, same ? &p->before->runs : &none);
}

/* The volume is the upper of a composed root: only its files have a path there. */
static void compose_paths(struct owners *w)
{
	static const char upper[] = "/upper/";

	for (size_t i = 0; i < w->n; i++) {
		char *path = w->o[i].path;

		if (path && !strncmp(path, upper, strlen(upper))) {
			memmove(path, path + strlen(upper) - 1, strlen(path + strlen(upper)) + 2);
		} else if (path) {
			free(path);
			w->o[i].path = NULL;
		}
	}
}

/* ---- rows ---- */

static int largest_first(const void *a, const void *b)
{
	const struct row *x = a, *y = b;

	if (x->fresh_bytes != y->fresh_bytes)
		return x->fresh_bytes > y->fresh_bytes ? -1 : 1;
	if (x->bytes != y->bytes)
		return x->bytes > y->bytes ? -1 : 1;
	return x->path && y->path ? strcmp(x->path, y->path)
				  : (x->path != NULL) - (y->path != NULL);
}

static int by_path(const void *a, const void *b)
{
	const struct row *x = a, *y = b;
	int c = memcmp(x->path, y->path,
		       x->path_bytes < y->path_bytes ? x->path_bytes : y->path_bytes);

	return c ? c : x->path_bytes < y->path_bytes ? -1 : x->path_bytes > y->path_bytes;
}

/* Merges rows of the same directory; rows are sorted. Returns the remaining number. */
static size_t merge_directories(struct row *row, size_t n)
{
	size_t to = 0;

	for (size_t i = 0; i < n; i++) {
		if (to && !by_path(&row[to - 1], &row[i])) {
			row[to - 1].bytes += row[i].bytes;
			row[to - 1].fresh_bytes += row[i].fresh_bytes;
			row[to - 1].files += row[i].files;
		} else {
			row[to++] = row[i];
		}
	}
	/* the content of a directory follows it */
	for (size_t i = 0; i < to; i++)
		for (size_t k = i; k < to && row[k].path_bytes >= row[i].path_bytes &&
				   !memcmp(row[k].path, row[i].path, row[i].path_bytes);
		     k++)
			row[i].tree_bytes += row[k].bytes;
	return to;
}

static bool is_file(const struct owner *o)
{
	return o->kind == OWNER_FILE || o->kind == OWNER_DIRECTORY || o->kind == OWNER_DELETED;
}

static int make_table(struct picture *p)
{
	struct table *t = &p->table;
	size_t named = 0, n = 0;

	t->row = calloc(p->owners.n + 1, sizeof(*t->row));
	if (!t->row)
		return -ENOMEM;
	for (int pass = 0; pass < 2; pass++) { /* rows with a path come first */
		for (size_t i = 0; i < p->owners.n; i++) {
			const struct owner *o = &p->owners.o[i];
			bool in_directory = p->t->by_directory && o->path;

			if (pass == (o->path != NULL))
				continue;
			t->row[n++] = (struct row){
				.o = in_directory ? NULL : o,
				.path = o->path,
				.path_bytes =
					in_directory ? (size_t)(strrchr(o->path, '/') + 1 - o->path)
						     : 0,
				.bytes = o->bytes,
				.fresh_bytes = o->fresh_bytes,
				.files = is_file(o),
			};
			t->bytes += o->bytes;
			t->fresh_bytes += o->fresh_bytes;
			t->files += is_file(o);
			named += in_directory;
		}
	}
	if (named) {
		size_t dirs;

		qsort(t->row, named, sizeof(*t->row), by_path);
		dirs = merge_directories(t->row, named);
		memmove(t->row + dirs, t->row + named, (n - named) * sizeof(*t->row));
		n -= named - dirs;
	}
	qsort(t->row, n, sizeof(*t->row), largest_first);
	t->n = n;
	t->shown = p->t->rows ? min_u64(n, p->t->rows) : n;
	return 0;
}

/* ---- main loop ---- */

static int show(const struct options *o, const struct top_options *t, const struct sample *now,
		const struct sample *before)
{
	struct picture p = { .t = t, .now = now, .before = before };
	struct progress progress;
	const struct owners_query q = {
		.all = &now->runs, .fresh = &p.fresh, .progress = progress_show, .ctx = &progress
	};
	uint64_t start_ns = now_ns();
	int e = find_fresh(&p);

	progress_start(&progress);
	if (!e)
		e = find_owners(&p, &q);
	p.gather_ns = now_ns() - start_ns;
	progress_end(&progress);
	if (!e && *json_fact(now->status, FACT_LOWER))
		compose_paths(&p.owners);
	if (!e)
		e = make_table(&p);
	if (!e && has_option(o, OPT_JSON)) {
		e = top_print_json(&p);
	} else if (!e) {
		if (t->interval_ns)
			fputs(isatty(STDOUT_FILENO) ? "\033[H\033[2J" : before ? "\n" : "", stdout);
		top_print_text(&p);
	}
	free(p.table.row);
	owners_clear(&p.owners);
	extents_clear(&p.fresh);
	return e ? cmd_fail(o, EXIT_FAILED, e, "%s: %s", json_fact(now->status, FACT_DEVICE),
			    boxed_error(e))
		 : EXIT_OK;
}

static void pause_ns(uint64_t ns)
{
	struct timespec ts = { .tv_sec = (time_t)(ns / 1000000000),
			       .tv_nsec = (long)(ns % 1000000000) };

	while (nanosleep(&ts, &ts) < 0 && errno == EINTR)
		;
}

static int take_options(const struct options *o, struct top_options *t)
{
	const char *by = has_option(o, OPT_BY) ? o->value[OPT_BY] : "file";

	*t = (struct top_options){ .rows = ROWS_DEFAULT, .by_directory = !strcmp(by, "directory") };
	if (!t->by_directory && strcmp(by, "file"))
		return cmd_usage(o, "--by %s is neither file nor directory", by);
	if (has_option(o, OPT_ROWS) && parse_u64(o->value[OPT_ROWS], &t->rows) < 0)
		return cmd_usage(o, "-n %s is not a number of rows", o->value[OPT_ROWS]);
	if (has_option(o, OPT_INTERVAL) &&
	    (parse_duration_ns(o->value[OPT_INTERVAL], &t->interval_ns) < 0 ||
	     t->interval_ns < INTERVAL_MIN_NS || t->interval_ns > INTERVAL_MAX_NS))
		return cmd_usage(o, "--interval %s is not a time from 100ms to 24h, such as 5s",
				 o->value[OPT_INTERVAL]);
	if (has_option(o, OPT_ONCE) && !t->interval_ns)
		return cmd_usage(o, "--once needs --interval");
	return EXIT_OK;
}

int cmd_top(const struct options *o)
{
	struct sample now = { 0 }, before = { 0 };
	struct top_options t;
	char away[512];
	int exit = take_options(o, &t);
	bool more = t.interval_ns && exit == EXIT_OK;

	if (exit == EXIT_OK)
		exit = top_sample_take(o, &now);
	if (exit == EXIT_OK && away_text(now.status, away, sizeof(away))) /* it would wait for it */
		exit = cmd_fail(o, EXIT_AWAY, -ENOMEDIUM, "the card is away %s", away);
	/* with --once only the difference to this sample is shown */
	if (exit == EXIT_OK && !has_option(o, OPT_ONCE))
		exit = show(o, &t, &now, NULL);
	while (more && exit == EXIT_OK && !fflush(stdout)) {
		top_sample_clear(&before);
		before = now;
		now = (struct sample){ 0 };
		pause_ns(t.interval_ns);
		exit = top_sample_take(o, &now);
		if (exit == EXIT_OK)
			exit = show(o, &t, &now, &before);
		more = !has_option(o, OPT_ONCE);
	}
	top_sample_clear(&now);
	top_sample_clear(&before);
	return exit;
}
