/* SPDX-License-Identifier: MIT */
/*
 * The FUSE file against the real kernel, over a view made by this test: memory, and errors on
 * request. The kernel must see whole content or an error, zeroes after a punch, and nothing after
 * the stop.
 */
#include "test.h"

#include <dirent.h>
#include <linux/falloc.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "export/fuse.h"
#include "export/transport.h"
#include "fuse_janitor.h"
#include "scratch.h"

#define VOLUME_BYTES (16 * MIB)

struct view {
	char *data;
	atomic_int error;      /* what each call returns, if not 0 */
	atomic_int late_error; /* the same, of reads that were started */
	atomic_ulong reads, late, writes, punches, max_bytes;
};

static struct view view;
/* Work that a server did for the kernel happened before the answer: this shows it to the thread
 * sanitizer. */
static pthread_mutex_t order = PTHREAD_MUTEX_INITIALIZER;
static struct fuse_export *export;
static int fuse_fd = -1, file_fd = -1;
static unsigned fds_before;

/* Replaces the C library's function, which a filter of system calls may refuse. */
static atomic_bool refuse_replies;
static int refused_fd = -1; /* is told of it; -1: none */

ssize_t writev(int fd, const struct iovec *iov, int n)
{
	if (refuse_replies) {
		if (refused_fd >= 0)
			(void)!write(refused_fd, "r", 1);
		errno = EPERM;
		return -1;
	}
	return syscall(SYS_writev, fd, iov, n);
}

static bool inside(struct view *v, uint64_t off_bytes, uint64_t len_bytes)
{
	if (len_bytes > v->max_bytes)
		v->max_bytes = len_bytes;
	return off_bytes <= VOLUME_BYTES && len_bytes <= VOLUME_BYTES - off_bytes;
}

uint64_t view_volume_blks(const struct view *v)
{
	return VOLUME_BYTES / COW_BLK_BYTES;
}

int view_read(struct view *v, uint64_t off_bytes, void *buf, size_t len_bytes)
{
	v->reads++;
	if (v->error || !inside(v, off_bytes, len_bytes))
		return v->error ? v->error : -EINVAL;
	pthread_mutex_lock(&order);
	memcpy(buf, v->data + off_bytes, len_bytes);
	pthread_mutex_unlock(&order);
	return 0;
}

/* Reads in turn: one is not started, one is answered at once, one later by another thread. */
struct late {
	struct view *view;
	uint64_t off_bytes;
	size_t len_bytes;
	void *buf;
	struct view_read *rd;
};

static void *answer_late(void *arg)
{
	struct late *l = arg;

	usleep(l->off_bytes / COW_BLK_BYTES % 7 * 100);
	l->rd->done(l->rd, l->view->late_error
				   ? l->view->late_error
				   : view_read(l->view, l->off_bytes, l->buf, l->len_bytes));
	free(l);
	return NULL;
}

int view_start_read(struct view *v, uint64_t off_bytes, void *buf, size_t len_bytes,
		    struct view_read *rd)
{
	static atomic_uint turn;
	struct late *l;
	pthread_t thread;

	if (turn++ % 3 == 0)
		return -EAGAIN;
	if (turn % 3 == 0)
		return view_read(v, off_bytes, buf, len_bytes);
	l = malloc(sizeof(*l));
	*l = (struct late){ v, off_bytes, len_bytes, buf, rd };
	v->late++;
	assert_int_equal(pthread_create(&thread, NULL, answer_late, l), 0);
	pthread_detach(thread);
	return VIEW_PENDING;
}

bool view_write_waits(struct view *v, uint64_t off_bytes, size_t len_bytes)
{
	return false;
}

int view_write(struct view *v, uint64_t off_bytes, const void *buf, size_t len_bytes)
{
	v->writes++;
	if (v->error || !inside(v, off_bytes, len_bytes))
		return v->error ? v->error : -EINVAL;
	pthread_mutex_lock(&order);
	memcpy(v->data + off_bytes, buf, len_bytes);
	pthread_mutex_unlock(&order);
	return 0;
}

int view_punch(struct view *v, uint64_t off_bytes, uint64_t len_bytes)
{
	v->punches++;
	if (v->error || !inside(v, off_bytes, len_bytes))
		return v->error ? v->error : -EINVAL;
	pthread_mutex_lock(&order);
	memset(v->data + off_bytes, 0, len_bytes);
	pthread_mutex_unlock(&order);
	return 0;
}

/* The volume's content after the servers' work. */
static char *content(void)
{
	pthread_mutex_lock(&order);
	pthread_mutex_unlock(&order);
	return view.data;
}

static char byte_at(uint64_t off_bytes)
{
	char c;

	pthread_mutex_lock(&order);
	c = view.data[off_bytes];
	pthread_mutex_unlock(&order);
	return c;
}

static int start(void)
{
	view = (struct view){ .data = io_alloc(VOLUME_BYTES) };
	pthread_mutex_lock(&order);
	for (size_t i = 0; i < VOLUME_BYTES / 8; i++)
		((uint64_t *)view.data)[i] = i * 0x9E3779B97F4A7C15u;
	pthread_mutex_unlock(&order);
	fuse_fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	return fuse_export_start(&export, &view, fuse_fd, -1, "cowfs:test", NULL, &file_fd);
}

static int setup(void **state)
{
	alarm(600);
	fds_before = count_fds();
	if (start() < 0)
		return -1;
	janitor_start(fuse_export_abort_fd(export));
	return 0;
}

static int teardown(void **state)
{
	if (file_fd >= 0)
		close(steal_fd(&file_fd));
	fuse_export_stop(export);
	janitor_end();
	close(fuse_fd);
	free(view.data);
	alarm(0);
	return count_fds() == fds_before ? 0 : -1;
}

TEST(test_is_one_hidden_file, setup, teardown)
{
	char info[16384];
	struct stat st;

	assert_int_equal(fstat(file_fd, &st), 0);
	assert_true(S_ISREG(st.st_mode));
	assert_int_equal(st.st_size, VOLUME_BYTES);
	assert_true(fcntl(file_fd, F_GETFL) & O_DIRECT);
	assert_true(io_read_text(AT_FDCWD, "/proc/self/mountinfo", info, sizeof(info)) > 0);
	assert_null(strstr(info, " - fuse cowfs"));
}

TEST(test_read_write_whole, setup, teardown)
{
	static const struct {
		uint64_t off_bytes;
		size_t len_bytes;
	} ranges[] = { { 0, 4096 },	  { 512, 512 },		 { 1536, 7168 },
		       { 4096, 1 * MIB }, { 3 * 4096, 3 * MIB }, { VOLUME_BYTES - 4096, 4096 },
		       { 100, 1 } };
	_cleanup_free_ char *buf = io_alloc(4 * MIB);

	for (size_t i = 0; i < ARRAY_SIZE(ranges); i++) {
		uint64_t off = ranges[i].off_bytes;
		size_t len = ranges[i].len_bytes;

		assert_int_equal(pread(file_fd, buf, len, (off_t)off), len);
		assert_memory_equal(buf, content() + off, len);
		memset(buf, 'a' + (int)i, len);
		assert_int_equal(pwrite(file_fd, buf, len, (off_t)off), len);
		assert_memory_equal(buf, content() + off, len);
	}
	assert_true(view.max_bytes == 256 * KIB); /* large requests do come */
}

TEST(test_fallocate, setup, teardown)
{
	static const int zeroing[] = { FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				       FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE,
				       FALLOC_FL_ZERO_RANGE };
	char zero[1024] = { 0 };
	struct stat st;

	for (size_t i = 0; i < ARRAY_SIZE(zeroing); i++) {
		off_t off = (off_t)(8192 * (i + 1) + 512);
		char before = byte_at(off - 1), after = byte_at(off + 1024);

		assert_int_equal(fallocate(file_fd, zeroing[i], off, 1024), 0);
		assert_memory_equal(content() + off, zero, 1024);
		assert_int_equal(byte_at(off - 1), before);
		assert_int_equal(byte_at(off + 1024), after);
	}
	assert_int_equal(view.punches, ARRAY_SIZE(zeroing));
	assert_int_equal(fallocate(file_fd, 0, 0, 4096), -1);
	assert_int_equal(errno, EOPNOTSUPP);
	assert_int_equal(fallocate(file_fd, FALLOC_FL_KEEP_SIZE, 0, 4096), -1);
	assert_int_equal(errno, EOPNOTSUPP);
	assert_int_equal(fallocate(file_fd, FALLOC_FL_ZERO_RANGE, VOLUME_BYTES - 4096, 8192), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(view.punches, ARRAY_SIZE(zeroing));
	assert_int_equal(fallocate(file_fd, zeroing[0], 0, VOLUME_BYTES), 0);
	assert_int_equal(fstat(file_fd, &st), 0);
	assert_int_equal(st.st_size, VOLUME_BYTES);
	for (size_t i = 0; i < VOLUME_BYTES; i += 512)
		assert_int_equal(byte_at(i), 0);
}

static void assert_all_fail(int view_error, int expected)
{
	_cleanup_free_ char *buf = io_alloc(2 * MIB);

	view.error = view_error;
	assert_int_equal(pwrite(file_fd, buf, 2 * MIB, 0), -1);
	assert_int_equal(errno, expected);
	assert_int_equal(pread(file_fd, buf, 4096, 0), -1);
	assert_int_equal(errno, expected);
	assert_int_equal(fallocate(file_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096),
			 -1);
	assert_int_equal(errno, expected);
	view.error = 0;
	assert_int_equal(pread(file_fd, buf, 4096, 0), 4096);
}

TEST(test_errors, setup, teardown)
{
	assert_all_fail(-ENOSPC, ENOSPC);
	assert_all_fail(-EIO, EIO);
	assert_all_fail(-EBADMSG, EIO);
	assert_all_fail(-ENOMEM, EIO);
	/* a mode that the view refuses must not switch off the kernel's fallocate permanently */
	assert_int_equal(fallocate(file_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096),
			 0);
}

/* A read that was started and failed is tried again by one that blocks. */
TEST(test_late_errors, setup, teardown)
{
	static const int errors[] = { -EIO, -ENOMEDIUM };
	_cleanup_free_ char *buf = io_alloc(COW_BLK_BYTES);

	for (unsigned i = 0; i < 30; i++) {
		view.late_error = errors[i % 2];
		assert_int_equal(pread(file_fd, buf, COW_BLK_BYTES, (off_t)blk_to_bytes(i)),
				 COW_BLK_BYTES);
		assert_memory_equal(buf, content() + blk_to_bytes(i), COW_BLK_BYTES);
	}
	assert_true(view.late > 5);
	view.late_error = -EBADMSG;
	for (unsigned i = 0; i < 3; i++)
		if (pread(file_fd, buf, COW_BLK_BYTES, 0) < 0)
			return;
	fail_msg("no error was seen");
}

TEST(test_fsync_is_free, setup, teardown)
{
	for (int i = 0; i < 3; i++)
		assert_int_equal(fsync(file_fd), 0);
	assert_int_equal(fdatasync(file_fd), 0);
	assert_int_equal(view.reads + view.writes, 0);
}

/* Only the main thread takes signals. */
TEST(test_signals_are_blocked, setup, teardown)
{
	DIR *dir = opendir("/proc/self/task");
	unsigned serving = 0;
	struct dirent *e;

	while ((e = readdir(dir))) {
		char path[300], text[4096], *mask;

		snprintf(path, sizeof(path), "/proc/self/task/%s/status", e->d_name);
		if (atoi(e->d_name) <= 0 || atoi(e->d_name) == getpid() ||
		    io_read_text(AT_FDCWD, path, text, sizeof(text)) < 0)
			continue;
		mask = strstr(text, "SigBlk:");
		assert_non_null(mask);
		serving += (strtoull(mask + 7, NULL, 16) >> (SIGTERM - 1)) & 1;
	}
	closedir(dir);
	assert_in_range(serving, 4, 16);
}

struct stripe {
	pthread_t thread;
	unsigned number;
	bool ok;
};

static void *hammer(void *arg)
{
	struct stripe *s = arg;
	_cleanup_free_ char *buf = io_alloc(8192);

	s->ok = true;
	for (unsigned i = 0; i < 2000 && s->ok; i++) {
		off_t off = (off_t)((i % 256) * 65536 + s->number * 8192);

		memset(buf, (int)(s->number + i), 8192);
		s->ok = pwrite(file_fd, buf, 8192, off) == 8192;
		memset(buf, 0, 8192);
		s->ok &= pread(file_fd, buf, 8192, off) == 8192 &&
			 buf[0] == (char)(s->number + i) && buf[8191] == buf[0];
	}
	return NULL;
}

TEST(test_parallel, setup, teardown)
{
	struct stripe stripes[8] = { 0 };

	for (unsigned i = 0; i < ARRAY_SIZE(stripes); i++) {
		stripes[i].number = i;
		assert_int_equal(pthread_create(&stripes[i].thread, NULL, hammer, &stripes[i]), 0);
	}
	for (unsigned i = 0; i < ARRAY_SIZE(stripes); i++) {
		pthread_join(stripes[i].thread, NULL);
		assert_true(stripes[i].ok);
	}
}

/* With the loop device on top, and the order of a regular end. */
TEST(test_with_loop, setup, teardown)
{
	_cleanup_free_ char *buf = io_alloc(MIB);
	uint64_t range[2] = { 5 * MIB, MIB };
	struct loop_dev d;

	assert_int_equal(
		loop_attach(&d, file_fd, &usual_limits, "cowfs-test:fuse", false, NULL, -1), 0);
	close(steal_fd(&file_fd));
	memset(buf, 0x77, MIB);
	assert_int_equal(io_pwrite_full(d.fd, buf, MIB, 4 * MIB), 0);
	assert_int_equal(fsync(d.fd), 0);
	assert_memory_equal(content() + 4 * MIB, buf, MIB);
	assert_int_equal(ioctl(d.fd, BLKDISCARD, range), 0);
	assert_int_equal(byte_at(5 * MIB), 0);
	assert_int_equal(byte_at(6 * MIB - 1), 0);
	view.error = -ENOSPC;
	assert_int_equal(io_pwrite_full(d.fd, buf, 4096, 0), 0);
	assert_int_equal(fsync(d.fd), -1);
	view.error = 0;
	assert_int_equal(loop_detach(&d), 0);
}

TEST(test_bad_descriptor)
{
	int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC), fd = -7;
	struct fuse_export *e = NULL;
	unsigned fds = count_fds();

	assert_true(fuse_export_start(&e, &view, null_fd, -1, "cowfs:test", NULL, &fd) < 0);
	assert_true(fuse_export_start(&e, &view, -1, -1, "cowfs:test", NULL, &fd) < 0);
	assert_null(e);
	assert_int_equal(fd, -7);
	assert_int_equal(count_fds(), fds);
	close(null_fd);
}

/* Later no call waits for the table to grow. In a new process, whose table is as small as its descriptors permit. */
TEST(test_room_for_descriptors)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		char text[4096], *size;

		transport_make_room(0);
		size = io_read_text(AT_FDCWD, "/proc/self/status", text, sizeof(text)) > 0
			       ? strstr(text, "FDSize:")
			       : NULL;
		_exit(!size || strtoul(size + strlen("FDSize:"), NULL, 10) <= 1000);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* The reply to INIT is refused: no request is answered, and the start ends nevertheless. */
TEST(test_refused_replies)
{
	unsigned fds = count_fds();
	uint64_t begin_ns = now_ns();
	struct fuse_export *e = NULL;
	int dev_fd = open("/dev/fuse", O_RDWR | O_CLOEXEC), fd = -7;

	alarm(600);
	refuse_replies = true;
	assert_int_equal(fuse_export_start(&e, &view, dev_fd, -1, "cowfs:test", NULL, &fd),
			 -ETIMEDOUT);
	refuse_replies = false;
	assert_true(now_ns() - begin_ns >= 9000000000ull);
	assert_null(e);
	assert_int_equal(fd, -7);
	close(dev_fd);
	assert_int_equal(count_fds(), fds);
	alarm(0);
}

/* Its requests get no answer: says so, and sleeps in LOOP_CONFIGURE. */
static _Noreturn void wait_for_own_answer(int tell_fd)
{
	struct loop_dev d;

	assert_int_equal(start(), 0);
	assert_int_equal(write(tell_fd, &(int){ fuse_export_abort_fd(export) }, sizeof(int)),
			 sizeof(int));
	refused_fd = tell_fd;
	refuse_replies = true;
	(void)!loop_attach(&d, file_fd, &usual_limits, "cowfs-test:fuse", true, NULL, -1);
	_exit(1);
}

static bool ends_within(pid_t pid, unsigned seconds)
{
	for (unsigned i = 0; i < seconds * 100; i++) {
		if (waitpid(pid, NULL, WNOHANG) == pid)
			return true;
		usleep(10000);
	}
	return false;
}

/* A process that answers its own loop device is killed where the kernel waits for the answer. If that
 * stays, no loop device of this machine can be made or removed: so the connection is aborted then. */
TEST(test_killed_in_loop)
{
	int tell[2], child_fd, pid_fd, abort_fd;
	bool ended;
	char c;
	pid_t pid;

	assert_int_equal(pipe(tell), 0);
	pid = fork();
	if (pid == 0)
		wait_for_own_answer(tell[1]);
	assert_int_equal(read(tell[0], &child_fd, sizeof(child_fd)), sizeof(child_fd));
	pid_fd = (int)syscall(SYS_pidfd_open, pid, 0);
	abort_fd = (int)syscall(SYS_pidfd_getfd, pid_fd, child_fd, 0);
	assert_true(abort_fd >= 0);
	assert_int_equal(read(tell[0], &c, 1), 1);
	assert_int_equal(kill(pid, SIGKILL), 0);
	ended = ends_within(pid, 60);
	if (!ended) {
		assert_int_equal(write(abort_fd, "1", 1), 1);
		assert_true(ends_within(pid, 20));
	}
	assert_true(ended);
	close(abort_fd);
	close(pid_fd);
	close(tell[0]);
	close(tell[1]);
}

TEST_GROUP_OF_ROOT(NULL, NULL)
