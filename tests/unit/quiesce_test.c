/* SPDX-License-Identifier: MIT */
/*
 * Quiesce on scratch file systems of the real kernel: what is frozen is clean, what hangs is
 * bounced and unharmed, what cannot be frozen says so, and nothing stays frozen.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

#include "base/io.h"
#include "fs/bounce.h"
#include "fs/quiesce.h"
#include "fs/stuck.h"
#include "base/mounts.h"
#include "export/fuse_mount.h"
#include "scratch.h"

#define EXT4 "mkfs.ext4 -q -F"
#define EXT4_BYTES (32 * MIB)

static struct scratch s;
static int proc_dirfd = -1, fuse_dirfd = -1;

struct probe {
	unsigned calls;
	int result;	     /* what the seal returns */
	bool thaw;	     /* somebody thaws meanwhile */
	bool was_frozen;     /* FIFREEZE said EBUSY */
	bool needs_recovery; /* as the device tells it */
	char told[8];	     /* callback: 'F' and 'T' */
	atomic_bool stopped; /* writes are withheld until the seal */
};

static bool is_frozen(void)
{
	_cleanup_close_ int fd = open(s.mnt, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct stat mnt, dir;

	/* not what the folder lies on */
	if (fd < 0 || fstat(fd, &mnt) < 0 || stat(s.dir, &dir) < 0 || mnt.st_dev == dir.st_dev)
		return false;
	if (ioctl(fd, FIFREEZE, 0) < 0)
		return errno == EBUSY;
	ioctl(fd, FITHAW, 0);
	return false;
}

static int seal(void *ctx)
{
	struct probe *p = ctx;

	p->calls++;
	p->was_frozen = is_frozen();
	p->needs_recovery = scratch_needs_recovery(&s);
	if (p->thaw)
		scratch_thaw(&s);
	return p->result;
}

static bool stopped(void *ctx)
{
	return ((struct probe *)ctx)->stopped;
}

static void told(void *ctx, int mount_fd)
{
	struct probe *p = ctx;
	size_t n = strlen(p->told);

	if (n + 1 < sizeof(p->told))
		p->told[n] = mount_fd >= 0 ? 'F' : 'T';
}

static struct quiesce_target target(struct probe *p)
{
	return (struct quiesce_target){ .proc_dirfd = proc_dirfd,
					.dev = s.loop.rdev,
					.loop_fd = s.loop.fd,
					.fuse_dirfd = fuse_dirfd,
					.frozen = told,
					.ctx = p };
}

static int setup_ext4(void **state)
{
	(void)state;
	return scratch_new(&s, EXT4, EXT4_BYTES) && scratch_mount(&s, "ext4", 0) == 0 ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	scratch_thaw(&s);
	scratch_free(&s);
	return 0;
}

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

static void test_freeze_seal_thaw(void **state)
{
	struct probe p = { 0 };
	struct quiesce_target t = target(&p);
	struct quiesce_report rep;
	unsigned fds = count_fds();

	(void)state;
	write_file("dirty", 4 * MIB);
	assert_true(scratch_needs_recovery(&s));
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), 0);
	assert_int_equal(p.calls, 1);
	assert_true(p.was_frozen);
	assert_false(p.needs_recovery);
	assert_string_equal(p.told, "FFT");
	assert_true(rep.mounted && rep.frozen && !rep.readonly);
	assert_int_equal(rep.bounced, 0);
	assert_false(is_frozen());
	assert_int_equal(count_fds(), fds);
	printf("           sync %.3f ms, freeze %.3f ms, frozen %.3f ms\n",
	       (double)rep.sync_ns / 1e6, (double)rep.freeze_ns / 1e6, (double)rep.frozen_ns / 1e6);
	assert_int_equal(umount(s.mnt), 0);
}

static void test_seal_error(void **state)
{
	struct probe p = { .result = -ENOMEM };
	struct quiesce_target t = target(&p);
	struct quiesce_report rep;

	(void)state;
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), -ENOMEM);
	assert_false(is_frozen());
	t.stay_frozen = true;
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), -ENOMEM);
	assert_false(is_frozen());
}

static void test_stay_frozen(void **state)
{
	struct probe p = { 0 };
	struct quiesce_target t = target(&p);
	struct quiesce_report rep;

	(void)state;
	t.stay_frozen = true;
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), 0);
	assert_string_equal(p.told, "FFT");
	assert_true(is_frozen());
}

static void test_frozen_by_others(void **state)
{
	_cleanup_close_ int fd = open(s.mnt, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct probe p = { 0 };
	struct quiesce_target t = target(&p);
	struct quiesce_report rep;

	(void)state;
	assert_int_equal(ioctl(fd, FIFREEZE, 0), 0);
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), -EBUSY);
	assert_int_equal(p.calls, 0);
	assert_true(is_frozen());
	assert_int_equal(ioctl(fd, FITHAW, 0), 0);
}

static void test_thawed_by_others(void **state)
{
	struct probe p = { .thaw = true };
	struct quiesce_target t = target(&p);
	struct quiesce_report rep;

	(void)state;
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), -ECANCELED);
}

static void test_readonly_mount(void **state)
{
	struct probe p = { 0 };
	struct quiesce_target t = target(&p);
	struct quiesce_report rep;

	(void)state;
	assert_int_equal(mount(NULL, s.mnt, NULL, MS_REMOUNT | MS_RDONLY, NULL), 0);
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), 0);
	assert_true(rep.readonly && p.calls == 1 && !p.needs_recovery);
}

static void test_find_mount(void **state)
{
	char where[256] = "";
	bool readonly = true;

	(void)state;
	assert_int_equal(
		quiesce_find_mount(proc_dirfd, s.loop.rdev, where, sizeof(where), &readonly), 1);
	assert_string_equal(where, s.mnt); /* it has a space in it */
	assert_false(readonly);
	assert_int_equal(mount(NULL, s.mnt, NULL, MS_REMOUNT | MS_RDONLY, NULL), 0);
	assert_int_equal(quiesce_find_mount(proc_dirfd, s.loop.rdev, NULL, 0, &readonly), 1);
	assert_true(readonly);
	assert_int_equal(umount(s.mnt), 0);
	assert_int_equal(quiesce_find_mount(proc_dirfd, s.loop.rdev, NULL, 0, &readonly), 0);
}

static void test_not_mounted(void **state)
{
	struct probe p = { 0 };
	struct quiesce_target t = target(&p);
	struct quiesce_report rep;
	int fd;

	(void)state;
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

/* The same where writes are withheld until the seal: whoever has the device waits for it. */
static void test_claimed_and_stopped(void **state)
{
	struct probe p = { 0 };
	struct quiesce_target t = target(&p);
	struct quiesce_report rep;
	_cleanup_close_ int fd = -1;

	(void)state;
	t.stopped = stopped;
	/* nothing is in the way of a freeze */
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
	/* a commit that may do without a freeze does not wait for that */
	p.stopped = false;
	t.unfrozen = true;
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), 0);
	assert_true(p.calls == 4 && rep.unfrozen && rep.stopped);
}

/* Something else lies over the mount point: never the wrong one is taken for it, and the right one
 * is frozen. One that was unmounted lazily is out of reach. */
static void test_mount_out_of_reach(void **state)
{
	_cleanup_close_ int fd = open(s.mnt, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct probe p = { 0 };
	struct quiesce_target t = target(&p);
	struct quiesce_report rep;

	(void)state;
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
	assert_string_equal(rep.holder, ""); /* it is we ourselves */
	close(fd);
	fd = -1;
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), 0); /* that was the last one */
	assert_true(p.calls == 4 && !rep.hidden && !rep.mounted);
	assert_int_equal(scratch_mount(&s, "ext4", MS_RDONLY), 0);
	fd = open(s.mnt, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(umount2(s.mnt, MNT_DETACH), 0);
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), 0);
	assert_true(p.calls == 5 && rep.hidden && rep.mounted && rep.readonly && !p.needs_recovery);
}

/* Of a volume that was unmounted a bind mount of one file is left, or one of something that must
 * never be opened. */
static void test_file_mount(void **state)
{
	struct probe p = { 0 };
	struct quiesce_target t = target(&p);
	struct quiesce_report rep;
	char from[160], to[160];

	(void)state;
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

/* What only pid 1 sees: a /proc of our own making. */
static void test_mount_of_init(void **state)
{
	struct probe p = { 0 };
	struct quiesce_target t = target(&p);
	struct quiesce_report rep;
	char path[160], info[16384];
	int r;

	(void)state;
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

/* ---- a /proc of our own making ---- */

/* Writes a file in it, with the folders that lead there. */
static void fake_put(int dirfd, const char *path, const char *text)
{
	char part[128];
	int fd;

	for (const char *p = strchr(path, '/'); p; p = strchr(p + 1, '/')) {
		snprintf(part, sizeof(part), "%.*s", (int)(p - path), path);
		assert_true(mkdirat(dirfd, part, 0700) == 0 || errno == EEXIST);
	}
	fd = openat(dirfd, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(io_write_full(fd, text, strlen(text)), 0);
	close(fd);
}

static int fake_proc(char path[160])
{
	int fd;

	snprintf(path, 160, "%s/proc", s.dir);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(mount("none", path, "tmpfs", 0, NULL), 0);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(fd >= 0);
	return fd;
}

static void fake_end(const char *path, int fd)
{
	close(fd);
	assert_int_equal(umount(path), 0);
	rmdir(path);
}

/* Lines that are none, and one with a strange path: it is found, and only taken if it is what lies
 * there. */
static void test_strange_mountinfo(void **state)
{
	struct probe p = { 0 };
	struct quiesce_target t = target(&p);
	struct quiesce_report rep;
	char path[160], where[256];
	static char info[24000];
	bool readonly = true;
	size_t n;

	(void)state;
	t.proc_dirfd = fake_proc(path);
	assert_int_equal(quiesce_find_mount(t.proc_dirfd, t.dev, where, sizeof(where), NULL),
			 -ENOENT);
	/* could not look: nothing is sealed */
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), -ENOENT);
	fake_put(t.proc_dirfd, "self/mountinfo", "");
	assert_int_equal(quiesce_find_mount(t.proc_dirfd, t.dev, where, sizeof(where), NULL),
			 -ENOENT);
	assert_int_equal(symlinkat("/", t.proc_dirfd, "self/root"), 0);
	assert_int_equal(quiesce_find_mount(t.proc_dirfd, t.dev, where, sizeof(where), NULL), 0);
	n = (size_t)snprintf(
		info, sizeof(info),
		"nothing\n1 2 %u:%u / /x rw ext4 /dev/x rw\n"
		"1 2 %u:%u - ext4 /dev/x rw\n1 2 %u:%u / /x rw - ext4\n1 2 seven / /x rw - ext4 /dev/x rw\n"
		"9 1 0:55 / /x rw - tmpfs none rw\n9 1 0:55 / /x rw - btrfs /dev/not/there rw\n"
		"9 1 0:55 / /x rw - btrfs /dev/null rw\n9 1 %u:%u / ",
		major(t.dev), minor(t.dev), major(t.dev), minor(t.dev), major(t.dev), minor(t.dev),
		major(t.dev), minor(t.dev));
	memset(info + n, 'x', 20000); /* longer than any line may be */
	n += 20000;
	snprintf(info + n, sizeof(info) - n, " rw - ext4 /dev/x rw\n");
	fake_put(t.proc_dirfd, "self/mountinfo", info);
	assert_int_equal(quiesce_find_mount(t.proc_dirfd, t.dev, where, sizeof(where), NULL), 0);
	snprintf(info + n, sizeof(info) - n,
		 " rw - ext4 /dev/x rw\n"
		 "9 1 %u:%u / /a\\040b\\134c\\9\\04 rw - ext4 /dev/x root=ro\n",
		 major(t.dev), minor(t.dev));
	fake_put(t.proc_dirfd, "self/mountinfo", info);
	assert_int_equal(quiesce_find_mount(t.proc_dirfd, t.dev, where, sizeof(where), &readonly),
			 1);
	assert_string_equal(where, "/a b\\c\\9\\04");
	assert_false(readonly);
	/* not there, but it is mounted somewhere */
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), 0);
	assert_true(p.calls == 1 && p.was_frozen);
	/* another block device, and words that end within an escape */
	snprintf(info, sizeof(info),
		 "9 1 0:55 / /x rw - btrfs %s rw\n9 1 0:55 / /x\\!22 rw - btrfs /dev/x\\0 rw\n",
		 s.loop.path);
	fake_put(t.proc_dirfd, "self/mountinfo", info);
	assert_int_equal(quiesce_find_mount(t.proc_dirfd, t.dev, where, sizeof(where), NULL), 0);
	assert_int_equal(
		quiesce_find_mount(t.proc_dirfd, makedev(1, 250), where, sizeof(where), NULL), 0);
	/* a source is what the user who mounts likes; so is the rest of the line, but for the
	 * device number */
	snprintf(
		info, sizeof(info),
		"9 1 0:55 / /x rw - fuse %s rw\n9 1 0:55 / /x rw - fuse.btrfs %s rw\n"
		"9 1 0:55 / /x\\012 rw - fuse x\\0409\\0401\\040%u:%u\\040/\\040/\\040rw\\040-\\040ext4 rw\n",
		s.loop.path, s.loop.path, major(t.dev), minor(t.dev));
	fake_put(t.proc_dirfd, "self/mountinfo", info);
	assert_int_equal(quiesce_find_mount(t.proc_dirfd, t.dev, where, sizeof(where), NULL), 0);
	snprintf(info, sizeof(info), "9 1 %u:%u / / rw - ext4 /dev/x ro,noatime\n", major(t.dev),
		 minor(t.dev));
	fake_put(t.proc_dirfd, "self/mountinfo", info);
	assert_int_equal(quiesce_find_mount(t.proc_dirfd, t.dev, where, sizeof(where), &readonly),
			 1);
	assert_true(readonly);
	/* something else, and it is not mounted so */
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), -ESTALE);
	assert_int_equal(p.calls, 1);
	fake_end(path, t.proc_dirfd);
}

/* Tasks that look almost like a writer that sleeps on the file system, and one that does but has
 * ended. */
static void test_bounce_nobody(void **state)
{
	static const char task[] = "99999999/task/99999999"; /* more than any pid */
	static const struct {
		const char *stat, *syscall;
	} cases[] = {
		{ "99999999 (a) b) R 1", "275 0x3 0x0 0x3" },
		{ "99999999 (a S 1", "275 0x3 0x0 0x3" },
		{ "99999999 (a)S", "275 0x3 0x0 0x3" },
		{ "99999999 (a) S 1", "running" },
		{ "99999999 (a) S 1", "-1 0x3 0x3" },
		{ "99999999 (a) S 1", "202 0x3 0x3 0x3 0x3" },
		{ "99999999 (a) S 1", "1 0x9 0x3 0x3" },
		{ "99999999 (a) S 1", "1 0x5 0x3 0x3" },
		{ "99999999 (a) S 1", "1 0x3 0x0 0x0" },
	};
	char path[160], name[160], culprit[64] = "";
	struct stat st;
	int fd;

	(void)state;
	assert_int_equal(bounce_writers(-1, 0, NULL, NULL, culprit, sizeof(culprit)), 0);
	fd = fake_proc(path);
	assert_int_equal(fstat(fd, &st), 0);
	fake_put(fd, "99999998/task", "no folder");
	fake_put(fd, "99999997/task/99999997", "no folder");
	fake_put(fd, "99999996", "no folder");
	fake_put(fd, "0/task/0/stat", "0 (a) S 1");
	fake_put(fd, "-7/task/0/stat", "0 (a) S 1");
	fake_put(fd, "12x/task/0/stat", "0 (a) S 1");
	snprintf(name, sizeof(name), "%s/comm", task);
	fake_put(fd, name, "a");
	snprintf(name, sizeof(name), "%s/fd/3", task);
	fake_put(fd, name, "on the file system");
	snprintf(name, sizeof(name), "%s/fd/5", task);
	assert_int_equal(symlinkat("/dev/null", fd, name), 0);
	/* neither stat nor syscall */
	assert_int_equal(bounce_writers(fd, st.st_dev, NULL, NULL, culprit, sizeof(culprit)), 0);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		snprintf(name, sizeof(name), "%s/stat", task);
		fake_put(fd, name, cases[i].stat);
		snprintf(name, sizeof(name), "%s/syscall", task);
		fake_put(fd, name, cases[i].syscall);
		assert_int_equal(
			bounce_writers(fd, st.st_dev, NULL, NULL, culprit, sizeof(culprit)), 0);
		assert_string_equal(culprit, "");
	}
	fake_end(path, fd);
}

/* A task of a /proc of our own making that sleeps in write(3, ...), whatever happens to it. */
static void fake_sleeper(int dirfd, pid_t pid, int tid, const char *comm)
{
	char task[64], name[96];

	snprintf(task, sizeof(task), "%d/task/%d", pid, tid);
	snprintf(name, sizeof(name), "%s/stat", task);
	fake_put(dirfd, name, "1 (a) S 1");
	snprintf(name, sizeof(name), "%s/syscall", task);
	fake_put(dirfd, name, "1 0x3 0x0 0x0");
	snprintf(name, sizeof(name), "%s/fd/3", task);
	fake_put(dirfd, name, "on the file system");
	snprintf(name, sizeof(name), "%s/comm", task);
	if (comm)
		fake_put(dirfd, name, comm);
}

static pid_t idle_child(void)
{
	pid_t pid = fork();

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	assert_true(pid > 0);
	return pid;
}

/* Tasks whose sleep does not end when they are stopped: no longer than 200 ms each, and none stays
 * stopped. */
static void test_bounce_in_vain(void **state)
{
	pid_t two = idle_child(), nameless = idle_child(), other = idle_child();
	const pid_t pids[] = { two, nameless, other };
	char path[160], culprit[64] = "", want[2][64];
	uint64_t start_ns;
	struct stat st;
	int fd = fake_proc(path), status;

	(void)state;
	assert_int_equal(fstat(fd, &st), 0);
	fake_sleeper(fd, two, 1, "writer");
	fake_sleeper(fd, two, 2, "writer");
	fake_sleeper(fd, nameless, 1, NULL);
	fake_sleeper(fd, other, 1, "other");
	snprintf(want[0], sizeof(want[0]), "writer[%d]", two);
	snprintf(want[1], sizeof(want[1]), "other[%d]", other);
	start_ns = now_ns();
	assert_int_equal(bounce_writers(fd, st.st_dev, NULL, NULL, culprit, sizeof(culprit)), 4);
	assert_true(now_ns() - start_ns >= 4 * 200000000ull);
	/* the first that has a name, in the order of the folder */
	assert_true(!strcmp(culprit, want[0]) || !strcmp(culprit, want[1]));
	for (size_t i = 0; i < ARRAY_SIZE(pids); i++) {
		assert_int_equal(waitpid(pids[i], &status, WUNTRACED | WCONTINUED), pids[i]);
		assert_true(WIFCONTINUED(status));
		assert_int_equal(waitpid(pids[i], &status, WUNTRACED | WCONTINUED | WNOHANG), 0);
		kill(pids[i], SIGKILL);
		waitpid(pids[i], NULL, 0);
	}
	fake_end(path, fd);
}

/* A process that makes whoever looks at it wait: it is named, nobody waits for it, and the next
 * look comes when it has let go of the first. */
static void test_look_left_behind(void **state)
{
	static const char task[] = "99999999/task/99999999";
	char path[160], name[160];
	struct stuck *st = calloc(1, sizeof(*st));
	uint64_t start_ns = now_ns();
	unsigned fds;
	int fd, fifo_fd, r;

	(void)state;
	fd = fake_proc(path);
	snprintf(name, sizeof(name), "%s/stat", task);
	fake_put(fd, name, "99999999 (a) D 1 2 3 4 5 6");
	snprintf(name, sizeof(name), "%s/syscall", task);
	assert_int_equal(mkfifoat(fd, name, 0600), 0);
	fds = count_fds();
	*st = (struct stuck){ .proc_dirfd = fd, .fuse_dirfd = -1 };
	assert_int_equal(stuck_look(st, 100000000), 0);
	assert_true(st->n == 1 && st->suspects == 1 && st->task[0].pid == 99999999);
	assert_null(stuck_for_long(st)); /* it is given a second */
	assert_string_equal(st->task[0].name, "process 99999999");
	assert_int_equal(stuck_look(st, 100000000000), 0); /* at once */
	assert_true(now_ns() - start_ns < 5000000000);
	while (!stuck_for_long(st)) {
		usleep(1000);
		assert_int_equal(stuck_look(st, 100000000000), 0);
		assert_int_equal(st->n, 1);
	}
	fifo_fd = openat(fd, name, O_WRONLY | O_CLOEXEC);
	assert_true(fifo_fd >= 0);
	close(fifo_fd);
	unlinkat(fd, name, 0);
	for (int i = 0; (r = stuck_look(st, 1000000000)) == 0 && st->n && i < 2000; i++)
		usleep(1000);
	assert_int_equal(r, 0);
	assert_int_equal(st->n, 0);
	assert_int_equal(count_fds(), fds);
	stuck_free(st);
	free(st);
	fake_end(path, fd);
}

/* ---- tasks that are stuck, in a /proc and a fusectl of our own making ---- */

#define FAULT                                                                                      \
	"[<0>] folio_wait_bit_common+0x1/0x2\n[<0>] __handle_mm_fault+0x1/0x2\n[<0>] handle_mm_fault+0x1/0x2\n"
#define REQUEST "[<0>] request_wait_answer+0x1/0x2\n" FAULT
#define OWN 77 /* a FUSE connection of the user of the tasks; so is the next one */
#define THEIRS 80
#define ROOTS 90

struct fake {
	char path[160]; /* of the /proc */
	int fd, fuse_dirfd;
	struct stuck st;
};

static void fake_task(const struct fake *f, int pid, const char *syscall, const char *wchan,
		      const char *stack, const char *maps)
{
	const struct {
		const char *name, *text;
	} files[] = {
		{ "stat", "1 (a) b) D 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711" },
		{ "syscall", syscall },
		{ "wchan", wchan },
		{ "stack", stack },
		{ "maps", maps },
		{ "comm", "a" },
		{ "fd/3", "on the file system" },
		{ "status", "Name:\ta\nUid:\t1000\t0\t0\t0\nvoluntary_ctxt_switches:\t7" },
	};
	char name[96];

	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		snprintf(name, sizeof(name), "%d/task/%d/%s", pid, pid, files[i].name);
		if (files[i].text)
			fake_put(f->fd, name, files[i].text);
		else
			unlinkat(f->fd, name, 0);
	}
	snprintf(name, sizeof(name), "%d/stat", pid);
	fake_put(f->fd, name, files[0].text);
}

static void fake_conn(const struct fake *f, unsigned nr, uid_t uid)
{
	char name[32];

	snprintf(name, sizeof(name), "%u/abort", nr);
	fake_put(f->fuse_dirfd, name, "");
	snprintf(name, sizeof(name), "%u", nr);
	assert_int_equal(fchownat(f->fuse_dirfd, name, uid, 0, 0), 0);
}

static bool is_aborted(const struct fake *f, unsigned nr)
{
	char name[32], text[8];

	snprintf(name, sizeof(name), "%u/abort", nr);
	return io_read_text(f->fuse_dirfd, name, text, sizeof(text)) == 1;
}

static void fake_begin(struct fake *f)
{
	struct stat st;

	f->fd = fake_proc(f->path);
	fake_put(f->fd, "fuse/none", "");
	f->fuse_dirfd = openat(f->fd, "fuse", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(fstat(f->fd, &st), 0);
	f->st = (struct stuck){ .proc_dirfd = f->fd,
				.fuse_dirfd = f->fuse_dirfd,
				.st_dev = st.st_dev };
	for (unsigned i = 0; i < 2; i++) {
		fake_conn(f, OWN + i, 1000);
		fake_conn(f, THEIRS + i, 1001);
	}
	fake_conn(f, ROOTS, 0);
}

static void fake_finish(struct fake *f)
{
	stuck_free(&f->st);
	close(f->fuse_dirfd);
	fake_end(f->path, f->fd);
}

#define WRITE "1 0x3 0x10001000 0x1000 0x0 0x0 0x0 0x7ffc 0x7f00"
#define MAP(at, minor) #at "000-" #at "fff r--p 00000000 00:" #minor " 5 /x\n"

/* Which of them are found: with the stack, and as older kernels show them, without. */
static void test_look(void **state)
{
	static const struct {
		const char *syscall, *wchan, *stack, *maps;
		bool stuck, fuse;
	} cases[] = {
		{ WRITE, "", NULL, MAP(10001, 4d), true, true },
		{ WRITE, "", NULL, "0fffe000-11000000 r--p 00000000 00:4d 5 /x\n", true, true },
		/* beside the source */
		{ WRITE, "", NULL, MAP(10000, 4d) MAP(10002, 4d), false, false },
		{ WRITE, "", NULL, "10001000-10002000 r--p 00000000 08:01 5 /x\n", true, false },
		{ WRITE, "", NULL, "10001000-10002000 rw-p 00000000 00:00 0\n", false, false },
		{ WRITE, "", NULL, "10001000 what\n\n10001000-10002000 r--p 00000000 00:4d", true,
		  true },
		{ WRITE, "handle_userfault", NULL, "", true, false },
		{ "1 0x4 0x10001000 0x1000 0x0 0x0 0x0 0x7ffc 0x7f00", "", NULL, MAP(10001, 4d),
		  false, false },
		{ "running", "", NULL, MAP(10001, 4d), false, false },
		{ WRITE, "percpu_rwsem_wait", NULL, MAP(10001, 4d), false, false },
		/* io_uring_enter: it waits for completions, or in a call of its own */
		{ "426 0x9 0x0 0x1 0x1 0x0 0x0 0x7ffc 0x7f00", "io_cqring_wait", NULL,
		  MAP(20000, 4d), false, false },
		{ "426 0x9 0x0 0x1 0x1 0x0 0x0 0x7ffc 0x7f00", "io_cqring_wait", REQUEST,
		  MAP(20000, 4d), false, false },
		{ "426 0x9 0x1 0x1 0x1 0x0 0x0 0x7ffc 0x7f00", "folio_wait", NULL, MAP(20000, 4d),
		  true, true },
		{ "426 0x9 0x1 0x1 0x1 0x0 0x0 0x7ffc 0x7f00", "folio_wait", NULL,
		  "20000000-20001000 r--p 0 08:01 5 /x\n", false, false },
		/* the stack knows better than the mappings */
		{ WRITE, "", FAULT, MAP(10001, 4d), true, true },
		{ WRITE, "", FAULT, "", true, false },
		{ WRITE, "", REQUEST, "", true, true },
		{ WRITE, "", "[<0>] rwsem_down_write_slowpath+0x1/0x2\n", MAP(10001, 4d), false,
		  false },
		/* no names: as without */
		{ WRITE, "", "[<0>] 0xffffffff81000000\n", MAP(10001, 4d), true, true },
	};
	struct fake f;

	(void)state;
	fake_begin(&f);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		fake_task(&f, 99999999, cases[i].syscall, cases[i].wchan, cases[i].stack,
			  cases[i].maps);
		assert_int_equal(stuck_look(&f.st, 60000000000), 0);
		if (f.st.n != cases[i].stuck || (f.st.n && f.st.task[0].fuse != cases[i].fuse))
			fail_msg("case %zu", i);
		assert_int_equal(f.st.suspects, 0);
	}
	fake_finish(&f);
}

static void look_until_long(struct fake *f, size_t n)
{
	do {
		usleep(10000);
		assert_int_equal(stuck_look(&f->st, 60000000000), 0);
		assert_int_equal(f->st.n, n);
	} while (!stuck_for_long(&f->st));
}

/* Connections of the user first, one step at a time; another user's only if the task waits for
 * nothing else. */
static void test_cure(void **state)
{
	struct fake f;

	(void)state;
	fake_begin(&f);
	fake_task(&f, 99999999, "1 0x3 0x10000000 0x9000 0x0 0x0 0x0 0x7ffc 0x7f00", "", REQUEST,
		  MAP(10001, 4d) MAP(10002, 50) MAP(10003, 5a));
	assert_int_equal(stuck_look(&f.st, 60000000000), 0);
	assert_int_equal(stuck_cure(&f.st, true), 0); /* not for long */
	look_until_long(&f, 1);
	assert_int_equal(stuck_cure(&f.st, false), 1);
	assert_true(is_aborted(&f, OWN) && !is_aborted(&f, OWN + 1) && !is_aborted(&f, THEIRS) &&
		    !is_aborted(&f, ROOTS));
	for (int i = 0; i < 3; i++) { /* once; the step is kept from look to look */
		assert_int_equal(stuck_look(&f.st, 60000000000), 0);
		assert_int_equal(stuck_cure(&f.st, false), 0);
	}
	assert_int_equal(stuck_cure(&f.st, true), 0); /* the kill */
	assert_false(is_aborted(&f, OWN + 1));
	assert_true(stuck_cure(&f.st, true) > 0);
	assert_true(is_aborted(&f, OWN + 1));
	for (int i = 0; i < 3; i++)
		assert_int_equal(stuck_cure(&f.st, true), 0);
	assert_true(!is_aborted(&f, THEIRS) && !is_aborted(&f, ROOTS));
	/* it maps nothing else, and its user has none */
	for (unsigned i = 0; i < 2; i++) {
		char name[32];

		snprintf(name, sizeof(name), "%u/abort", OWN + i);
		assert_int_equal(unlinkat(f.fuse_dirfd, name, 0), 0);
		*strchr(name, '/') = '\0';
		assert_int_equal(unlinkat(f.fuse_dirfd, name, AT_REMOVEDIR), 0);
	}
	fake_task(&f, 99999999, "1 0x3 0x10002000 0x1000 0x0 0x0 0x0 0x7ffc 0x7f00", "", FAULT,
		  MAP(10002, 50));
	look_until_long(&f, 1);
	for (int i = 0; i < 5; i++)
		assert_int_equal(stuck_cure(&f.st, true), 0); /* not in a request to FUSE */
	fake_task(&f, 99999999, "1 0x3 0x10003000 0x1000 0x0 0x0 0x0 0x7ffc 0x7f00", "", REQUEST,
		  MAP(10003, 5a));
	look_until_long(&f, 1);
	for (int i = 0; i < 5; i++)
		assert_int_equal(stuck_cure(&f.st, true), 0);
	assert_true(!is_aborted(&f, THEIRS) && !is_aborted(&f, ROOTS));
	fake_task(&f, 99999999, "1 0x3 0x10002008 0x1000 0x0 0x0 0x0 0x7ffc 0x7f00", "", REQUEST,
		  MAP(10002, 50));
	look_until_long(&f, 1);
	/* it was killed already, in its call before */
	assert_int_equal(stuck_cure(&f.st, true), 0);
	assert_int_equal(stuck_cure(&f.st, true), 1);
	assert_int_equal(stuck_cure(&f.st, true), 0);
	assert_true(is_aborted(&f, THEIRS) && !is_aborted(&f, THEIRS + 1) &&
		    !is_aborted(&f, ROOTS));
	fake_finish(&f);
}

/* Who has the pid by now is not killed. */
static void test_cure_kills(void **state)
{
	pid_t pid = idle_child();
	char name[32];
	struct fake f;
	int status;

	(void)state;
	fake_begin(&f);
	fake_task(&f, pid, WRITE, "", REQUEST, "");
	look_until_long(&f, 1);
	snprintf(name, sizeof(name), "%d/stat", pid);
	fake_put(f.fd, name, "1 (a) b) D 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4712");
	assert_int_equal(stuck_cure(&f.st, true), 0);
	assert_int_equal(waitpid(pid, &status, WNOHANG), 0);
	look_until_long(&f, 1);
	assert_int_equal(stuck_cure(&f.st, true), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	fake_finish(&f);
}

/* The one that sleeps in a fault is to blame, not the one that waits for it; there may be more than
 * any list of ours was long. */
static void test_many_stuck(void **state)
{
	const unsigned n = 600;
	struct fake f;

	(void)state;
	fake_begin(&f);
	for (unsigned i = 0; i < n; i++)
		fake_task(&f, 80000000 + (int)i, WRITE, "", NULL,
			  "10001000-10002000 r--p 00000000 08:01 5 /x\n");
	fake_task(&f, 99999999, WRITE, "", REQUEST, MAP(10001, 4d));
	do
		look_until_long(&f, n + 1);
	while (now_ns() < f.st.task[0].since_ns + 3100000000); /* all of them by now */
	assert_int_equal(stuck_for_long(&f.st)->pid, 99999999);
	assert_int_equal(stuck_cure(&f.st, false), 1);
	assert_true(is_aborted(&f, OWN));
	fake_finish(&f);
}

static bool never(void *ctx)
{
	((struct probe *)ctx)->calls += 100;
	return false;
}

static bool always(void *ctx)
{
	((struct probe *)ctx)->calls += 10;
	return true;
}

/* Asked after the sync, and yes. */
static void test_needed(void **state)
{
	struct probe p = { 0 };
	struct quiesce_target t = target(&p);
	struct quiesce_report rep;

	(void)state;
	t.needed = always;
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), 0);
	assert_true(p.calls == 11 && rep.frozen && p.was_frozen);
	assert_int_equal(umount(s.mnt), 0);
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), 0);
	assert_true(p.calls == 22 && !rep.mounted);
}

/* No memory for the freezer; then none for a thread's stack, with the sync and without: nothing was
 * frozen, nothing stays open. Comes first: the C library keeps stacks of threads that have
 * ended. */
static void test_no_memory(void **state)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	(void)state;
	skip(); /* they end a program without memory */
#else
	struct probe p = { 0 };
	struct quiesce_target t = target(&p);
	struct quiesce_report rep;
	struct rlimit old, none;
	unsigned fds = count_fds();
	void **list = NULL, **more;
	int r[3];

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_AS, &old), 0);
	none = (struct rlimit){ .rlim_cur = 0, .rlim_max = old.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_AS, &none), 0);
	while ((more = malloc(160))) {
		*more = list;
		list = more;
	}
	t.no_sync = true;
	r[0] = quiesce_run(&t, seal, &p, &rep);
	t.no_sync = false;
	while ((more = list)) {
		list = *more;
		free(more);
	}
	r[1] = quiesce_run(&t, seal, &p, &rep);
	t.no_sync = true;
	r[2] = quiesce_run(&t, seal, &p, &rep);
	assert_int_equal(setrlimit(RLIMIT_AS, &old), 0);
	assert_int_equal(r[0], -ENOMEM);
	assert_int_equal(r[1], -EAGAIN);
	assert_int_equal(r[2], -EAGAIN);
	assert_int_equal(p.calls, 0);
	assert_string_equal(p.told, "FT");
	assert_false(is_frozen());
	assert_int_equal(count_fds(), fds);
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), 0);
	assert_true(p.was_frozen);
#endif
}

/* Asked after the sync, and no: then nothing is frozen. */
static void test_not_needed(void **state)
{
	struct probe p = { 0 };
	struct quiesce_target t = target(&p);
	struct quiesce_report rep;

	(void)state;
	t.needed = never;
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), -ENODATA);
	assert_true(p.calls == 100 && !rep.frozen);
	assert_int_equal(umount(s.mnt), 0);
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), -ENODATA);
	assert_int_equal(p.calls, 200);
}

/* Nobody wants to hear of descriptors, and who asked has synced already. */
static void test_quiet(void **state)
{
	struct probe p = { 0 };
	struct quiesce_target t = target(&p);
	struct quiesce_report rep;

	(void)state;
	t.frozen = NULL;
	t.no_sync = true;
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), 0);
	assert_true(p.was_frozen && !p.needs_recovery);
	assert_string_equal(p.told, "");
	assert_int_equal(mount(NULL, s.mnt, NULL, MS_REMOUNT | MS_RDONLY, NULL), 0);
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), 0);
	assert_true(rep.readonly && p.calls == 2);
	/* the seal fails and the file system was thawed behind our back: the seal's error is
	 * told */
	p.thaw = true;
	p.result = -ENOSPC;
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), -ENOSPC);
	/* not mounted, and no device to ask who holds it */
	assert_int_equal(umount(s.mnt), 0);
	t.loop_fd = -1;
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), -ENOENT);
	assert_int_equal(p.calls, 3);
}

/* ---- a writer that sleeps in splice ---- */

struct splicer {
	pid_t pid;
	int feed_fd;
};

static long do_splice(int pipe_fd)
{
	char path[160];
	int fd;

	snprintf(path, sizeof(path), "%s/spliced", s.mnt);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	return splice(pipe_fd, NULL, fd, NULL, 5, 0);
}

static char state_of(pid_t pid)
{
	char path[64], text[256];

	snprintf(path, sizeof(path), "%d/stat", pid);
	return io_read_text(proc_dirfd, path, text, sizeof(text)) < 0 ? '?' : strrchr(text, ')')[2];
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

static struct splicer splicer_start(void)
{
	struct splicer sp;
	char task[32];
	int pair[2];

	assert_int_equal(pipe2(pair, O_CLOEXEC), 0);
	sp.pid = fork();
	if (sp.pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(pair[1]);
		_exit(do_splice(pair[0]) == 5 ? 0 : 1);
	}
	close(pair[0]);
	sp.feed_fd = pair[1];
	snprintf(task, sizeof(task), "%d", sp.pid);
	wait_for_splice(task);
	return sp;
}

static void assert_spliced(void)
{
	char path[160], text[16];

	snprintf(path, sizeof(path), "%s/spliced", s.mnt);
	assert_int_equal(io_read_text(AT_FDCWD, path, text, sizeof(text)), 5);
	assert_string_equal(text, "hello");
}

static void test_bounce(void **state)
{
	struct probe p = { 0 };
	struct quiesce_target t = target(&p);
	struct quiesce_report rep;
	struct splicer sp = splicer_start();
	char culprit[64], comm[32];
	int status;

	(void)state;
	t.bounce_ns = 100000000;
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), 0);
	assert_true(p.was_frozen && !p.needs_recovery);
	assert_int_equal(rep.bounced, 1);
	assert_true(io_read_text(proc_dirfd, "self/comm", comm, sizeof(comm)) > 0);
	snprintf(culprit, sizeof(culprit), "%s[%d]", comm, sp.pid);
	assert_string_equal(rep.culprit, culprit);
	assert_true(rep.freeze_ns >= t.bounce_ns && rep.freeze_ns < 3000000000u);
	printf("           freeze behind a splice %.1f ms, frozen %.3f ms\n",
	       (double)rep.freeze_ns / 1e6, (double)rep.frozen_ns / 1e6);
	/* unharmed: it goes on sleeping, and its data arrive */
	usleep(20000);
	assert_int_equal(waitpid(sp.pid, &status, WNOHANG | WUNTRACED), 0);
	assert_int_equal(state_of(sp.pid), 'S');
	assert_int_equal(io_write_full(sp.feed_fd, "hello", 5), 0);
	assert_int_equal(waitpid(sp.pid, &status, 0), sp.pid);
	assert_int_equal(status, 0);
	assert_spliced();
	close(sp.feed_fd);
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

/* Our own splice: never bounced, so the freeze is given up; later it thaws by itself. */
static void test_giveup(void **state)
{
	struct probe p = { 0 };
	struct quiesce_target t = target(&p);
	struct quiesce_report rep;
	struct splice_thread st = { 0 };
	pthread_t thread;
	char task[32];
	void *spliced;
	int pair[2];

	(void)state;
	t.bounce_ns = 50000000;
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
	assert_int_equal(rep.bounced, 0);
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

/* seal() would ask for a freeze itself, behind the one that is pending. */
static int count_seal(void *ctx)
{
	((struct probe *)ctx)->calls++;
	return 0;
}

/* Writes are withheld while a freeze is awaited: it is sealed without, the freezer thaws by itself,
 * and the next one freezes. */
static void test_stopped(void **state)
{
	struct probe p = { 0 };
	struct quiesce_target t = target(&p);
	struct quiesce_report rep;
	struct splice_thread st = { 0 };
	pthread_t thread, stopper;
	char task[32];
	int pair[2];

	(void)state;
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

static void test_vfat(void **state)
{
	struct probe p = { 0 };
	struct quiesce_target t;
	struct quiesce_report rep;

	(void)state;
	mount_other("mkfs.vfat", "vfat", 16 * MIB);
	t = target(&p);
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), -EOPNOTSUPP);
	assert_int_equal(p.calls, 0);
	assert_int_equal(mount(NULL, s.mnt, NULL, MS_REMOUNT | MS_RDONLY, NULL), 0);
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), 0);
	assert_true(p.calls == 1 && rep.readonly);
	scratch_free(&s);
}

/* An erofs of two blocks, whose root is empty: a file system without freeze that every kernel here
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

/* Synced is enough where nobody can write; where somebody can, a file system without freeze is
 * refused. */
static void test_no_freeze(void **state)
{
	struct probe p = { 0 };
	struct quiesce_target t;
	struct quiesce_report rep;
	char path[160], info[256];
	struct statx st;

	(void)state;
	assert_true(scratch_new(&s, NULL, 1 * MIB));
	erofs_write();
	if (scratch_mount(&s, "erofs", MS_RDONLY) < 0) {
		printf("           SKIP: no erofs here\n");
		scratch_free(&s);
		skip();
	}
	t = target(&p);
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), 0);
	assert_true(p.calls == 1 && rep.readonly && rep.mounted && !rep.frozen);
	assert_string_equal(p.told, "FT");
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

static void test_anonymous_device(const char *mkfs, const char *type, uint64_t bytes,
				  bool splice_too)
{
	struct probe p = { 0 };
	struct quiesce_target t;
	struct quiesce_report rep;
	struct splicer sp = { 0 };
	char where[256];

	mount_other(mkfs, type, bytes);
	t = target(&p);
	assert_int_equal(quiesce_find_mount(proc_dirfd, s.loop.rdev, where, sizeof(where), NULL),
			 1);
	assert_string_equal(where, s.mnt);
	if (splice_too) {
		sp = splicer_start();
		t.bounce_ns = 100000000;
	}
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), 0);
	assert_true(p.was_frozen && rep.frozen);
	assert_int_equal(rep.bounced, splice_too);
	if (splice_too) {
		close(sp.feed_fd);
		waitpid(sp.pid, NULL, 0);
	}
	scratch_free(&s);
}

static void test_btrfs(void **state)
{
	(void)state;
	test_anonymous_device("mkfs.btrfs -f", "btrfs", 128 * MIB, true);
}

static void test_xfs(void **state)
{
	(void)state;
	test_anonymous_device("mkfs.xfs -f", "xfs", 320 * MIB, false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_no_memory, setup_ext4, teardown),
		cmocka_unit_test_setup_teardown(test_freeze_seal_thaw, setup_ext4, teardown),
		cmocka_unit_test_setup_teardown(test_seal_error, setup_ext4, teardown),
		cmocka_unit_test_setup_teardown(test_stay_frozen, setup_ext4, teardown),
		cmocka_unit_test_setup_teardown(test_frozen_by_others, setup_ext4, teardown),
		cmocka_unit_test_setup_teardown(test_thawed_by_others, setup_ext4, teardown),
		cmocka_unit_test_setup_teardown(test_readonly_mount, setup_ext4, teardown),
		cmocka_unit_test_setup_teardown(test_find_mount, setup_ext4, teardown),
		cmocka_unit_test_setup_teardown(test_not_mounted, setup_ext4, teardown),
		cmocka_unit_test_setup_teardown(test_claimed_and_stopped, setup_ext4, teardown),
		cmocka_unit_test_setup_teardown(test_mount_out_of_reach, setup_ext4, teardown),
		cmocka_unit_test_setup_teardown(test_file_mount, setup_ext4, teardown),
		cmocka_unit_test_setup_teardown(test_mount_of_init, setup_ext4, teardown),
		cmocka_unit_test_setup_teardown(test_strange_mountinfo, setup_ext4, teardown),
		cmocka_unit_test_setup_teardown(test_bounce_nobody, setup_ext4, teardown),
		cmocka_unit_test_setup_teardown(test_bounce_in_vain, setup_ext4, teardown),
		cmocka_unit_test_setup_teardown(test_look_left_behind, setup_ext4, teardown),
		cmocka_unit_test_setup_teardown(test_look, setup_ext4, teardown),
		cmocka_unit_test_setup_teardown(test_cure, setup_ext4, teardown),
		cmocka_unit_test_setup_teardown(test_cure_kills, setup_ext4, teardown),
		cmocka_unit_test_setup_teardown(test_many_stuck, setup_ext4, teardown),
		cmocka_unit_test_setup_teardown(test_needed, setup_ext4, teardown),
		cmocka_unit_test_setup_teardown(test_quiet, setup_ext4, teardown),
		cmocka_unit_test_setup_teardown(test_not_needed, setup_ext4, teardown),
		cmocka_unit_test_setup_teardown(test_bounce, setup_ext4, teardown),
		cmocka_unit_test_setup_teardown(test_giveup, setup_ext4, teardown),
		cmocka_unit_test_setup_teardown(test_stopped, setup_ext4, teardown),
		cmocka_unit_test(test_no_freeze),
		cmocka_unit_test(test_vfat),
		cmocka_unit_test(test_btrfs),
		cmocka_unit_test(test_xfs),
	};

	if (scratch_not_root("quiesce_test"))
		return 0;
	proc_dirfd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	fuse_dirfd = mounts_open_fusectl();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
