/* SPDX-License-Identifier: MIT */
/*
 * umount.cowfs: called by umount(8) for a volume that mount.cowfs has mounted. Unmounts, then
 * detaches. Uncommitted changes are committed or discarded as the volume's on-detach option says.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/program.h"
#include "base/mounts.h"
#include "base/clean.h"
#include "attach/leftover.h"
#include "attach/helper.h"
#include "attach/detach.h"
#include "attach/keep.h"
#include "attach/users.h"

#define LAZY_PATIENCE_MS 500
#define AGAIN_US 10000
#define UNSEEN_NS 200000000ull /* give up when no user of a busy mount is visible for this long, */
/* and in this many looks, because on a busy machine one look takes longer than that */
#define UNSEEN_LOOKS 4

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

/* The loop device of an attached volume, "" if it does not answer. */
static void find_loop(struct helper *h)
{
	struct failure err;
	struct json_object *status = client_status_file(h->name, &err);
	const char *text = json_object_get_string(json_object_object_get(status, "loop"));

	snprintf(h->loop, sizeof(h->loop), "%s", text ? text : "");
	json_object_put(status);
}

/* Finds the volume, running or dead, whose loop device is the topmost mount on the directory. */
static bool find_volume_on(struct helper *h)
{
	char names[CLIENT_VOLUMES][RUNDIR_NAME_BYTES];
	size_t n = client_volumes(names);

	for (size_t i = 0; i < n; i++) {
		memcpy(h->name, names[i], sizeof(h->name));
		find_loop(h);
		if (*h->loop && mounts_device_is_on(h->dir, h->loop, NULL))
			return true;
	}
	*h->name = '\0';
	n = client_dead_volumes(names);
	for (size_t i = 0; i < n; i++) {
		struct json_object *status = client_left_status(names[i]);
		const char *loop = json_object_get_string(json_object_object_get(status, "loop"));

		snprintf(h->loop, sizeof(h->loop), "%s", loop ? loop : "");
		json_object_put(status);
		if (*h->loop && mounts_device_is_on(h->dir, h->loop, NULL))
			return true;
	}
	return false;
}

static int find_mount(struct helper *h)
{
	struct stat st;
	bool found;

	if (stat(h->what, &st) == 0 && S_ISBLK(st.st_mode)) {
		client_find_device(h->what, h->name);
		if (*h->name)
			find_loop(h);
		found = *h->loop && mounts_device_is_on(NULL, h->loop, h->dir);
	} else {
		if (!realpath(h->what, h->dir)) /* a file system with errors */
			snprintf(h->dir, sizeof(h->dir), "%s", h->what);
		found = find_volume_on(h) || mounts_device_on(h->dir, h->loop);
	}
	return found ? EXIT_OK : helper_fail(EXIT_MOUNT, "%s is not mounted", h->what);
}

/* ---- umount(8) ---- */

/* Its output goes to out_fd, unless that is -1. */
static int call_umount(const struct helper *h, const char *flags, int out_fd)
{
	const char *argv[] = { "umount", "-i", h->dir, NULL, NULL };

	if (flags[1])
		argv[3] = flags;
	return program_run(argv, out_fd);
}

static void show(int from_fd, FILE *to)
{
	char text[4096];
	ssize_t n = from_fd < 0 ? 0 : pread(from_fd, text, sizeof(text), 0);

	for (ssize_t i = 0, from = 0; i < n; i++)
		if (text[i] == '\n') {
			text[i] = '\0';
			fprintf(to, "%s\n", clean_text(text + from));
			from = i + 1;
		}
}

/*
 * Is it the volume's own commit that keeps the mount busy? The commit may also release the mount
 * between umount's check and this one, so it must be visible only now and then.
 */
static bool is_own_commit(const struct helper *h, uint64_t *seen_ns, unsigned *unseen,
			  struct mount_users *u)
{
	uint64_t now = now_ns();

	if (!*h->name || mount_users_find(h->dir, client_worker(h->name), u) < 0 || *u->other)
		return false;
	if (u->own)
		*seen_ns = now;
	*unseen = u->own ? 0 : *unseen + 1;
	return now < *seen_ns + UNSEEN_NS || *unseen < UNSEEN_LOOKS;
}

/*
 * A commit that freezes needs a descriptor of the mount for a moment. Only the last try uses -r: a
 * mount that is busy for a moment should not become read-only.
 */
static int do_umount(const struct helper *h)
{
	uint64_t begin_ns = now_ns(), seen_ns = begin_ns;
	char flags[sizeof(h->flags)];
	struct mount_users users = { 0 };
	unsigned unseen = 0;
	int exit;

	snprintf(flags, sizeof(flags), "%s", h->flags);
	for (char *c = flags; *c; c++)
		if (*c == 'r')
			*c = 'i'; /* passed in any case */
	for (;;) {
		_cleanup_close_ int out_fd = memfd_create("umount", MFD_CLOEXEC);

		exit = call_umount(h, flags, out_fd);
		if (exit != EXIT_MOUNT || !is_own_commit(h, &seen_ns, &unseen, &users) ||
		    now_ns() >= begin_ns + HELPER_PATIENCE_MS * 1000000ull) {
			if (!exit || !strchr(h->flags, 'r'))
				show(out_fd, exit ? stderr : stdout);
			break;
		}
		usleep(AGAIN_US);
	}
	if (exit && strchr(h->flags, 'r'))
		exit = call_umount(h, h->flags, -1);
	if (exit && *users.other)
		helper_fail(exit, "%s is used by %s", h->dir, users.other);
	else if (exit && users.own)
		helper_fail(exit, "%s is held by a commit of volume %s", h->dir, h->name);
	return exit;
}

/* Kept paths are committed while they can be read; whatever happens, the unmount goes on. */
static void keep_files(const struct helper *h)
{
	if (!keep_before_discard(h->name))
		fprintf(stderr, "umount.cowfs: volume %s: not all kept paths were committed\n",
			h->name);
}

/* ---- main ---- */

static int detach(const struct helper *h)
{
	char dir[PATH_MAX];
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
		return EXIT_OK;
	}
	if (h->verbose)
		printf("umount.cowfs: %s is unmounted, detaching volume %s\n", h->dir, h->name);
	if (detach_volume(h->name, false, h->lazy ? LAZY_PATIENCE_MS : HELPER_PATIENCE_MS, &err) ==
	    EXIT_OK)
		return EXIT_OK;
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
		keep_files(&h);
	if (exit == EXIT_OK)
		exit = do_umount(&h);
	if (exit == EXIT_OK)
		exit = detach(&h);
	return exit;
}
