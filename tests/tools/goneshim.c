/* SPDX-License-Identifier: MIT */
/*
 * LD_PRELOAD library for tests: a block device that is gone for the programs which have it open, as if it had been pulled out.
 * For everybody else it is still there, so a loop device can play it.
 *
 * The file that COWFS_GONE_FILE names is mapped, because the daemon's worker opens no files. Its first 127 bytes hold blanks, then
 * nothing happens, or
 *
 * 	MAJOR MINOR INODE NAME LEFT [reads]
 *
 * the number of the device, the inode number of its stat file in sysfs, its name there, and how many writes and flushes (reads:
 * or reads) a process does until it is gone (0: now). Byte 128 becomes 1 then, for all processes. From that on reads, writes, flushes and
 * discards of the device fail with EIO, its stat file with ENODEV, and a listing of class/block lacks it, which the 4 bytes from 132
 * on count. Another device of the same file is not touched.
 */
#include <dirent.h>
#include <errno.h>
#include <libaio.h>
#include <linux/fs.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "shim.h"

#define LINE_BYTES 128
#define FILE_BYTES (LINE_BYTES + 8)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static volatile char *control; /* mapped: the line, the flag, the count */
static char order[LINE_BYTES];
static unsigned major_no, minor_no;
static unsigned long long stat_ino;
static unsigned long left;
static bool with_reads;
static char name[64];

static ssize_t (*real_pread)(int, void *, size_t, off64_t);
static ssize_t (*real_pwrite)(int, const void *, size_t, off64_t);
static int (*real_io_submit)(io_context_t, long, struct iocb **);
static int (*real_fsync)(int), (*real_fdatasync)(int);
static int (*real_ioctl)(int, unsigned long, ...);
static struct dirent64 *(*real_readdir)(DIR *);

__attribute__((constructor)) static void goneshim_init(void)
{
	real_pread = real("pread64");
	real_pwrite = real("pwrite64");
	real_io_submit = dlsym(RTLD_NEXT, "io_submit"); /* programs without libaio have none */
	real_fsync = real("fsync");
	real_fdatasync = real("fdatasync");
	real_readdir = real("readdir64");
	real_ioctl = (int (*)(int, unsigned long, ...))real("ioctl");
	control = control_map("COWFS_GONE_FILE", FILE_BYTES);
}

/* Under the lock: reads the line if it is another one. False: nothing is to happen. */
static bool look(void)
{
	char text[LINE_BYTES];

	if (!control)
		return false;
	for (unsigned i = 0; i < LINE_BYTES; i++)
		text[i] = control[i];
	text[LINE_BYTES - 1] = '\0';
	if (strcmp(text, order)) {
		memcpy(order, text, sizeof(order));
		with_reads = strstr(order, " reads");
		if (sscanf(order, "%u %u %llu %63s %lu", &major_no, &minor_no, &stat_ino, name,
			   &left) != 5)
			name[0] = '\0';
		else if (!left)
			control[LINE_BYTES] = 1;
	}
	return name[0];
}

static bool is_gone(void)
{
	return look() && control[LINE_BYTES];
}

/* Is this its descriptor, and is it gone? change: this is a write or a flush. */
static bool gone(int fd, bool change)
{
	int saved = errno;
	bool yes = false;
	struct stat st;

	pthread_mutex_lock(&lock);
	if (look() && fstat(fd, &st) == 0 && S_ISBLK(st.st_mode) &&
	    st.st_rdev == makedev(major_no, minor_no)) {
		yes = control[LINE_BYTES];
		if (!yes && (change || with_reads) && !--left)
			control[LINE_BYTES] = 1; /* this one is done */
	}
	pthread_mutex_unlock(&lock);
	errno = yes ? EIO : saved;
	return yes;
}

static bool is_stat(int fd)
{
	int saved = errno;
	struct stat st;
	bool yes;

	pthread_mutex_lock(&lock);
	yes = is_gone() && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_ino == stat_ino;
	pthread_mutex_unlock(&lock);
	errno = yes ? ENODEV : saved;
	return yes;
}

ssize_t pread64(int fd, void *buf, size_t len_bytes, off64_t off_bytes)
{
	return gone(fd, false) || is_stat(fd) ? -1 : real_pread(fd, buf, len_bytes, off_bytes);
}

ssize_t pread(int fd, void *buf, size_t len_bytes, off_t off_bytes)
{
	return pread64(fd, buf, len_bytes, off_bytes);
}

ssize_t pwrite64(int fd, const void *buf, size_t len_bytes, off64_t off_bytes)
{
	return gone(fd, true) ? -1 : real_pwrite(fd, buf, len_bytes, off_bytes);
}

ssize_t pwrite(int fd, const void *buf, size_t len_bytes, off_t off_bytes)
{
	return pwrite64(fd, buf, len_bytes, off_bytes);
}

/* What cannot be submitted is read by pread. */
int io_submit(io_context_t ctx, long n, struct iocb **list)
{
	return !real_io_submit || (n > 0 && gone(list[0]->aio_fildes, false))
		       ? -EAGAIN
		       : real_io_submit(ctx, n, list);
}

int fsync(int fd)
{
	return gone(fd, true) ? -1 : real_fsync(fd);
}

int fdatasync(int fd)
{
	return gone(fd, true) ? -1 : real_fdatasync(fd);
}

int ioctl(int fd, unsigned long request, ...)
{
	va_list ap;
	void *arg;

	va_start(ap, request);
	arg = va_arg(ap, void *);
	va_end(ap);
	return request == BLKDISCARD && gone(fd, true) ? -1 : real_ioctl(fd, request, arg);
}

struct dirent64 *readdir64(DIR *dir)
{
	struct dirent64 *e;
	bool hidden;

	do {
		e = real_readdir(dir);
		pthread_mutex_lock(&lock);
		hidden = e && is_gone() && !strcmp(e->d_name, name);
		if (hidden)
			++*(volatile unsigned *)(control + LINE_BYTES + 4);
		pthread_mutex_unlock(&lock);
	} while (hidden);
	return e;
}

struct dirent *readdir(DIR *dir)
{
	return (struct dirent *)readdir64(dir);
}
