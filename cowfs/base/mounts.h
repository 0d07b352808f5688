/* SPDX-License-Identifier: MIT */
/*
 * Which mounts show a block device. This is the only place that reads mountinfo.
 *
 * Only device numbers count. The source of a mount is a text that the mounting user may choose: an
 * ordinary user can mount a FUSE file system with fsname=/dev/loop0.
 */
#ifndef COWFS_BASE_MOUNTS_H
#define COWFS_BASE_MOUNTS_H

#include <limits.h>
#include <sys/types.h>

#include "base/util.h"

struct mount_entry {
	uint64_t id, parent_id;
	dev_t dev;
	char *root;	  /* folder of the file system that it shows, escaped as path is */
	char *path;	  /* mount point, as escaped by the kernel: for messages */
	const char *type; /* "ext4", "fuse.sshfs" */
	char *source; /* a text that the mounting user may choose, except of a btrfs; escaped as path is */
	bool readonly; /* of the file system, not only of this mount */
	char *options; /* of the file system, escaped as path is */
};

/*
 * Calls each for every mount of process `who` ("self", "1") below proc_dirfd, in the order of the
 * kernel: of two mounts on one directory the newer one comes later. root_dirfd is the root of that
 * process. Stops when each returns a value other than 0. Returns that value, 0 at the end, or
 * -errno: the mounts cannot be read.
 */
int mounts_each(int proc_dirfd, const char *who,
		int (*each)(void *ctx, int root_dirfd, struct mount_entry *m),
		void *ctx) MUST_CHECK;

/*
 * Does the mount show block device dev? btrfs has device numbers of its own, and its driver gives the
 * source: the path of one of its devices. sysfs has the other ones. No mount point is opened: that
 * would keep the mount busy. *m->source is unescaped afterwards.
 */
bool mounts_shows(int root_dirfd, const struct mount_entry *m, dev_t dev);

/*
 * Opens the root of the mount, a directory or a regular file, for reading. -ESTALE: something else
 * is there. -ENODEV: it is neither (a bind mount of a fifo, a device), and is not opened. -EAGAIN:
 * the lookup would need a request to a file system on the path (FUSE, NFS), which might not answer.
 */
int mounts_open(int proc_dirfd, int root_dirfd, const struct mount_entry *m) MUST_CHECK;

/* 0: no block device. It is also known where this process does not see the node: in a unit with PrivateDevices=. */
dev_t mounts_device_number(const char *device);

/*
 * Does the newest mount on dir show this block device? dir NULL: is it mounted anywhere; ret_dir
 * (PATH_MAX, may be NULL) gets the mount point.
 */
bool mounts_device_is_on(const char *dir, const char *device, char *ret_dir);
/*
 * Gets the block device of the newest mount on dir, "/dev/...". False: nothing is mounted there, or
 * the mount is not of a block device.
 */
bool mounts_device_on(const char *dir, char ret_device[PATH_MAX]);

/*
 * Is a file system mounted from this disk, in whatever mount namespace? The drivers of ext, xfs, btrfs, f2fs and nilfs2 say so in
 * sysfs. sys_dirfd: of /sys; -1: by its path.
 */
bool mounts_in_kernel(int sys_dirfd, dev_t dev);
/* The same of a btrfs alone. */
bool mounts_in_btrfs(int sys_dirfd, dev_t dev);

/*
 * A new mount of this type, attached to no tree: a descriptor or -errno. options: keys and values up to a key that is
 * NULL; a value NULL: a flag. NULL: none. attributes: MOUNT_ATTR_*; Linux before 5.14
 * follows links all the same.
 */
int mounts_new(const char *type, const char *const options[][2], unsigned attributes) MUST_CHECK;

/* Replaces "\040" and other octal escapes by their characters, in place. */
void mounts_unescape(char *s);

#endif
