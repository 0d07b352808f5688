/* SPDX-License-Identifier: MIT */
/* cowctl clone: copies a volume as it is now, or the newest generation of a card, to another card. */
#include "cli/cmd.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "attach/view_mount.h"
#include "base/clean.h"
#include "base/parse.h"
#include "fs/owners.h"
#include "offline/offline.h"

#define NAMES_MAX 20u /* of files with blocks that cannot be read */
#define JSON_NAMES_MAX 1000u
#define JSON_NAMES_BYTES (200 * KIB / 6) /* \u0001 */

struct job {
	const struct options *o;
	const char *name, *target;
	struct progress progress;
};

static bool confirm(void *ctx, const struct clone_target *t)
{
	struct job *j = ctx;
	char question[2048];

	snprintf(question, sizeof(question), "%s (%s%s%s) holds %s. Overwrite all of it?",
		 CLEAN(j->target), FORMAT_SIZE(t->bytes), *t->model ? ", " : "", CLEAN(t->model),
		 CLEAN(t->holds));
	return cmd_confirm(j->o, question);
}

static void show_progress(void *ctx, const char *phase, uint64_t done_bytes, uint64_t total_bytes)
{
	struct job *j = ctx;

	progress_show(&j->progress, phase, done_bytes, total_bytes);
}

/* ---- what could not be read ---- */

static int find_owners(const struct view_mount *m, const struct owners_query *q, struct owners *ret)
{
	char dir[32];
	int e = owners_ext_boxed(ret, m->disk, q);

	if (e == -EOPNOTSUPP) {
		snprintf(dir, sizeof(dir), "/proc/self/fd/%d", m->dir_fd);
		e = owners_tree(ret, dir, OWNERS_FILES_MAX, OWNERS_NS_MAX, q);
	}
	return e == -EOPNOTSUPP ? owners_add_rest(ret, q) : e;
}

/* w NULL: for people */
static void name_lost(const struct view_mount *m, const struct clone_report *r, struct jsonw *w)
{
	const struct extents none = { 0 };
	const struct owners_query q = { .all = &r->lost, .fresh = &none };
	struct owners x = { 0 };
	int e = find_owners(m, &q, &x);
	size_t bytes = 0;

	if (!w)
		printf("  %s block%s of it cannot be read, and are zeroes in the copy:\n",
		       with_commas(extents_blks(&r->lost)), plural(extents_blks(&r->lost)));
	for (size_t i = 0; e == 0 && i < x.n; i++) {
		const char *name = x.o[i].path ? x.o[i].path : "(not of a file)";

		bytes += strlen(name) + 1;
		if (w && i < JSON_NAMES_MAX && bytes <= JSON_NAMES_BYTES)
			jsonw_str(w, NULL, name);
		else if (w)
			break;
		else if (i < NAMES_MAX)
			printf("    %10s of %s\n", FORMAT_SIZE(x.o[i].bytes), CLEAN(name));
	}
	if (!w && e == 0 && x.n > NAMES_MAX)
		printf("    and %s more\n", with_commas(x.n - NAMES_MAX));
	if (!w && e < 0)
		puts("    their files cannot be found out");
	owners_clear(&x);
}

/* ---- the result ---- */

static void print_json(const struct job *j, const struct view_mount *m,
		       const struct clone_report *r)
{
	static char text[256 * KIB];
	struct jsonw w;

	jsonw_init(&w, text, sizeof(text));
	answer_ok(&w);
	jsonw_str(&w, "device", j->target);
	jsonw_u64(&w, "generation", m->generation);
	jsonw_u64(&w, "time_unix_seconds", m->time_s);
	jsonw_str(&w, "fs_type", r->fs.type);
	jsonw_u64(&w, "volume_bytes", r->super.fs_bytes);
	jsonw_u64(&w, "log_bytes", (uint64_t)r->super.seg_bytes * r->super.seg_count);
	jsonw_u64(&w, "copied_bytes", r->used_bytes);
	jsonw_u64(&w, "kept_bytes", r->there_bytes);
	jsonw_u64(&w, "written_bytes", r->written_bytes);
	jsonw_u64(&w, "lost_blocks", extents_blks(&r->lost));
	jsonw_array(&w, "lost_files");
	if (extents_blks(&r->lost))
		name_lost(m, r, &w);
	jsonw_end(&w);
	if (jsonw_finish(&w))
		fputs(text, stdout);
}

static void print_text(const struct job *j, const struct view_mount *m,
		       const struct clone_report *r)
{
	printf("%s: has the %s as it was %s, and an empty log of %s\n", CLEAN(j->target),
	       r->fs.type, m->time_s ? format_time(m->time_s) : "before the first commit",
	       FORMAT_SIZE((uint64_t)r->super.seg_bytes * r->super.seg_count));
	printf("  %-14s %s of %s%s%s%s%s\n", "copied", FORMAT_SIZE(r->used_bytes),
	       FORMAT_SIZE(r->super.fs_bytes),
	       has_option(j->o, OPT_NO_VERIFY) ? "" : ", read back and compared",
	       r->there_bytes ? "; " : "", r->there_bytes ? FORMAT_SIZE(r->there_bytes) : "",
	       r->there_bytes ? " were there from an earlier run" : "");
	if (extents_blks(&r->lost))
		name_lost(m, r, NULL);
	puts("  Both have the same UUID now: take one of them out before the next boot.");
}

static int make_clone(struct job *j, const struct view_mount *m)
{
	struct clone_options opt = { .source = m->disk,
				     .name = j->name,
				     .target = j->target,
				     .no_verify = has_option(j->o, OPT_NO_VERIFY),
				     .confirm = confirm,
				     .progress = show_progress,
				     .ctx = j };
	struct clone_report report;
	struct failure fail;
	int e, exit;

	exit = cmd_parse_log(j->o, &opt.log);
	if (exit != EXIT_OK)
		return exit;
	progress_start(&j->progress);
	e = offline_clone(&opt, &report, &fail);
	progress_end(&j->progress);
	if (e < 0)
		exit = cmd_failed(j->o, &fail);
	else if (has_option(j->o, OPT_JSON))
		print_json(j, m, &report);
	else
		print_text(j, m, &report);
	if (e == 0 && extents_blks(&report.lost))
		exit = EXIT_DEGRADED;
	extents_clear(&report.lost);
	return exit;
}

int cmd_clone(const struct options *o)
{
	const char *which = o->operands == 2 ? o->operand[0] : NULL;
	struct job j = { .o = o,
			 .name = which ? which : "the volume",
			 .target = o->operand[o->operands - 1] };
	struct view_mount m;
	struct failure err;
	int e, exit;

	if (!cmd_can_ask(o))
		return cmd_fail(o, EXIT_USAGE, -EINVAL, "clone: nobody can be asked: add --yes");
	e = cmd_view_now(o, which, &m, &err);
	if (e < 0)
		return cmd_failed(o, &err);
	exit = make_clone(&j, &m);
	view_mount_close(&m);
	return exit;
}
