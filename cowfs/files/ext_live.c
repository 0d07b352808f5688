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
#define NAMES_PER_ID 15

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

/* Cuts the last name off path. Adds it if it names the inode, in a directory that is as it was. */
static bool take_name(const struct ext_live *l, char *path, uint32_t ino, dev_t dev,
		      struct ext_live_names *ret)
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
	if (!slash[1] || strlen(slash + 1) > EXT2_NAME_LEN)
		return false;
	strcpy(ret->name[ret->n].name, slash + 1);
	ret->name[ret->n].dir = dir;
	ret->name[ret->n++].ino = ino;
	return true;
}

static void find_one(struct ext_live *l, uint32_t ino, uint32_t gen, struct ext_live_names *ret)
{
	char path[PATH_MAX];
	uint32_t of = ret->answered;
	struct stat st;

	if (fstat(l->dir_fd, &st) < 0 || !cached_path(l, ino, gen, path))
		return;
	for (unsigned i = 0; i < NAMES_PER_ID && *path && take_name(l, path, ino, st.st_dev, ret);
	     i++) {
		ret->name[ret->n - 1].of = of;
		ino = ret->name[ret->n - 1].dir;
		if (ino == EXT2_ROOT_INO || l->returned[ino % EXT_LIVE_RETURNED] == ino)
			break;
		l->returned[ino % EXT_LIVE_RETURNED] = ino;
	}
}

void ext_live_find(void *ctx, const struct ext_live_id *id, uint32_t n, struct ext_live_names *ret)
{
	for (; ret->answered < n && ret->n + NAMES_PER_ID <= EXT_LIVE_NAMES; ret->answered++)
		find_one(ctx, id[ret->answered].ino, id[ret->answered].gen, ret);
}

int ext_live_learn(struct ext_names *x, const struct ext_live_names *names)
{
	int err = 0;

	/* what is not found here is read from the blocks later */
	for (uint32_t i = 1; i < names->n && !err; i++) {
		const struct ext_name n = { .dir = names->name[i].dir,
					    .ino = names->name[i].ino,
					    .maybe_dir = true,
					    .name = names->name[i].name,
					    .len = strlen(names->name[i].name) };

		if (names->name[i].of == names->name[i - 1].of && !ext_names_knows(x, n.ino))
			err = ext_names_learn(x, &n);
	}
	return err;
}
