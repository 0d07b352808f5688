/* SPDX-License-Identifier: MIT */
/* The loop device over an image file: the promises of attach, and a detach that knows when it is
 * done. */
#include "test.h"

#include <sys/sysmacros.h>

#include "export/bdi.h"
#include "scratch.h"

#define IMAGE_BYTES (8 * MIB)

static struct scratch s;

static int setup(void **state)
{
	return scratch_new(&s, NULL, IMAGE_BYTES) ? 0 : -1;
}

static int teardown(void **state)
{
	scratch_free(&s);
	return 0;
}

static uint64_t value(const char *folder, const char *name)
{
	char path[128];
	uint64_t v = UINT64_MAX;

	snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/%s/%s", major(s.loop.rdev),
		 minor(s.loop.rdev), folder, name);
	assert_int_equal(io_read_u64(AT_FDCWD, path, &v), 0);
	return v;
}

static uint64_t queue_value(const char *name)
{
	return value("queue", name);
}

static void bound_dirty(struct bdi_limit *b, uint64_t bytes)
{
	assert_int_equal(bdi_limit_open(b, s.loop.rdev), 0);
	assert_int_equal(bdi_limit_set(b, bytes), 0);
	assert_int_equal(value("bdi", "strict_limit"), 1);
}

static bool attached_at(const char *path)
{
	struct loop_info64 info;
	int fd = open(path, O_RDONLY | O_CLOEXEC), r;

	if (fd < 0)
		return false;
	r = ioctl(fd, LOOP_GET_STATUS64, &info);
	close(fd);
	return r == 0 && !strcmp((char *)info.lo_file_name, s.label);
}

static bool attached(void)
{
	return attached_at(s.loop.path);
}

TEST(test_attach, setup, teardown)
{
	_cleanup_free_ char *out = io_alloc(8192), *in = io_alloc(8192);
	_cleanup_close_ int image_fd = open(s.image, O_RDONLY | O_CLOEXEC);
	struct loop_info64 info;
	struct stat st;

	assert_int_equal(ioctl(s.loop.fd, LOOP_GET_STATUS64, &info), 0);
	assert_true(info.lo_flags & LO_FLAGS_DIRECT_IO);
	assert_string_equal((char *)info.lo_file_name, s.label);
	assert_int_equal(fstat(s.loop.fd, &st), 0);
	assert_true(st.st_rdev == s.loop.rdev);
	assert_true(queue_value("max_sectors_kb") <= 256);
	assert_true(queue_value("discard_max_bytes") <= 64 * MIB);
	assert_int_equal(queue_value("read_ahead_kb"), 128);
	assert_int_equal(queue_value("logical_block_size"), 512);

	memset(out, 0x5a, 8192);
	assert_int_equal(io_pwrite_full(s.loop.fd, out, 8192, 4096), 0);
	assert_int_equal(fsync(s.loop.fd), 0);
	assert_int_equal(io_pread_full(image_fd, in, 8192, 4096), 0);
	assert_memory_equal(in, out, 8192);
}

/* A daemon that was killed leaves its limits on the device; one that ends restores the earlier
 * ones. */
TEST(test_limits_of_another, setup, teardown)
{
	const struct loop_limits small = { 64, 28, 16 };
	int fd = open(s.image, O_RDWR | O_DIRECT | O_CLOEXEC);
	struct bdi_limit b;
	unsigned number;

	assert_true(fd >= 0);
	do { /* another process may take the number in between */
		assert_int_equal(loop_detach(&s.loop), 0);
		assert_int_equal(loop_attach(&s.loop, fd, &small, s.label, false, NULL, -1), 0);
		assert_int_equal(queue_value("max_sectors_kb"), 28);
		assert_int_equal(queue_value("nr_requests"), 16);
		number = s.loop.number;
		if (bdi_can_limit())
			bound_dirty(&b, MIB);
		assert_int_equal(ioctl(s.loop.fd, LOOP_CLR_FD), 0);
		close(s.loop.fd);
		close(s.loop.dev_dirfd);
		close(s.loop.queue_dirfd);
		assert_int_equal(loop_attach(&s.loop, fd, &usual_limits, s.label, false, NULL, -1),
				 0);
	} while (s.loop.number != number);
	assert_int_equal(queue_value("max_sectors_kb"), 256);
	assert_int_equal(queue_value("nr_requests"), 128);
	assert_int_equal(queue_value("read_ahead_kb"), 128);
	if (bdi_can_limit()) {
		assert_int_equal(value("bdi", "strict_limit"), 0);
		assert_int_equal(value("bdi", "max_ratio"), 100);
		bdi_limit_close(&b);
	}
	s.loop.found[0] = 64;
	assert_int_equal(loop_detach(&s.loop), 0);
	assert_int_equal(loop_attach(&s.loop, fd, &usual_limits, s.label, false, NULL, -1), 0);
	if (s.loop.number == number) /* else another process has it by now */
		assert_true(s.loop.found[0] == 64 && s.loop.found[2] == 16);
	close(fd);
}

/* It disappears with its last user. */
TEST(test_temporary, setup, teardown)
{
	int fd = open(s.image, O_RDWR | O_DIRECT | O_CLOEXEC), user_fd;

	assert_true(fd >= 0);
	assert_int_equal(loop_detach(&s.loop), 0);
	assert_int_equal(loop_attach(&s.loop, fd, &usual_limits, s.label, true, NULL, -1), 0);
	user_fd = open(s.loop.path, O_RDONLY | O_CLOEXEC);
	close(s.loop.fd);
	assert_true(attached());
	close(user_fd);
	while (attached()) /* who looks at it keeps it for a moment */
		usleep(1000);
	close(s.loop.dev_dirfd);
	close(s.loop.queue_dirfd);
	assert_int_equal(loop_attach(&s.loop, fd, &usual_limits, s.label, false, NULL, -1), 0);
	close(fd);
}

static char noted[32];
static int note_result;

static int note(const char *path, dev_t rdev)
{
	assert_false(attached_at(path));
	snprintf(noted, sizeof(noted), "%s", path);
	return note_result;
}

/* It is known before it is made. */
TEST(test_noted, setup, teardown)
{
	int fd = open(s.image, O_RDWR | O_DIRECT | O_CLOEXEC);
	unsigned fds = count_fds();
	struct loop_dev d;

	assert_true(fd >= 0);
	note_result = -ENOSPC;
	assert_int_equal(loop_attach(&d, fd, &usual_limits, s.label, false, note, -1), -ENOSPC);
	assert_false(attached_at(noted));
	assert_int_equal(count_fds(), fds);
	note_result = 0;
	assert_int_equal(loop_attach(&d, fd, &usual_limits, s.label, false, note, -1), 0);
	assert_string_equal(noted, d.path);
	assert_int_equal(loop_detach(&d), 0);
	close(fd);
}

TEST(test_in_use, setup, teardown)
{
	int fd;

	assert_int_equal(loop_in_use(&s.loop), 0);
	fd = open(s.loop.path, O_RDONLY | O_EXCL | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(loop_in_use(&s.loop), 1);
	assert_int_equal(loop_detach(&s.loop), -EBUSY);
	assert_true(attached());
	assert_int_equal(queue_value("read_ahead_kb"), 128);
	close(fd);
	assert_int_equal(loop_in_use(&s.loop), 0);
}

static void *close_later(void *arg)
{
	usleep(300000);
	close(*(int *)arg);
	return NULL;
}

TEST(test_detach_waits_for_other_opener, setup, teardown)
{
	int fd = open(s.loop.path, O_RDONLY | O_CLOEXEC);
	uint64_t begin_ns = now_ns();
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, close_later, &fd), 0);
	assert_int_equal(loop_detach(&s.loop), 0);
	assert_true(now_ns() - begin_ns > 250000000);
	assert_int_equal(s.loop.fd, -1);
	assert_false(attached());
	pthread_join(thread, NULL);
}

TEST(test_detach_gives_up, setup, teardown)
{
	int fd = open(s.loop.path, O_RDONLY | O_CLOEXEC);

	assert_int_equal(loop_detach(&s.loop), -EBUSY);
	assert_true(s.loop.fd >= 0);
	close(fd);
	assert_true(attached());
	assert_int_equal(loop_detach(&s.loop), 0);
	assert_false(attached());
}

/* ramfs has no direct I/O: refused, and nothing is left. */
TEST(test_no_direct_io, setup, teardown)
{
	struct loop_dev d = { .fd = -7 };
	char path[128];
	unsigned fds;
	int fd;

	assert_int_equal(mount("none", s.mnt, "ramfs", 0, NULL), 0);
	snprintf(path, sizeof(path), "%s/image", s.mnt);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, IMAGE_BYTES), 0);
	fds = count_fds();
	assert_int_equal(loop_attach(&d, fd, &usual_limits, "cowfs-test:ramfs", false, NULL, -1),
			 -EOPNOTSUPP);
	assert_int_equal(d.fd, -7);
	assert_int_equal(count_fds(), fds);
	close(fd);
	/* the file is free again: the device was released */
	for (; umount(s.mnt) < 0; usleep(1000))
		assert_int_equal(errno, EBUSY);
}

struct racer {
	pthread_t thread;
	int result;
};

static void *attach_detach(void *arg)
{
	struct racer *racer = arg;
	int fd = open(s.dir, O_TMPFILE | O_RDWR | O_CLOEXEC | O_DIRECT, 0600);

	if (fd < 0 || ftruncate(fd, IMAGE_BYTES) < 0)
		racer->result = -errno;
	for (int i = 0; i < 20 && !racer->result; i++) {
		struct loop_dev d;

		racer->result = loop_attach(&d, fd, &usual_limits, s.label, false, NULL, -1);
		if (!racer->result)
			racer->result = loop_detach(&d);
	}
	close(fd);
	return NULL;
}

TEST(test_race_for_free_device, setup, teardown)
{
	struct racer racers[4] = { 0 };
	unsigned fds = count_fds();

	for (size_t i = 0; i < ARRAY_SIZE(racers); i++)
		assert_int_equal(pthread_create(&racers[i].thread, NULL, attach_detach, &racers[i]),
				 0);
	for (size_t i = 0; i < ARRAY_SIZE(racers); i++) {
		pthread_join(racers[i].thread, NULL);
		assert_int_equal(racers[i].result, 0);
	}
	assert_int_equal(count_fds(), fds);
}

TEST_GROUP_OF_ROOT(NULL, NULL)
