/* SPDX-License-Identifier: MIT */
/*
 * LD_PRELOAD library for tests: makes a block device behave like flash at a power cut.
 *
 * Notes on the design
 * - Watched: every write to a block device opened O_DIRECT for writing, and its fsync and
 *fdatasync. Of each write since the last good sync of its device the old content is kept (read just
 *before it).
 * - At the chosen operation the power goes: first all unsynced writes are taken back, newest first,
 *which is what the flash holds for sure; then, in order, each of them fares by a seeded choice:
 *kept, lost, torn at 512-byte sectors, or garbage. The write under way is always torn. Nothing but
 *the blocks of these writes is touched. Then SIGKILL, at once.
 * - A write with O_DSYNC or RWF_DSYNC counts as synced. Discards, sync() and mappings are not
 *watched.
 *
 * Environment
 *	COWFS_CUT_AFTER=WHEN	cut at the operation (write or sync) of this process that WHEN says:
 *				N	the N-th
 *				sN	the N-th sync
 *				sN+K	the K-th operation after the N-th sync
 *	COWFS_CUT_FILE=PATH	or later: when this file begins with a WHEN, counted from then on. It is
 *				mapped, because the daemon's worker opens no files: write in place
 *	COWFS_CUT_SEED=S	of the choices (default 1)
 *	COWFS_CUT_LOG=PATH	one line that says what was done (default: in COWFS_CUT_FILE,
 *				from byte 64 on, or stderr)
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include "shim.h"

#define SECTOR_BYTES 512u
#define ALIGN_BYTES 4096u

/* Since the last good sync of its device. */
struct unsynced {
	dev_t rdev;
	int fd;
	uint64_t off_bytes;
	size_t len_bytes;
	unsigned char *data; /* what was there before; at the cut swapped for what was written */
};

enum fate { KEPT, LOST, TORN, GARBAGE, FATES };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct unsynced *unsynced;
static size_t unsynced_count, unsynced_room;
static struct {
	uint64_t syncs,
		ops; /* at this operation after so many syncs; ops 0: at the last of the syncs */
	int armed;
} when;
static uint64_t syncs, ops, all_ops, random_state = 1;
static const char *cut_log;
static char *control; /* COWFS_CUT_FILE, mapped */

#define WHEN_BYTES 64
#define CONTROL_BYTES 512

static ssize_t (*real_pread)(int, void *, size_t, off64_t);
static ssize_t (*real_pwritev2)(int, const struct iovec *, int, off64_t, int);
static ssize_t (*real_write)(int, const void *, size_t);
static int (*real_fsync)(int), (*real_fdatasync)(int);

static void arm(const char *text)
{
	char *end = (char *)text;

	if (*text == 's')
		when.syncs = strtoull(text + 1, &end, 10);
	if (*text != 's' || *end == '+')
		when.ops = strtoull(*text == 's' ? end + 1 : text, NULL, 10);
	when.armed = when.syncs || when.ops;
}

__attribute__((constructor)) static void powercut_init(void)
{
	const char *after = getenv("COWFS_CUT_AFTER"), *seed = getenv("COWFS_CUT_SEED");

	real_pread = real("pread64");
	real_pwritev2 = real("pwritev64v2");
	real_write = real("write");
	real_fsync = real("fsync");
	real_fdatasync = real("fdatasync");
	control = control_map("COWFS_CUT_FILE", CONTROL_BYTES);
	cut_log = getenv("COWFS_CUT_LOG");
	if (after)
		arm(after);
	if (seed)
		random_state = strtoull(seed, NULL, 10);
}

static __attribute__((format(printf, 1, 2))) void say(const char *fmt, ...)
{
	int fd = cut_log ? open(cut_log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644) : -1;
	char text[400];
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (n < 0)
		abort();
	if (fd < 0 && control)
		snprintf(control + WHEN_BYTES, CONTROL_BYTES - WHEN_BYTES, "%s", text);
	else if (real_write(fd >= 0 ? fd : 2, text, (size_t)n) < 0)
		abort();
	if (fd >= 0)
		close(fd);
}

/* A shim that cannot do its work must not look like a program that survives. */
static __attribute__((noreturn)) void give_up(const char *what)
{
	say("powercut: %s: %s\n", what, strerror(errno));
	abort();
}

static uint64_t draw(void)
{
	uint64_t z = random_state += 0x9e3779b97f4a7c15ull;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

static void *alloc(size_t len_bytes)
{
	void *p;

	errno = posix_memalign(&p, ALIGN_BYTES, len_bytes);
	if (errno)
		give_up("no memory");
	return p;
}

/* ---- the card ---- */

static int is_card(int fd, dev_t *ret_rdev, int *ret_flags)
{
	int flags = fcntl(fd, F_GETFL);
	struct stat st;

	if (flags < 0 || !(flags & O_DIRECT) || (flags & O_ACCMODE) == O_RDONLY)
		return 0;
	if (fstat(fd, &st) < 0 || !S_ISBLK(st.st_mode))
		return 0;
	*ret_rdev = st.st_rdev;
	*ret_flags = flags;
	return 1;
}

static void read_card(int fd, unsigned char *buf, size_t len_bytes, uint64_t off_bytes)
{
	char path[64];
	int rd = -1;

	if ((fcntl(fd, F_GETFL) & O_ACCMODE) == O_WRONLY) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		fd = rd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
	}
	for (size_t done = 0; done < len_bytes;) {
		ssize_t n = real_pread(fd, buf + done, len_bytes - done,
				       (off64_t)(off_bytes + done));

		if (n <= 0)
			give_up("cannot read the old content");
		done += (size_t)n;
	}
	if (rd >= 0)
		close(rd);
}

static void write_card(int fd, const unsigned char *buf, size_t len_bytes, uint64_t off_bytes)
{
	struct iovec iov;

	for (size_t done = 0; done < len_bytes; done += iov.iov_len) {
		ssize_t n;

		iov = (struct iovec){ (unsigned char *)buf + done, len_bytes - done };
		n = real_pwritev2(fd, &iov, 1, (off64_t)(off_bytes + done), 0);
		if (n <= 0)
			give_up("cannot write");
		iov.iov_len = (size_t)n;
	}
}

/* ---- the cut ---- */

static void swap_back(struct unsynced *u)
{
	unsigned char *now = alloc(u->len_bytes);

	read_card(u->fd, now, u->len_bytes, u->off_bytes);
	write_card(u->fd, u->data, u->len_bytes, u->off_bytes);
	free(u->data);
	u->data = now;
}

/* Replaces a random part of u's sectors by what is on the card (torn) or by noise. */
static void spoil(struct unsynced *u, enum fate fate)
{
	unsigned char *old = alloc(u->len_bytes);

	read_card(u->fd, old, u->len_bytes, u->off_bytes);
	for (size_t at = 0; at < u->len_bytes; at += SECTOR_BYTES) {
		if (draw() & 1)
			continue;
		for (size_t i = 0; fate == GARBAGE && i < SECTOR_BYTES; i += 8) {
			uint64_t noise = draw();

			memcpy(old + at + i, &noise, 8);
		}
		memcpy(u->data + at, old + at, SECTOR_BYTES);
	}
	free(old);
}

static enum fate choose(void)
{
	unsigned d = draw() % 10;

	return d < 4 ? KEPT : d < 7 ? LOST : d < 9 ? TORN : GARBAGE;
}

/* current: the write under way, with its new data; NULL at a sync */
static __attribute__((noreturn)) void cut(struct unsynced *current)
{
	size_t count[FATES] = { 0 };

	for (size_t i = unsynced_count; i-- > 0;)
		swap_back(&unsynced[i]);
	for (size_t i = 0; i < unsynced_count; i++) {
		struct unsynced *u = &unsynced[i];
		enum fate fate = choose();

		count[fate]++;
		if (fate == LOST)
			continue;
		if (fate != KEPT)
			spoil(u, fate);
		write_card(u->fd, u->data, u->len_bytes, u->off_bytes);
	}
	if (current) {
		spoil(current, TORN);
		write_card(current->fd, current->data, current->len_bytes, current->off_bytes);
	}
	say("powercut: at operation %llu, a %s%s; of %zu unsynced writes before it %zu kept, %zu "
	    "lost, %zu torn, "
	    "%zu garbage\n",
	    (unsigned long long)all_ops, current ? "write" : "sync", current ? ", torn" : "",
	    unsynced_count, count[KEPT], count[LOST], count[TORN], count[GARBAGE]);
	kill(getpid(), SIGKILL);
	__builtin_trap(); /* the daemon's filter refuses kill */
}

/* Counts the operation. True: this is the one. */
static int is_time(int is_sync)
{
	char text[32] = "";

	if (!when.armed && control) {
		memcpy(text, control, sizeof(text) - 1);
		arm(text);
	}
	if (!when.armed)
		return 0;
	all_ops++;
	if (syncs == when.syncs)
		return ++ops == when.ops;
	syncs += is_sync;
	return syncs == when.syncs && !when.ops;
}

/* ---- operations ---- */

static struct unsynced *remember(int fd, dev_t rdev, uint64_t off_bytes, size_t len_bytes)
{
	struct unsynced *u;

	if (unsynced_count == unsynced_room) {
		unsynced_room = unsynced_room ? 2 * unsynced_room : 256;
		unsynced = realloc(unsynced, unsynced_room * sizeof(*unsynced));
		if (!unsynced)
			give_up("no memory");
	}
	u = &unsynced[unsynced_count++];
	*u = (struct unsynced){ .rdev = rdev, .off_bytes = off_bytes, .len_bytes = len_bytes };
	/* its own descriptor: the program may close the one that it wrote with */
	u->fd = fcntl(fd, F_DUPFD_CLOEXEC, 1000);
	if (u->fd < 0)
		give_up("no descriptor");
	u->data = alloc(len_bytes);
	read_card(fd, u->data, len_bytes, off_bytes);
	return u;
}

static void forget(dev_t rdev)
{
	size_t left = 0;

	for (size_t i = 0; i < unsynced_count; i++) {
		if (unsynced[i].rdev != rdev) {
			unsynced[left++] = unsynced[i];
			continue;
		}
		close(unsynced[i].fd);
		free(unsynced[i].data);
	}
	unsynced_count = left;
}

static void before_write(int fd, dev_t rdev, const struct iovec *iov, int iovcnt,
			 uint64_t off_bytes)
{
	struct unsynced current = { .rdev = rdev, .fd = fd, .off_bytes = off_bytes };
	size_t at = 0;

	for (int i = 0; i < iovcnt; i++)
		current.len_bytes += iov[i].iov_len;
	if (!current.len_bytes)
		return;
	if (!is_time(0)) {
		remember(fd, rdev, off_bytes, current.len_bytes);
		return;
	}
	current.data = alloc(current.len_bytes);
	for (int i = 0; i < iovcnt; at += iov[i++].iov_len)
		memcpy(current.data + at, iov[i].iov_base, iov[i].iov_len);
	cut(&current);
}

static ssize_t any_write(int fd, const struct iovec *iov, int iovcnt, off64_t off, int flags)
{
	dev_t rdev;
	int fd_flags;
	ssize_t n;

	if (!is_card(fd, &rdev, &fd_flags))
		return real_pwritev2(fd, iov, iovcnt, off, flags);
	pthread_mutex_lock(&lock);
	before_write(fd, rdev, iov, iovcnt, (uint64_t)(off >= 0 ? off : lseek64(fd, 0, SEEK_CUR)));
	n = real_pwritev2(fd, iov, iovcnt, off, flags);
	if (n > 0 && ((fd_flags & O_DSYNC) || (flags & (RWF_DSYNC | RWF_SYNC)))) {
		struct unsynced *u = &unsynced[--unsynced_count];

		close(u->fd);
		free(u->data);
	}
	pthread_mutex_unlock(&lock);
	return n;
}

static int any_sync(int fd, int (*real_sync)(int))
{
	dev_t rdev;
	int flags, r;

	if (!is_card(fd, &rdev, &flags))
		return real_sync(fd);
	pthread_mutex_lock(&lock);
	if (is_time(1))
		cut(NULL);
	r = real_sync(fd);
	if (r == 0)
		forget(rdev);
	pthread_mutex_unlock(&lock);
	return r;
}

/* ---- what is exported instead of the C library's ---- */

#define EXPORT __attribute__((visibility("default")))

EXPORT ssize_t pwritev64v2(int fd, const struct iovec *iov, int iovcnt, off64_t off, int flags)
{
	return any_write(fd, iov, iovcnt, off, flags);
}

EXPORT ssize_t pwritev64(int fd, const struct iovec *iov, int iovcnt, off64_t off)
{
	return any_write(fd, iov, iovcnt, off, 0);
}

EXPORT ssize_t pwrite64(int fd, const void *buf, size_t len_bytes, off64_t off)
{
	const struct iovec iov = { (void *)buf, len_bytes };

	return any_write(fd, &iov, 1, off, 0);
}

EXPORT ssize_t pwritev2(int fd, const struct iovec *iov, int iovcnt, off_t off, int flags)
{
	return any_write(fd, iov, iovcnt, off, flags);
}

EXPORT ssize_t pwritev(int fd, const struct iovec *iov, int iovcnt, off_t off)
{
	return any_write(fd, iov, iovcnt, off, 0);
}

EXPORT ssize_t pwrite(int fd, const void *buf, size_t len_bytes, off_t off)
{
	return pwrite64(fd, buf, len_bytes, off);
}

EXPORT ssize_t writev(int fd, const struct iovec *iov, int iovcnt)
{
	return any_write(fd, iov, iovcnt, -1, 0);
}

EXPORT ssize_t write(int fd, const void *buf, size_t len_bytes)
{
	const struct iovec iov = { (void *)buf, len_bytes };
	dev_t rdev;
	int flags;

	/* the plain call where it does not matter: pwritev2 is not allowed everywhere */
	return is_card(fd, &rdev, &flags) ? any_write(fd, &iov, 1, -1, 0)
					  : real_write(fd, buf, len_bytes);
}

EXPORT int fsync(int fd)
{
	return any_sync(fd, real_fsync);
}

EXPORT int fdatasync(int fd)
{
	return any_sync(fd, real_fdatasync);
}
