/* SPDX-License-Identifier: MIT */
/*
 * cowctl card: what a device is, and which commands protect it. Reads only; the device may be in
 * use. Everything is gathered as the JSON that --json prints.
 */
#include "cli/cmd.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/clean.h"
#include "base/io.h"
#include "base/mounts.h"
#include "base/parse.h"
#include "card/blockdev.h"
#include "card/disk.h"
#include "fs/fs_ops.h"
#include "offline/offline.h"
#include "wear/health.h"

struct survey {
	const char *device;
	struct json_object *json, *commands;
	int dir; /* of the device in sysfs; -1: an image file */
	char disk[64];
	char mountpoint[PATH_MAX], volume[RUNDIR_NAME_BYTES];
	char word[4 * PATH_MAX]; /* of shell_word() */
	bool is_file;
};

static void add_text(struct json_object *o, const char *key, const char *text)
{
	json_object_object_add(o, key, json_object_new_string(text));
}

static void add_u64(struct json_object *o, const char *key, uint64_t v)
{
	json_object_object_add(o, key, json_object_new_uint64(v));
}

/* As a shell reads it. A desktop mounts a card under its label, which is any text. */
static const char *shell_word(struct survey *s, const char *text)
{
	char *at = s->word;

	if (!text[strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
			       "/._-+:@%=,")])
		return text;
	*at++ = '\'';
	for (; *text && at < s->word + sizeof(s->word) - 6; text++)
		if (*text == '\'')
			at = stpcpy(at, "'\\''");
		else
			*at++ = *text;
	strcpy(at, "'");
	return s->word;
}

/* A command to type next, and what it does. */
static PRINTF(3, 4) void next(struct survey *s, const char *what, const char *fmt, ...)
{
	struct json_object *c = json_object_new_object();
	char text[sizeof(s->word) + 256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	add_text(c, "command", text);
	add_text(c, "what", what);
	json_object_array_add(s->commands, c);
}

/* ---- the device ---- */

static void read_names(struct survey *s)
{
	bool partition = disk_is_partition(s->device);
	char text[1024], disk[64];
	uint64_t n;

	if (partition && io_read_u64(s->dir, "partition", &n) == 0)
		add_u64(s->json, "partition", n);
	if (disk_of(s->device, disk, sizeof(disk)) == 0) {
		snprintf(s->disk, sizeof(s->disk), "%s", disk + strlen("/dev/"));
		add_text(s->json, "disk", disk);
	}
	add_text(s->json, "kind", partition ? "partition" : "disk");
	if (io_read_text(s->dir, partition ? "../device/vendor" : "device/vendor", text,
			 sizeof(text)) > 0)
		add_text(s->json, "vendor", text);
}

static void read_partitions(struct survey *s)
{
	struct json_object *list = json_object_new_array();
	struct disk_part part[DISK_PARTS_MAX];
	size_t n = 0;

	if (disk_parts(s->device, part, &n) < 0)
		n = 0;
	for (size_t i = 0; i < n; i++) {
		struct json_object *p = json_object_new_object();
		const char *node = part[i].node;
		char where[PATH_MAX];
		struct offline f;
		struct failure fail;

		add_u64(p, "bytes", part[i].size_bytes);
		add_text(p, "device", node);
		add_text(p, "fs_type",
			 offline_open(&f, node, NULL, BLOCKDEV_RDONLY, 0, &fail) == 0 ? f.fs.type
										      : "");
		offline_close(&f);
		add_text(p, "mountpoint", mounts_device_is_on(NULL, node, where) ? where : "");
		json_object_array_add(list, p);
		next(s, "about this partition", "cowctl card %s", node);
	}
	json_object_object_add(s->json, "partitions", list);
}

static void read_card(struct survey *s)
{
	static const char *const sources[] = { "guessed", "reported", "configured" };
	struct card *c;

	if (blockdev_open(&c, s->device, BLOCKDEV_RDONLY | BLOCKDEV_ALLOW_FILE, NULL) < 0)
		return;
	add_u64(s->json, "bytes", c->geo.size_bytes);
	add_u64(s->json, "erase_block_bytes", c->geo.erase_block_bytes);
	add_text(s->json, "erase_block_source", sources[c->geo.eb_source]);
	add_text(s->json, "card_identity", c->geo.identity);
	card_close(c);
}

/* ---- its content ---- */

/* Something that mounts show, or that has it open for itself. */
static bool is_busy(const struct survey *s)
{
	_cleanup_close_ int fd =
		s->is_file ? -1 : open(s->device, O_RDONLY | O_EXCL | O_CLOEXEC | O_NONBLOCK);

	return !s->is_file && fd < 0 && errno == EBUSY;
}

static void refuse(struct survey *s, const char *why)
{
	add_text(s->json, "refused", why);
}

/* How it would be attached. */
static void next_attach(struct survey *s)
{
	if (s->is_file)
		next(s, "protect it; prints the loop device to mount",
		     "cowctl attach \"$(losetup -f --show %s)\"", shell_word(s, s->device));
	else
		next(s, "protect it; prints the loop device to mount", "cowctl attach %s",
		     shell_word(s, s->device));
}

static void next_root(struct survey *s)
{
	next(s, "can this root be protected? Changes nothing", "cowctl setup --dry-run");
	next(s, "protect the root from the next boot on; makes room if necessary", "cowctl setup");
}

static void next_umount(struct survey *s)
{
	if (*s->mountpoint)
		next(s, "a log is written only to an unmounted device", "umount %s",
		     shell_word(s, s->mountpoint));
}

static void plan(struct survey *s)
{
	const struct format_options opt = { .device = s->device, .dry_run = true };
	struct format_report r;
	struct failure fail;
	int e = offline_format(&opt, &r, &fail);
	bool root = !strcmp(s->mountpoint, "/");
	const char *type = json_raw(s->json, "fs_type");

	if (e == 0)
		add_u64(s->json, "log_room_bytes", (uint64_t)r.super.seg_bytes * r.super.seg_count);
	if (e == -ENOSPC)
		add_u64(s->json, "log_room_bytes", 0);
	if (e < 0 && (e != -ENOSPC || !fs_ops_named(type)->can_shrink))
		refuse(s, fail.why);
	if (root && (e == 0 || e == -ENOSPC)) {
		next_root(s);
		return;
	}
	if (e == -ENOSPC && !fs_ops_named(type)->can_shrink) {
		next_umount(s);
		next(s, "put the log on another device, or make a smaller file system",
		     "cowctl format %s --log OTHER_DEVICE", shell_word(s, s->device));
		return;
	}
	if (e < 0 && e != -ENOSPC)
		return;
	next_umount(s);
	next(s,
	     e == 0 ? "write an empty log behind the file system"
		    : "make the file system smaller, and write an empty log behind it",
	     "cowctl format %s%s", e == 0 ? "" : "--shrink ", shell_word(s, s->device));
	next_attach(s);
}

/* The ledger of its log, and whether there is one. */
static bool read_log(struct survey *s, struct offline *f)
{
	struct json_object *life;
	struct failure fail;

	if (offline_open_log(f, &fail) < 0)
		return false;
	life = json_object_new_object();
	add_u64(life, "commits", f->report.ledger.commits);
	add_u64(life, "absorbed_bytes", f->report.ledger.absorbed_bytes);
	add_u64(life, "written_bytes", f->report.ledger.written_bytes);
	add_u64(life, "first_unix_seconds", f->report.ledger.first_s);
	add_u64(life, "last_unix_seconds", f->report.newest.time_s);
	json_object_object_add(s->json, "lifetime", life);
	json_object_object_add(s->json, "clone", json_object_new_boolean(f->report.clone));
	add_u64(s->json, "log_bytes", (uint64_t)f->super.seg_bytes * f->super.seg_count);
	if (f->report.state >= LOG_BROKEN) {
		refuse(s, f->report.why);
		next(s, "what is wrong with its log", "cowctl check %s", shell_word(s, s->device));
	}
	return true;
}

static void read_content(struct survey *s)
{
	struct offline f;
	struct failure fail;
	bool logged;
	int e = offline_open(&f, s->device, NULL, BLOCKDEV_RDONLY | BLOCKDEV_ALLOW_FILE, 0, &fail);

	if (e < 0) {
		refuse(s, fail.why);
		offline_close(&f);
		return;
	}
	add_text(s->json, "fs_type", f.fs.type);
	add_u64(s->json, "fs_bytes", f.fs.size_bytes);
	logged = read_log(s, &f);
	offline_close(&f);
	json_object_object_add(s->json, "log", json_object_new_boolean(logged));
	if (*s->volume) {
		next(s, "what is in RAM, and what was written", "cowctl status %s", s->volume);
		next(s, "how long the card may last", "cowctl wear %s", s->volume);
	} else if (!logged) {
		plan(s);
	} else if (!json_object_object_get(s->json, "refused")) {
		if (!strcmp(s->mountpoint, "/"))
			next_root(s);
		else
			next_umount(s), next_attach(s);
	}
}

/* ---- print ---- */

static PRINTF(2, 3) void row(const char *label, const char *fmt, ...)
{
	char text[5 * KIB];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	printf("  %-12s %s\n", label, clean_text(text));
}

static void print_health(struct json_object *h)
{
	size_t n;
	struct json_object *used = json_array(h, "life_used", &n);

	if (!used || !n) {
		row("health", "unknown: %s", json_text(h, "unknown_because"));
		return;
	}
	for (size_t i = 0; i < n; i++) {
		struct json_object *u = json_object_array_get_idx(used, i);

		row(i ? "" : "health", "%s%s%.0f to %.0f %% of its life used, as the device says",
		    json_text(u, "part"), *json_text(u, "part") ? ": " : "",
		    json_number(u, "low") * 100, json_number(u, "high") * 100);
	}
}

static void print_log(struct json_object *o)
{
	struct json_object *life = json_object_object_get(o, "lifetime"), *room;
	uint64_t commits = json_u64(life, "commits");

	if (!json_true(o, "log")) {
		row("log", "none");
		if (json_object_object_get_ex(o, "log_room_bytes", &room))
			row("room", "%s%s",
			    json_object_get_uint64(room) ? FORMAT_SIZE(json_object_get_uint64(room))
							 : "none",
			    json_object_get_uint64(room) ? " behind the file system, for the log"
							 : " behind the file system");
		return;
	}
	row("log", "%s", FORMAT_SIZE(json_u64(o, "log_bytes")));
	if (!commits)
		row("life so far", "no commit yet");
	else
		row("life so far", "%s commit%s since %s: %s written by programs, %s by cowfs",
		    with_commas(commits), plural(commits),
		    format_time(json_u64(life, "first_unix_seconds")),
		    FORMAT_SIZE(json_u64(life, "absorbed_bytes")),
		    FORMAT_SIZE(json_u64(life, "written_bytes")));
	if (json_true(o, "clone"))
		row("", "the log was written on another card: its wear account restarts");
}

static void print_partitions(struct json_object *o)
{
	size_t n;
	struct json_object *list = json_array(o, "partitions", &n);

	for (size_t i = 0; list && i < n; i++) {
		struct json_object *p = json_object_array_get_idx(list, i);
		const char *where = json_text(p, "mountpoint");

		row(i ? "" : "partitions", "%s  %s  %s%s%s", json_text(p, "device"),
		    FORMAT_SIZE(json_u64(p, "bytes")), json_text(p, "fs_type"),
		    *where ? ", mounted on " : "", where);
	}
}

static void print_card(struct json_object *o)
{
	struct json_object *h = json_object_object_get(o, "health");
	const char *kind = json_text(o, "kind"), *where = json_text(o, "mountpoint");
	size_t n;
	struct json_object *commands = json_array(o, "commands", &n);

	bool opened = json_object_object_get(o, "bytes"); /* by this user */

	printf("%s: %s", json_text(o, "device"), kind);
	if (opened)
		printf(" of %s", FORMAT_SIZE(json_u64(o, "bytes")));
	if (!strcmp(kind, "partition"))
		printf(", number %llu of %s", (unsigned long long)json_u64(o, "partition"),
		       json_text(o, "disk"));
	putchar('\n');
	if (*json_text(h, "model"))
		row("card", "%s%s%s%s%s%s%s", json_text(o, "vendor"),
		    *json_text(o, "vendor") ? " " : "", json_text(h, "model"),
		    *json_text(h, "kind") ? ", " : "", json_text(h, "kind"),
		    *json_text(h, "kind") ? " of " : "",
		    *json_text(h, "kind") ? FORMAT_SIZE(json_u64(h, "disk_bytes")) : "");
	if (opened)
		row("erase block", "%s%s", FORMAT_SIZE(json_u64(o, "erase_block_bytes")),
		    strcmp(json_text(o, "erase_block_source"), "guessed") ? "" : " (assumed)");
	print_health(h);
	print_partitions(o);
	if (json_object_object_get(o, "fs_type"))
		row("file system", "%s%s%s%s%s", json_text(o, "fs_type"),
		    json_u64(o, "fs_bytes") ? " of " : "",
		    json_u64(o, "fs_bytes") ? FORMAT_SIZE(json_u64(o, "fs_bytes")) : "",
		    *where ? ", mounted on " : "", where);
	if (*json_text(o, "held_by"))
		row("in use", "by %s", json_text(o, "held_by"));
	if (*json_text(o, "volume"))
		row("protected", "as volume %s", json_text(o, "volume"));
	if (json_object_object_get(o, "log"))
		print_log(o);
	if (*json_text(o, "refused"))
		row("NOT NOW", "%s", json_text(o, "refused"));
	for (size_t i = 0; commands && i < n; i++) {
		struct json_object *c = json_object_array_get_idx(commands, i);

		printf("%s  %-44s # %s\n", i ? "" : "next:\n", json_text(c, "command"),
		       json_text(c, "what"));
	}
}

/* ---- the command ---- */

/* A mount point stands for its device, and a volume for the device below. */
static int find_device(const struct options *o, struct survey *s, char path[PATH_MAX])
{
	const char *given = o->operand[0];
	struct json_object *status;
	struct stat st;

	snprintf(path, PATH_MAX, "%s", given);
	if (stat(given, &st) < 0 && strchr(given, '/'))
		return cmd_fail(o, EXIT_FAILED, -errno, "%s: %s", given, strerrordesc_np(errno));
	client_find_device(given, s->volume);
	if (!*s->volume && !strchr(given, '/') && stat(given, &st) < 0)
		snprintf(s->volume, sizeof(s->volume), "%s", given);
	if (*s->volume) {
		status = fresh_status(s->volume);
		if (!status)
			return cmd_fail(o, EXIT_NOT_RUNNING, -ENOENT,
					"%s: neither a device nor an attached volume", s->volume);
		snprintf(path, PATH_MAX, "%s", json_raw(status, "device"));
		snprintf(s->mountpoint, sizeof(s->mountpoint), "%s",
			 json_raw(status, "mountpoint"));
		json_object_put(status);
	} else if (S_ISDIR(st.st_mode) && !mounts_device_on(given, path)) {
		return cmd_fail(o, EXIT_FAILED, -ENOTBLK,
				"%s: no device is mounted there: name a device, an image file or a "
				"mount point",
				given);
	}
	if (stat(path, &st) < 0)
		return cmd_fail(o, EXIT_FAILED, -errno, "%s: %s", path, strerrordesc_np(errno));
	if (!S_ISBLK(st.st_mode) && !S_ISREG(st.st_mode))
		return cmd_fail(o, EXIT_FAILED, -ENOTBLK,
				"%s: is neither a block device nor an image file", path);
	s->is_file = S_ISREG(st.st_mode);
	s->dir = s->is_file ? -1 : blockdev_open_sysfs(path);
	return EXIT_OK;
}

static void survey(struct survey *s)
{
	char holder[256];
	size_t n = 0;

	add_text(s->json, "device", s->device);
	if (s->dir >= 0) {
		read_names(s);
		if (disk_holder(s->device, holder, sizeof(holder)))
			add_text(s->json, "held_by", holder);
		read_partitions(s);
	} else {
		add_text(s->json, "kind", "file");
	}
	read_card(s);
	json_object_object_add(s->json, "health", health_read(s->device, false));
	if (!*s->mountpoint && !s->is_file)
		(void)mounts_device_is_on(NULL, s->device, s->mountpoint);
	mounts_unescape(s->mountpoint);
	add_text(s->json, "mountpoint", s->mountpoint);
	add_text(s->json, "volume", s->volume);
	(void)json_array(s->json, "partitions", &n);
	if (n)
		refuse(s, "a whole disk with partitions: name one of them");
	else if (*json_raw(s->json, "held_by") || (is_busy(s) && !*s->mountpoint && !*s->volume))
		refuse(s,
		       "it is in use by something else (swap, LVM, LUKS, RAID, another program): "
		       "name the device on top of it, or free it first");
	else
		read_content(s);
}

int cmd_card(const struct options *o)
{
	struct survey s = { .dir = -1 };
	char path[PATH_MAX];
	int exit = find_device(o, &s, path);

	if (exit != EXIT_OK)
		return exit;
	s.device = path;
	s.json = json_answer(true);
	s.commands = json_object_new_array();
	survey(&s);
	json_object_object_add(s.json, "commands", s.commands);
	if (has_option(o, OPT_JSON))
		json_print(s.json);
	else
		print_card(s.json);
	json_object_put(s.json);
	if (s.dir >= 0)
		close(s.dir);
	return EXIT_OK;
}
