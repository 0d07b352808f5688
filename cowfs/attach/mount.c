/* SPDX-License-Identifier: MIT */
/*
 * mount.cowfs: called by mount(8) for `mount -t cowfs`. Starts the daemon, detects the file system
 * of the volume, and lets mount(8) mount that from the loop device. helper=cowfs in utab makes a
 * plain umount(8) call umount.cowfs.
 */
#include <blkid.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "base/boxed.h"
#include "base/program.h"
#include "base/mounts.h"
#include "base/clean.h"
#include "wire/client.h"
#include "config/conf.h"
#include "fs/fs_ops.h"
#include "attach/helper.h"
#include "attach/launch.h"
#include "attach/detach.h"
#include "config/mntopts.h"

/* SIGINT, SIGTERM or SIGHUP: what has begun is ended in order, or undone. */
static volatile sig_atomic_t stopped;

static void on_stop(int sig)
{
	stopped = sig;
}

struct helper {
	const char *device, *dir_arg;
	char dir[PATH_MAX];
	struct mntopts opt;
	bool fake, no_mtab, sloppy, verbose;
	/* the volume as found */
	char name[RUNDIR_NAME_BYTES], loop[32], fs_type[64];
	bool attached_by_us, nothing_to_do;
};

static void help(void)
{
	puts("usage: mount.cowfs DEVICE DIR [-fnsvhV] [-o OPTION[,OPTION]...]\n"
	     "Protects DEVICE from writes and mounts the file system on it. Called by 'mount -t "
	     "cowfs'.\n\n"
	     "Options behind -o, others are passed on to the file system:");
	volopts_help(stdout);
	puts("\n  -f  only check, neither attach nor mount\n  -n  do not write to utab: umount "
	     "will not detach then\n  -s  tolerate unknown options of the file system\n  -v  "
	     "print what is done\n  -h  show this help\n  -V  show the version\n\nExit codes: 0 "
	     "ok, 1 failed, 2 usage or configuration; else that of mount(8).");
}

/* ---- arguments ---- */

static int take_options(struct helper *h, const char *text)
{
	char why[512];

	if (!text)
		return helper_fail(EXIT_USAGE, "-o needs an argument (try 'mount.cowfs -h')");
	if (mntopts_add(&h->opt, text, why, sizeof(why)) < 0)
		return helper_fail(EXIT_USAGE, "%s", why);
	return EXIT_OK;
}

static int take_operand(struct helper *h, const char *text)
{
	if (h->dir_arg)
		return helper_fail(EXIT_USAGE, "too many arguments at %s (try 'mount.cowfs -h')",
				   text);
	*(h->device ? &h->dir_arg : &h->device) = text;
	return EXIT_OK;
}

/* Handles the letters of one word. *i is the last word used. */
static int take_flags(struct helper *h, int argc, char **argv, int *i)
{
	for (const char *c = argv[*i] + 1; *c; c++) {
		const char *arg = c[1] ? c + 1 : *i + 1 < argc ? argv[*i + 1] : NULL;

		switch (*c) {
		case 'f':
			h->fake = true;
			break;
		case 'n':
			h->no_mtab = true;
			break;
		case 's':
			h->sloppy = true;
			break;
		case 'v':
			h->verbose = true;
			break;
		case 'r':
		case 'w':
			if (take_options(h, *c == 'r' ? "ro" : "rw") != EXIT_OK)
				return EXIT_USAGE;
			break;
		case 'o':
		case 't': /* adds nothing to what is known */
			*i += !c[1];
			return *c == 'o' ? take_options(h, arg) : EXIT_OK;
		default:
			return helper_fail(EXIT_USAGE, "unknown option -%c (try 'mount.cowfs -h')",
					   *c);
		}
	}
	return EXIT_OK;
}

static int take_arguments(struct helper *h, int argc, char **argv)
{
	int exit = EXIT_OK;

	for (int i = 1; i < argc && exit == EXIT_OK; i++)
		if (argv[i][0] == '-' && argv[i][1])
			exit = take_flags(h, argc, argv, &i);
		else
			exit = take_operand(h, argv[i]);
	if (exit == EXIT_OK && !h->dir_arg)
		exit = helper_fail(EXIT_USAGE, "usage: mount.cowfs DEVICE DIR [-o OPTIONS] (try "
					       "'mount.cowfs -h')");
	return exit;
}

/* ---- checks before the start ---- */

static int check_dir(struct helper *h)
{
	struct stat st;

	if (!realpath(h->dir_arg, h->dir) || stat(h->dir, &st) < 0)
		return helper_fail(EXIT_MOUNT, "%s: %s", h->dir_arg, strerror(errno));
	if (!S_ISDIR(st.st_mode))
		return helper_fail(EXIT_MOUNT, "%s is not a directory", h->dir_arg);
	return EXIT_OK;
}

static int check_device(const struct helper *h)
{
	struct stat st;

	if (stat(h->device, &st) < 0)
		return helper_fail(EXIT_FAILED, "%s: %s", h->device, strerror(errno));
	if (!S_ISBLK(st.st_mode))
		return helper_fail(EXIT_FAILED, "%s is not a block device", h->device);
	return EXIT_OK;
}

static int check_options(const struct helper *h)
{
	struct volopts o = h->opt.vol;
	struct ready r = { 0 };
	struct conf *c = NULL;

	if (launch_configure(h->device, &o, &c, &r) != EXIT_OK)
		return helper_fail((int)r.exit, "%s", r.why);
	conf_free(c);
	return EXIT_OK;
}

/* ---- the volume ---- */

static bool options_given(const struct helper *h)
{
	for (size_t id = 0; id < VOLOPTS; id++)
		if (h->opt.vol.text[id])
			return true;
	return false;
}

/*
 * mount -a looks for the device of fstab among the mounts, finds the loop device instead, and
 * calls this helper again. This is not an error if the requested mount exists.
 */
static int already_mounted(struct helper *h)
{
	struct statvfs st;
	bool readonly = statvfs(h->dir, &st) == 0 && (st.f_flag & ST_RDONLY);

	h->nothing_to_do = readonly == h->opt.readonly;
	return helper_fail(h->nothing_to_do ? EXIT_OK : EXIT_MOUNT, "%s is already mounted on %s",
			   h->device, h->dir);
}

static int take_attached(struct helper *h)
{
	struct facts f;

	client_facts(h->name, false, &f);
	snprintf(h->loop, sizeof(h->loop), "%.31s", f.device[FACT_LOOP].path);
	if (facts_is(&f.device[FACT_LOG_DEVICE], h->device))
		return helper_fail(EXIT_FAILED, "%s holds the log of volume %s", h->device,
				   h->name);
	if (!*h->loop)
		return helper_fail(EXIT_FAILED,
				   "%s is attached as volume %s, which does not answer", h->device,
				   h->name);
	if (h->opt.remount)
		return EXIT_OK;
	if (mounts_device_is_on(h->dir, h->loop, NULL))
		return already_mounted(h);
	if (options_given(h) || h->verbose)
		fprintf(stderr,
			"mount.cowfs: %s: already attached as volume %s, which keeps its "
			"options\n",
			h->device, h->name);
	return EXIT_OK;
}

static int attach(struct helper *h)
{
	struct ready r = { 0 };

	client_find_device(h->device, h->name);
	if (*h->name)
		return take_attached(h);
	if (h->opt.remount)
		return helper_fail(EXIT_MOUNT, "%s is not attached: nothing to remount", h->device);
	launch_volume(h->device, &h->opt.vol, 0, &r);
	if (r.exit != EXIT_OK)
		return helper_fail((int)r.exit, "%s", r.why);
	h->attached_by_us = true;
	snprintf(h->name, sizeof(h->name), "%s", r.name);
	snprintf(h->loop, sizeof(h->loop), "%s", r.loop);
	if (h->verbose)
		printf("mount.cowfs: %s is volume %s on %s\n", CLEAN(h->device), h->name,
		       CLEAN(h->loop));
	return EXIT_OK;
}

/* The failed mount may have written (replayed a journal, recorded an error): into RAM only. */
static void undo(struct helper *h)
{
	struct failure err;

	if (h->attached_by_us && detach_volume(h->name, true, HELPER_PATIENCE_MS, &err) != EXIT_OK)
		helper_fail(0, "volume %s stays attached: %s", h->name, err.why);
}

struct found {
	int r; /* of blkid_do_safeprobe */
	char type[32];
};

struct listener {
	blkid_probe pr;
	struct found f;
};

/* In a boxed child. */
static int look(void *ctx, struct boxed *b)
{
	blkid_probe pr = ((struct listener *)ctx)->pr;
	struct found f = { 0 };
	const char *type;

	blkid_probe_enable_superblocks(pr, 1);
	blkid_probe_set_superblocks_flags(pr, BLKID_SUBLKS_TYPE);
	blkid_probe_filter_superblocks_usage(pr, BLKID_FLTR_ONLYIN, BLKID_USAGE_FILESYSTEM);
	f.r = blkid_do_safeprobe(pr);
	if (f.r == 0 && blkid_probe_lookup_value(pr, "TYPE", &type, NULL) == 0)
		snprintf(f.type, sizeof(f.type), "%s", type);
	boxed_say(b, &f, sizeof(f));
	return 0;
}

static int hear(void *ctx, const void *message, size_t bytes)
{
	struct found *f = &((struct listener *)ctx)->f;

	if (bytes != sizeof(*f))
		return -EPROTO;
	memcpy(f, message, bytes);
	/* mount(8) runs a program for a type that the kernel does not have */
	return !memchr(f->type, '\0', sizeof(f->type)) || (*f->type && !blkid_known_fstype(f->type))
		       ? -EPROTO
		       : 0;
}

static int probe(struct helper *h)
{
	struct listener x = { .pr = blkid_new_probe_from_filename(h->loop) };
	const struct boxed_job job = { .work = look,
				       .hear = hear,
				       .ctx = &x,
				       .fd = { x.pr ? blkid_probe_get_fd(x.pr) : -1 },
				       .fds = 1 };
	int e = x.pr ? boxed_run(&job) : 0, r = x.f.r;

	blkid_free_probe(x.pr);
	if (e < 0)
		return helper_fail(EXIT_MOUNT, "%s: %s", h->device, boxed_error(e));
	snprintf(h->fs_type, sizeof(h->fs_type), "%s", x.f.type);
	if (r == -2)
		return helper_fail(EXIT_MOUNT,
				   "%s: has the signatures of several file systems: remove the "
				   "old ones with wipefs(8)",
				   h->device);
	if (!*h->fs_type)
		return helper_fail(EXIT_MOUNT, "%s: no file system found", h->device);
	return EXIT_OK;
}

/* ---- the mount ---- */

/*
 * Without discard a deleted file would keep its RAM until the next commit. Added only for ext4:
 * other file systems discard by default, or the choice is left to the user. Without dioread_lock the journal does not
 * wait for what was written to a file that has replaced another: sealed at this moment, it is empty or has zeros.
 */
static int add_options(struct helper *h)
{
	char device[PATH_MAX + 32];
	bool writes = !strcmp(h->fs_type, "ext4") && !h->opt.readonly && !h->opt.remount;
	int e = 0;

	if (writes && !h->opt.discard)
		e = mntopts_pass(&h->opt, "discard");
	if (e == 0 && writes && !h->opt.dioread)
		e = mntopts_pass(&h->opt, "dioread_lock");
	if (e == 0)
		e = mntopts_pass(&h->opt, "helper=cowfs");
	snprintf(device, sizeof(device), "x-cowfs.device=%s", h->device);
	if (e == 0 && !strpbrk(h->device, ",\"\\ "))
		e = mntopts_pass(&h->opt, device);
	return e < 0 ? helper_fail(EXIT_USAGE, "too many options") : EXIT_OK;
}

/* Will umount(8) call the helper? libmount keeps that there, and since 2.41 an entry that it could not write is no error. */
static bool is_in_utab(const char *loop)
{
	FILE *f = fopen("/run/mount/utab", "re");
	char line[4 * KIB], source[80];
	bool found = false;

	snprintf(source, sizeof(source), "SRC=%s ", loop);
	while (f && fgets(line, sizeof(line), f))
		found |= strstr(line, source) && strstr(line, "helper=cowfs");
	if (f)
		fclose(f);
	return found;
}

/* Whatever ends the last mount without umount.cowfs is noticed. */
static void detach_later(const struct helper *h)
{
	const struct request rq = { .command = COMMAND_DETACH, .when_unmounted = true };
	struct failure err;
	struct client c;

	if (client_open(&c, h->name, &err) < 0)
		return;
	json_object_put(client_call(&c, &rq, NULL, NULL, &err));
	client_close(&c);
}

static int do_mount(struct helper *h)
{
	const char *argv[16] = { "mount", "-t", h->fs_type, "-o", h->opt.rest };
	_cleanup_close_ int out_fd = memfd_create("mount", MFD_CLOEXEC);
	char said[4 * KIB];
	size_t n = 5;
	int exit;

	if (h->no_mtab)
		argv[n++] = "-n";
	if (h->sloppy)
		argv[n++] = "-s";
	if (h->verbose)
		argv[n++] = "-v";
	argv[n++] = h->loop;
	argv[n++] = h->dir;
	exit = program_run(argv, -1, out_fd);
	program_output(out_fd, h->loop, h->device, said, sizeof(said));
	fputs(said, exit ? stderr : stdout);
	/* mount(8) was ended as well, and may have come far */
	if (exit && stopped && !h->opt.remount && mounts_device_is_on(h->dir, h->loop, NULL))
		(void)umount2(h->dir, UMOUNT_NOFOLLOW);
	/* a kind that this table does not have may be served by a program */
	if (!exit && fs_type_named(h->fs_type) == fs_ops(FS_UNKNOWN)->names[0])
		return EXIT_OK;
	if (!exit && !mounts_device_is_on(h->dir, h->loop, NULL))
		return helper_fail(EXIT_MOUNT, "%s: something else was mounted on %s", h->device,
				   h->dir);
	if (!exit)
		detach_later(h);
	if (!exit && (h->no_mtab || h->opt.remount || is_in_utab(h->loop)))
		return EXIT_OK;
	if (!h->opt.remount && mounts_device_is_on(h->dir, h->loop, NULL)) {
		/* utab cannot be written: /run is read-only */
		fputs("mount.cowfs: mounted, but umount will not detach it: run 'cowctl detach'\n",
		      stderr);
		return EXIT_OK;
	}
	return helper_fail(exit, "%s on %s: mount on %s failed (type %s, options %s)", h->device,
			   h->loop, h->dir, h->fs_type, h->opt.rest);
}

int main(int argc, char **argv)
{
	static const int stops[] = { SIGINT, SIGTERM, SIGHUP };
	static struct helper h;
	int exit;

	if (helper_begin("mount.cowfs", argc, argv, help))
		return EXIT_OK;
	exit = take_arguments(&h, argc, argv);
	if (exit == EXIT_OK)
		exit = check_dir(&h);
	if (exit == EXIT_OK)
		exit = check_device(&h);
	if (exit == EXIT_OK)
		exit = check_options(&h);
	if (exit != EXIT_OK || h.fake)
		return exit;
	for (size_t i = 0; i < ARRAY_SIZE(stops); i++)
		if (signal(stops[i], on_stop) == SIG_IGN)
			signal(stops[i], SIG_IGN);
	exit = attach(&h);
	if (exit != EXIT_OK || h.nothing_to_do)
		return exit;
	exit = stopped ? helper_fail(EXIT_FAILED, "interrupted") : probe(&h);
	if (exit == EXIT_OK)
		exit = add_options(&h);
	if (exit == EXIT_OK)
		exit = do_mount(&h);
	if (exit != EXIT_OK)
		undo(&h);
	return exit;
}
