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
	const char *which, *name, *target; /* which NULL: the only volume */
	struct progress progress;
	/* of the source: a volume, and how often its card was away, or a card that is not attached */
	char volume[RUNDIR_NAME_BYTES];
	uint64_t away_times;
	struct card *card;
	/* of a disk: */
	const char *disk; /* the old one */
	struct jsonw *w;  /* without --json NULL */
	unsigned parts;
	bool lost;
};

static bool confirm(void *ctx, const struct clone_target *t)
{
	struct job *j = ctx;
	char question[2048];

	snprintf(question, sizeof(question), "%s (%s%s%s%s%s) holds %s. Overwrite all of it%s%s?",
		 CLEAN(j->target), FORMAT_SIZE(t->bytes), *t->model ? ", " : "", CLEAN(t->model),
		 *t->identity ? ", serial number " : "", CLEAN(t->identity), CLEAN(t->holds),
		 j->disk ? " with the disk " : "", j->disk ? j->disk : "");
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

static void watch_source(struct job *j, const char *volume, const char *card)
{
	snprintf(j->volume, sizeof(j->volume), "%s", volume);
	j->away_times = *volume ? away_times(volume) : 0;
	card_close(j->card);
	j->card = NULL;
	if (!*volume)
		(void)!blockdev_open(&j->card, card, BLOCKDEV_RDONLY | BLOCKDEV_ALLOW_FILE, NULL);
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

static void print_json(const struct job *j, const struct view_mount *m,
		       const struct clone_report *r)
{
	static char text[256 * KIB];
	struct jsonw w;

	jsonw_init(&w, text, sizeof(text));
	answer_ok(&w);
	jsonw_str(&w, "device", j->target);
	json_volume(&w, m, r);
	if (jsonw_finish(&w))
		fputs(text, stdout);
}

static void print_text(const struct job *j, const char *target, const struct view_mount *m,
		       const struct clone_report *r)
{
	printf("%s: has the %s as it was %s, and an empty log of %s\n", CLEAN(target), r->fs.type,
	       m->time_s ? format_time(m->time_s) : "before the first commit",
	       FORMAT_SIZE((uint64_t)r->super.seg_bytes * r->super.seg_count));
	printf("  %-14s %s of %s%s%s%s%s\n", "copied", FORMAT_SIZE(r->used_bytes),
	       FORMAT_SIZE(r->super.fs_bytes),
	       has_option(j->o, OPT_NO_VERIFY) ? "" : ", read back and compared",
	       r->there_bytes ? "; " : "", r->there_bytes ? FORMAT_SIZE(r->there_bytes) : "",
	       r->there_bytes ? " were there from an earlier run" : "");
	if (extents_blks(&r->lost)) {
		printf("  %s block%s of it cannot be read, and are zeroes in the copy:\n",
		       with_commas(extents_blks(&r->lost)), plural(extents_blks(&r->lost)));
		name_files(m, &r->lost, NULL);
	}
}

#define SAME_UUID "  Both have the same UUIDs now: take one of them out before the next boot."

static int make_clone(struct job *j, const struct view_mount *m)
{
	struct clone_options opt = { .source = m->disk,
				     .name = j->name,
				     .target = j->target,
				     .no_verify = has_option(j->o, OPT_NO_VERIFY),
				     .confirm = confirm,
				     .is_away = is_away,
				     .progress = show_progress,
				     .ctx = j };
	struct clone_report report;
	struct log_past past;
	struct failure fail;
	int e, exit;

	exit = cmd_parse_log(j->o, &opt.log);
	if (exit != EXIT_OK)
		return exit;
	if (past_of(j->o, j->which, &past))
		opt.past = &past;
	progress_start(&j->progress);
	e = offline_clone(&opt, &report, &fail);
	progress_end(&j->progress);
	if (e < 0)
		exit = cmd_failed(j->o, &fail);
	else if (has_option(j->o, OPT_JSON))
		print_json(j, m, &report);
	else
		print_text(j, j->target, m, &report), puts(SAME_UUID);
	if (e == 0 && extents_blks(&report.lost))
		exit = EXIT_DEGRADED;
	extents_clear(&report.lost);
	return exit;
}

/* ---- a whole disk ---- */

static void json_part(struct jsonw *w, const struct clone_disk_part *p)
{
	jsonw_object(w, NULL);
	jsonw_u64(w, "number", p->number);
	jsonw_str(w, "source", p->node);
	jsonw_str(w, "content", p->what);
	jsonw_u64(w, "partition_bytes", p->new_bytes);
}

static void say_grown(const struct clone_disk_part *p)
{
	if (p->new_bytes > p->bytes + MIB) /* the last one */
		printf("  its partition is %s longer; %s\n", FORMAT_SIZE(p->new_bytes - p->bytes),
		       p->window && !strcmp(p->what, "volume")
			       ? "its file system keeps its size: cowctl(8), grow, says how to give it the room"
			       : "its content keeps its size");
}

static void other_copied(void *ctx, const struct clone_disk_part *p)
{
	struct job *j = ctx;

	j->parts++;
	j->lost |= p->lost_blks;
	progress_end(&j->progress);
	progress_start(&j->progress);
	if (j->w) {
		json_part(j->w, p);
		jsonw_u64(j->w, "copied_bytes", p->copied_bytes);
		jsonw_u64(j->w, "lost_blocks", p->lost_blks);
		jsonw_end(j->w);
		return;
	}
	printf("%s: has the %s of %s (%s)\n", CLEAN(p->target), CLEAN(p->what), p->node,
	       FORMAT_SIZE(p->copied_bytes));
	if (p->lost_blks)
		printf("  %s block%s of it cannot be read, and are zeroes in the copy\n",
		       with_commas(p->lost_blks), plural(p->lost_blks));
	say_grown(p);
}

/* RAM that is full has no room for what a mount replays: then the copy gets the journal as it is. */
static int view_now(const struct options *o, const char *which, struct view_mount *ret,
		    struct failure *err)
{
	int e = cmd_view_now(o, which, ret, err);

	return e == -EIO || e == -ENOSPC ? cmd_view_now_disk(o, which, ret, err) : e;
}

static int clone_volume(void *ctx, const struct clone_disk_part *p, struct failure *fail)
{
	struct job *j = ctx;
	struct clone_options opt = { .name = p->node,
				     .target = p->target,
				     .window = p->window,
				     .resumes = p->resumes,
				     .no_verify = has_option(j->o, OPT_NO_VERIFY),
				     .is_away = is_away,
				     .progress = show_progress,
				     .ctx = j };
	struct clone_report report = { 0 };
	struct log_past past;
	struct view_mount m;
	char name[RUNDIR_NAME_BYTES], device[PATH_MAX];
	int e = view_now(j->o, p->node, &m, fail);

	if (e < 0)
		return e;
	opt.source = m.disk;
	watch_source(j, find_volume(p->node, name, device) ? name : "", p->node);
	if (cmd_parse_log(j->o, &opt.log) != EXIT_OK) /* it was parsed before */
		e = failure_set(fail, EXIT_USAGE, -EINVAL, "bad options");
	if (past_of(j->o, p->node, &past))
		opt.past = &past;
	if (e == 0)
		e = offline_clone(&opt, &report, fail);
	progress_end(&j->progress);
	progress_start(&j->progress);
	j->parts += e == 0;
	j->lost |= extents_blks(&report.lost) > 0;
	if (e == 0 && j->w) {
		json_part(j->w, p);
		json_volume(j->w, &m, &report);
		jsonw_end(j->w);
	} else if (e == 0) {
		print_text(j, p->target, &m, &report);
		say_grown(p);
	}
	extents_clear(&report.lost);
	view_mount_close(&m);
	return e;
}

static int clone_disk(const struct options *o, const char *source)
{
	static char text[2 * MIB];
	struct jsonw w;
	struct job j = { .o = o,
			 .target = o->operand[o->operands - 1],
			 .disk = source,
			 .w = has_option(o, OPT_JSON) ? &w : NULL };
	struct clone_disk_options opt = { .source = source,
					  .target = j.target,
					  .no_verify = has_option(o, OPT_NO_VERIFY),
					  .confirm = confirm,
					  .volume = clone_volume,
					  .copied = other_copied,
					  .progress = show_progress,
					  .ctx = &j };
	bool gpt;
	struct failure fail;
	int exit = cmd_parse_log(o, &opt.log), e;

	if (exit != EXIT_OK)
		return exit;
	jsonw_init(&w, text, sizeof(text));
	answer_ok(&w);
	jsonw_str(&w, "device", j.target);
	jsonw_str(&w, "source", source);
	jsonw_array(&w, "partitions");
	progress_start(&j.progress);
	e = offline_clone_disk(&opt, &gpt, &fail);
	progress_end(&j.progress);
	card_close(j.card);
	if (e < 0)
		return cmd_failed(o, &fail);
	jsonw_end(&w);
	jsonw_str(&w, "table", gpt ? "gpt" : "mbr");
	if (j.w && jsonw_finish(&w))
		fputs(text, stdout);
	if (!j.w)
		printf("%s: has the partition table (%s) of %s, what lies in front of the first partition, and "
		       "%u partition%s\n" SAME_UUID "\n",
		       CLEAN(j.target), gpt ? "GPT" : "MBR", source, j.parts, plural(j.parts));
	return j.lost ? EXIT_DEGRADED : EXIT_OK;
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

int cmd_clone(const struct options *o)
{
	const char *which = o->operands == 2 ? o->operand[0] : NULL;
	struct job j = { .o = o,
			 .which = which,
			 .name = which ? which : "the volume",
			 .target = o->operand[o->operands - 1] };
	char name[RUNDIR_NAME_BYTES] = "", device[PATH_MAX], disk[64] = "";
	bool attached = find_volume(which, name, device);
	const char *from = attached ? device : which;
	struct view_mount m;
	struct failure err;
	int e, exit;

	if (!cmd_can_ask(o))
		return cmd_fail(o, EXIT_USAGE, -EINVAL, "clone: nobody can be asked: add --yes");
	if (from && is_for_disk(o, from, j.target)) {
		e = disk_of(from, disk, sizeof(disk));
		if (e < 0)
			return cmd_fail(o, EXIT_FAILED, e, "%s: is not on a disk: %s", from,
					strerrordesc_np(-e));
	}
	if (has_option(o, OPT_LOG) && (attached || *disk))
		return cmd_fail(o, EXIT_USAGE, -EINVAL,
				"--log is for a card that is not attached, alone: omit it");
	exit = refuse_below(o, name, *disk ? disk : NULL, j.target);
	if (exit != EXIT_OK)
		return exit;
	if (*disk)
		return clone_disk(o, disk);
	e = view_now(o, which, &m, &err);
	if (e < 0)
		return cmd_failed(o, &err);
	watch_source(&j, name, which);
	exit = make_clone(&j, &m);
	card_close(j.card);
	view_mount_close(&m);
	return exit;
}
