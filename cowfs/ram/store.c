/* SPDX-License-Identifier: MIT */
/*
 * The RAM store: a private tmpfs that is never attached to the tree. So no path leads to it and
 * nothing can unmount it. Its size= is the hard limit.
 */
#include "ram/store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/statfs.h>

/* a file for each generation: active, sealed, and one for each failed commit not yet merged */
#define STORE_INODES "64"

struct ram_store {
	int mnt_fd;
};

static int set_string(int fs_fd, const char *key, const char *value)
{
	return fsconfig(fs_fd, FSCONFIG_SET_STRING, key, value, 0) < 0 ? -errno : 0;
}

static int set_size(int fs_fd, uint64_t limit_bytes)
{
	char size[24];

	snprintf(size, sizeof(size), "%llu", (unsigned long long)limit_bytes);
	return set_string(fs_fd, "size", size);
}

static int configure(int fs_fd, uint64_t limit_bytes)
{
	int r;

	if ((r = set_size(fs_fd, limit_bytes)) < 0 ||
	    (r = set_string(fs_fd, "nr_inodes", STORE_INODES)) < 0 ||
	    (r = set_string(fs_fd, "mode", "0700")) < 0)
		return r;
	/* Kernels without huge pages reject the first option, those before 6.4 the second. Then the
	 * setting already has the wanted value, or is not available. */
	(void)set_string(fs_fd, "huge", "never");
	(void)fsconfig(fs_fd, FSCONFIG_SET_FLAG, "noswap", NULL, 0);
	return fsconfig(fs_fd, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0 ? -errno : 0;
}

int ram_store_open(struct ram_store **ret, uint64_t limit_bytes)
{
	const unsigned attr = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC |
			      MOUNT_ATTR_NOATIME;
	_cleanup_free_ struct ram_store *s = NULL;
	_cleanup_close_ int fs_fd = -1;
	int r;

	if (!limit_bytes)
		return -EINVAL;
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	fs_fd = fsopen("tmpfs", FSOPEN_CLOEXEC);
	if (fs_fd < 0)
		return -errno;
	r = configure(fs_fd, limit_bytes);
	if (r < 0)
		return r;
	s->mnt_fd = fsmount(fs_fd, FSMOUNT_CLOEXEC, attr);
	if (s->mnt_fd < 0)
		return -errno;
	*ret = steal_ptr(s);
	return 0;
}

int ram_store_resize(struct ram_store *s, uint64_t limit_bytes)
{
	_cleanup_close_ int fs_fd = fspick(s->mnt_fd, "", FSPICK_EMPTY_PATH | FSPICK_CLOEXEC);
	int r;

	if (fs_fd < 0)
		return -errno;
	r = set_size(fs_fd, limit_bytes);
	if (r < 0)
		return r;
	return fsconfig(fs_fd, FSCONFIG_CMD_RECONFIGURE, NULL, NULL, 0) < 0 ? -errno : 0;
}

void ram_store_close(struct ram_store *s)
{
	if (!s)
		return;
	close(s->mnt_fd);
	free(s);
}

void ram_store_usage(const struct ram_store *s, struct ram_usage *ret)
{
	struct statfs st = { 0 };

	/* cannot fail on an open descriptor */
	(void)fstatfs(s->mnt_fd, &st);
	ret->limit_bytes = (uint64_t)st.f_blocks * (uint64_t)st.f_bsize;
	ret->used_bytes = (uint64_t)(st.f_blocks - st.f_bfree) * (uint64_t)st.f_bsize;
}

int ram_store_file(const struct ram_store *s, uint64_t size_bytes)
{
	_cleanup_close_ int fd = openat(s->mnt_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	if (fd < 0)
		return -errno;
	if (ftruncate(fd, (off_t)size_bytes) < 0)
		return -errno;
	return steal_fd(&fd);
}
