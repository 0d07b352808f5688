/* SPDX-License-Identifier: MIT */
/*
 * cowctl scrub: reads what a card holds, names the files of blocks that it reads badly, and offers to write these
 * blocks again.
 *
 * A block that failed once may still have its content: at a second attempt, in the log, or in RAM. So each is read
 * again through a view of the volume as it is now. If that works the daemon makes it dirty, and a commit writes it.
 * If it fails the content is lost. Zeroes in its place would make a read error, which programs see, wrong content,
 * which they do not; the owner of the file decides (docs/design/scrub.md).
 */
#include "cli/cmd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "attach/view_mount.h"
#include "base/clean.h"
#include "base/io.h"
#include "base/msg.h"
#include "base/parse.h"
#include "base/path.h"
#include "card/blockdev.h"
#include "offline/offline.h"

#define DONE UINT64_MAX /* as the place: the last pass is complete */
#define DUE_S (30 * 86400u)
#define KEEP_NS 10000000000ull
#define TRIES 4u

struct job {
	const struct options *o;
	const char *which, *name; /* as given, NULL: the only one; for people */
	bool attached;
	char device[128], log_device[128];
	struct view_mount view;
	char path[PATH_MAX]; /* of the place */
	uint64_t kept_ns;
	bool resumed, skipped, keep_failed;
	struct progress progress;
	struct scrub_report report;
	struct extents lost, weak;
	uint64_t renewed_blks;
};

/* ---- the place: where an interrupted run goes on ---- */

static void keep_place(struct job *j, uint64_t blk)
{
	char text[64], why[2 * PATH_MAX];
	int n = snprintf(text, sizeof(text), "%llu %llu\n", (unsigned long long)blk,
			 (unsigned long long)time(NULL));
	int e = path_replace_file(j->path, text, (size_t)n, why, sizeof(why));

	if (e < 0 && !j->keep_failed)
		msg(MSG_WARN, "%s: %s: an interrupted scrub will not go on where it was", j->path,
		    strerrordesc_np(-e));
	j->keep_failed |= e < 0;
}

/* One file for each log: two cards of one image have one UUID. */
static bool begin(void *ctx, const struct log_super *super, uint64_t *ret_blk)
{
	const char *dir = secure_getenv("COWFS_STATEDIR");
	uint64_t now_s = (uint64_t)time(NULL), then_s;
	struct job *j = ctx;
	char text[64] = "", *end;
	int n;

	view_mount_close(&j->view);
	dir = dir ? dir : "/var/lib/cowfs";
	(void)!mkdir(dir, 0755); /* a failure shows when the place is kept */
	n = snprintf(j->path, sizeof(j->path), "%s/scrub-", dir);
	for (unsigned i = 0; i < sizeof(super->fs_uuid); i++)
		n += snprintf(j->path + n, sizeof(j->path) - (size_t)n, "%02x", super->fs_uuid[i]);
	snprintf(j->path + n, sizeof(j->path) - (size_t)n, "-%llu",
		 (unsigned long long)super->created_s);
	(void)!io_read_text(AT_FDCWD, j->path, text, sizeof(text)); /* none: from the start */
	*ret_blk = strtoull(text, &end, 10);
	then_s = strtoull(end, NULL, 10);
	j->skipped = *ret_blk == DONE && has_option(j->o, OPT_TIMER) && now_s >= then_s &&
		     now_s - then_s < DUE_S;
	if (*ret_blk == DONE)
		*ret_blk = 0;
	j->resumed = *ret_blk;
	return !j->skipped;
}

static void reached(void *ctx, uint64_t blk, uint64_t done_bytes, uint64_t total_bytes)
{
	struct job *j = ctx;

	progress_show(&j->progress, "scrub", done_bytes, total_bytes);
	if (now_ns() < j->kept_ns + KEEP_NS)
		return;
	j->kept_ns = now_ns();
	keep_place(j, blk);
}

/* ---- what was found ---- */

static bool is_hurt(const struct job *j)
{
	return j->report.bad.n || (j->report.log_error && j->report.log_error != -EBUSY);
}

static int judge(struct job *j, struct failure *err)
{
	_cleanup_free_ void *buf = io_alloc(COW_BLK_BYTES);
	const struct extents *bad = &j->report.bad;
	struct extents_chunk c = { 0 };
	struct card *image = NULL;
	int r = buf ? blockdev_open(&image, j->view.disk, BLOCKDEV_RDONLY, NULL) : -ENOMEM;

	while (r == 0 && extents_next_chunk(bad, &c, 1)) {
		int e = -EIO;

		for (unsigned i = 0; i < TRIES && e < 0; i++)
			e = card_read(image, blk_to_bytes(c.blk), buf, COW_BLK_BYTES);
		r = extents_add(e < 0 ? &j->lost : &j->weak, c.blk, 1);
	}
	card_close(image);
	return r < 0 ? failure(err, r, "%s: cannot be read: %s", j->view.disk, strerrordesc_np(-r))
		     : 0;
}

static bool renew(struct job *j, struct failure *err)
{
	struct extents_chunk c = { 0 };
	struct client k;
	int r = client_open(&k, j->which, err);

	while (r == 0 && extents_next_chunk(&j->weak, &c, 1)) {
		const struct request rq = { .command = COMMAND_RENEW, .first = c.blk };
		struct json_object *answer = client_call(&k, &rq, NULL, NULL, err);

		if (!answer)
			r = -EIO;
		else if (!json_true(answer, "ok"))
			r = failure(err, -EIO, "%s", json_text(answer, "error"));
		else
			j->renewed_blks++;
		json_object_put(answer);
	}
	client_close(&k);
	return r == 0;
}

static void offer(struct job *j)
{
	bool json = has_option(j->o, OPT_JSON);
	struct failure err;

	if (!j->attached || !cmd_can_ask(j->o)) {
		if (!json)
			puts(j->attached
				     ? "  With --yes the next commit writes them again."
				     : "  To have them written again, attach it and repeat this.");
		return;
	}
	if (cmd_confirm(j->o, "  Write them again with the next commit?") && !renew(j, &err))
		msg(MSG_WARN, "not all will be written again: %s", err.why);
}

static void print_json(const struct job *j)
{
	struct jsonw *w = json_begin(true);

	jsonw_str(w, "device", j->device);
	jsonw_bool(w, "skipped", j->skipped);
	jsonw_u64(w, "used_bytes", j->report.used_bytes);
	jsonw_u64(w, "read_bytes", j->report.read_bytes);
	jsonw_bool(w, "resumed", j->resumed);
	jsonw_bool(w, "log_verified", !j->report.log_error && !j->skipped);
	jsonw_u64(w, "lost_blocks", j->lost.blks);
	jsonw_array(w, "lost_files");
	if (j->lost.blks)
		name_files(&j->view, &j->lost, w);
	jsonw_end(w);
	jsonw_u64(w, "weak_blocks", j->weak.blks);
	jsonw_array(w, "weak_files");
	if (j->weak.blks)
		name_files(&j->view, &j->weak, w);
	jsonw_end(w);
	jsonw_u64(w, "renewed_blocks", j->renewed_blks);
	json_end(w);
}

static void print_text(const struct job *j)
{
	if (j->skipped) {
		printf("%s: not due: the last pass ended less than 30 days ago\n", CLEAN(j->name));
		return;
	}
	printf("%s: %s of %s used were read on %s%s%s\n", CLEAN(j->name),
	       FORMAT_SIZE(j->report.read_bytes), FORMAT_SIZE(j->report.used_bytes),
	       CLEAN(j->device), j->resumed ? "; the rest by an earlier run" : "",
	       is_hurt(j) ? "" : ": no error");
	if (j->report.log_error)
		printf("  The log was not verified: %s\n", j->report.log_error == -EBUSY
								   ? "it changed meanwhile"
								   : "cowctl check says why");
	if (j->lost.blks) {
		printf("  %s block%s cannot be read, or are not what was written. Write these files "
		       "again from a copy:\n",
		       with_commas(j->lost.blks), plural(j->lost.blks));
		name_files(&j->view, &j->lost, NULL);
	}
	if (j->weak.blks) {
		printf("  %s block%s could not be read at first, but now:\n",
		       with_commas(j->weak.blks), plural(j->weak.blks));
		name_files(&j->view, &j->weak, NULL);
	}
}

/* ---- */

/* Which device is it? Opens a view. */
static int find_card(struct job *j, struct failure *err)
{
	struct facts f = { 0 };
	struct client c;
	int r = client_open(&c, j->which, err);

	j->attached = r == 0;
	if (r < 0 && (err->exit != EXIT_NOT_RUNNING || !j->which))
		return r;
	if (j->attached) {
		client_close(&c);
		client_facts(c.name, false, &f);
	}
	snprintf(j->device, sizeof(j->device), "%.127s",
		 j->attached ? f.device[FACT_DEVICE].path
		 : j->which  ? j->which
			     : "");
	snprintf(j->log_device, sizeof(j->log_device), "%.127s",
		 j->attached		     ? f.device[FACT_LOG_DEVICE].path
		 : has_option(j->o, OPT_LOG) ? j->o->value[OPT_LOG]
					     : "");
	return cmd_view_open(j->o, j->which, VIEW_NOW, VIEW_READ, &j->view, err);
}

static int scrub(struct job *j, struct failure *err)
{
	const struct scrub_options opt = { .device = j->device,
					   .log_device = *j->log_device ? j->log_device : NULL,
					   .image = j->view.disk,
					   .begin = begin,
					   .reached = reached,
					   .ctx = j };
	int r;

	j->kept_ns = now_ns();
	progress_start(&j->progress);
	r = offline_scrub(&opt, &j->report, err);
	progress_end(&j->progress);
	if (r < 0 || j->skipped)
		return r;
	if (j->report.bad.n) {
		r = cmd_view_open(j->o, j->which, VIEW_NOW, VIEW_READ, &j->view, err);
		if (r == 0)
			r = judge(j, err);
	}
	if (r == 0)
		keep_place(j, DONE);
	return r;
}

int cmd_scrub(const struct options *o)
{
	struct job j = { .o = o,
			 .which = which_volume(o),
			 .name = which_volume(o) ? which_volume(o) : "the volume",
			 .view = { .dir_fd = -1, .disk_fd = -1 } };
	struct failure err;
	int exit = EXIT_OK, r = find_card(&j, &err);

	if (r == 0)
		r = scrub(&j, &err);
	if (r < 0) {
		exit = cmd_failed(o, &err);
	} else if (has_option(o, OPT_JSON)) {
		if (j.weak.blks)
			offer(&j);
		print_json(&j);
	} else {
		print_text(&j);
		if (j.weak.blks)
			offer(&j);
	}
	if (r == 0 && is_hurt(&j))
		exit = EXIT_DEGRADED;
	view_mount_close(&j.view);
	extents_clear(&j.lost);
	extents_clear(&j.weak);
	extents_clear(&j.report.bad);
	return exit;
}
