/* SPDX-License-Identifier: MIT */
/*
 * Which mounts show a block device. The only place that reads mountinfo.
 *
 * Only device numbers count. The source of a mount is a text that whoever mounts may choose: an
 * ordinary user mounts a FUSE file system with fsname=/dev/loop0.
 */
#ifndef COWFS_BASE_MOUNTS_H
#define COWFS_BASE_MOUNTS_H

#include <limits.h>
#include <sys/types.h>

#include "base/util.h"

struct mount_entry {
	uint64_t id, parent_id;
	dev_t dev;
	char *path;	  /* mount point, as the kernel escapes it: for messages */
	const char *type; /* "ext4", "fuse.sshfs" */
	bool readonly;	  /* the file system, not only this mount */
};

/*
 * Calls each for every mount of process `who` ("self", "1") below proc_dirfd, in the order of the
 * kernel: of two mounts on one directory the later one is the newer one. root_dirfd is the root of
 * that process. Ends when each returns other than 0. That value, 0 at the end, or -errno: cannot be
 * looked at.
 */
int mounts_each(int proc_dirfd, const char *who,
		int (*each)(void *ctx, int root_dirfd, struct mount_entry *m),
		void *ctx) MUST_CHECK;

/* Does process `who` see the mount with this id (STATX_MNT_ID)? Then *ret is its device. */
bool mounts_find(int proc_dirfd, const char *who, uint64_t id, dev_t *ret);

/*
 * Does the mount show block device dev? btrfs has device numbers of its own: it is asked for its
 * devices, which opens the mount point.
 */
bool mounts_shows(int proc_dirfd, int root_dirfd, const struct mount_entry *m, dev_t dev);

/*
 * Opens the root of the mount, a directory or a regular file, for reading. -ESTALE: something else
 * lies there; -ENODEV: it is neither (a bind mount of a fifo, a device): never opened; -EAGAIN: a
 * file system on the way there would have to be asked (FUSE, NFS), which might not answer.
 */
int mounts_open(int proc_dirfd, int root_dirfd, const struct mount_entry *m) MUST_CHECK;

/* Does the newest mount on dir show this block device? dir NULL: is it mounted anywhere; ret_dir
 * (PATH_MAX, may be NULL) gets where. */
bool mounts_device_is_on(const char *dir, const char *device, char *ret_dir);
/* The block device of the newest mount on dir, "/dev/..."; false: nothing is mounted there, or no
 * block device. */
bool mounts_device_on(const char *dir, char ret_device[PATH_MAX]);

/* The root of fusectl, in a mount that is attached to no tree: a folder for each FUSE connection of
 * this machine, named after the minor number of its device. Or -errno. */
int mounts_open_fusectl(void);

/* "\040" and its like to what they mean, in place. */
void mounts_unescape(char *s);

#endif
