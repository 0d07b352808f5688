/* SPDX-License-Identifier: MIT */
/*
 * commit --trial: the kernel that goes with each of the two generations. A boot loader starts the same
 * kernel for both of them, so both need its modules.
 *
 * - /boot on another device, or systemd-boot, which reads kernels from EFI's partition: a new kernel there is booted
 *   also by the root that goes back.
 * - /boot inside the volume: nothing is checkpointed while a generation is held, so the loader goes on
 *   with the kernel that runs now.
 */
#include "cli/cmd.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/clean.h"
#include "base/path.h"
#include "attach/view_mount.h"

/* The root that runs: / but in tests. */
static int open_root(void)
{
	const char *dir = secure_getenv("COWFS_ROOTDIR");

	return open(dir ? dir : "/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static bool boot_is_apart(int root_fd)
{
	/* of EFI's partition only if it has more than a boot loader that reads kernels from /boot */
	static const char *const places[] = { "boot",
					      "boot/firmware",
					      "boot/efi/loader/entries",
					      "boot/efi/EFI/Linux",
					      "efi/loader/entries",
					      "efi/EFI/Linux" };
	struct stat root, st;

	if (fstat(root_fd, &root) < 0)
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(places); i++)
		if (fstatat(root_fd, places[i], &st, 0) == 0 && st.st_dev != root.st_dev)
			return true;
	return false;
}

/* -1: it has none. */
static int open_modules(int root_fd)
{
	int fd = path_open_below(root_fd, "usr/lib/modules", O_RDONLY | O_DIRECTORY);

	return fd < 0 ? path_open_below(root_fd, "lib/modules", O_RDONLY | O_DIRECTORY) : fd;
}

static bool has_modules(int modules_fd, const char *version)
{
	char path[NAME_MAX + 16];

	snprintf(path, sizeof(path), "%s/modules.dep", version);
	return modules_fd >= 0 && faccessat(modules_fd, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* A kernel that only the new root has modules for. */
static bool find_new(int old_fd, int new_fd, char version[NAME_MAX + 1])
{
	int fd = new_fd < 0 ? -1 : fcntl(new_fd, F_DUPFD_CLOEXEC, 3);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	bool found = false;

	if (!dir && fd >= 0)
		close(fd);
	for (struct dirent *d; dir && !found && (d = readdir(dir));) {
		found = d->d_name[0] != '.' && has_modules(new_fd, d->d_name) &&
			!has_modules(old_fd, d->d_name);
		if (found)
			snprintf(version, NAME_MAX + 1, "%s", d->d_name);
	}
	if (dir)
		closedir(dir);
	return found;
}

/* The root that runs, which says where the boot loader reads; the one that goes back, and the one on trial. */
struct roots {
	int running_fd, old_fd, new_fd;
};

static int compare(const struct options *o, const struct roots *roots)
{
	_cleanup_close_ int old_fd = open_modules(roots->old_fd),
			    new_fd = open_modules(roots->new_fd);
	bool apart = boot_is_apart(roots->running_fd);
	char version[NAME_MAX + 1];
	struct utsname running;

	if (apart && find_new(old_fd, new_fd, version))
		return cmd_fail(
			o, EXIT_FAILED, -EBUSY,
			"kernel %s is new, and the boot loader does not read it from the "
			"volume: a root that goes back would boot it without its modules. "
			"First keep them in both generations: cowctl commit root; or --force",
			CLEAN(version));
	if (!apart && uname(&running) == 0 && has_modules(old_fd, running.release) &&
	    !has_modules(new_fd, running.release))
		return cmd_fail(
			o, EXIT_FAILED, -EBUSY,
			"the boot loader starts kernel %s until cowctl accept, and its modules "
			"were removed: install it again, or --force",
			CLEAN(running.release));
	return EXIT_OK;
}

static int compare_views(const struct options *o, struct client *c, enum view_kind kind,
			 struct roots *roots)
{
	struct view_mount view;
	struct failure err;
	int exit;

	if (view_mount_open(c, kind, &view, &err) < 0)
		/* old kernels show no second btrfs: nobody can compare then */
		return err.error == -EOPNOTSUPP ? EXIT_OK : cmd_failed(o, &err);
	roots->old_fd = view.dir_fd;
	exit = compare(o, roots);
	view_mount_close(&view);
	return exit;
}

int commit_trial_check(const struct options *o, int new_root_fd)
{
	_cleanup_close_ int root_fd = open_root();
	struct roots roots = { .running_fd = root_fd,
			       .new_fd = new_root_fd < 0 ? root_fd : new_root_fd };
	struct json_object *status;
	enum view_kind kind;
	struct failure err;
	struct client c;
	int exit = EXIT_OK;
	bool composed;

	if (root_fd < 0 || client_open(&c, ROOT_NAME, &err) < 0)
		return EXIT_OK; /* the commit tells */
	status = client_ask(&c, COMMAND_STATUS, &err);
	kind = json_object_object_get(status, "held") ? VIEW_HELD : VIEW_COMMITTED;
	/* then the modules are in the image, or in both */
	composed = *json_fact(status, FACT_LOWER);
	json_object_put(status);
	if (!composed)
		exit = compare_views(o, &c, kind, &roots);
	client_close(&c);
	return exit;
}
