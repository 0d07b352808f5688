/* SPDX-License-Identifier: MIT */
/*
 * Checks the target of --lend: can it hold payload that must survive a power cut?
 *
 * The descriptor goes to the daemon, which opens nothing by path. A device is claimed with O_EXCL,
 * a file is locked. Both hold as long as one of the two processes has the descriptor.
 *
 * A file must be accessible to root only: it exposes all committed data to its readers, and
 * recovery trusts its content. The CRCs of the log detect accidents, not forgeries.
 */
#include "cli/cmd.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>

#include "base/boxed.h"
#include "base/bytes.h"
#include "base/io.h"
#include "base/mounts.h"
#include "base/path.h"
#include "offline/signature.h"

#define LOOPS_MAX 8 /* loop devices stacked on each other */

static bool is_in_ram(int fd, const struct stat *st)
{
	char link[64], target[PATH_MAX] = "";
	struct statfs fs;

	if (S_ISREG(st->st_mode)) /* the upper layer of an overlay may be on any file system */
		return fstatfs(fd, &fs) == 0 &&
		       ((uint32_t)fs.f_type == TMPFS_MAGIC || (uint32_t)fs.f_type == RAMFS_MAGIC ||
			(uint32_t)fs.f_type == OVERLAYFS_SUPER_MAGIC);
	snprintf(link, sizeof(link), "/sys/dev/block/%u:%u", major(st->st_rdev),
		 minor(st->st_rdev));
	return readlink(link, target, sizeof(target) - 1) > 0 &&
	       (strstr(target, "/block/ram") || strstr(target, "/block/zram"));
}

struct shown {
	int proc_fd;
	uint64_t mount_id;
	dev_t loop;
};

static int shows_loop(void *ctx, int root_fd, struct mount_entry *m)
{
	const struct shown *s = ctx;

	return m->id == s->mount_id && mounts_shows(root_fd, m, s->loop);
}

/*
 * The volume that holds the file, so that its content is in RAM until it is committed; "" if none.
 */
static void find_volume_below(int fd, char ret_name[RUNDIR_NAME_BYTES])
{
	_cleanup_close_ int proc_fd = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
	char names[CLIENT_VOLUMES][RUNDIR_NAME_BYTES];
	size_t n = client_volumes(names);
	struct statx sx = { 0 };

	*ret_name = '\0';
	if (statx(fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &sx) < 0 || proc_fd < 0)
		return;
	for (size_t i = 0; i < n && !*ret_name; i++) {
		struct failure err;
		struct json_object *status = client_status_file(names[i], &err);
		struct shown s = { .proc_fd = proc_fd, .mount_id = sx.stx_mnt_id };
		struct stat st;

		if (status && stat(json_raw(status, "loop"), &st) == 0) {
			s.loop = st.st_rdev;
			if (mounts_each(proc_fd, "self", shows_loop, &s) == 1)
				memcpy(ret_name, names[i], RUNDIR_NAME_BYTES);
		}
		json_object_put(status);
	}
}

/* The file below a loop device, or below the loop device that holds a file; "" if none. */
static void find_backing_file(const struct stat *st, char ret_path[PATH_MAX])
{
	/* of a whole device, and of a partition */
	static const char *const where[] = { "", "../" };
	dev_t dev = S_ISBLK(st->st_mode) ? st->st_rdev : st->st_dev;
	char attr[80];

	*ret_path = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(where) && !*ret_path; i++) {
		snprintf(attr, sizeof(attr), "/sys/dev/block/%u:%u/%sloop/backing_file", major(dev),
			 minor(dev), where[i]);
		if (io_read_text(AT_FDCWD, attr, ret_path, PATH_MAX) < 0)
			*ret_path = '\0';
	}
}

/* Does the target survive a power cut, and can it be written while the volume waits for it? */
static int check_place(const struct options *o, const char *path, int fd, const struct stat *st,
		       unsigned depth)
{
	_cleanup_close_ int below_fd = -1;
	char name[RUNDIR_NAME_BYTES], below[PATH_MAX], why[2 * PATH_MAX];
	struct stat below_st;

	if (is_in_ram(fd, st))
		return cmd_fail(
			o, EXIT_FAILED, -EINVAL,
			"%s: is or may be in RAM, which a power cut would lose: lend a device, "
			"or a file on one",
			path);
	find_volume_below(fd, name);
	if (*name)
		return cmd_fail(o, EXIT_FAILED, -EINVAL,
				"%s: is on volume %s, which keeps it in RAM until a commit: lend a "
				"device, or a file on one that is not protected",
				path, name);
	find_backing_file(st, below);
	/* whoever owns its folders may have put something else there: it is looked at, not opened */
	below_fd = *below && depth < LOOPS_MAX ? path_open(below, O_PATH, why, sizeof(why)) : -1;
	return below_fd >= 0 && fstat(below_fd, &below_st) == 0
		       ? check_place(o, path, below_fd, &below_st, depth + 1)
		       : EXIT_OK;
}

static int check_owner(const struct options *o, const char *path, int fd, const struct stat *st)
{
	const mode_t others_write = S_IWGRP | S_IWOTH;
	struct stat now;

	if (!S_ISREG(st->st_mode))
		return EXIT_OK;
	if (st->st_uid == geteuid() && !(st->st_mode & others_write) &&
	    fchmod(fd, S_IRUSR | S_IWUSR) == 0 && fstat(fd, &now) == 0 &&
	    !(now.st_mode & (S_IRWXG | S_IRWXO)))
		return EXIT_OK;
	return cmd_fail(
		o, EXIT_FAILED, -EPERM,
		"%s: other users could read or change it: lend a new file of root with mode 600 "
		"(FAT: mount it with -o umask=077), or a device",
		path);
}

/* Refuses a target with content that may still be needed. */
static int check_content(const struct options *o, const char *path, int fd, const struct stat *st)
{
	const struct fsinfo none = { .kind = FS_UNKNOWN };
	uint8_t first[COW_BLK_BYTES];
	struct signatures s;
	char same[32];
	int e = io_pread_full(fd, first, sizeof(first), 0);

	if (e == 0 && !memcmp(first, "COWFSLNT", 8))
		return EXIT_OK; /* of this volume; otherwise the daemon refuses it */
	/* independent of what lies at the path now */
	snprintf(same, sizeof(same), "/proc/self/fd/%d", fd);
	if (e == 0)
		e = signatures_find(same, &none, &s);
	if (e < 0)
		return cmd_fail(o, EXIT_FAILED, e, "%s: cannot be read: %s", path, boxed_error(e));
	if (s.n)
		return cmd_fail(
			o, EXIT_FAILED, -EEXIST,
			"%s: holds %s, which would be overwritten. If it is not needed: wipefs "
			"-a %s",
			path, s.text, path);
	if (!memcmp(first, "COWFS", 5) ||
	    (S_ISREG(st->st_mode) && !bytes_all_zero(first, sizeof(first))))
		return cmd_fail(
			o, EXIT_FAILED, -EEXIST,
			"%s: is not empty and would be overwritten: lend an empty file, made "
			"with truncate -s SIZE FILE",
			path);
	return EXIT_OK;
}

/* For a commit: the target must be separate from what it protects against loss. */
static int check_for_commit(const struct options *o, struct client *c, const char *path, int fd,
			    const struct stat *st)
{
	int exit = check_place(o, path, fd, st, 0);

	if (exit != EXIT_OK)
		return exit;
	if (st->st_size < 2 * (off_t)COW_BLK_BYTES && S_ISREG(st->st_mode))
		return cmd_fail(
			o, EXIT_FAILED, -ENOSPC,
			"%s: is too small: make it the size that 'cowctl commit --dry-run %s' "
			"prints, with truncate -s SIZE FILE",
			path, c->name);
	exit = check_content(o, path, fd, st);
	return exit == EXIT_OK ? check_owner(o, path, fd, st) : exit;
}

int lend_open(const struct options *o, struct client *c, int *ret_fd)
{
	const char *path = o->value[OPT_LEND];
	_cleanup_close_ int path_fd = -1, fd = -1;
	char name[RUNDIR_NAME_BYTES], why[2 * PATH_MAX];
	int exit = EXIT_OK;
	struct stat st;

	client_find_device(path, name);
	if (*name)
		return cmd_fail(o, EXIT_FAILED, -EBUSY,
				"%s: belongs to volume %s: lend another device", path, name);
	path_fd = path_open(path, O_PATH, why, sizeof(why));
	if (path_fd < 0 || fstat(path_fd, &st) < 0)
		return cmd_fail(o, EXIT_FAILED, path_fd < 0 ? path_fd : -errno, "%s: %s", path,
				*why ? why : strerrordesc_np(path_fd < 0 ? -path_fd : errno));
	if (!S_ISBLK(st.st_mode) && !S_ISREG(st.st_mode))
		return cmd_fail(o, EXIT_FAILED, -ENOTBLK,
				"%s: is neither a block device nor a file", path);
	if (c && S_ISREG(st.st_mode) && !path_owners_count(path_fd))
		return cmd_fail(o, EXIT_FAILED, -EPERM,
				"%s: its file system is FUSE, or mounted nosuid, and may lie about "
				"owners: lend a file elsewhere, or a device",
				path);
	fd = path_reopen(path_fd, O_RDWR | (S_ISBLK(st.st_mode) ? O_EXCL : 0));
	if (fd == -EBUSY)
		return cmd_fail(o, EXIT_FAILED, fd, "%s: %s", path,
				path_lease(path_fd, why, sizeof(why))
					? why
					: "is mounted or in use by something else");
	if (fd < 0)
		return cmd_fail(o, EXIT_FAILED, fd, "%s: %s", path, strerrordesc_np(-fd));
	if (S_ISREG(st.st_mode) && flock(fd, LOCK_EX | LOCK_NB) < 0)
		return cmd_fail(o, EXIT_FAILED, -EBUSY, "%s: is in use by something else", path);
	if (c)
		exit = check_for_commit(o, c, path, fd, &st);
	if (exit == EXIT_OK)
		*ret_fd = steal_fd(&fd);
	return exit;
}
