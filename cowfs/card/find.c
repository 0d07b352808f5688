/* SPDX-License-Identifier: MIT */
/*
 * Sysfs has a symbolic link for each disk and partition in class/block. The node in /dev is made by the kernel (devtmpfs), so
 * neither udev nor the root is needed.
 */
#include "card/find.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <linux/major.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/io.h"
#include "card/sysfs.h"

#define SECTOR_BYTES 512u

int find_init(struct find *f, int fd)
{
	_cleanup_close_ int devdir = -1;
	struct card_geometry geo = { 0 };
	uint64_t size_bytes;
	struct stat st;
	char path[64];
	int r;

	r = fstat(fd, &st) < 0 ? -errno : blockdev_bytes(fd, &size_bytes);
	if (r < 0)
		return r;
	f->loop = major(st.st_rdev) == LOOP_MAJOR;
	snprintf(path, sizeof(path), "dev/block/%u:%u", major(st.st_rdev), minor(st.st_rdev));
	devdir = openat(f->sys_dirfd, path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (devdir < 0)
		return -errno;
	r = sysfs_geometry(devdir, &geo);
	f->size_bytes = round_down_u64(size_bytes, COW_BLK_BYTES);
	f->disk_off_bytes = geo.disk_off_bytes;
	memcpy(f->identity, geo.identity, sizeof(f->identity));
	return r;
}

void find_skip(struct find *f, uint64_t number)
{
	f->skip[f->n_skip++ % FIND_SKIP] = number;
}

static bool is_skipped(const struct find *f, uint64_t number)
{
	for (unsigned i = 0; i < FIND_SKIP; i++)
		if (f->skip[i] == number)
			return true;
	return false;
}

/* Linux counts disks from 5.15 on. Never 0. */
static uint64_t number_of(int devdir, dev_t rdev)
{
	uint64_t seq = 0;

	if (io_read_u64(devdir, "diskseq", &seq) < 0)
		(void)!io_read_u64(devdir, "../diskseq", &seq);
	return seq << 32 | (uint32_t)rdev;
}

/* The disk or a view of a volume may wait for the card that is looked for. */
static bool is_of_cowfs(int devdir)
{
	char file[16];

	return io_read_text(devdir, "loop/backing_file", file, sizeof(file)) > 0 &&
	       (!strncmp(file, "/cowfs:", 7) || !strncmp(file, "/cowfs-view", 11));
}

static bool may_be(const struct find *f, int devdir, struct find_result *ret, dev_t *ret_rdev)
{
	struct card_geometry geo = { 0 };
	uint64_t sectors;

	*ret_rdev = io_read_rdev(devdir, "dev");
	if (io_read_u64(devdir, "size", &sectors) < 0 || !*ret_rdev ||
	    round_down_u64(sectors * SECTOR_BYTES, COW_BLK_BYTES) != f->size_bytes ||
	    (major(*ret_rdev) == LOOP_MAJOR && !f->loop))
		return false;
	ret->number = number_of(devdir, *ret_rdev);
	if (is_skipped(f, ret->number) || sysfs_geometry(devdir, &geo) < 0)
		return false;
	ret->likeness = 2 * (f->identity[0] && !strcmp(geo.identity, f->identity)) +
			(geo.disk_off_bytes == f->disk_off_bytes);
	return true;
}

/* 1, 0 or -errno. Nothing is written, and nobody is kept from it. */
static int is_it(const struct find *f, dev_t rdev, const char *node)
{
	_cleanup_close_ int fd = -1;
	struct stat st;

	if (!f->is_it)
		return 1;
	fd = openat(f->dev_dirfd, node, O_RDONLY | O_DIRECT | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	return st.st_rdev == rdev ? f->is_it(f, fd) : -ESTALE;
}

int find_next(const struct find *f, unsigned i, struct find_result *ret, int ret_fd[BLOCKDEV_FDS])
{
	int fd = openat(f->sys_dirfd, "class/block", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct find_result stranger = { 0 };
	const struct dirent *e;
	int r = d ? -ENOENT : -errno, is;

	for (unsigned k = 0; k < BLOCKDEV_FDS; k++)
		ret_fd[k] = -1;
	while (d && r < 0 && (e = readdir(d))) {
		_cleanup_close_ int devdir = openat(fd, e->d_name,
						    O_PATH | O_DIRECTORY | O_CLOEXEC);
		dev_t rdev;
		char *p;

		if (devdir < 0 || e->d_name[0] == '.' || strlen(e->d_name) >= sizeof(ret->name) ||
		    !may_be(f, devdir, ret, &rdev) || is_of_cowfs(devdir))
			continue;
		snprintf(ret->name, sizeof(ret->name), "%.63s", e->d_name);
		while ((p = strchr(ret->name, '!'))) /* sysfs has no slash in a name */
			*p = '/';
		is = is_it(f, rdev, ret->name);
		if (is == 0)
			stranger = *ret;
		if (is == 0 || i--)
			continue;
		ret->error = is < 0 ? is
				    : blockdev_claim(f->dev_dirfd, ret->name, rdev, devdir,
						     &ret->readonly, ret_fd);
		r = 0;
	}
	if (r == -ENOENT && *stranger.name) {
		*ret = stranger;
		ret->error = -ESTALE;
		r = 0;
	}
	if (d)
		closedir(d);
	else if (fd >= 0)
		close(fd);
	return r;
}
