/* SPDX-License-Identifier: MIT */
#include "base/backing.h"

#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/io.h"
#include "base/mounts.h"

#define STEPS 16u

bool backing_is(int sys_dirfd, dev_t rdev, const char *name)
{
	char path[80], file[256];

	snprintf(path, sizeof(path), "%sdev/block/%u:%u/loop/backing_file",
		 sys_dirfd < 0 ? "/sys/" : "", major(rdev), minor(rdev));
	return io_read_text(sys_dirfd, path, file, sizeof(file)) > 0 && !strcmp(file + 1, name);
}

struct search {
	const char *file;
	dev_t disk;
	/* of the mount that the file is on */
	size_t path_bytes;
	dev_t dev;
	bool shows;
};

static int look_at_mount(void *ctx, int root_dirfd, struct mount_entry *m)
{
	struct search *s = ctx;
	size_t n;

	mounts_unescape(m->path);
	n = strcmp(m->path, "/") ? strlen(m->path) : 0;
	if (n < s->path_bytes || strncmp(s->file, m->path, n) || s->file[n] != '/')
		return 0;
	s->path_bytes = n;
	s->dev = m->dev;
	s->shows = mounts_shows(root_dirfd, m, s->disk);
	return 0;
}

static bool reaches(dev_t rdev, dev_t disk, unsigned steps);

static bool file_reaches(const char *file, const char *who, dev_t disk, unsigned steps)
{
	_cleanup_close_ int proc_fd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct search s = { .file = file, .disk = disk };

	return mounts_each(proc_fd, who, look_at_mount, &s) == 0 &&
	       (s.shows || reaches(s.dev, disk, steps));
}

static bool slave_reaches(dev_t rdev, dev_t disk, unsigned steps)
{
	char pattern[80];
	bool yes = false;
	glob_t g = { 0 };

	snprintf(pattern, sizeof(pattern), "/sys/dev/block/%u:%u/slaves/*/dev", major(rdev),
		 minor(rdev));
	if (glob(pattern, GLOB_NOSORT, NULL, &g))
		return false;
	for (size_t i = 0; i < g.gl_pathc && !yes; i++)
		yes = reaches(io_read_rdev(AT_FDCWD, g.gl_pathv[i]), disk, steps);
	globfree(&g);
	return yes;
}

static bool reaches(dev_t rdev, dev_t disk, unsigned steps)
{
	_cleanup_close_ int devdir = -1;
	char path[PATH_MAX];

	if (rdev == disk)
		return true;
	snprintf(path, sizeof(path), "/sys/dev/block/%u:%u", major(rdev), minor(rdev));
	devdir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (devdir < 0 || !steps--)
		return false;
	if (faccessat(devdir, "partition", F_OK, 0) == 0)
		return reaches(io_read_rdev(devdir, "../dev"), disk, steps);
	if (io_read_text(devdir, "loop/backing_file", path, sizeof(path)) > 0)
		return file_reaches(path, "self", disk, steps) ||
		       file_reaches(path, "1", disk, steps);
	return slave_reaches(rdev, disk, steps);
}

bool backing_lies_on(dev_t rdev, dev_t disk)
{
	return rdev && disk && reaches(rdev, disk, STEPS);
}
