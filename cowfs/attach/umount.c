/* SPDX-License-Identifier: MIT */
/*
 * umount.cowfs: called by umount(8) for a volume that mount.cowfs has mounted. Unmounts, then
 * detaches. Uncommitted changes are committed or discarded as the volume's on-detach option says.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "base/io.h"
#include "base/program.h"
#include "base/mounts.h"
#include "attach/leftover.h"
#include "attach/helper.h"
#include "attach/detach.h"
#include "attach/keep.h"
#include "attach/users.h"
#include "wire/risk.h"

#define LAZY_PATIENCE_MS 500

struct helper {
	const char *what; /* directory, loop device or the protected device */
	bool verbose, lazy;
	char flags[16]; /* for umount(8), "-..." */
	char dir[PATH_MAX], loop[PATH_MAX];
	char name[RUNDIR_NAME_BYTES]; /* "": its daemon has ended */
};

static void help(void)
{
	puts("usage: umount.cowfs DIR|DEVICE [-flnrvhV]\nUnmounts a volume that 'mount -t cowfs' "
	     "has mounted, and detaches it. Called by umount(8).\n\n  -f  force, -n no utab, -r "
	     "read-only if busy: as umount(8)\n  -l  lazily: the volume stays attached if it is "
	     "still in use\n  -v  print what is done\n  -h  show this help\n  -V  show the "
	     "version\n\nExit codes: 0 ok, 1 failed (unmounted, but still attached), 2 usage; "
	     "else that of umount(8).");
}

static int take_flags(struct helper *h, int argc, char **argv, int *i)
{
	size_t n = strlen(h->flags);

	for (const char *c = argv[*i] + 1; *c; c++) {
		if (*c == 't') { /* the type option, with its argument */
			*i += !c[1] && *i + 1 < argc;
			return EXIT_OK;
		}
		if (!strchr("flnrvc", *c) || n + 2 > sizeof(h->flags))
			return helper_fail(EXIT_USAGE, "unknown option -%c (try 'umount.cowfs -h')",
					   *c);
		h->lazy |= *c == 'l';
		h->verbose |= *c == 'v';
		if (!strchr(h->flags, *c))
			h->flags[n++] = *c;
	}
	return EXIT_OK;
}

static int take_arguments(struct helper *h, int argc, char **argv)
{
	int exit = EXIT_OK;

	for (int i = 1; i < argc && exit == EXIT_OK; i++) {
		if (argv[i][0] == '-' && argv[i][1])
			exit = take_flags(h, argc, argv, &i);
		else if (h->what)
			exit = helper_fail(EXIT_USAGE, "too many arguments at %s", argv[i]);
		else
			h->what = argv[i];
	}
	if (exit == EXIT_OK && !h->what)
		exit = helper_fail(EXIT_USAGE, "usage: umount.cowfs DIR (try 'umount.cowfs -h')");
	return exit;
}

static void find_loop(struct helper *h, bool left)
{
	struct facts f;

	client_facts(h->name, left, &f);
	snprintf(h->loop, sizeof(h->loop), "%s", f.device[FACT_LOOP].path);
}

/* Finds the volume, running or dead, whose loop device is the topmost mount on the directory. */
static bool find_volume_on(struct helper *h)
{
	char names[CLIENT_VOLUMES][RUNDIR_NAME_BYTES];
	size_t n = client_volumes(names);

	for (size_t i = 0; i < n; i++) {
		memcpy(h->name, names[i], sizeof(h->name));
		find_loop(h, false);
		if (*h->loop && mounts_device_is_on(h->dir, h->loop, NULL))
			return true;
	}
	n = client_dead_volumes(names);
	for (size_t i = 0; i < n; i++) {
		memcpy(h->name, names[i], sizeof(h->name));
		find_loop(h, true);
		*h->name = '\0';
		if (*h->loop && mounts_device_is_on(h->dir, h->loop, NULL))
			return true;
	}
	*h->name = '\0';
	return false;
}

static int find_mount(struct helper *h)
{
	struct stat st;
	bool found;

	if (stat(h->what, &st) == 0 && S_ISBLK(st.st_mode)) {
		client_find_device(h->what, h->name);
		if (*h->name)
			find_loop(h, false);
		found = *h->loop && mounts_device_is_on(NULL, h->loop, h->dir);
	} else {
		if (!realpath(h->what, h->dir)) /* a file system with errors */
			snprintf(h->dir, sizeof(h->dir), "%s", h->what);
		found = find_volume_on(h) || mounts_device_on(h->dir, h->loop);
	}
	return found ? EXIT_OK : helper_fail(EXIT_MOUNT, "%s is not mounted", h->what);
}

static int do_umount(const struct helper *h)
{
	const char *argv[] = { "umount", "-i", h->dir, h->flags[1] ? h->flags : NULL, NULL };
	char user[MOUNT_USER_BYTES];
	int exit = program_run(argv, -1, -1);

	if (exit && mount_user_find(h->dir, user))
		helper_fail(exit, "%s is used by %s", h->dir, user);
	return exit;
}

/* Kept paths are committed while they can be read. */
static int keep_files(const struct helper *h)
{
	return keep_before_discard(h->name)
		       ? EXIT_OK
		       : helper_fail(
				 EXIT_FAILED,
				 "volume %s: not all kept paths were committed, so %s stays mounted: cowctl commit %s, "
				 "or drop them: cowctl discard %s, umount -i, cowctl detach --discard %s",
				 h->name, h->dir, h->name, h->name, h->name);
}

/* ---- other mount points ---- */

struct utab {
	const char *loop, *dir;
	dev_t dev;
	FILE *f;
	char text[64 * KIB];
};

static int note_mount(void *ctx, int root_dirfd, struct mount_entry *m)
{
	struct utab *u = ctx;
	char line[2 * PATH_MAX + 128];

	snprintf(line, sizeof(line), "SRC=%s TARGET=%s ROOT=%s ", u->loop, m->path, m->root);
	if (!mounts_shows(root_dirfd, m, u->dev) || strstr(u->text, line))
		return 0;
	fprintf(u->f, "%sOPTS=helper=cowfs\n", line);
	mounts_unescape(m->path);
	if (!strcmp(m->path, u->dir)) /* umount(8) removes one when this program ends */
		fprintf(u->f, "%sOPTS=helper=cowfs\n", line);
	return 0;
}

/* libmount knows no helper of a bind mount, and forgets that of a second mount on one directory. */
static void note_mounts(const struct helper *h)
{
	static struct utab u;
	_cleanup_close_ int proc_fd = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
	_cleanup_close_ int lock_fd = open("/run/mount/utab.lock", O_RDONLY | O_CREAT | O_CLOEXEC,
					   0644);
	struct stat st;

	if (stat(h->loop, &st) < 0 || lock_fd < 0 || flock(lock_fd, LOCK_EX) < 0 ||
	    io_read_text(AT_FDCWD, "/run/mount/utab", u.text, sizeof(u.text)) < 0 ||
	    !(u.f = fopen("/run/mount/utab", "ae")))
		return;
	u.loop = h->loop;
	u.dir = h->dir;
	u.dev = st.st_rdev;
	(void)!mounts_each(proc_fd, "self", note_mount, &u);
	fclose(u.f);
}

/* ---- main ---- */

static int detach(const struct helper *h)
{
	char dir[PATH_MAX], who[RUNDIR_NAME_BYTES + 32], user[MOUNT_USER_BYTES];
	struct json_object *status;
	struct failure err;

	if (!*h->name)
		return helper_fail(
			EXIT_FAILED,
			"%s is unmounted, but the daemon of %s is gone: uncommitted changes are "
			"lost",
			h->dir, h->loop);
	if (mounts_device_is_on(NULL, h->loop, dir)) {
		fprintf(stderr, "umount.cowfs: volume %s stays attached: it is mounted on %s\n",
			h->name, dir);
		note_mounts(h);
		return EXIT_OK;
	}
	status = client_status(h->name, &err);
	snprintf(who, sizeof(who), "umount.cowfs: volume %s", h->name);
	risk_print(stderr, who, status, true);
	json_object_put(status);
	if (h->verbose)
		printf("umount.cowfs: %s is unmounted, detaching volume %s\n", h->dir, h->name);
	if (detach_volume(h->name, false, h->lazy ? LAZY_PATIENCE_MS : HELPER_PATIENCE_MS, &err) ==
	    EXIT_OK)
		return EXIT_OK;
	if (mount_kernel_user_find(h->dir, user))
		failure(&err, -EBUSY, "it is used by %s", user);
	return helper_fail(
		EXIT_FAILED,
		"%s is unmounted, but volume %s stays attached with its changes in RAM: %s. To "
		"retry: cowctl detach %s",
		h->dir, h->name, err.why, h->name);
}

int main(int argc, char **argv)
{
	static struct helper h = { .flags = "-" };
	static struct leftover_volume dead[CLIENT_VOLUMES];
	size_t n = 0;
	int exit;

	if (helper_begin("umount.cowfs", argc, argv, help))
		return EXIT_OK;
	exit = take_arguments(&h, argc, argv);
	if (exit == EXIT_OK)
		exit = find_mount(&h);
	if (exit == EXIT_OK && !*h.name)
		/* a frozen file system can be unmounted, but keeps its device */
		n = leftover_clear(dead);
	for (size_t i = 0; i < n && exit == EXIT_OK; i++)
		/* umount would hang as well, and could not be killed */
		if (dead[i].hangs && !strcmp(dead[i].loop, h.loop))
			exit = helper_fail(EXIT_MOUNT, "volume %s: %s", dead[i].name, dead[i].text);
	if (exit == EXIT_OK && *h.name)
		exit = keep_files(&h);
	if (exit == EXIT_OK)
		exit = do_umount(&h);
	if (exit == EXIT_OK)
		exit = detach(&h);
	return exit;
}
