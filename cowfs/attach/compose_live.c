/* SPDX-License-Identifier: MIT */
/* What the running system does with its composed root: no part of an initramfs. */
#include "attach/compose.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/io.h"
#include "base/mounts.h"
#include "wire/rundir.h"

static const char *place(const char *name, char buf[PATH_MAX])
{
	snprintf(buf, PATH_MAX, "%s/%s", rundir_path(), name);
	return buf;
}

bool compose_load(struct compose_state *ret)
{
	char text[PATH_MAX + 32], path[PATH_MAX];
	unsigned dev_major, dev_minor;
	int n = 0;

	if (io_read_text(AT_FDCWD, place(COMPOSE_STATE, path), text, sizeof(text)) < 0 ||
	    sscanf(text, "%u:%u %n", &dev_major, &dev_minor, &n) < 2 || !n)
		return false;
	ret->dev = makedev(dev_major, dev_minor);
	snprintf(ret->lower, sizeof(ret->lower), "%.*s", PATH_MAX - 1, text + n);
	return true;
}

struct where {
	dev_t dev;
	char *path;
};

static int look_at_mount(void *ctx, int root_dirfd, struct mount_entry *m)
{
	struct where *w = ctx;

	(void)root_dirfd;
	if (m->dev != w->dev || strcmp(m->root, "/"))
		return 0;
	mounts_unescape(m->path);
	snprintf(w->path, PATH_MAX, "%s", m->path);
	return 1;
}

void compose_where(const struct compose_state *s, char ret[PATH_MAX])
{
	_cleanup_close_ int proc_dirfd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct where w = { s->dev, ret };

	if (mounts_each(proc_dirfd, "self", look_at_mount, &w) != 1)
		*ret = '\0';
}

int compose_open(int volume_fd, struct failure *err)
{
	static const char *const option[][2] = { { "index", "off" },
						 { "metacopy", "off" },
						 { "redirect_dir", "nofollow" } };
	_cleanup_close_ int fs_fd = -1;
	char layers[2 * PATH_MAX], lower[PATH_MAX];
	struct stat st, run;
	int fd;

	place(COMPOSE_LOWER_DIR, lower);
	if (stat(lower, &st) < 0 || stat(rundir_path(), &run) < 0 || st.st_dev == run.st_dev)
		return failure_set(err, EXIT_FAILED, -ENODEV, "the image is not mounted on %s",
				   lower);
	if (faccessat(volume_fd, "upper", F_OK, AT_SYMLINK_NOFOLLOW) <
	    0) { /* nothing was committed yet */
		fd = open(lower, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		return fd < 0 ? failure_set(err, EXIT_FAILED, -errno, "%s: %s", lower,
					    strerrordesc_np(errno))
			      : fd;
	}
	snprintf(layers, sizeof(layers), "/proc/self/fd/%d/upper:%s", volume_fd, lower);
	fs_fd = fsopen("overlay", FSOPEN_CLOEXEC);
	fd = fs_fd < 0 || fsconfig(fs_fd, FSCONFIG_SET_STRING, "lowerdir", layers, 0) < 0 ||
			     fsconfig(fs_fd, FSCONFIG_SET_FLAG, "ro", NULL, 0) < 0
		     ? -errno
		     : 0;
	for (size_t i = 0; i < ARRAY_SIZE(option) && fd == 0; i++)
		if (fsconfig(fs_fd, FSCONFIG_SET_STRING, option[i][0], option[i][1], 0) < 0)
			fd = -errno;
	if (fd == 0 && fsconfig(fs_fd, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		fd = -errno;
	if (fd == 0) {
		fd = fsmount(fs_fd, FSMOUNT_CLOEXEC, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV);
		fd = fd < 0 ? -errno : fd;
	}
	return fd < 0 ? failure_set(err, EXIT_FAILED, fd,
				    "%s cannot be composed with the image: %s", ROOT_NAME,
				    strerrordesc_np(-fd))
		      : fd;
}

int compose_mark_reset(const char *loop, struct failure *err)
{
	_cleanup_close_ int fs_fd = fsopen("ext4", FSOPEN_CLOEXEC), mount_fd = -1, fd = -1;
	int e = 0;

	/* another mount of the file system that is mounted already: the same state */
	if (fs_fd < 0 || fsconfig(fs_fd, FSCONFIG_SET_STRING, "source", loop, 0) < 0 ||
	    fsconfig(fs_fd, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		e = -errno;
	if (e == 0) {
		mount_fd = fsmount(fs_fd, FSMOUNT_CLOEXEC, MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID);
		fd = mount_fd < 0 ? -1
				  : openat(mount_fd, COMPOSE_RESET,
					   O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
		if (fd < 0 || fsync(fd) < 0)
			e = -errno;
	}
	return e < 0 ? failure_set(err, EXIT_FAILED, e, "%s: the volume cannot be written: %s",
				   loop, strerrordesc_np(-e))
		     : 0;
}
