/* SPDX-License-Identifier: MIT */
#include "card/disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "card/blockdev.h"

#define SECTOR_BYTES 512u

/* "/dev/" and DEVNAME of a device's folder in sysfs. */
static int node_of(int devdir, char *ret, size_t size_bytes)
{
	char text[1024];
	int r = io_read_text(devdir, "uevent", text, sizeof(text));
	const char *name = r > 0 ? strstr(text, "DEVNAME=") : NULL;

	if (!name)
		return r < 0 ? r : -ENODEV;
	name += strlen("DEVNAME=");
	r = snprintf(ret, size_bytes, "/dev/%.*s", (int)strcspn(name, "\n"), name);
	return r < (int)size_bytes ? 0 : -ENAMETOOLONG;
}

bool disk_is_partition(const char *path)
{
	_cleanup_close_ int dir = blockdev_open_sysfs(path);

	return dir >= 0 && faccessat(dir, "partition", F_OK, 0) == 0;
}

int disk_of(const char *path, char *ret, size_t size_bytes)
{
	_cleanup_close_ int dir = blockdev_open_sysfs(path);
	_cleanup_close_ int up = -1;

	if (dir < 0)
		return dir;
	if (faccessat(dir, "partition", F_OK, 0) < 0)
		return node_of(dir, ret, size_bytes);
	up = openat(dir, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
	return up < 0 ? -errno : node_of(up, ret, size_bytes);
}

/* dir: a folder below the disk's. 1: it is a partition; 0: it is not. */
static int read_part(int dir, struct disk_part *ret)
{
	uint64_t number, start, size;
	int r = io_read_u64(dir, "partition", &number);

	if (r < 0)
		return r == -ENOENT || r == -ENOTDIR ? 0 : r;
	r = io_read_u64(dir, "start", &start);
	if (r == 0)
		r = io_read_u64(dir, "size", &size);
	if (r == 0)
		r = node_of(dir, ret->node, sizeof(ret->node));
	if (r < 0)
		return r;
	ret->number = (unsigned)number;
	ret->start_bytes = start * SECTOR_BYTES;
	ret->size_bytes = size * SECTOR_BYTES;
	return 1;
}

static DIR *open_list(int dir, const char *name)
{
	int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);

	if (!d && fd >= 0)
		close(fd);
	return d;
}

static int by_number(const void *a, const void *b)
{
	const struct disk_part *x = a, *y = b;

	return x->number < y->number ? -1 : x->number > y->number;
}

int disk_parts(const char *disk, struct disk_part ret[DISK_PARTS_MAX], size_t *ret_n)
{
	_cleanup_close_ int dir = blockdev_open_sysfs(disk);
	const struct dirent *e;
	size_t n = 0;
	int r = 0;
	DIR *d;

	if (dir < 0)
		return dir;
	d = open_list(dir, ".");
	if (!d)
		return -errno;
	while (r >= 0 && (e = readdir(d))) {
		struct disk_part p;
		_cleanup_close_ int sub = openat(dir, e->d_name, O_PATH | O_DIRECTORY | O_CLOEXEC);

		r = *e->d_name == '.' || sub < 0 ? 0 : read_part(sub, &p);
		if (r > 0 && n == DISK_PARTS_MAX)
			r = -EOVERFLOW;
		if (r > 0)
			ret[n++] = p;
	}
	closedir(d);
	qsort(ret, n, sizeof(*ret), by_number);
	*ret_n = n;
	return r < 0 ? r : 0;
}

bool disk_holder(const char *path, char *ret, size_t size_bytes)
{
	_cleanup_close_ int dir = blockdev_open_sysfs(path);
	DIR *d = dir < 0 ? NULL : open_list(dir, "holders");
	char text[sizeof("holders//dm/name") + NAME_MAX];

	ret[0] = '\0';
	for (const struct dirent *e; d && !*ret && (e = readdir(d));) {
		if (*e->d_name == '.')
			continue;
		snprintf(text, sizeof(text), "holders/%s/dm/name", e->d_name);
		if (io_read_text(dir, text, ret, size_bytes) <= 0)
			snprintf(ret, size_bytes, "%s", e->d_name);
	}
	if (d)
		closedir(d);
	return *ret;
}

uint64_t disk_sector_bytes(const char *path)
{
	_cleanup_close_ int dir = blockdev_open_sysfs(path);
	uint64_t bytes;

	return dir >= 0 && io_read_u64(dir, "queue/logical_block_size", &bytes) == 0 ? bytes
										     : SECTOR_BYTES;
}
