/* SPDX-License-Identifier: MIT */
/*
 * cowctl boot: handles the root before it is mounted. Every initramfs calls it with the partition
 * that is to become the root, and mounts what it prints.
 *
 * Notes on the design
 * - Protection is never silently off: a root that is configured and cannot be started is set
 *   read-only in the kernel. The exit status, the state and the reason serve only the initramfs
 *   that mounts the root, and the system that boots from it.
 * - If the partition itself is mounted, it must hold the newest state, and the log must be marked
 *   as out of use. So every path that leads to this, except that of a failure, first checkpoints
 *   the log and retires it (come_home). A card that was never in use is not written.
 * - No section of the root, but a log in use: the configuration was lost, so the root is
 *   protected.
 * - A bad configuration is a failure: its settings for the root are unknown.
 */
#include "cli/boot_card.h"
#include "cli/cmd.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/clean.h"
#include "base/io.h"
#include "base/kernel.h"
#include "base/msg.h"
#include "base/parse.h"
#include "base/program.h"
#include "card/blockdev.h"
#include "fs/fs_ops.h"
#include "attach/compose.h"
#include "attach/launch.h"
#include "attach/rootstate.h"
#include "offline/offline.h"

enum boot_exit {
	BOOT_ON = 0,
	BOOT_UNCONFIGURED = 1,
	BOOT_USAGE = 2,
	BOOT_FAILED = 3,
	BOOT_BYPASSED = 4,
};

/* ---- reporting ---- */

/* Reports to the system that boots from the root. */
static void write_state(const struct boot *b, enum root_state state, const char *reason)
{
	int e = rootstate_write(state, b->device, b->mount_options, reason);

	if (e < 0)
		boot_say(MSG_ERR, "%s cannot be written: %s", rundir_path(), strerrordesc_np(-e));
}

/*
 * Reports to the system that boots from the root, and, on stdout, to the initramfs: what to mount.
 */
static enum boot_exit tell(const struct boot *b, enum root_state state, const char *mount,
			   const char *reason, enum boot_exit exit)
{
	struct jsonw *w;

	write_state(b, state, reason);
	if (!b->json) {
		puts(mount);
		return exit;
	}
	w = json_begin(true);
	jsonw_str(w, "state", rootstate_word(state));
	jsonw_str(w, "mount", mount);
	jsonw_str(w, "mount_options", b->mount_options ? b->mount_options : "");
	jsonw_str(w, "reason", reason ? reason : "");
	json_end(w);
	return exit;
}

/*
 * All options of a read-only mount. They prevent a journal replay, because the log may hold the
 * blocks that the journal refers to.
 */
static const char *readonly_options(const char *device)
{
	struct fsinfo fs = { 0 };
	struct blk_reader r;
	struct card *card;

	if (blockdev_open(&card, device, BLOCKDEV_RDONLY | BLOCKDEV_ALLOW_FILE, NULL) == 0) {
		r = super_reader(card);
		if (fsinfo_probe(&r, &fs) < 0)
			fs.kind = FS_UNKNOWN;
		card_close(card);
	}
	return fs_ops(fs.kind)->readonly_options;
}

static enum boot_exit failed(struct boot *b, const char *reason)
{
	int e = blockdev_set_readonly(b->device);

	b->mount_options = readonly_options(b->device);
	boot_say(MSG_ERR, "NOT PROTECTED, so %s is mounted read-only: %s", b->device, reason);
	if (e < 0)
		boot_say(MSG_ERR, "%s cannot be set read-only: %s", b->device, strerrordesc_np(-e));
	return tell(b, ROOT_FAILED, b->device, reason, BOOT_FAILED);
}

static enum boot_exit bypassed(const struct boot *b)
{
	const char *reason = "cowfs=off on the kernel command line: this boot writes to the card";

	boot_say(MSG_ERR, "NOT PROTECTED: %s", reason);
	return tell(b, ROOT_BYPASSED, b->device, reason, BOOT_BYPASSED);
}

static enum boot_exit unconfigured(const struct boot *b)
{
	return tell(b, ROOT_UNCONFIGURED, b->device, NULL, BOOT_UNCONFIGURED);
}

#define TWENTY_YEARS_S (20ll * 365 * 24 * 3600)

/*
 * A clock without a battery must not fall behind the last commit: fsck and make mishandle files
 * with future dates. A commit by a clock that was far ahead is not believed, or each later boot would be in that year.
 */
static void set_clock_floor(void)
{
	struct stat program = { 0 };
	struct failure err;
	struct json_object *status = client_status_file(ROOT_NAME, &err);
	struct timespec floor = { .tv_sec = (time_t)json_u64(status, "generation_unix_seconds") };

	json_object_put(status);
	if (time(NULL) >= floor.tv_sec)
		return;
	(void)stat("/proc/self/exe", &program); /* an initramfs may not keep its time */
	if (floor.tv_sec >
	    (time_t)max_u64((uint64_t)program.st_mtime, CLOCK_IS_SET_S) + TWENTY_YEARS_S)
		boot_say(MSG_WARN,
			 "the last commit is of %s, which is not believed: the clock stays",
			 format_time((uint64_t)floor.tv_sec));
	else if (clock_settime(CLOCK_REALTIME, &floor) < 0)
		boot_say(MSG_WARN, "the clock is behind the last commit but cannot be set: %s",
			 strerrordesc_np(errno));
	else
		boot_say(MSG_NOTICE, "the clock was behind the last commit: set to its time");
}

static void tell_undone(const struct boot *b)
{
	struct failure err;
	struct json_object *status = client_status_file(ROOT_NAME, &err),
			   *undone = json_object_object_get(status, "undone");

	if (undone)
		boot_say(MSG_WARN,
			 "%s: BACK AT GENERATION %s of %s, as cowctl undo or a failed trial asked",
			 b->device, with_commas(json_u64(undone, "generation")),
			 format_time(json_u64(undone, "time_unix_seconds")));
	json_object_put(status);
}

/* The command line overrides the configuration. */
static const char *root_text(const struct boot *b, enum rootopt id)
{
	return b->cmdline.root_text[id] ? b->cmdline.root_text[id] : conf_root_text(b->conf, id);
}

static bool composes(const struct boot *b)
{
	return !strcmp(root_text(b, ROOTOPT_COMPOSE), "overlay");
}

static enum boot_exit started(const struct boot *b, const char *loop)
{
	int e = rootstate_link(loop);

	set_clock_floor();
	tell_undone(b);
	/* for commit --trial: this initramfs counts boots */
	rootstate_note(ROOT_COUNTS, "");
	if (b->on_trial || *b->image)
		rootstate_note(ROOT_TRIAL, b->image);
	if (!composes(b))
		rootstate_note(ROOT_PLAIN, "");
	if (e < 0)
		boot_say(MSG_WARN, "no link to %s: %s", loop, strerrordesc_np(-e));
	boot_say(MSG_NOTICE, "%s is protected, its changes stay in RAM: %s", b->device, loop);
	return tell(b, ROOT_ON, loop, NULL, BOOT_ON);
}

/* ---- an initramfs on trial ---- */

/* The protection has never worked with it: better an ordinary root than a machine that is lost. */
static enum boot_exit given_up(struct boot *b, const char *reason)
{
	const char *why = "";
	char text[900];

	snprintf(
		text, sizeof(text),
		"%.700s; the protection is on trial (cowctl setup), so this boot writes to the card",
		reason);
	if (!boot_come_home(b, &why) && !boot_whole_alone(b)) {
		snprintf(text, sizeof(text), "%.400s; and without cowfs: %.400s", reason, why);
		return failed(b, text);
	}
	boot_say(MSG_ERR, "NOT PROTECTED: %s", text);
	return tell(b, ROOT_BYPASSED, b->device, text, BOOT_BYPASSED);
}

/* The way out of a start that failed. */
static enum boot_exit not_started(struct boot *b, const char *reason)
{
	return *b->image && !trial_proven(b->image, b->device, b->opt.text[VOLOPT_LOG], b->text)
		       ? given_up(b, reason)
		       : failed(b, reason);
}

/* One boot more of an initramfs on trial. True: it has had all of them. */
static bool image_is_over(struct boot *b)
{
	struct trial_image im = { .image = trial_crc(b->image),
				  .most = (unsigned)strtoul(conf_root_text(b->conf, ROOTOPT_TRIAL),
							    NULL, 10) };

	if (!*b->image || !im.most)
		return false;
	if (offline_count_image(b->device, b->opt.text[VOLOPT_LOG], &im, &b->fail) < 0)
		boot_say(MSG_ERR, "this boot is not counted: %s", b->fail.why);
	else if (im.what == TRIAL_NONE)
		*b->image = '\0';
	else if (im.what == TRIAL_COUNTED)
		boot_say(MSG_WARN,
			 "%s: THE PROTECTION IS ON TRIAL, %u more boot%s without cowctl accept",
			 b->device, im.most - im.boots - 1, plural(im.most - im.boots - 1));
	return im.what == TRIAL_OVER;
}

/* ---- before the start ---- */

static bool prepare_is(const struct boot *b, const char *word)
{
	return !strcmp(conf_root_text(b->conf, ROOTOPT_PREPARE), word);
}

/* Replays the journal of an unclean shutdown, as the initramfs would do before it mounts. */
static bool repair(const struct boot *b)
{
	const char *const argv[] = { "e2fsck", "-p", b->device, NULL };
	int exit = program_run(argv, -1, STDERR_FILENO);

	return exit == 0 || exit == 1;
}

/* May overwrite an old log: only one that the file system has grown over can be there. */
static int shrink(struct boot *b)
{
	struct progress progress;
	const struct format_options opt = { .device = b->device,
					    .log_device = b->opt.text[VOLOPT_LOG],
					    .over = FORMAT_OVER_OLD_LOG,
					    .shrink = true,
					    .progress = cmd_progress,
					    .progress_ctx = &progress };
	struct format_report rep;
	int e;

	progress_start(&progress);
	e = offline_format(&opt, &rep, &b->fail);
	progress_end(&progress);
	if (e < 0)
		failure_print_said(&b->fail);
	else
		boot_say(MSG_NOTICE,
			 "%s: the file system now has %s, was %s; an empty log was written",
			 b->device, FORMAT_MIB(rep.super.fs_bytes), FORMAT_MIB(rep.fs.size_bytes));
	return e;
}

/* The partition to the end of its disk, the file system to the end of the partition. */
static bool grow(const struct boot *b)
{
	char path[PATH_MAX];
	const char *const argv[] = { path, b->device, NULL };

	boot_say(MSG_NOTICE, "%s: growing to the end of its disk; safe against power cuts",
		 b->device);
	return cmd_lib_path(path, "grow-root") == 0 && program_run(argv, -1, STDERR_FILENO) == 0;
}

/* There is no log, or a shrink must be completed. False: *why has the reason. */
static bool prepare(struct boot *b, const struct boot_found *f, const char **why)
{
	const struct fsinfo *fs = &f->fs;

	/* a card that cannot grow is protected at its present size */
	if (!f->pending && prepare_is(b, "grow") && !grow(b))
		boot_say(MSG_ERR, "%s: did not grow", b->device);
	boot_say(MSG_NOTICE, "%s: making space for a log; safe against power cuts", b->device);
	if (fs_ops(fs->kind)->can_shrink && (fs->needs_recovery || !fs->clean) && !repair(b)) {
		*why = "the file system has errors that e2fsck -p cannot correct";
		return false;
	}
	*why = b->fail.why;
	return shrink(b) == 0;
}

/* A second call in the same boot finds the volume that the first call started. */
static bool find_running(const struct boot *b, struct ready *ret)
{
	char name[RUNDIR_NAME_BYTES];

	client_find_device(b->device, name);
	return !strcmp(name, ROOT_NAME) && ready_found(name, ret);
}

/* Room for a log was requested, or a shrink for it has begun. */
static bool wants_prepare(const struct boot *b, const struct boot_found *f)
{
	return (f->pending && !f->member) || (!f->has_log && !prepare_is(b, "no"));
}

/* A root on trial: one boot less. What cannot be counted is booted all the same. */
static enum trial_boot count_boot(struct boot *b)
{
	struct held_report rep;
	enum trial_boot what;

	if (offline_count_boot(b->device, b->opt.text[VOLOPT_LOG], &what, &rep, &b->fail) < 0)
		boot_say(MSG_ERR, "this boot is not counted: %s", b->fail.why);
	else if (what == TRIAL_COUNTED)
		boot_say(MSG_WARN,
			 "%s: generation %s is ON TRIAL, %u more boot%s without cowctl accept",
			 b->device, with_commas(rep.newest.ledger.commits), rep.hold.boots,
			 plural(rep.hold.boots));
	b->on_trial = what == TRIAL_COUNTED;
	if (what == TRIAL_OVER)
		boot_say(MSG_ERR, "%s: THE TRIAL HAS FAILED: no boot of generation %s was accepted",
			 b->device, with_commas(rep.newest.ledger.commits));
	return what;
}

static enum boot_exit start(struct boot *b)
{
	const char *why = "";
	char old[128];
	struct boot_found f;
	struct ready r;

	if (find_running(b, &r))
		return started(b, r.loop);
	if (kernel_check(NULL, old, sizeof(old)) < 0) /* before prepare writes to the card */
		return not_started(b, old);
	if (boot_look(b, BOOT_SUPER, &f) == 0 && wants_prepare(b, &f) && !prepare(b, &f, &why))
		return not_started(b, why);
	/*
	 * The trial of a generation comes first: it has a way back of its own. A card that holds
	 * none is not opened once more: every boot waits for that.
	 */
	if ((f.holds_nothing || count_boot(b) == TRIAL_NONE) && image_is_over(b))
		return given_up(
			b, "no boot with this initramfs was accepted (cowctl setup tries again)");
	b->opt.text[VOLOPT_NAME] = ROOT_NAME;
	launch_volume(b->device, &b->opt, LAUNCH_BOOT, &r);
	if (r.exit != EXIT_OK)
		return not_started(b, r.why);
	return started(b, r.loop);
}

static enum boot_exit leave(struct boot *b, enum boot_exit (*how)(const struct boot *b))
{
	const char *why = "";

	return boot_come_home(b, &why) ? how(b) : failed(b, why);
}

/* ---- requested mode ---- */

static bool is_wanted(const struct boot *b)
{
	struct boot_found f;

	if (boot_enabled(b) || conf_has_root(b->conf))
		return boot_enabled(b);
	if (boot_look(b, BOOT_LOG, &f) < 0 || !boot_log_in_use(&f))
		return false;
	boot_say(MSG_WARN,
		 "no [" ROOT_NAME "] in %s, but %s has a log in use: protected with the defaults",
		 conf_path(), b->device);
	return true;
}

static enum boot_exit decide(struct boot *b)
{
	char why[512];
	int e = conf_load_and_tell(&b->conf, why, sizeof(why));
	bool off = b->cmdline.mode == CMDLINE_OFF;

	(void)trial_name(b->image);
	if (e == 0)
		conf_root_options(b->conf, &b->opt);
	else if (!off)
		return not_started(b, why);
	if (off)
		return leave(b, bypassed);
	return is_wanted(b) ? start(b) : leave(b, unconfigured);
}

/* ---- composing, after the volume was mounted ---- */

/* A root that is not the one that was asked for: what rootstate_write knows as failed. */
static enum boot_exit not_composed(struct boot *b, bool mounted, const char *reason)
{
	b->mount_options = "ro";
	boot_say(MSG_ERR, "%s: %s", mounted ? "NOT COMPOSED, so the root is read-only" : "NO ROOT",
		 reason);
	write_state(b, ROOT_FAILED, reason);
	return mounted ? BOOT_ON : BOOT_FAILED;
}

static enum boot_exit compose(struct boot *b, const char *dir)
{
	enum root_state state;
	struct compose c;
	char why[512];

	/* the boot has reported a bad configuration; the command line may still say what to compose */
	if (conf_load(&b->conf, why, sizeof(why)) < 0 &&
	    (setenv("COWFS_CONF", "/dev/null", 1) < 0 || conf_load(&b->conf, why, sizeof(why)) < 0))
		return BOOT_ON;
	c.lower = root_text(b, ROOTOPT_LOWER);
	c.new_lower = root_text(b, ROOTOPT_NEW_LOWER);
	state = rootstate_read(why, sizeof(why));
	c.readonly = state == ROOT_FAILED;
	if (!composes(b))
		return !compose_holds_upper(dir)
			       ? BOOT_ON
			       : not_composed(b, false,
					      "the volume holds the changes of an image, and "
					      "nothing says which one: boot with "
					      "cowfs=compose:overlay,lower:DEVICE[:/FILE]");
	if (!*c.lower)
		return not_composed(b, false, "compose = overlay needs lower = DEVICE[:/FILE]");
	switch (compose_root(&c, dir, &b->fail)) {
	case COMPOSE_FRESH:
		boot_say(MSG_NOTICE, "the root is the image %s, without changes", c.lower);
		return BOOT_ON;
	case COMPOSE_DONE:
		boot_say(MSG_NOTICE, "the root is the image %s, with its changes", c.lower);
		return BOOT_ON;
	case COMPOSE_LOWER:
		return not_composed(b, true, b->fail.why);
	default:
		return not_composed(b, false, b->fail.why);
	}
}

/* ---- arguments ---- */

/* From root= of the kernel command line: a path, or a tag that udev has a link for. */
static bool find_root(const char *line, char *buf, size_t buf_bytes)
{
	static const char *const tags[] = { "UUID", "PARTUUID", "LABEL", "PARTLABEL" };
	const char *root = NULL, *value;
	char dir[16];

	for (const char *p = line; (p = strstr(p, "root=")); p += 5)
		if (p == line || p[-1] == ' ')
			root = p + 5;
	if (!root)
		return false;
	if (*root == '/') {
		snprintf(buf, buf_bytes, "%.*s", (int)strcspn(root, " \t\n"), root);
		return true;
	}
	for (size_t i = 0; i < ARRAY_SIZE(tags); i++) {
		size_t n = strlen(tags[i]), j = 0;

		if (strncmp(root, tags[i], n) || root[n] != '=')
			continue;
		value = root + n + 1;
		for (; j < n; j++)
			dir[j] = (char)(tags[i][j] | 0x20);
		dir[j] = '\0';
		snprintf(buf, buf_bytes, "/dev/disk/by-%s/%.*s", dir, (int)strcspn(value, " \t\n"),
			 value);
		return true;
	}
	return false;
}

static int take_arguments(struct boot *b, const struct options *o)
{
	const char *device = o->value[OPT_DEVICE], *text = o->value[OPT_CMDLINE];
	char why[256], named[PATH_MAX];
	int e;

	if (text)
		snprintf(b->text, sizeof(b->text), "%s", text);
	else if ((e = io_read_text(AT_FDCWD, "/proc/cmdline", b->text, sizeof(b->text))) < 0)
		boot_say(MSG_WARN, "/proc/cmdline: %s", strerrordesc_np(-e));
	if (o->value[OPT_CONF])
		setenv("COWFS_CONF", o->value[OPT_CONF], 1);
	if (!device && find_root(b->text, named, sizeof(named)))
		device = named;
	if (!device && has_option(o, OPT_COMPOSE))
		device = ""; /* not needed: the root may be another than a device */
	if (!device)
		return cmd_usage(o, "no root= on the kernel command line, and no --device");
	if (!realpath(device, b->device))
		snprintf(b->device, sizeof(b->device), "%s", device);
	if (cmdline_parse(b->text, &b->cmdline, why, sizeof(why)) < 0)
		boot_say(MSG_ERR, "kernel command line: %s; this word is ignored", why);
	b->opt = b->cmdline.opt;
	return EXIT_OK;
}

int cmd_boot(const struct options *o)
{
	static struct boot b;
	int exit = take_arguments(&b, o);

	if (exit != EXIT_OK)
		return BOOT_USAGE;
	/* the environment of an initramfs may have no PATH */
	setenv("PATH", "/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin", 1);
	b.json = has_option(o, OPT_JSON);
	exit = has_option(o, OPT_COMPOSE) ? compose(&b, o->value[OPT_COMPOSE]) : decide(&b);
	conf_free(b.conf);
	return exit;
}
