/* SPDX-License-Identifier: MIT */
/* cowctl export: what the newest generation has and its base has not, as a file for cowctl import. */
#include "cli/cmd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "attach/view_mount.h"
#include "base/clean.h"
#include "base/io.h"
#include "base/parse.h"
#include "base/path.h"
#include "cli/delta_sign.h"

struct job {
	const struct options *o;
	const char *which, *file; /* which NULL: the only volume */
	struct view_mount of, base;
	struct delta_make make;
	struct progress progress;
};

static int open_base(struct job *j, struct failure *fail)
{
	const char *base = j->o->value[OPT_BASE];
	int r;

	if (has_option(j->o, OPT_ALL))
		return 0;
	r = cmd_view_open(j->o, base ? base : j->which, base ? VIEW_COMMITTED : VIEW_HELD,
			  VIEW_DISK, &j->base, fail);
	if (r == -ENOENT && !base)
		return failure(
			fail, -ENOENT,
			"%s: no generation is held, so name the base: --base DEVICE, or --all",
			j->which ? j->which : "the volume");
	/* an image of before it got a log */
	if (r < 0 && r != -ENOENT)
		return r;
	j->make.base_disk = r == 0 ? j->base.disk : base;
	j->make.base_name = base ? base : "the held generation";
	j->make.head.base_generation = j->base.generation;
	j->make.head.base_s = j->base.time_s;
	return 0;
}

static int make(struct job *j, struct failure *fail)
{
	uint8_t head[DELTA_HEAD_BYTES];
	char signature[DELTA_SIGNATURE_BYTES];
	const char *key = j->o->value[OPT_SIGN];
	int r = cmd_view_open(j->o, j->which, VIEW_COMMITTED, VIEW_DISK, &j->of, fail);

	if (r == 0)
		r = open_base(j, fail);
	if (r < 0)
		return r;
	j->make.disk = j->of.disk;
	j->make.name = j->which ? j->which : "the volume";
	j->make.head.generation = j->of.generation;
	j->make.head.time_s = j->of.time_s;
	r = delta_make(&j->make, fail);
	if (r == 0 && key) {
		delta_put_head(head, &j->make.head);
		r = delta_sign(head, key, signature, fail);
	}
	if (r == 0 && key)
		r = io_pwrite_full(j->make.fd, signature, sizeof(signature), DELTA_HEAD_BYTES);
	if (r == 0 && (fchmod(j->make.fd, 0644) < 0 || fsync(j->make.fd) < 0))
		r = -errno;
	return r < 0 && !fail->why[0] ? failure(fail, r, "%s: %s", j->file, strerrordesc_np(-r))
				      : r;
}

static void print_json(const struct job *j)
{
	const struct delta_head *h = &j->make.head;
	struct jsonw *w = json_begin(true);

	jsonw_str(w, "file", j->file);
	jsonw_u64(w, "file_bytes", h->file_bytes);
	jsonw_bool(w, "whole", h->whole);
	jsonw_bool(w, "signed", has_option(j->o, OPT_SIGN));
	jsonw_u64(w, "generation", h->generation);
	jsonw_u64(w, "time_unix_seconds", h->time_s);
	jsonw_u64(w, "base_generation", h->base_generation);
	jsonw_u64(w, "base_unix_seconds", h->base_s);
	jsonw_u64(w, "data_bytes", blk_to_bytes(h->data_blks));
	jsonw_u64(w, "kept_bytes", blk_to_bytes(h->kept_blks));
	jsonw_str(w, "fs_type", h->fs_type);
	json_end(w);
}

static void print_text(const struct job *j)
{
	struct json_object *status = status_for_people(fresh_status(j->which));
	const struct delta_head *h = &j->make.head;

	printf("%s: %s%s: generation %s of %s", CLEAN(j->file), FORMAT_SIZE(h->file_bytes),
	       has_option(j->o, OPT_SIGN) ? ", signed" : "", with_commas(h->generation),
	       format_time(h->time_s));
	if (h->whole)
		printf(", whole\n");
	else
		printf(", for generation %s of %s\n", with_commas(h->base_generation),
		       format_time(h->base_s));
	printf("  %s in %s block%s", FORMAT_SIZE(blk_to_bytes(h->data_blks)),
	       with_commas(h->data_blks), plural(h->data_blks));
	if (!h->whole)
		printf("; %s must be there already", FORMAT_SIZE(blk_to_bytes(h->kept_blks)));
	printf("\n");
	if (status && !all_on_card(status))
		printf("  without what is not committed, %s: commit first to have it in the file\n",
		       FORMAT_SIZE(blk_to_bytes(json_u64(status, "dirty_blocks"))));
	json_object_put(status);
}

static int run(struct job *j)
{
	struct failure fail = { 0 };
	struct new_file f;
	char why[2 * PATH_MAX];
	int e, end;

	if (path_exists(AT_FDCWD, j->file))
		return cmd_fail(j->o, EXIT_FAILED, -EEXIST, "%s: exists already", j->file);
	j->make.fd = e = path_begin_file(&f, j->file, why, sizeof(why));
	if (e < 0)
		failure(&fail, e, "%s: %s", j->file, path_strerror(j->file, e, why, sizeof(why)));
	progress_start(&j->progress);
	if (e >= 0)
		e = make(j, &fail);
	progress_end(&j->progress);
	view_mount_close(&j->of);
	view_mount_close(&j->base);
	cleanup_closep(&j->make.fd);
	end = path_end_file(&f, e == 0);
	if (e == 0 && end < 0)
		e = failure(&fail, end, "%s: %s", j->file, strerrordesc_np(-end));
	if (e < 0)
		return cmd_failed(j->o, &fail);
	(has_option(j->o, OPT_JSON) ? print_json : print_text)(j);
	return EXIT_OK;
}

int cmd_export(const struct options *o)
{
	struct job j = { .o = o,
			 .which = o->operands == 2 ? o->operand[0] : NULL,
			 .file = o->operand[o->operands - 1],
			 .of = { .dir_fd = -1, .disk_fd = -1 },
			 .base = { .dir_fd = -1, .disk_fd = -1 },
			 .make = { .progress = progress_show, .ctx = &j.progress } };

	int exit = has_option(o, OPT_ALL) ? cmd_excludes(o, "--all", OPT_BASE, OPT_END) : EXIT_OK;

	return exit == EXIT_OK ? run(&j) : exit;
}
