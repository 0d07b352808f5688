/* SPDX-License-Identifier: MIT */
#include "measure/bench_target.h"

#include <blkid.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>

#include "base/boxed.h"
#include "base/clean.h"
#include "base/holder.h"
#include "base/io.h"
#include "base/mounts.h"
#include "base/parse.h"
#include "base/path.h"
#include "offline/measured.h"
#include "wire/client.h"

#define DIR_UNIT_BYTES (4 * MIB)
#define KEEP_FREE_BYTES (8 * MIB) /* of a file system that gets the file */

/* ---- what a device is ---- */

static int read_sysfs(dev_t dev, const char *name, char *buf, size_t size_bytes)
{
	char path[128];

	snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/%s", major(dev), minor(dev), name);
	return io_read_text(AT_FDCWD, path, buf, size_bytes);
}

static void find_raid(dev_t dev, struct bench_target *t)
{
	char level[16], disks[16];

	if (read_sysfs(dev, "md/level", level, sizeof(level)) < 0 &&
	    read_sysfs(dev, "../md/level", level, sizeof(level)) < 0)
		return;
	if (read_sysfs(dev, "md/raid_disks", disks, sizeof(disks)) < 0 &&
	    read_sysfs(dev, "../md/raid_disks", disks, sizeof(disks)) < 0)
		strcpy(disks, "?");
	snprintf(t->raid, sizeof(t->raid), "%s of %s", CLEAN(level), CLEAN(disks));
}

/* Is one of them the other, or the disk of the other? */
static bool overlap(dev_t a, dev_t b)
{
	dev_t disk_a = a, disk_b = b;

	if (a == b)
		return true;
	return blkid_devno_to_wholedisk(a, NULL, 0, &disk_a) == 0 &&
	       blkid_devno_to_wholedisk(b, NULL, 0, &disk_b) == 0 && (disk_a == b || disk_b == a);
}

int bench_check_users(const char *path, dev_t dev, struct failure *f)
{
	char backing[PATH_MAX], name[RUNDIR_NAME_BYTES];
	int e = 0;
	glob_t g;

	client_find_device(path, name);
	if (*name)
		return failure_set(f, EXIT_FAILED, -EBUSY,
				   "%s: belongs to volume %s, where writes stay in RAM", path,
				   name);
	if (glob("/sys/block/loop*/loop/backing_file", 0, NULL, &g))
		return 0;
	for (size_t i = 0; i < g.gl_pathc && e == 0; i++) {
		struct stat st;

		/* a stat of another file may wait for a daemon */
		if (io_read_text(AT_FDCWD, g.gl_pathv[i], backing, sizeof(backing)) >= 0 &&
		    !strncmp(backing, "/dev/", 5) && stat(backing, &st) == 0 &&
		    S_ISBLK(st.st_mode) && overlap(st.st_rdev, dev))
			e = failure_set(f, EXIT_FAILED, -EBUSY, "%s: is in use by %.*s", path,
					(int)strcspn(g.gl_pathv[i] + strlen("/sys/block/"), "/"),
					g.gl_pathv[i] + strlen("/sys/block/"));
	}
	globfree(&g);
	return e;
}

static int in_use(const struct bench_target *t, dev_t dev, struct failure *f)
{
	_cleanup_close_ int proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char dir[PATH_MAX], name[64];

	if (mounts_device_is_on(NULL, t->path, dir))
		return failure_set(
			f, EXIT_FAILED, -EBUSY,
			"%s: is mounted on %s; bench writes only to a device that is not "
			"mounted",
			t->path, dir);
	if (proc >= 0 && holder_find(proc, dev, name, sizeof(name)))
		return failure_set(f, EXIT_FAILED, -EBUSY, "%s: is in use by %s", t->path, name);
	return failure_set(f, EXIT_FAILED, -EBUSY,
			   "%s: is in use (a partition of it is mounted, or an array or a volume "
			   "holds it)",
			   t->path);
}

static int open_failed(const struct bench_target *t, int e, struct failure *f)
{
	if (t->writes && (e == -EROFS || e == -EACCES || e == -EPERM))
		return failure_set(f, EXIT_FAILED, e, "%s: is read-only, or may not be written",
				   t->path);
	if (e == -ENXIO || e == -ENOMEDIUM)
		return failure_set(f, EXIT_FAILED, e, "%s: has no medium", t->path);
	return failure_set(f, EXIT_FAILED, e, "%s: cannot be opened: %s", t->path,
			   strerrordesc_np(-e));
}

static int set_direct(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	return flags < 0 || fcntl(fd, F_SETFL, flags | O_DIRECT) < 0 ? -errno : 0;
}

/* The smallest request that direct I/O allows: the first one that succeeds. */
static void find_sector(struct bench_target *t)
{
	_cleanup_free_ void *buf = io_alloc(COW_BLK_BYTES);

	t->sector_bytes = 512;
	while (buf && t->sector_bytes < COW_BLK_BYTES &&
	       pread(t->fd, buf, t->sector_bytes, (off_t)t->off_bytes) < 0 && errno == EINVAL)
		t->sector_bytes *= 2;
}

/* ---- a device ---- */

/* The reports tested from the middle of the device on, because the first part of some cards is
 * faster. */
static void place_area(const struct bench_request *rq, const struct measured_facts *facts,
		       struct bench_target *t)
{
	uint64_t len = rq->size_bytes ? rq->size_bytes
				      : min_u64(rq->default_bytes, facts->size_bytes / 2),
		 unit = facts->erase_block_bytes, disk = facts->disk_off_bytes, start;

	len = min_u64(len, facts->size_bytes);
	start = round_up_u64(disk + facts->size_bytes / 2, unit) - disk;
	if (start > facts->size_bytes || len > facts->size_bytes - start)
		start = round_down_u64(facts->size_bytes - len, COW_BLK_BYTES);
	t->off_bytes = start;
	t->len_bytes = round_down_u64(len, COW_BLK_BYTES);
}

static int use_area(const struct bench_request *rq, struct bench_target *t, struct failure *f)
{
	uint64_t off = rq->write_off_bytes, len = rq->write_len_bytes;

	if (off % COW_BLK_BYTES || len % COW_BLK_BYTES)
		return failure_set(f, EXIT_USAGE, -EINVAL,
				   "--write-area: start and length must be multiples of 4 KiB");
	if (off > t->size_bytes || len > t->size_bytes - off)
		return failure_set(f, EXIT_USAGE, -ERANGE,
				   "%s: --write-area is beyond the end of the device (%s)", t->path,
				   FORMAT_SIZE(t->size_bytes));
	t->off_bytes = off;
	t->len_bytes = rq->size_bytes ? min_u64(round_down_u64(rq->size_bytes, COW_BLK_BYTES), len)
				      : len;
	return 0;
}

static int look_at_device(const struct bench_request *rq, struct bench_target *t, dev_t dev,
			  struct failure *f)
{
	struct measured_facts facts;
	int e = measured_look(t->path, &facts);

	if (e < 0)
		return open_failed(t, e, f);
	t->size_bytes = facts.size_bytes;
	t->unit_bytes = facts.erase_block_bytes;
	t->unit_guessed = facts.guessed_erase_block;
	snprintf(t->identity, sizeof(t->identity), "%s", facts.identity);
	snprintf(t->model, sizeof(t->model), "%.*s", (int)sizeof(t->model) - 1, facts.model);
	place_area(rq, &facts, t);
	find_raid(dev, t);
	return rq->write_len_bytes ? use_area(rq, t, f) : 0;
}

static int open_device(const struct bench_request *rq, struct bench_target *t, int path_fd,
		       dev_t dev, struct failure *f)
{
	int e, readonly = 0;

	t->writes = rq->write || rq->write_len_bytes;
	e = look_at_device(rq, t, dev, f);
	if (e < 0)
		return e;
	if (t->len_bytes < MIB)
		return failure_set(f, EXIT_USAGE, -EINVAL,
				   "%s: the tested part has %s; at least 1 MiB is needed", t->path,
				   FORMAT_SIZE(t->len_bytes));
	/* nothing else can mount it meanwhile */
	t->fd = path_reopen(path_fd, t->writes ? O_RDWR | O_EXCL : O_RDONLY);
	if (t->fd < 0)
		return t->fd == -EBUSY ? in_use(t, dev, f) : open_failed(t, t->fd, f);
	(void)fcntl(t->fd, F_SETFD, 0); /* tables.py and fio inherit it */
	/* a device that was set read-only can be opened for writing all the same */
	if (t->writes && ioctl(t->fd, BLKROGET, &readonly) == 0 && readonly)
		return open_failed(t, -EROFS, f);
	if (t->writes) {
		e = bench_check_users(t->path, dev, f);
		if (e < 0)
			return e;
		e = measured_content(t->path, t->fd, t->content, sizeof(t->content));
		if (e < 0)
			return failure_set(f, EXIT_FAILED, e, "%s: cannot be read: %s", t->path,
					   boxed_error(e));
	}
	if (*t->content && !rq->force)
		return failure_set(f, EXIT_FAILED, -EEXIST,
				   "%s: holds %s; --force overwrites a part of it", t->path,
				   t->content);
	t->direct = set_direct(t->fd) == 0;
	find_sector(t);
	return 0;
}

/* ---- a directory ---- */

struct dir_mount {
	struct bench_target *t;
	uint64_t id;
	char path[PATH_MAX];
};

static int take_mount(void *ctx, int root_dirfd, struct mount_entry *m)
{
	struct dir_mount *d = ctx;

	(void)root_dirfd;
	if (m->id != d->id)
		return 0;
	clean_copy(d->t->fs, sizeof(d->t->fs), m->type);
	mounts_unescape(m->path);
	snprintf(d->path, sizeof(d->path), "%s", m->path);
	return 1;
}

/* Names its file system. In a volume all writes stay in RAM until a commit. */
static int find_fs(struct bench_target *t, struct failure *f)
{
	_cleanup_close_ int proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct dir_mount d = { .t = t };
	char name[RUNDIR_NAME_BYTES];
	struct statx st;

	if (proc < 0 || statx(t->dir_fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &st) < 0)
		return 0;
	d.id = st.stx_mnt_id;
	if (mounts_each(proc, "self", take_mount, &d) <= 0)
		return 0;
	client_find_device(d.path, name);
	return *name ? failure_set(f, EXIT_FAILED, -EBUSY,
				   "%s: lies on volume %s, where writes stay in RAM: bench would "
				   "measure the RAM, and fill it",
				   t->path, name)
		     : 0;
}

/* The device that the file system is on. Some have none. */
static void find_device_of_dir(struct bench_target *t)
{
	char device[PATH_MAX];
	struct stat st;

	if (fstat(t->dir_fd, &st) < 0)
		return;
	find_raid(st.st_dev, t);
	snprintf(device, sizeof(device), "/dev/block/%u:%u", major(st.st_dev), minor(st.st_dev));
	if (major(st.st_dev) && access(device, F_OK) == 0)
		measured_model(device, t->model, sizeof(t->model));
}

/* A file without a name in the directory. Returns the descriptor or -errno. */
static int new_file(const struct bench_target *t)
{
	int fd = openat(t->dir_fd, ".", O_TMPFILE | O_RDWR, 0600), e = 0;

	if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL)) {
		char name[64];

		snprintf(name, sizeof(name), ".cowfs-bench.%ld.%llx", (long)getpid(),
			 (unsigned long long)now_ns());
		fd = openat(t->dir_fd, name, O_CREAT | O_EXCL | O_RDWR | O_NOFOLLOW, 0600);
		if (fd >= 0 && unlinkat(t->dir_fd, name, 0) < 0)
			e = -errno;
	}
	if (fd < 0)
		return -errno;
	if (e == 0 && ftruncate(fd, (off_t)t->len_bytes) < 0)
		e = -errno;
	if (e == 0 && fallocate(fd, 0, 0, (off_t)t->len_bytes) < 0 && errno != EOPNOTSUPP)
		e = -errno;
	if (e < 0) {
		close(fd);
		return e;
	}
	return fd;
}

static int check_room(const struct bench_target *t, uint64_t extra_bytes, struct failure *f)
{
	uint64_t need = t->len_bytes + extra_bytes + KEEP_FREE_BYTES, free_bytes;
	struct statvfs s;

	if (fstatvfs(t->dir_fd, &s) < 0)
		return failure_set(f, EXIT_FAILED, -errno, "%s: %s", t->path,
				   strerrordesc_np(errno));
	if (s.f_flag & ST_RDONLY)
		return failure_set(f, EXIT_FAILED, -EROFS, "%s: is mounted read-only", t->path);
	free_bytes = (uint64_t)s.f_bavail * s.f_frsize;
	if (free_bytes < need)
		return failure_set(
			f, EXIT_FAILED, -ENOSPC,
			"%s: has %s free, %s are needed; --size or --tables makes the test smaller",
			t->path, FORMAT_MIB(free_bytes), FORMAT_MIB(need + MIB - 1));
	return 0;
}

static int open_dir(const struct bench_request *rq, struct bench_target *t, int path_fd,
		    struct failure *f)
{
	int e;

	if (rq->write || rq->write_len_bytes)
		return failure_set(f, EXIT_USAGE, -EINVAL, "%s: --write-area is for devices",
				   t->path);
	t->is_dir = t->writes = true;
	t->len_bytes = round_down_u64(rq->size_bytes ? rq->size_bytes : rq->default_file_bytes,
				      COW_BLK_BYTES);
	t->size_bytes = t->len_bytes;
	t->unit_bytes = DIR_UNIT_BYTES;
	t->unit_guessed = true;
	if (t->len_bytes < MIB)
		return failure_set(f, EXIT_USAGE, -EINVAL, "--size: at least 1M is needed");
	t->dir_fd = path_reopen(path_fd, O_RDONLY | O_DIRECTORY);
	if (t->dir_fd < 0)
		return open_failed(t, t->dir_fd, f);
	(void)fcntl(t->dir_fd, F_SETFD, 0); /* tables.py inherits it */
	e = find_fs(t, f);
	if (e == 0)
		e = check_room(t, rq->extra_bytes, f);
	if (e < 0)
		return e;
	find_device_of_dir(t);
	t->fd = new_file(t);
	if (t->fd < 0)
		return failure_set(f, EXIT_FAILED, t->fd, "%s: no file can be made: %s", t->path,
				   strerrordesc_np(-t->fd));
	t->direct = set_direct(t->fd) == 0;
	find_sector(t);
	return 0;
}

/* ---- both ---- */

int bench_open(const struct bench_request *rq, struct bench_target *ret, struct failure *f)
{
	struct bench_target t = { .path = rq->path, .fd = -1, .dir_fd = -1 };
	char why[2 * PATH_MAX];
	_cleanup_close_ int path_fd = path_open(rq->path, O_PATH, why, sizeof(why));
	struct stat st;
	int e = path_fd < 0 ? path_fd : fstat(path_fd, &st) < 0 ? -errno : 0;

	if (e < 0)
		return failure_set(f, EXIT_FAILED, e, "%s: %s", rq->path,
				   *why ? why : strerrordesc_np(-e));
	if (S_ISBLK(st.st_mode))
		e = open_device(rq, &t, path_fd, st.st_rdev, f);
	else if (S_ISDIR(st.st_mode))
		e = open_dir(rq, &t, path_fd, f);
	else
		e = failure_set(f, EXIT_USAGE, -ENOTBLK,
				"%s: is neither a block device nor a directory", rq->path);
	if (e < 0)
		bench_close(&t);
	else
		*ret = t;
	return e;
}

void bench_close(struct bench_target *t)
{
	if (t->fd >= 0)
		close(t->fd);
	if (t->dir_fd >= 0)
		close(t->dir_fd);
	t->fd = t->dir_fd = -1;
}
