/* SPDX-License-Identifier: MIT */
/* Seals of scratch file systems of the real kernel: after a sync, at any moment, and nothing else has the device. */
#include "test.h"

#include <poll.h>
#include <pthread.h>
#include <sys/sysmacros.h>

#include "fs/find_mount.h"
#include "fs/quiesce.h"
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

static bool is_on_device(const char *text)
{
	_cleanup_free_ char *buf = io_alloc(EXT4_BYTES);
	_cleanup_close_ int fd = open(s.loop.path, O_RDONLY | O_DIRECT | O_CLOEXEC);

	return fd >= 0 && buf && pread(fd, buf, EXT4_BYTES, 0) == EXT4_BYTES &&
	       memmem(buf, EXT4_BYTES, text, strlen(text));
}

static bool was_synced;

static int seal_synced(void *ctx)
{
	was_synced = is_on_device("what was written before the seal");
	return seal(ctx);
}

/* The sync comes first; an error of the seal is returned. */
TEST(test_any_moment, setup_ext4, teardown)
{
	char path[160];
	FILE *f;

	snprintf(path, sizeof(path), "%s/f", s.mnt);
	f = fopen(path, "we");
	assert_non_null(f);
	fputs("what was written before the seal", f);
	fclose(f);
	assert_int_equal(quiesce_run(&t, seal_synced, &p, &rep), 0);
	assert_true(was_synced && p.calls == 1 && p.needs_recovery);
	assert_true(rep.mounted && rep.instant && !rep.readonly && !rep.unsynced && !rep.hidden);
	p.result = -ENOSPC;
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), -ENOSPC);
}

/* It does not bear a power cut: not while it is mounted read-write. */
TEST(test_not_while_mounted, setup_ext4, teardown)
{
	t.any = false;
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), -EOPNOTSUPP);
	assert_int_equal(p.calls, 0);
	assert_int_equal(mount(NULL, s.mnt, NULL, MS_REMOUNT | MS_RDONLY, NULL), 0);
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), 0);
	assert_true(p.calls == 1 && rep.readonly && !p.needs_recovery);
	assert_int_equal(umount(s.mnt), 0);
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), 0);
	assert_true(p.calls == 2 && !rep.mounted && !rep.instant);
}

static int seal_and_remount(void *ctx)
{
	assert_int_equal(mount(NULL, s.mnt, NULL, MS_REMOUNT, NULL), 0);
	return seal(ctx);
}

static int seal_and_unmount(void *ctx)
{
	assert_int_equal(umount(s.mnt), 0);
	return seal(ctx);
}

static int seal_and_claim(void *ctx)
{
	*((struct probe *)ctx)->fd = open(s.loop.path, O_RDONLY | O_EXCL | O_CLOEXEC);
	return seal(ctx);
}

/* What was found before the seal must hold behind it. */
TEST(test_other_user, setup_ext4, teardown)
{
	int fd = -1;

	assert_int_equal(mount(NULL, s.mnt, NULL, MS_REMOUNT | MS_RDONLY, NULL), 0);
	assert_int_equal(quiesce_run(&t, seal_and_remount, &p, &rep), -ETXTBSY);
	assert_int_equal(quiesce_run(&t, seal_and_unmount, &p, &rep), 0);
	p.fd = &fd;
	assert_int_equal(quiesce_run(&t, seal_and_claim, &p, &rep), -ETXTBSY);
	assert_true(fd >= 0 && rep.hidden);
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), -ESTALE);
	close(fd);
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
	int fd;

	assert_int_equal(umount(s.mnt), 0);
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), 0);
	assert_true(p.calls == 1 && !rep.mounted);
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
	_cleanup_close_ int fd = -1;

	t.stopped = stopped;
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), 0);
	assert_true(rep.instant && !rep.unsynced && !rep.stopped);
	assert_int_equal(umount(s.mnt), 0);
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), 0);
	assert_true(p.calls == 2 && !rep.stopped);
	fd = open(s.loop.path, O_RDONLY | O_EXCL | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), -ESTALE);
	assert_int_equal(p.calls, 2);
	p.stopped = true;
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), 0);
	assert_true(p.calls == 3 && rep.unsynced && rep.stopped && !rep.hidden);
	/* nor does a commit that may be sealed without a sync wait for it */
	p.stopped = false;
	t.unsynced = true;
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), -ESTALE);
	t.unseen = true;
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), 0);
	assert_true(p.calls == 4 && rep.unsynced && rep.stopped);
}

/* Another file system covers the mount point, or it was unmounted lazily: the kernel says that it is mounted. */
TEST(test_mount_out_of_reach, setup_ext4, teardown)
{
	_cleanup_close_ int fd = open(s.mnt, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	assert_true(fd >= 0); /* holds it after the lazy unmount */
	assert_int_equal(mount("none", s.mnt, "tmpfs", 0, NULL), 0);
	assert_int_equal(mount(NULL, s.mnt, NULL, MS_REMOUNT | MS_RDONLY, NULL), 0);
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), 0);
	assert_true(p.calls == 1 && rep.mounted && !rep.readonly); /* not that of the tmpfs */
	assert_int_equal(umount(s.mnt), 0);
	assert_int_equal(umount2(s.mnt, MNT_DETACH), 0);
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), 0);
	assert_true(p.calls == 2 && rep.hidden && rep.mounted && rep.instant);
	assert_string_equal(rep.holder, ""); /* it is this process */
	close(steal_fd(&fd));
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), 0); /* the last one */
	assert_true(p.calls == 3 && !rep.hidden && !rep.mounted);
}

/* A bind mount of one file is left of an unmounted volume, or a bind mount of something that must
 * never be opened. */
TEST(test_file_mount, setup_ext4, teardown)
{
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
		assert_true(rep.mounted && rep.instant);
		assert_int_equal(p.calls, fifo + 1);
		assert_int_equal(scratch_mount(&s, "ext4", 0), 0);
		assert_int_equal(umount(to), 0);
		unlink(to);
	}
}

/* Mounts that only pid 1 sees: a /proc made by the test. */
TEST(test_mount_of_init, setup_ext4, teardown)
{
	char path[160], info[16384];
	int r;

	t.proc_dirfd = fake_proc(path);
	r = io_read_text(proc_dirfd, "self/mountinfo", info, sizeof(info) - 1);
	assert_true(r > 0);
	strcat(info, "\n");
	fake_put(t.proc_dirfd, "self/mountinfo", "");
	fake_put(t.proc_dirfd, "1/mountinfo", info);
	assert_int_equal(symlinkat("/", t.proc_dirfd, "self/root"), 0);
	assert_int_equal(symlinkat("/", t.proc_dirfd, "1/root"), 0);
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), 0);
	assert_true(rep.instant);
	fake_end(path, t.proc_dirfd);
}

static bool slow(void *ctx)
{
	usleep(20000);
	return ((struct probe *)ctx)->stopped;
}

/* A sync that does not end: after its time, or because writes are withheld, the seal comes without it. */
TEST(test_no_sync, setup_ext4, teardown)
{
	p.stopped = true;
	t.stopped = slow;
	t.sync_ns = 1; /* it has ended by then, or is left behind */
	for (unsigned i = 0; i < 20; i++)
		assert_int_equal(quiesce_run(&t, seal, &p, &rep), 0);
	assert_int_equal(p.calls, 20);
	t.stopped = NULL;
	t.unsynced = true;
	for (unsigned i = 0; i < 20; i++) {
		assert_int_equal(quiesce_run(&t, seal, &p, &rep), 0);
		assert_true(rep.instant != rep.unsynced && !rep.stopped);
	}
}

TEST_GROUP_OF_ROOT(open_proc, NULL)
