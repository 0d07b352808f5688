/* SPDX-License-Identifier: MIT */
#include "wire/rundir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "base/io.h"

#define TEMP ".new"
#define PID_BYTES 16

const char *rundir_path(void)
{
	const char *dir = secure_getenv("COWFS_RUNDIR");

	return dir && *dir ? dir : "/run/cowfs";
}

const char *rundir_file(char buf[PATH_MAX], const char *fmt, ...)
{
	char name[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(name, sizeof(name), fmt, ap);
	va_end(ap);
	snprintf(buf, PATH_MAX, "%s/%s", rundir_path(), name);
	return buf;
}

bool rundir_name_valid(const char *name)
{
	size_t len = strlen(name);

	return len && len < RUNDIR_NAME_BYTES && name[0] != '.' &&
	       strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") ==
		       len;
}

void rundir_label(const char *name, char label[RUNDIR_LABEL_BYTES])
{
	snprintf(label, RUNDIR_LABEL_BYTES, "cowfs:%.57s", name);
}

/* mkdir that accepts an existing directory; a new one is readable for all, whatever the umask */
static int open_dir(int at, const char *name)
{
	_cleanup_close_ int fd = -1;
	bool made = mkdirat(at, name, 0755) == 0;

	if (!made && errno != EEXIST)
		return -errno;
	fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || (made && fchmod(fd, 0755) < 0))
		return -errno;
	return steal_fd(&fd);
}

/* Opens NAME and takes its lock; -EAGAIN if its previous owner removed it meanwhile. */
static int lock_dir(int parent_fd, const char *name, int *ret_fd, int *ret_lock_fd)
{
	_cleanup_close_ int fd = open_dir(parent_fd, name), lock_fd = -1;
	struct stat mine, now;

	if (fd < 0)
		return fd;
	/* a worker keeps it: it must not fill /run by it */
	lock_fd = openat(fd, RUNDIR_LOCK, O_RDONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (lock_fd < 0)
		return errno == ENOENT ? -EAGAIN : -errno;
	if (flock(lock_fd, LOCK_EX | LOCK_NB) < 0)
		return errno == EWOULDBLOCK ? -EBUSY : -errno;
	if (fstat(lock_fd, &mine) < 0)
		return -errno;
	if (fstatat(fd, RUNDIR_LOCK, &now, AT_SYMLINK_NOFOLLOW) < 0 || mine.st_ino != now.st_ino)
		return -EAGAIN;
	*ret_fd = steal_fd(&fd);
	*ret_lock_fd = steal_fd(&lock_fd);
	return 0;
}

int rundir_claim(struct rundir *ret, const char *name)
{
	_cleanup_close_ int parent_fd = -1, fd = -1, lock_fd = -1;
	int e = -EAGAIN;

	if (!rundir_name_valid(name))
		return -EINVAL;
	parent_fd = open_dir(AT_FDCWD, rundir_path());
	if (parent_fd < 0)
		return parent_fd;
	for (int tries = 0; e == -EAGAIN && tries < 10; tries++)
		e = lock_dir(parent_fd, name, &fd, &lock_fd);
	if (e < 0)
		return e;
	if (unlinkat(fd, RUNDIR_SOCKET, 0) < 0 && errno != ENOENT)
		return -errno;
	snprintf(ret->name, sizeof(ret->name), "%s", name);
	ret->parent_fd = steal_fd(&parent_fd);
	ret->fd = steal_fd(&fd);
	ret->lock_fd = steal_fd(&lock_fd);
	return 0;
}

static int replace(int dirfd, const char *temp, const char *file, const char *text,
		   size_t len_bytes)
{
	_cleanup_close_ int fd =
		openat(dirfd, temp, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);
	int e;

	if (fd < 0 || fchmod(fd, 0644) < 0)
		return -errno;
	e = io_write_full(fd, text, len_bytes);
	if (e < 0)
		return e;
	return renameat(dirfd, temp, dirfd, file) < 0 ? -errno : 0;
}

int rundir_write(const char *file, const char *text)
{
	char path[PATH_MAX], temp[PATH_MAX];

	return replace(AT_FDCWD, rundir_file(temp, "%s" TEMP, file), rundir_file(path, "%s", file),
		       text, strlen(text));
}

int rundir_publish(const struct rundir *d, const char *file, const char *text, size_t len_bytes)
{
	static const struct timespec never[2] = { { 0 }, { 0 } };
	int e = replace(d->fd, TEMP, file, text, len_bytes);

	if (e < 0)
		(void)!utimensat(d->fd, file, never, 0);
	return e;
}

int rundir_publish_status(const struct rundir *d, const char *text, size_t len_bytes)
{
	if (len_bytes)
		return rundir_publish(d, RUNDIR_STATUS, text, len_bytes);
	return unlinkat(d->fd, RUNDIR_STATUS, 0) < 0 ? -errno : 0;
}

bool rundir_is_old(const struct stat *st)
{
	return st->st_mtim.tv_sec == 0;
}

int rundir_publish_pid(const struct rundir *d, pid_t pid)
{
	_cleanup_close_ int fd = openat(d->fd, RUNDIR_PID, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
	char text[PID_BYTES + 1] = "";

	memset(text, '\n', PID_BYTES);
	text[snprintf(text, sizeof(text), "%d", (int)pid)] = '\n';
	return fd >= 0 && pwrite(fd, text, PID_BYTES, 0) == PID_BYTES
		       ? 0
		       : rundir_publish(d, RUNDIR_PID, text, PID_BYTES);
}

void rundir_leave(struct rundir *d)
{
	close(steal_fd(&d->lock_fd));
	close(steal_fd(&d->fd));
	close(steal_fd(&d->parent_fd));
}

void rundir_release(struct rundir *d)
{
	/* with a status there are facts (client.c) */
	static const char *const files[] = { RUNDIR_STATUS, RUNDIR_SOCKET, RUNDIR_PID,
					     TEMP,	    RUNDIR_FACTS,  RUNDIR_LOCK };

	if (d->fd < 0)
		return;
	for (size_t i = 0; i < ARRAY_SIZE(files); i++)
		unlinkat(d->fd, files[i], 0);
	unlinkat(d->parent_fd, d->name, AT_REMOVEDIR);
	rundir_leave(d);
}
