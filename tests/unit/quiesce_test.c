/* SPDX-License-Identifier: MIT */
/*
 * Quiesce on scratch file systems of the real kernel: a frozen one is clean, one that cannot be frozen
 * is reported, and nothing stays frozen.
 */
#include "test.h"

#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

#include "fs/find_mount.h"
#include "fs/quiesce.h"
#include "fs/quiesce_call.h"
#include "base/mounts.h"
#include "export/fuse_mount.h"
#include "scratch.h"
#include "quiesce.h"

static void write_file(const char *name, size_t len_bytes)
{
	_cleanup_free_ char *buf = io_alloc(len_bytes);
	char path[160];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", s.mnt, name);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	memset(buf, 'x', len_bytes);
	assert_int_equal(io_write_full(fd, buf, len_bytes), 0);
	close(fd);
}

TEST(test_freeze_seal_thaw, setup_ext4, teardown)
{
	struct probe p = { 0 };
	struct quiesce_target t = target(&p);
	struct quiesce_report rep;
	unsigned fds = count_fds();

	write_file("dirty", 4 * MIB);
	assert_true(scratch_needs_recovery(&s));
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), 0);
	assert_int_equal(p.calls, 1);
	assert_true(p.was_frozen);
	assert_false(p.needs_recovery);
	assert_string_equal(p.told, "FFT");
	assert_true(rep.mounted && rep.frozen && !rep.readonly);
	assert_false(is_frozen());
	assert_int_equal(count_fds(), fds);
	printf("           sync %.3f ms, freeze %.3f ms, frozen %.3f ms\n",
	       (double)rep.sync_ns / 1e6, (double)rep.freeze_ns / 1e6, (double)rep.frozen_ns / 1e6);
	assert_int_equal(umount(s.mnt), 0);
}

TEST(test_seal_error, setup_ext4, teardown)
{
	struct probe p = { .result = -ENOMEM };
	struct quiesce_target t = target(&p);
	struct quiesce_report rep;

	assert_int_equal(quiesce_run(&t, seal, &p, &rep), -ENOMEM);
	assert_false(is_frozen());
	t.stay_frozen = true;
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), -ENOMEM);
	assert_false(is_frozen());
}

TEST(test_stay_frozen, setup_ext4, teardown)
{
	struct probe p = { 0 };
	struct quiesce_target t = target(&p);
	struct quiesce_report rep;

	t.stay_frozen = true;
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), 0);
	assert_string_equal(p.told, "FFT");
	assert_true(is_frozen());
}

TEST(test_frozen_by_others, setup_ext4, teardown)
{
	_cleanup_close_ int fd = open(s.mnt, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct probe p = { 0 };
	struct quiesce_target t = target(&p);
	struct quiesce_report rep;

	assert_int_equal(ioctl(fd, FIFREEZE, 0), 0);
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), -EBUSY);
	assert_int_equal(p.calls, 0);
	assert_true(is_frozen());
	assert_int_equal(ioctl(fd, FITHAW, 0), 0);
}

/* The supervisor still thaws what a worker before has frozen: its thaw would end this freeze. */
TEST(test_must_wait, setup_ext4, teardown)
{
	struct probe p = { .told_error = -EBUSY };
	struct quiesce_target t = target(&p);
	struct quiesce_report rep;

	assert_int_equal(quiesce_run(&t, seal, &p, &rep), -EBUSY);
	assert_true(p.calls == 0 && !rep.frozen && !is_frozen());
	p.told_error = 0;
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), 0);
	assert_true(p.calls == 1 && rep.frozen);
}

TEST(test_thawed_by_others, setup_ext4, teardown)
{
	struct probe p = { .thaw = true };
	struct quiesce_target t = target(&p);
	struct quiesce_report rep;

	assert_int_equal(quiesce_run(&t, seal, &p, &rep), -ECANCELED);
}

TEST(test_readonly_mount, setup_ext4, teardown)
{
	struct probe p = { 0 };
	struct quiesce_target t = target(&p);
	struct quiesce_report rep;

	assert_int_equal(mount(NULL, s.mnt, NULL, MS_REMOUNT | MS_RDONLY, NULL), 0);
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), 0);
	assert_true(rep.readonly && p.calls == 1 && !p.needs_recovery);
}

TEST(test_find_mount, setup_ext4, teardown)
{
	char where[256] = "";
	bool readonly = true;

	assert_int_equal(find_mount(proc_dirfd, s.loop.rdev, where, sizeof(where), &readonly), 1);
	assert_string_equal(where, s.mnt); /* it has a space in it */
	assert_false(readonly);
	assert_int_equal(mount(NULL, s.mnt, NULL, MS_REMOUNT | MS_RDONLY, NULL), 0);
	assert_int_equal(find_mount(proc_dirfd, s.loop.rdev, NULL, 0, &readonly), 1);
	assert_true(readonly);
	assert_int_equal(umount(s.mnt), 0);
	assert_int_equal(find_mount(proc_dirfd, s.loop.rdev, NULL, 0, &readonly), 0);
}

TEST(test_not_mounted, setup_ext4, teardown)
{
	struct probe p = { 0 };
	struct quiesce_target t = target(&p);
	struct quiesce_report rep;
	int fd;

	assert_int_equal(umount(s.mnt), 0);
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), 0);
	assert_true(p.calls == 1 && !rep.mounted && !rep.frozen);
	assert_string_equal(p.told, "");
	fd = open(s.loop.path, O_RDONLY | O_EXCL | O_CLOEXEC); /* fsck */
	assert_true(fd >= 0);
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), -ESTALE);
	assert_int_equal(p.calls, 1);
	close(fd);
}

/* The same where writes are withheld until the seal: a program that has claimed the device waits
 * for it. */
TEST(test_claimed_and_stopped, setup_ext4, teardown)
{
	struct probe p = { 0 };
	struct quiesce_target t = target(&p);
	struct quiesce_report rep;
	_cleanup_close_ int fd = -1;

	t.stopped = stopped;
	/* no obstacle to a freeze */
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), 0);
	assert_true(rep.frozen && p.was_frozen && !rep.unfrozen && !rep.stopped);
	assert_int_equal(umount(s.mnt), 0);
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), 0);
	assert_true(p.calls == 2 && !rep.stopped);
	fd = open(s.loop.path, O_RDONLY | O_EXCL | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), -ESTALE);
	assert_int_equal(p.calls, 2);
	p.stopped = true;
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), 0);
	assert_true(p.calls == 3 && rep.unfrozen && rep.stopped && !rep.hidden);
	/* a commit that may be sealed without a freeze does not wait for it */
	p.stopped = false;
	t.unfrozen = true;
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), -ESTALE);
	t.unseen = true;
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), 0);
	assert_true(p.calls == 4 && rep.unfrozen && rep.stopped);
}

/* Another file system covers the mount point: the wrong one is never used instead, and the right
 * one is frozen. A lazily unmounted one is out of reach. */
TEST(test_mount_out_of_reach, setup_ext4, teardown)
{
	_cleanup_close_ int fd = open(s.mnt, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct probe p = { 0 };
	struct quiesce_target t = target(&p);
	struct quiesce_report rep;

	assert_true(fd >= 0); /* holds it after the lazy unmount */
	assert_int_equal(mount("none", s.mnt, "tmpfs", 0, NULL), 0);
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), 0);
	assert_true(p.calls == 1 && rep.mounted && rep.frozen && !p.needs_recovery);
	assert_int_equal(mount(NULL, s.mnt, NULL, MS_REMOUNT | MS_RDONLY, NULL), 0);
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), 0);
	assert_true(p.calls == 2 && !rep.readonly); /* not that of the tmpfs */
	assert_int_equal(umount(s.mnt), 0);
	assert_int_equal(umount2(s.mnt, MNT_DETACH), 0);
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), -ESTALE); /* of an unknown type */
	t.type = "xfs";
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), -ESTALE);
	assert_int_equal(p.calls, 2);
	assert_true(rep.hidden && !rep.mounted);
	t.type = "ext3"; /* by its features; it is mounted as ext4 */
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), 0);
	assert_true(p.calls == 3 && rep.hidden && rep.mounted && rep.frozen && !rep.readonly &&
		    !p.needs_recovery);
	assert_string_equal(rep.holder, ""); /* it is this process */
	close(fd);
	fd = -1;
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), 0); /* the last one */
	assert_true(p.calls == 4 && !rep.hidden && !rep.mounted);
	assert_int_equal(scratch_mount(&s, "ext4", MS_RDONLY), 0);
	fd = open(s.mnt, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(umount2(s.mnt, MNT_DETACH), 0);
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), 0);
	assert_true(p.calls == 5 && rep.hidden && rep.mounted && rep.readonly && !p.needs_recovery);
}

/* A bind mount of one file is left of an unmounted volume, or a bind mount of something that must
 * never be opened. */
TEST(test_file_mount, setup_ext4, teardown)
{
	struct probe p = { 0 };
	struct quiesce_target t = target(&p);
	struct quiesce_report rep;
	char from[160], to[160];

	for (int fifo = 0; fifo < 2; fifo++) {
		snprintf(from, sizeof(from), "%s/%s", s.mnt, fifo ? "fifo" : "file");
		snprintf(to, sizeof(to), "%s/left", s.dir);
		if (fifo)
			assert_int_equal(mkfifo(from, 0600), 0);
		else
			write_file("file", 5);
		close(open(to, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
		assert_int_equal(mount(from, to, NULL, MS_BIND, NULL), 0);
		assert_int_equal(umount(s.mnt), 0);
		assert_int_equal(quiesce_run(&t, seal, &p, &rep), 0);
		assert_true(rep.mounted && rep.frozen && !p.needs_recovery);
		assert_int_equal(p.calls, fifo + 1);
		assert_int_equal(scratch_mount(&s, "ext4", 0), 0);
		assert_int_equal(umount(to), 0);
		unlink(to);
	}
}

/* Mounts that only pid 1 sees: a /proc made by the test. */
TEST(test_mount_of_init, setup_ext4, teardown)
{
	struct probe p = { 0 };
	struct quiesce_target t = target(&p);
	struct quiesce_report rep;
	char path[160], info[16384];
	int r;

	snprintf(path, sizeof(path), "%s/proc", s.dir);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(mount("none", path, "tmpfs", 0, NULL), 0);
	t.proc_dirfd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(mkdirat(t.proc_dirfd, "self", 0700), 0);
	assert_int_equal(mkdirat(t.proc_dirfd, "1", 0700), 0);
	assert_int_equal(symlinkat("/", t.proc_dirfd, "self/root"), 0);
	assert_int_equal(symlinkat("/", t.proc_dirfd, "1/root"), 0);
	close(openat(t.proc_dirfd, "self/mountinfo", O_CREAT | O_WRONLY, 0600));
	close(openat(t.proc_dirfd, "1/mountinfo", O_CREAT | O_WRONLY, 0600));
	r = io_read_text(proc_dirfd, "self/mountinfo", info, sizeof(info) - 1);
	assert_true(r > 0);
	strcat(info, "\n");
	assert_int_equal(io_write_text(t.proc_dirfd, "1/mountinfo", info), 0);
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), 0);
	assert_true(rep.frozen && p.was_frozen);
	close(t.proc_dirfd);
	assert_int_equal(umount(path), 0);
	rmdir(path);
}

/* ---- a writer that sleeps in splice ---- */

static long do_splice(int pipe_fd)
{
	char path[160];
	int fd;

	snprintf(path, sizeof(path), "%s/spliced", s.mnt);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	return splice(pipe_fd, NULL, fd, NULL, 5, 0);
}

/* Returns when the task ("PID", "PID/task/TID") sleeps in its splice. */
static void wait_for_splice(const char *task)
{
	char path[64], text[512];

	for (;; usleep(1000)) {
		snprintf(path, sizeof(path), "%s/syscall", task);
		assert_true(io_read_text(proc_dirfd, path, text, sizeof(text)) > 0);
		if (atol(text) != SYS_splice)
			continue;
		snprintf(path, sizeof(path), "%s/stat", task);
		assert_true(io_read_text(proc_dirfd, path, text, sizeof(text)) > 0);
		if (strrchr(text, ')')[2] == 'S')
			return;
	}
}

static void assert_spliced(void)
{
	char path[160], text[16];

	snprintf(path, sizeof(path), "%s/spliced", s.mnt);
	assert_int_equal(io_read_text(AT_FDCWD, path, text, sizeof(text)), 5);
	assert_string_equal(text, "hello");
}

struct splice_thread {
	int pipe_fd;
	_Atomic pid_t tid;
};

static void *splice_thread(void *arg)
{
	struct splice_thread *st = arg;

	st->tid = gettid();
	return (void *)(intptr_t)do_splice(st->pipe_fd);
}

/* The freeze is given up; later it thaws automatically. */
TEST(test_giveup, setup_ext4, teardown)
{
	struct probe p = { 0 };
	struct quiesce_target t = target(&p);
	struct quiesce_report rep;
	struct splice_thread st = { 0 };
	pthread_t thread;
	char task[32];
	void *spliced;
	int pair[2];

	t.giveup_ns = 200000000;
	assert_int_equal(pipe2(pair, O_CLOEXEC), 0);
	st.pipe_fd = pair[0];
	assert_int_equal(pthread_create(&thread, NULL, splice_thread, &st), 0);
	while (!st.tid)
		usleep(1000);
	snprintf(task, sizeof(task), "self/task/%d", st.tid);
	wait_for_splice(task);
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), -ETIMEDOUT);
	assert_int_equal(p.calls, 0);
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), -EALREADY);
	assert_int_equal(io_write_full(pair[1], "hello", 5), 0);
	pthread_join(thread, &spliced);
	assert_int_equal((intptr_t)spliced, 5);
	for (int i = 0; i < 2000 && quiesce_run(&t, seal, &p, &rep) == -EALREADY; i++)
		usleep(1000);
	assert_int_equal(p.calls, 1);
	assert_string_equal(p.told, "FTFFT");
	assert_false(is_frozen());
	assert_spliced();
	close(pair[0]);
	close(pair[1]);
}

static void *stop_later(void *arg)
{
	usleep(200000);
	((struct probe *)arg)->stopped = true;
	return NULL;
}

/* seal() would request a freeze itself, after the pending one. */
static int count_seal(void *ctx)
{
	((struct probe *)ctx)->calls++;
	return 0;
}

/* Writes are withheld while a freeze is pending: the seal goes without it, the freezer thaws
 * automatically, and the next one freezes. */
TEST(test_stopped, setup_ext4, teardown)
{
	struct probe p = { 0 };
	struct quiesce_target t = target(&p);
	struct quiesce_report rep;
	struct splice_thread st = { 0 };
	pthread_t thread, stopper;
	char task[32];
	int pair[2];

	t.stopped = stopped;
	assert_int_equal(pipe2(pair, O_CLOEXEC), 0);
	st.pipe_fd = pair[0];
	assert_int_equal(pthread_create(&thread, NULL, splice_thread, &st), 0);
	while (!st.tid)
		usleep(1000);
	snprintf(task, sizeof(task), "self/task/%d", st.tid);
	wait_for_splice(task);
	assert_int_equal(pthread_create(&stopper, NULL, stop_later, &p), 0);
	assert_int_equal(quiesce_run(&t, count_seal, &p, &rep), 0);
	pthread_join(stopper, NULL);
	assert_true(p.calls == 1 && rep.stopped && rep.unfrozen && !rep.frozen);
	/* the freeze is still pending */
	assert_int_equal(quiesce_run(&t, count_seal, &p, &rep), 0);
	assert_true(p.calls == 2 && rep.stopped);
	p.stopped = false;
	assert_int_equal(io_write_full(pair[1], "hello", 5), 0);
	pthread_join(thread, NULL);
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), 0);
	assert_true(p.calls == 3 && rep.frozen && p.was_frozen && !rep.stopped);
	assert_false(is_frozen());
	assert_spliced();
	close(pair[0]);
	close(pair[1]);
}

/* ---- other file systems ---- */

static void mount_other(const char *mkfs, const char *type, uint64_t bytes)
{
	if (scratch_new(&s, mkfs, bytes) && scratch_mount(&s, type, 0) == 0)
		return;
	printf("           SKIP: no %s here\n", type);
	scratch_free(&s);
	skip();
}

TEST(test_vfat)
{
	struct probe p = { 0 };
	struct quiesce_target t;
	struct quiesce_report rep;

	mount_other("mkfs.vfat", "vfat", 16 * MIB);
	t = target(&p);
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), -EOPNOTSUPP);
	assert_int_equal(p.calls, 0);
	assert_int_equal(mount(NULL, s.mnt, NULL, MS_REMOUNT | MS_RDONLY, NULL), 0);
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), 0);
	assert_true(p.calls == 1 && rep.readonly);
	scratch_free(&s);
}

/* An erofs of two blocks with an empty root: a file system without freeze that every kernel here
 * has. */
static void erofs_write(void)
{
	_cleanup_free_ uint8_t *buf = io_alloc(8192);
	static const struct {
		uint16_t off, value;
	} fields[] = {
		{ 1024, 0xe1e2 },
		{ 1026, 0xe0f5 },  /* magic */
		{ 1024 + 12, 12 }, /* block size */
		/* nid of the root: its inode lies at 36 * 32 */
		{ 1024 + 14, 36 },
		{ 1024 + 16, 1 }, /* inodes */
		{ 1024 + 36, 2 }, /* blocks */
		{ 1152 + 4, S_IFDIR | 0755 },
		{ 1152 + 6, 2 },
		{ 1152 + 8, 27 },
		{ 1152 + 16, 1 },
		{ 1152 + 20, 1 },
		{ 4096, 36 },
		{ 4096 + 8, 24 },
		{ 4096 + 10, 2 },
		{ 4096 + 12, 36 },
		{ 4096 + 20, 25 },
		{ 4096 + 22, 2 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(fields); i++)
		memcpy(buf + fields[i].off, &fields[i].value, 2);
	memcpy(buf + 4096 + 24, "...", 3);
	assert_int_equal(io_pwrite_full(s.loop.fd, buf, 8192, 0), 0);
}

/* A sync is enough if no program can write; otherwise a file system without freeze is refused. */
/* ---- the instant at which the journal is empty ---- */

struct watcher {
	struct probe p; /* first: the ctx of the seal */
	unsigned begun, ended;
	int result;	    /* what QUIESCE_END says */
	unsigned log_trees; /* so often QUIESCE_NOW finds one */
};

static int watch(void *ctx, enum quiesce_watch what)
{
	struct watcher *w = ctx;

	w->begun += what == QUIESCE_BEGIN;
	w->ended += what == QUIESCE_END;
	return what == QUIESCE_BEGIN ? 0 : w->result;
}

static int watch_now(void *ctx)
{
	struct watcher *w = ctx;

	return w->log_trees-- ? -EAGAIN : 0;
}

TEST(test_instant, setup_ext4, teardown)
{
	struct watcher w = { .result = 0 };
	struct quiesce_target t = target(&w.p);
	struct quiesce_report rep;
	unsigned fds = count_fds();

	t.instant = watch;
	write_file("dirty", 4 * MIB);
	assert_int_equal(quiesce_run(&t, seal, &w, &rep), 0);
	assert_true(rep.mounted && rep.instant && !rep.frozen && !rep.unfrozen);
	assert_true(w.begun == 1 && w.ended == 1 && w.p.calls == 0);
	assert_string_equal(w.p.told, "");
	/* its error is the result */
	w.result = -ENODATA;
	assert_int_equal(quiesce_run(&t, seal, &w, &rep), -ENODATA);
	assert_int_equal(count_fds(), fds);
}

/* Nobody sees the write: a time stamp changes, and it is tried again, not for ever. Then it is frozen. */
TEST(test_no_instant, setup_ext4, teardown)
{
	struct watcher w = { .result = -EAGAIN };
	struct quiesce_target t = target(&w.p);
	struct quiesce_report rep;
	struct stat before, after;

	t.instant = watch;
	assert_int_equal(stat(s.mnt, &before), 0);
	assert_int_equal(quiesce_run(&t, seal, &w, &rep), 0);
	assert_int_equal(stat(s.mnt, &after), 0);
	assert_true(w.begun == 3 && w.ended == 3);
	assert_true(rep.frozen && !rep.instant && w.p.calls == 1 && !is_frozen());
	assert_true(before.st_ctim.tv_sec != after.st_ctim.tv_sec ||
		    before.st_ctim.tv_nsec != after.st_ctim.tv_nsec);
	assert_true(before.st_mtim.tv_sec == after.st_mtim.tv_sec &&
		    before.st_mtim.tv_nsec == after.st_mtim.tv_nsec);
}

static int set_flags(int fd, unsigned flags)
{
	return ioctl(fd, FS_IOC_SETFLAGS, &flags) < 0 ? -errno : 0;
}

/* Nothing changes the time stamp of an immutable root: it is frozen. */
TEST(test_instant_immutable, setup_ext4, teardown)
{
	_cleanup_close_ int fd = open(s.mnt, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct watcher w = { .result = -EAGAIN };
	struct quiesce_target t = target(&w.p);
	struct quiesce_report rep;

	t.instant = watch;
	assert_int_equal(set_flags(fd, FS_IMMUTABLE_FL), 0);
	assert_int_equal(quiesce_run(&t, seal, &w, &rep), 0);
	assert_true(rep.frozen && !rep.instant && w.p.calls == 1 && !is_frozen());
	assert_int_equal(set_flags(fd, 0), 0);
}

/* However often it is tried: each try ends soon, and says so. */
TEST(test_instant_frozen_by_others, setup_ext4, teardown)
{
	_cleanup_close_ int fd = open(s.mnt, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct watcher w = { .result = -EAGAIN };
	struct quiesce_target t = target(&w.p);
	struct quiesce_report rep;
	uint64_t begin_ns;

	t.instant = watch;
	t.unfrozen = true;
	assert_int_equal(ioctl(fd, FIFREEZE, 0), 0);
	begin_ns = now_ns();
	assert_int_equal(quiesce_run(&t, seal, &w, &rep), -EBUSY);
	assert_int_equal(quiesce_run(&t, seal, &w, &rep), -EBUSY);
	assert_true(now_ns() - begin_ns < 15000000000ull);
	assert_true(w.p.calls == 0 && is_frozen());
	assert_int_equal(ioctl(fd, FITHAW, 0), 0);
	w.result = 0;
	assert_int_equal(quiesce_run(&t, seal, &w, &rep), 0);
	assert_true(rep.instant);
}

static atomic_bool checkpoint_fails;

static unsigned touched; /* time stamps */

/* Instead of the one of libc. */
int futimens(int fd, const struct timespec times[2])
{
	touched++;
	return (int)syscall(SYS_utimensat, fd, NULL, times, 0);
}

/* Instead of the one of libc. */
int ioctl(int fd, unsigned long request, ...)
{
	va_list ap;
	void *arg;

	va_start(ap, request);
	arg = va_arg(ap, void *);
	va_end(ap);
	if (checkpoint_fails && request == EXT4_IOC_CHECKPOINT) {
		errno = EIO;
		return -1;
	}
	return (int)syscall(SYS_ioctl, fd, request, arg);
}

/* The write that was seen came from a journal that gives up: the seal does not count. */
TEST(test_instant_of_failure, setup_ext4, teardown)
{
	struct watcher w = { .result = 0 };
	struct quiesce_target t = target(&w.p);
	struct quiesce_report rep;

	t.instant = watch;
	checkpoint_fails = true;
	assert_int_equal(quiesce_run(&t, seal, &w, &rep), -EIO);
	checkpoint_fails = false;
	assert_true(rep.instant && rep.failed && w.p.calls == 0);
}

/* Without a journal the driver has no such call: it is frozen. */
TEST(test_instant_without_journal)
{
	struct watcher w = { .result = -EAGAIN };
	struct quiesce_target t;
	struct quiesce_report rep;

	assert_true(scratch_new(&s, "mkfs.ext4 -q -F -O ^has_journal", EXT4_BYTES));
	assert_int_equal(scratch_mount(&s, "ext4", 0), 0);
	t = target(&w.p);
	t.instant = watch;
	assert_int_equal(quiesce_run(&t, seal, &w, &rep), 0);
	assert_true(rep.frozen && !rep.instant && w.p.calls == 1 && w.begun == 1 && w.ended == 1);
	scratch_free(&s);
}

TEST(test_no_freeze)
{
	struct probe p = { 0 };
	struct quiesce_target t;
	struct quiesce_report rep;
	char path[160], info[256];
	struct statx st;

	assert_true(scratch_new(&s, NULL, 1 * MIB));
	erofs_write();
	if (scratch_mount(&s, "erofs", MS_RDONLY) < 0) {
		printf("           SKIP: no erofs here\n");
		scratch_free(&s);
		skip();
	}
	t = target(&p);
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), 0);
	assert_true(p.calls == 1 && rep.readonly && rep.mounted && !rep.frozen && rep.instant);
	/* as if it were mounted read-write */
	assert_int_equal(statx(AT_FDCWD, s.mnt, 0, STATX_MNT_ID, &st), 0);
	t.proc_dirfd = fake_proc(path);
	snprintf(info, sizeof(info), "%llu 1 %u:%u / %s/mount\\040point rw - erofs /dev/x rw\n",
		 (unsigned long long)st.stx_mnt_id, major(t.dev), minor(t.dev), s.dir);
	fake_put(t.proc_dirfd, "self/mountinfo", info);
	assert_int_equal(symlinkat("/", t.proc_dirfd, "self/root"), 0);
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), -EOPNOTSUPP);
	assert_true(p.calls == 1 && !rep.readonly);
	fake_end(path, t.proc_dirfd);
	scratch_free(&s);
}

/* The device number of the mount is not that of the disk. */
TEST(test_btrfs)
{
	struct probe p = { 0 };
	struct quiesce_target t;
	struct quiesce_report rep;
	char where[256];

	mount_other("mkfs.btrfs -f", "btrfs", 128 * MIB);
	t = target(&p);
	assert_int_equal(find_mount(proc_dirfd, s.loop.rdev, where, sizeof(where), NULL), 1);
	assert_string_equal(where, s.mnt);
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), 0);
	assert_true(p.was_frozen && rep.frozen);
	scratch_free(&s);
}

/* Nothing to write: sealed now, and synced again only if a file was synced meanwhile. */
TEST(test_btrfs_now)
{
	struct watcher w = { .result = -EAGAIN, .log_trees = 1 };
	struct quiesce_target t;
	struct quiesce_report rep;

	mount_other("mkfs.btrfs -f", "btrfs", 128 * MIB);
	t = target(&w.p);
	t.instant = watch;
	t.instant_by_sync = true;
	t.now = watch_now;
	touched = 0;
	assert_int_equal(quiesce_run(&t, seal, &w, &rep), 0);
	assert_true(rep.instant && !rep.frozen && w.p.calls == 0 && touched == 0);
	assert_true(w.begun == 2 && w.ended == 2);
	/* files are synced all the time: it is frozen in the end */
	w.log_trees = 1000;
	assert_int_equal(quiesce_run(&t, seal, &w, &rep), 0);
	assert_true(rep.frozen && !rep.instant && w.p.calls == 1);
	scratch_free(&s);
}

/* It was unmounted after the last look: the second mount must not become the first one. */
TEST(test_unmounted_just_now)
{
	static const struct {
		const char *type, *mkfs;
		uint64_t bytes;
	} kinds[] = { { "ext4", EXT4, EXT4_BYTES },
		      { "xfs", "mkfs.xfs -q -f", 300 * MIB },
		      { "btrfs", "mkfs.btrfs -f", 128 * MIB } };

	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		_cleanup_free_ uint8_t *before = io_alloc(MIB), *after = io_alloc(MIB);
		struct probe p = { 0 };
		struct quiesce_target t;
		struct quiesce_report rep;
		char path[160], info[256];

		assert_true(scratch_new(&s, kinds[i].mkfs, kinds[i].bytes));
		assert_int_equal(pread(s.loop.fd, before, MIB, 0), MIB);
		t = target(&p);
		t.proc_dirfd = fake_proc(path);
		snprintf(info, sizeof(info), "9 1 %u:%u / /not/there rw - %s %s rw\n", major(t.dev),
			 minor(t.dev), kinds[i].type, s.loop.path);
		fake_put(t.proc_dirfd, "self/mountinfo", info);
		assert_int_equal(symlinkat("/", t.proc_dirfd, "self/root"), 0);
		assert_int_equal(quiesce_run(&t, seal, &p, &rep), -ESTALE);
		assert_int_equal(p.calls, 0);
		assert_int_equal(pread(s.loop.fd, after, MIB, 0), MIB);
		assert_memory_equal(before, after, MIB);
		fake_end(path, t.proc_dirfd);
		scratch_free(&s);
	}
}

/* The image is whole at any moment: it is synced, and nothing waits for a writer. */
TEST(test_xfs)
{
	struct probe p = { 0 };
	struct quiesce_target t;
	struct quiesce_report rep;

	mount_other("mkfs.xfs -f", "xfs", 320 * MIB);
	t = target(&p);
	t.any_instant = true;
	write_file("dirty", 4 * MIB);
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), 0);
	assert_true(p.calls == 1 && !p.was_frozen && rep.mounted && rep.instant && !rep.frozen);
	assert_string_equal(p.told, "");
	p.result = -ENOSPC;
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), -ENOSPC);
	scratch_free(&s);
}

TEST_GROUP_OF_ROOT(open_proc, NULL)
