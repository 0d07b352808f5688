/* SPDX-License-Identifier: MIT */
/*
 * - Its source is the device, so no other file system, and no mount namespace, is in the way.
 * - If the file system is unmounted just before, the second mount would be the first one. An option
 *   (`joins_by`) makes that mount fail before anything is written.
 */
#include "fs/mount_again.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "base/kernel.h"
#include "fs/find_mount.h"
#include "fs/freezer.h"
#include "fs/fs_ops.h"

/*
 * Opens the root of another mount of the file system, never attached. It waits for an unmount in
 * progress. -ECANCELED: stopped; other errors: not mounted, or not by this driver.
 */
static int mount_again(const struct quiesce_target *t, const char *type, bool readonly,
		       void *seal_ctx)
{
	_cleanup_close_ int fs_fd = fsopen(type, FSOPEN_CLOEXEC), mount_fd = -1;
	const char *const *joins_by = fs_ops_named(type)->joins_by;
	struct stat st;
	int fd, r;

	if (fs_fd < 0 || (readonly && fsconfig(fs_fd, FSCONFIG_SET_FLAG, "ro", NULL, 0) < 0) ||
	    (joins_by[0] && fsconfig(fs_fd, FSCONFIG_SET_STRING, joins_by[0], joins_by[1], 0) < 0))
		return -errno;
	r = call_stoppable(t, fs_fd, QUIESCE_CREATE, seal_ctx);
	if (r < 0)
		return r;
	mount_fd = fsmount(fs_fd, FSMOUNT_CLOEXEC,
			   MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);
	if (mount_fd < 0)
		return -errno;
	fd = openat(mount_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	/* files of btrfs have device numbers of their own */
	if (fstat(fd, &st) == 0 && (st.st_dev == t->dev || fs_ops_named(type)->several_devices))
		return fd;
	close(fd);
	return -ESTALE;
}

int join_hidden(struct use *u, const struct quiesce_target *t, void *seal_ctx)
{
	const struct fs_ops *ops = fs_ops_named(t->type ? t->type : "");
	const char *const *types = ops->names;

	for (size_t i = 0; i < ARRAY_SIZE(ops->names) && types[i]; i++)
		for (int readonly = 0; readonly < (ops->several_devices ? 1 : 2); readonly++) {
			int fd = mount_again(t, types[i], readonly, seal_ctx);

			*u = (struct use){ types[i], readonly, fd };
			if (fd >= 0 || fd == -ECANCELED)
				return fd < 0 ? fd : 0;
		}
	return -ESTALE;
}

int join(struct use *u, const struct quiesce_target *t, void *seal_ctx)
{
	int r;

	if (u->mount_fd >= 0)
		return 0;
	u->mount_fd = mount_again(t, u->type, u->readonly, seal_ctx);
	if (u->mount_fd >= 0 || u->mount_fd == -ECANCELED)
		return u->mount_fd < 0 ? u->mount_fd : 0;
	/* for example, the security module wants the same options as for the first mount */
	u->mount_fd = find_mount_open(t->proc_dirfd, t->dev);
	r = u->mount_fd == -ENOENT ? -ENXIO : -ESTALE;
	return u->mount_fd < 0 ? r : 0;
}

bool flush_syncs(const char *type)
{
	return !fs_ops_named(type)->several_devices || kernel_is(6, 17);
}

int sync_used(struct use *u, const struct quiesce_target *t, void *seal_ctx)
{
	int r;

	if (flush_syncs(u->type))
		return call_within(t, t->loop_fd, QUIESCE_FLUSH,
				   t->any_instant ? INSTANT_NS : UINT64_MAX, seal_ctx);
	r = join(u, t, seal_ctx);
	return r < 0 ? r : call_stoppable(t, u->mount_fd, QUIESCE_SYNCFS, seal_ctx);
}
