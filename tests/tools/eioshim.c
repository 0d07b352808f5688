/* SPDX-License-Identifier: MIT */
/*
 * LD_PRELOAD library for tests: a block device that reports errors, or is slow, when told to.
 *
 * Touches only descriptors of block devices opened O_DIRECT, which is how cowfs opens a card. The
 * first 64 bytes of the file that COWFS_EIO_FILE names are looked at before each operation (write them
 * in place: the file is mapped, because the daemon's worker opens no files). While they are blank,
 * nothing happens. They hold one line:
 *
 * 	read|write|flush SKIP COUNT	after SKIP such operations, the next COUNT fail with EIO
 * 	lock SKIP COUNT			after SKIP attempts to set it read-only, the next COUNT fail with EIO
 * 	shut MS				each of them takes MS milliseconds longer
 * 	slow MS				each write takes MS milliseconds longer, or until the line changes
 * 	late SKIP MS			after SKIP writes, the next one takes MS milliseconds longer
 * 	discard SKIP COUNT		after SKIP discards, the next COUNT fail with EIO
 * 	trim MS				each discard takes MS milliseconds longer
 * 	noise SEED			a discard writes noise instead
 * 	card MS MB_PER_S		a card that does one request at a time, read or write: MS milliseconds and
 * 					the transfer at MB_PER_S (10^6 bytes)
 * 	bad BYTE END			reads of these bytes fail where the card is open for reading only
 * 	dead BYTE END			they fail wherever
 * 	wrap MIB			a card that has MIB and says that it has more: a byte beyond is one of the start.
 *					Where it is open for writing
 * 	seal MS				sealing takes MS milliseconds longer, after the store has recorded it
 *
 * While the file COWFS_SYNC_HANGS exists, a sync before a seal does not end; while COWFS_SYNC_STAYS does, it has written
 * everything, and does not return.
 * With COWFS_NO_DISCARD in the environment the card discards nothing. (A loop device whose limit of
 * discards was set to 0 keeps that for its next users, and refuses any other.)
 * With COWFS_CLOCK_BACK in the environment the wall clock is an hour behind what the kernel waits
 * by.
 *
 * Counting begins anew when the line changes. A failing write writes nothing. While the line speaks
 * of reads (read, card, dead), io_submit says EAGAIN, which makes cowfs read by pread.
 */
#include <errno.h>
#include <libaio.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>

#include "shim.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const char *control; /* mapped */
static char order[64];
static unsigned long seen;
static unsigned lines;

static ssize_t (*real_pread)(int, void *, size_t, off64_t);
static int (*real_io_submit)(io_context_t, long, struct iocb **);
static ssize_t (*real_pwrite)(int, const void *, size_t, off64_t);
static int (*real_fsync)(int), (*real_fdatasync)(int);

__attribute__((constructor)) static void eioshim_init(void)
{
	real_pread = real("pread64");
	real_pwrite = real("pwrite64");
	real_io_submit = dlsym(RTLD_NEXT, "io_submit"); /* programs without libaio have none */
	real_fsync = real("fsync");
	real_fdatasync = real("fdatasync");
	control = control_map("COWFS_EIO_FILE", sizeof(order));
}

static bool is_card(int fd)
{
	int flags = fcntl(fd, F_GETFL);
	struct stat st;

	return flags >= 0 && (flags & O_DIRECT) && fstat(fd, &st) == 0 && S_ISBLK(st.st_mode);
}

static void look(void)
{
	char text[sizeof(order)] = "";

	/* it may be written at this moment */
	while (control && memcmp(text, control, sizeof(text) - 1) != 0)
		memcpy(text, control, sizeof(text) - 1);
	if (strcmp(text, order)) {
		memcpy(order, text, sizeof(order));
		seen = 0;
		lines++;
	}
}

static void nap(unsigned long ms)
{
	const struct timespec t = { .tv_sec = (time_t)(ms / 1000),
				    .tv_nsec = (long)(ms % 1000) * 1000000 };

	nanosleep(&t, NULL);
}

static bool is_line(unsigned n)
{
	bool same;

	pthread_mutex_lock(&lock);
	look();
	same = n == lines;
	pthread_mutex_unlock(&lock);
	return same;
}

/* One request after another: waits until those before it and its own time are over. */
static void card_turn(unsigned long ms, unsigned long mb_per_s, size_t len_bytes)
{
	static struct timespec free_at;
	struct timespec now, until;
	unsigned long long ns;

	clock_gettime(CLOCK_MONOTONIC, &now);
	pthread_mutex_lock(&lock);
	if (free_at.tv_sec < now.tv_sec ||
	    (free_at.tv_sec == now.tv_sec && free_at.tv_nsec < now.tv_nsec))
		free_at = now;
	ns = (unsigned long long)free_at.tv_nsec + ms * 1000000ull +
	     (mb_per_s ? len_bytes * 1000ull / mb_per_s : 0);
	free_at.tv_sec += (time_t)(ns / 1000000000u);
	free_at.tv_nsec = (long)(ns % 1000000000u);
	until = free_at;
	pthread_mutex_unlock(&lock);
	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
}

/* Is this operation to fail? */
static bool fails(int fd, const char *kind, size_t len_bytes)
{
	unsigned long a = 0, b = 0;
	unsigned line;
	bool fail = false, late;
	char what[16];
	int saved = errno;

	if (!is_card(fd)) {
		errno = saved;
		return false;
	}
	pthread_mutex_lock(&lock);
	look();
	line = lines;
	if (sscanf(order, "%15s %lu %lu", what, &a, &b) < 2)
		what[0] = '\0';
	if (!strcmp(what, kind)) {
		fail = seen >= a && seen - a < b;
		seen++;
	}
	late = !strcmp(what, "late") && !strcmp(kind, "write") && seen++ == a;
	pthread_mutex_unlock(&lock);
	if (late)
		nap(b);
	if (!strcmp(what, "slow") && !strcmp(kind, "write"))
		for (; a && is_line(line); a -= a < 20 ? a : 20)
			nap(a < 20 ? a : 20);
	if ((!strcmp(what, "trim") && !strcmp(kind, "discard")) ||
	    (!strcmp(what, "shut") && !strcmp(kind, "lock")))
		nap(a);
	if (!strcmp(what, "card") && len_bytes)
		card_turn(a, b, len_bytes);
	errno = fail ? EIO : saved;
	return fail;
}

/* the seal is the one exclusive lock of its kind (export/view_commit.c) */
static __thread bool seals;

int pthread_rwlock_wrlock(pthread_rwlock_t *l)
{
	static int (*real_wrlock)(pthread_rwlock_t *);

	if (!real_wrlock)
		real_wrlock = real("pthread_rwlock_wrlock");
	seals = true;
	return real_wrlock(l);
}

int pthread_rwlock_unlock(pthread_rwlock_t *l)
{
	static int (*real_unlock)(pthread_rwlock_t *);
	unsigned long ms = 0;

	if (!real_unlock)
		real_unlock = real("pthread_rwlock_unlock");
	if (seals) {
		pthread_mutex_lock(&lock);
		look();
		(void)!sscanf(order, "seal %lu", &ms);
		pthread_mutex_unlock(&lock);
		nap(ms);
		seals = false;
	}
	return real_unlock(l);
}

int clock_gettime(clockid_t clock, struct timespec *ts)
{
	int r = (int)syscall(SYS_clock_gettime, clock, ts);

	if (r == 0 && clock == CLOCK_REALTIME && getenv("COWFS_CLOCK_BACK"))
		ts->tv_sec -= 3600;
	return r;
}

#if __TIMESIZE == 32 /* what programs with 64-bit time call */
int __clock_gettime64(clockid_t clock, int64_t ts[2]);
int __ioctl_time64(int fd, unsigned long request, ...) __THROW __attribute__((alias("ioctl")));

int __clock_gettime64(clockid_t clock, int64_t ts[2])
{
	int r = (int)syscall(SYS_clock_gettime64, clock, ts);

	if (r == 0 && clock == CLOCK_REALTIME && getenv("COWFS_CLOCK_BACK"))
		ts[0] -= 3600;
	return r;
}
#endif

/* -1: it is to be a discard */
static int write_noise(int fd, const uint64_t range[2])
{
	static _Alignas(4096) unsigned char noise[1 << 16];
	unsigned long seed = 0;
	bool on;

	pthread_mutex_lock(&lock);
	look();
	on = sscanf(order, "noise %lu", &seed) == 1;
	for (size_t i = 0; on && i < sizeof(noise); i++)
		noise[i] = (unsigned char)((seed + i) * 2654435761u >> 13);
	for (uint64_t i = 0; on && i < range[1]; i += sizeof(noise)) {
		size_t n = range[1] - i < sizeof(noise) ? range[1] - i : sizeof(noise);

		if (real_pwrite(fd, noise, n, (off64_t)(range[0] + i)) != (ssize_t)n)
			abort();
	}
	pthread_mutex_unlock(&lock);
	return on ? 0 : -1;
}

/* The file that this variable names. */
static bool exists(const char *variable)
{
	const char *path = getenv(variable);

	return path && access(path, F_OK) == 0;
}

int ioctl(int fd, unsigned long request, ...)
{
	int (*real_ioctl)(int, unsigned long,
			  ...) = (int (*)(int, unsigned long, ...))real("ioctl");
	va_list ap;
	void *arg;
	int r, e;

	va_start(ap, request);
	arg = va_arg(ap, void *);
	va_end(ap);
	if (request == BLKROSET && *(const int *)arg && fails(fd, "lock", 0))
		return -1;
	if (request == BLKDISCARD && fails(fd, "discard", 0))
		return -1;
	if (request == BLKDISCARD && getenv("COWFS_NO_DISCARD")) {
		errno = EOPNOTSUPP;
		return -1;
	}
	if (request == BLKDISCARD && write_noise(fd, arg) == 0)
		return 0;
	while (request == BLKFLSBUF && exists("COWFS_SYNC_HANGS"))
		usleep(10000);
	r = real_ioctl(fd, request, arg);
	e = errno;
	while (request == BLKFLSBUF && exists("COWFS_SYNC_STAYS"))
		usleep(10000);
	errno = e;
	return r;
}

/* Where the card really has this. */
static off64_t place(int fd, off64_t off_bytes)
{
	unsigned long mib = 0;

	if (!is_card(fd) || (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDONLY)
		return off_bytes;
	pthread_mutex_lock(&lock);
	look();
	(void)!sscanf(order, "wrap %lu", &mib);
	pthread_mutex_unlock(&lock);
	return mib ? off_bytes % ((off64_t)mib << 20) : off_bytes;
}

static bool is_bad(int fd, size_t len_bytes, off64_t off_bytes)
{
	long long from = 0, end = 0;

	if (!is_card(fd))
		return false;
	pthread_mutex_lock(&lock);
	look();
	if (sscanf(order, "dead %lld %lld", &from, &end) != 2 &&
	    ((fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDONLY ||
	     sscanf(order, "bad %lld %lld", &from, &end) != 2))
		end = 0;
	pthread_mutex_unlock(&lock);
	errno = EIO;
	return off_bytes < end && off_bytes + (off64_t)len_bytes > from;
}

ssize_t pread64(int fd, void *buf, size_t len_bytes, off64_t off_bytes)
{
	if (fails(fd, "read", len_bytes) || is_bad(fd, len_bytes, off_bytes))
		return -1;
	return real_pread(fd, buf, len_bytes, place(fd, off_bytes));
}

ssize_t pread(int fd, void *buf, size_t len_bytes, off_t off_bytes)
{
	return pread64(fd, buf, len_bytes, off_bytes);
}

/* of Python, which has no pread into a buffer: one of them */
ssize_t preadv64v2(int fd, const struct iovec *v, int n, off64_t off_bytes, int flags)
{
	if (n != 1 || flags)
		abort();
	return pread64(fd, v->iov_base, v->iov_len, off_bytes);
}

int io_submit(io_context_t ctx, long n, struct iocb **list)
{
	bool refuse;

	if (!real_io_submit)
		return -EAGAIN;
	pthread_mutex_lock(&lock);
	look();
	refuse = !strncmp(order, "read", 4) || !strncmp(order, "card", 4) ||
		 !strncmp(order, "dead", 4);
	pthread_mutex_unlock(&lock);
	return refuse ? -EAGAIN : real_io_submit(ctx, n, list);
}

ssize_t pwrite64(int fd, const void *buf, size_t len_bytes, off64_t off_bytes)
{
	return fails(fd, "write", len_bytes)
		       ? -1
		       : real_pwrite(fd, buf, len_bytes, place(fd, off_bytes));
}

ssize_t pwrite(int fd, const void *buf, size_t len_bytes, off_t off_bytes)
{
	return pwrite64(fd, buf, len_bytes, off_bytes);
}

int fsync(int fd)
{
	return fails(fd, "flush", 0) ? -1 : real_fsync(fd);
}

int fdatasync(int fd)
{
	return fails(fd, "flush", 0) ? -1 : real_fdatasync(fd);
}
