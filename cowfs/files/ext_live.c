// SPDX-License-Identifier: MIT
/*
 * A directory is as it was if its change time is older than the new state, by more than the tick of
 * the clock, and the clock was not set meanwhile: any later change would have given it a later time.
 */
#include "files/ext_live.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#define INO32_GEN 1 /* FILEID_INO32_GEN of the kernel: inode and generation number */
#define MARGIN_S 3

/* The path of the inode, if the kernel has it. */
static bool cached_path(const struct ext_live *l, uint32_t ino, uint32_t gen, char path[PATH_MAX])
{
	struct {
		struct file_handle h;
		uint32_t id[2];
	} handle = { .h = { .handle_bytes = sizeof(handle.id), .handle_type = INO32_GEN } };
	_cleanup_close_ int fd = -1;
	char link[32];
	ssize_t n;

	memcpy(handle.h.f_handle, (uint32_t[]){ ino, gen }, sizeof(handle.id));
	fd = open_by_handle_at(l->dir_fd, &handle.h, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = fd < 0 ? -1 : readlink(link, path, PATH_MAX - 1);
	if (n <= 1)
		return false;
	path[n] = '\0';
	return path[0] == '/';
}

int64_t ext_live_clock(void)
{
	struct timespec real, never_set;

	clock_gettime(CLOCK_REALTIME, &real);
	clock_gettime(CLOCK_BOOTTIME, &never_set);
	return (int64_t)real.tv_sec - (int64_t)never_set.tv_sec;
}

/* Has the directory, of which the caller has read a name, not changed since the new state? */
static bool is_unchanged(const struct ext_live *l, int fd, dev_t dev, uint32_t *ret_ino)
{
	int64_t set_by = ext_live_clock() - l->clock_s;
	struct statx st;

	/* names in an encrypted one differ from those that the blocks have */
	if (statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &st) < 0 ||
	    makedev(st.stx_dev_major, st.stx_dev_minor) != dev || st.stx_ino > UINT32_MAX ||
	    st.stx_attributes & STATX_ATTR_ENCRYPTED)
		return false;
	*ret_ino = (uint32_t)st.stx_ino;
	return set_by >= -1 && set_by <= 1 && st.stx_ctime.tv_sec > 0 &&
	       (uint64_t)st.stx_ctime.tv_sec + MARGIN_S <= l->time_s;
}

/* Cuts the last name off path. Does it name the inode, in a directory that is as it was? */
static bool take_name(const struct ext_live *l, char *path, uint64_t ino, dev_t dev,
		      struct ext_name *ret)
{
	char *slash = strrchr(path, '/');
	_cleanup_close_ int fd = -1;
	struct stat st;
	uint32_t dir;

	*slash = '\0';
	fd = open(*path ? path : "/", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fstatat(fd, slash + 1, &st, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) < 0 ||
	    st.st_ino != ino || st.st_dev != dev)
		return false;
	/* after the look at the name */
	if (!is_unchanged(l, fd, dev, &dir))
		return false;
	*ret = (struct ext_name){ .dir = dir,
				  .ino = (uint32_t)ino,
				  .maybe_dir = true,
				  .name = slash + 1,
				  .len = strlen(slash + 1) };
	return ret->len && ret->len <= EXT2_NAME_LEN;
}

int ext_live_name(const struct ext_live *l, struct ext_names *x, uint32_t ino, uint32_t gen,
		  uint32_t *ret_dir, char ret_name[EXT2_NAME_LEN + 1])
{
	char path[PATH_MAX];
	struct ext_name n;
	struct stat st;

	if (fstat(l->dir_fd, &st) < 0 || !cached_path(l, ino, gen, path) ||
	    !take_name(l, path, ino, st.st_dev, &n))
		return 0;
	*ret_dir = n.dir;
	memcpy(ret_name, n.name, n.len + 1);
	/* what is not found here is read from the blocks later */
	while (n.dir != EXT2_ROOT_INO && !ext_names_knows(x, n.dir) && *path &&
	       take_name(l, path, n.dir, st.st_dev, &n)) {
		int err = ext_names_learn(x, &n);

		if (err)
			return err;
	}
	return 1;
}
