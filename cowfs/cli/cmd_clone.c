/* SPDX-License-Identifier: MIT */
/*
 * cowctl clone: copies a volume as it is now, or the newest generation of a card, to another card; or the disk
 * around it.
 */
#include "cli/cmd.h"
#include "cli/place.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "attach/view_mount.h"
#include "base/clean.h"
#include "base/io.h"
#include "base/parse.h"
#include "card/blockdev.h"
#include "card/disk.h"
#include "offline/offline.h"

struct job {
	const struct options *o;
	const char *which, *target; /* which NULL: the only volume */
	struct progress progress;
	/* of the source: a volume, and how often its card was away, or a card that is not attached */
	char volume[RUNDIR_NAME_BYTES];
	uint64_t away_times;
	struct card *card;
	char part[256]; /* the name of a part of the target */
};

static bool confirm(void *ctx, const struct clone_target *t)
{
	struct job *j = ctx;
	char question[2048];

	snprintf(question, sizeof(question), "%s (%s%s%s%s%s) holds %s. Overwrite all of it?",
		 CLEAN(j->target), FORMAT_SIZE(t->bytes), *t->model ? ", " : "", CLEAN(t->model),
		 *t->identity ? ", serial number " : "", CLEAN(t->identity), CLEAN(t->holds));
	return cmd_confirm(j->o, question);
}

static void show_progress(void *ctx, const char *phase, uint64_t done_bytes, uint64_t total_bytes)
{
	struct job *j = ctx;

	progress_show(&j->progress, phase, done_bytes, total_bytes);
}

/* ---- is the card of the source there? ---- */

/* The device of a volume that is attached; false: it is not. which NULL: the only one, or the root. */
static bool find_volume(const char *which, char name[RUNDIR_NAME_BYTES], char device[PATH_MAX])
{
	struct failure err;
	struct facts f;
	struct client c;

	if (client_open(&c, which, &err) < 0 &&
	    (which || err.exit != EXIT_USAGE || client_open(&c, ROOT_NAME, &err) < 0))
		return false;
	snprintf(name, RUNDIR_NAME_BYTES, "%s", c.name);
	client_close(&c);
	client_facts(name, false, &f);
	snprintf(device, PATH_MAX, "%s", f.device[FACT_DEVICE].path);
	return *device;
}

static uint64_t away_times(const char *volume)
{
	struct json_object *status = fresh_status(volume);
	uint64_t n = json_u64(json_object_object_get(status, "away"), "times");

	json_object_put(status);
	return n;
}

static bool is_away(void *ctx)
{
	struct job *j = ctx;

	return *j->volume ? away_times(j->volume) != j->away_times
			  : j->card && card_lost(j->card, -EIO);
}

static void watch_source(struct job *j)
{
	if (*j->volume)
		j->away_times = away_times(j->volume);
	else
		(void)!blockdev_open(&j->card, j->which, BLOCKDEV_RDONLY | BLOCKDEV_ALLOW_FILE,
				     NULL);
}

/* ---- the result ---- */

static void json_volume(struct jsonw *w, const struct view_mount *m, const struct clone_report *r)
{
	jsonw_u64(w, "generation", m->generation);
	jsonw_u64(w, "time_unix_seconds", m->time_s);
	jsonw_str(w, "fs_type", r->fs.type);
	jsonw_u64(w, "volume_bytes", r->super.fs_bytes);
	jsonw_u64(w, "log_bytes", (uint64_t)r->super.seg_bytes * r->super.seg_count);
	jsonw_u64(w, "copied_bytes", r->used_bytes);
	jsonw_u64(w, "kept_bytes", r->there_bytes);
	jsonw_u64(w, "written_bytes", r->written_bytes);
	jsonw_u64(w, "lost_blocks", extents_blks(&r->lost));
	jsonw_array(w, "lost_files");
	if (extents_blks(&r->lost))
		name_files(m, &r->lost, w);
	jsonw_end(w);
}

static void print_json(const struct clone_options *opt, const struct view_mount *m,
		       const struct clone_report *r)
{
	struct jsonw *w = json_begin(true);

	jsonw_str(w, "device", opt->target);
	json_volume(w, m, r);
	json_end(w);
}

static void print_text(const struct clone_options *opt, const struct view_mount *m,
		       const struct clone_report *r)
{
	printf("%s: has the %s as it was %s, and an empty log of %s\n", CLEAN(opt->target),
	       r->fs.type, m->time_s ? format_time(m->time_s) : "before the first commit",
	       FORMAT_SIZE((uint64_t)r->super.seg_bytes * r->super.seg_count));
	cmd_row("copied", "%s of %s%s%s%s%s", FORMAT_SIZE(r->used_bytes),
		FORMAT_SIZE(r->super.fs_bytes), opt->no_verify ? "" : ", read back and compared",
		r->there_bytes ? "; " : "", r->there_bytes ? FORMAT_SIZE(r->there_bytes) : "",
		r->there_bytes ? " were there from an earlier run" : "");
	if (extents_blks(&r->lost)) {
		printf("  %s block%s of it cannot be read, and are zeroes in the copy:\n",
		       with_commas(extents_blks(&r->lost)), plural(extents_blks(&r->lost)));
		name_files(m, &r->lost, NULL);
	}
	if (!opt->window)
		puts("  Both have the same UUIDs now: take one of them out before the next boot.");
}

/* RAM that is full has no room for what a mount replays: then the copy gets the journal as it is. */
static int view_now(const struct options *o, const char *which, struct view_mount *ret,
		    struct failure *err)
{
	int e = cmd_view_open(o, which, VIEW_NOW, VIEW_READ, ret, err);

	return e == -EIO || e == -ENOSPC ? cmd_view_open(o, which, VIEW_NOW, VIEW_DISK, ret, err)
					 : e;
}

static int make_clone(struct job *j, struct clone_options *opt)
{
	struct view_mount m;
	struct clone_report report;
	struct log_past past;
	struct failure fail;
	int e = view_now(j->o, j->which, &m, &fail), exit = EXIT_OK;

	if (e < 0)
		return cmd_failed(j->o, &fail);
	opt->source = m.disk;
	if (past_of(j->o, j->which, &past))
		opt->past = &past;
	watch_source(j);
	progress_start(&j->progress);
	e = offline_clone(opt, &report, &fail);
	progress_end(&j->progress);
	if (e < 0)
		exit = cmd_failed(j->o, &fail);
	else if (has_option(j->o, OPT_JSON))
		print_json(opt, &m, &report);
	else
		print_text(opt, &m, &report);
	if (e == 0 && extents_blks(&report.lost))
		exit = EXIT_DEGRADED;
	extents_clear(&report.lost);
	card_close(j->card);
	view_mount_close(&m);
	return exit;
}

/* ---- a whole disk: the program clone-disk of cowfs-tools, which has this copy each volume ---- */

static int clone_disk(const struct options *o, const char *disk)
{
	static const enum cmd_option passed[] = { OPT_LOG_SIZE,	 OPT_ERASE_BLOCK, OPT_LAG,
						  OPT_NO_VERIFY, OPT_YES,	  OPT_JSON };
	const char *argv[2 + 2 * ARRAY_SIZE(passed) + 4] = { COWCTL, "clone-disk" };
	unsigned n = 2 + cmd_pass_on(o, passed, ARRAY_SIZE(passed), argv + 2);

	argv[n++] = "--";
	argv[n++] = disk;
	argv[n] = o->operand[o->operands - 1];
	return cmd_tool((char **)(uintptr_t)argv);
}

/* "NUMBER:START:BYTES[:resumes]": a part of the disk, which the caller has claimed, and asked for. */
static int open_window(struct job *j, struct offline *disk, struct clone_options *opt,
		       struct failure *fail)
{
	unsigned long long start, bytes;
	unsigned number;
	char resumes[8] = "";
	int e;

	if (sscanf(j->o->value[OPT_WINDOW], "%u:%llu:%llu:%7s", &number, &start, &bytes, resumes) <
	    3)
		return failure_set(fail, EXIT_USAGE, -EINVAL, "--window NUMBER:START:BYTES");
	snprintf(j->part, sizeof(j->part), "%.200s, partition %u", j->target, number);
	e = offline_open(disk, j->target, NULL, BLOCKDEV_ALLOW_FILE, opt->log.erase_block_bytes,
			 fail);
	if (e < 0)
		return e;
	e = blockdev_part(&opt->window, disk->base, start, bytes);
	opt->target = j->part;
	opt->resumes = *resumes;
	return e < 0 ? failure(fail, e, "%s: %s", j->part, strerrordesc_np(-e)) : 0;
}

/* Is there room? */
static int plan_window(const struct job *j, const struct clone_options *opt, struct failure *fail)
{
	struct offline from,
		to = { .device = opt->target, .base = opt->window, .log_card = opt->window };
	struct log_super super;
	int e = offline_open(&from, j->which, NULL, BLOCKDEV_RDONLY, 0, fail);

	if (e == 0)
		e = offline_find_log(&from, fail);
	to.fs = from.fs;
	to.fs.size_bytes = from.super.fs_bytes;
	if (e == 0)
		e = clone_plan(&to, from.super.fs_bytes, &opt->log, &super, fail);
	offline_close(&from);
	return e;
}

/* ---- which of them? ---- */

/* A file on a volume, or a loop device of one. name: "" if it is not. */
static void volume_below(const char *target, char name[RUNDIR_NAME_BYTES])
{
	_cleanup_close_ int dir = blockdev_open_sysfs(target);
	struct places p = { 0 };
	char file[PATH_MAX];
	struct failure err;

	name[0] = '\0';
	if (dir >= 0 && io_read_text(dir, "loop/backing_file", file, sizeof(file)) <= 0)
		return;
	if (places_add(&p, dir >= 0 ? file : target, &err) == 0)
		snprintf(name, RUNDIR_NAME_BYTES, "%s", p.name);
	places_clear(&p);
}

/* Is the target a disk for a disk? */
static bool is_for_disk(const struct options *o, const char *device, const char *target)
{
	_cleanup_close_ int dir = blockdev_open_sysfs(target);
	struct disk_part parts[DISK_PARTS_MAX];
	size_t n = 0;

	return has_option(o, OPT_DISK) ||
	       (dir >= 0 && !disk_is_partition(target) && faccessat(dir, "dm", F_OK, 0) < 0 &&
		faccessat(dir, "md", F_OK, 0) < 0 &&
		(disk_is_partition(device) || (disk_parts(device, parts, &n) == 0 && n)));
}

/* Is there a volume on the disk that the target lies on? */
static int refuse_below(const struct options *o, const char *volume, const char *disk,
			const char *target)
{
	char name[RUNDIR_NAME_BYTES], other[RUNDIR_NAME_BYTES], device[PATH_MAX], its_disk[64];

	volume_below(target, name);
	if (!*name || !find_volume(name, other, device))
		return EXIT_OK;
	if (disk ? disk_of(device, its_disk, sizeof(its_disk)) < 0 || strcmp(its_disk, disk) != 0
		 : strcmp(name, volume) != 0)
		return EXIT_OK;
	return cmd_fail(o, EXIT_FAILED, -EBUSY,
			"%s: lies on volume %s, which is to be copied: it would fill its RAM",
			target, name);
}

static int clone_window(struct job *j, struct clone_options *opt)
{
	struct failure fail;
	struct offline disk = { 0 };
	int e = open_window(j, &disk, opt, &fail), exit = EXIT_OK;

	if (e == 0 && has_option(j->o, OPT_DRY_RUN)) {
		e = plan_window(j, opt, &fail);
		if (e == 0)
			puts("{\"ok\":true,\"schema\":1}");
	} else if (e == 0) {
		exit = make_clone(j, opt);
	}
	if (e < 0)
		exit = cmd_failed(j->o, &fail);
	card_close(opt->window);
	offline_close(&disk);
	return exit;
}

int cmd_clone(const struct options *o)
{
	const char *which = o->operands == 2 ? o->operand[0] : NULL;
	struct job j = { .o = o, .which = which, .target = o->operand[o->operands - 1] };
	struct clone_options opt = { .name = which ? which : "the volume",
				     .target = j.target,
				     .no_verify = has_option(o, OPT_NO_VERIFY),
				     .confirm = confirm,
				     .is_away = is_away,
				     .progress = show_progress,
				     .ctx = &j };
	char device[PATH_MAX], disk[64] = "";
	bool attached = find_volume(which, j.volume, device);
	const char *from = attached ? device : which;
	int e, exit = cmd_parse_log(o, &opt.log);

	if (exit != EXIT_OK)
		return exit;
	if (has_option(o, OPT_WINDOW))
		return clone_window(&j, &opt);
	if (!cmd_can_ask(o))
		return cmd_usage(o, "clone: nobody can be asked: add --yes");
	if (from && is_for_disk(o, from, j.target)) {
		e = disk_of(from, disk, sizeof(disk));
		if (e < 0)
			return cmd_fail(o, EXIT_FAILED, e, "%s: is not on a disk: %s", from,
					strerrordesc_np(-e));
	}
	if (has_option(o, OPT_LOG) && (attached || *disk))
		return cmd_usage(o, "--log is for a card that is not attached, alone: omit it");
	exit = refuse_below(o, j.volume, *disk ? disk : NULL, j.target);
	if (exit != EXIT_OK)
		return exit;
	return *disk ? clone_disk(o, disk) : make_clone(&j, &opt);
}
