/* SPDX-License-Identifier: MIT */
/*
 * The disk of ublk in the broker, without ublk: the driver's answers are those of a stub, the disk is a
 * loop device, /dev and /sys are folders. Guests have the driver (tests/vm/cases/worker-ublk.sh).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/io.h"
#include "export/disk_serve.h"
#include "export/transport.h"
#include "export/transport_private.h"
#include "export/ublk_control.h"
#include "scratch.h"

#define LABEL "cowfs:test"
#define ID 3u
#define BYTES (16 * MIB)

static struct scratch s;
static _Atomic uint32_t end;

/* ---- the driver ---- */

struct ublk_control {
	int fd;
};

static struct {
	struct ublk_dev_info info;
	struct ublk_params params;
	char calls[256];
	uint32_t end_at_delete;
	int params_result, busy; /* busy: so many times is the dead server not released */
} driver;

static int called(const char *what)
{
	strcat(driver.calls, what);
	strcat(driver.calls, " ");
	return 0;
}

int ublk_control_take(struct ublk_control **ret, int fd)
{
	*ret = calloc(1, sizeof(**ret));
	(*ret)->fd = fd;
	return 0;
}

int ublk_control_open(struct ublk_control **ret)
{
	return ublk_control_take(ret, open("/dev/null", O_RDWR | O_CLOEXEC));
}

void ublk_control_close(struct ublk_control *c)
{
	if (c)
		close(c->fd);
	free(c);
}

void ublk_control_until(struct ublk_control *c, int sock_fd)
{
	(void)c, (void)sock_fd;
}

int ublk_control_add(struct ublk_control *c, struct ublk_dev_info *info)
{
	(void)c;
	info->dev_id = ID;
	driver.info = *info;
	return called("add");
}

int ublk_control_set_params(struct ublk_control *c, uint32_t dev_id, struct ublk_params *p)
{
	(void)c, (void)dev_id;
	driver.params = *p;
	called("params");
	return driver.params_result;
}

int ublk_control_start(struct ublk_control *c, uint32_t dev_id)
{
	(void)c, (void)dev_id;
	return called("start");
}

int ublk_control_stop(struct ublk_control *c, uint32_t dev_id)
{
	(void)c, (void)dev_id;
	return called("stop");
}

void ublk_control_stop_later(struct ublk_control *c, uint32_t dev_id)
{
	(void)!ublk_control_stop(c, dev_id);
}

bool ublk_control_stopped(struct ublk_control *c)
{
	(void)c;
	return true;
}

int ublk_control_recover(struct ublk_control *c, uint32_t dev_id)
{
	(void)c, (void)dev_id;
	if (driver.busy-- > 0)
		return -EBUSY;
	return called("recover");
}

int ublk_control_recovered(struct ublk_control *c, uint32_t dev_id)
{
	(void)c, (void)dev_id;
	return called("recovered");
}

int ublk_control_delete(struct ublk_control *c, uint32_t dev_id)
{
	(void)c, (void)dev_id;
	driver.end_at_delete = end;
	return called("delete");
}

int ublk_control_info(struct ublk_control *c, uint32_t dev_id, struct ublk_dev_info *ret)
{
	(void)c;
	*ret = driver.info;
	return dev_id == ID ? 0 : -ENODEV;
}

/* ---- a broker ---- */

static int worker_fd, dev_dirfd, sys_dirfd, proc_dirfd;

static void put_file(const char *path, const char *text)
{
	_cleanup_close_ int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
}

static const char *at(const char *fmt, ...) PRINTF(1, 2);
static const char *at(const char *fmt, ...)
{
	static char path[2][256];
	static unsigned next;
	char *p = path[next++ % 2];
	int n = snprintf(p, sizeof(path[0]), "%s/", s.dir);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(p + n, sizeof(path[0]) - (size_t)n, fmt, ap);
	va_end(ap);
	return p;
}

static int open_folder(const char *name)
{
	int fd = open(at("%s", name), O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	assert_true(fd >= 0);
	return fd;
}

static int setup(void **state)
{
	static const char *const folders[] = { "dev",		"sys",	      "sys/dev",
					       "sys/dev/block", "sys/ublkb3", "sys/ublkb3/queue" };

	(void)state;
	memset(&driver, 0, sizeof(driver));
	end = 0;
	if (!scratch_new(&s, NULL, BYTES))
		return -1;
	for (size_t i = 0; i < ARRAY_SIZE(folders); i++)
		mkdir(at("%s", folders[i]), 0700);
	put_file(at("dev/ublk-control"), "");
	put_file(at("dev/ublkc3"), "");
	put_file(at("sys/ublkb3/queue/scheduler"), "mq-deadline");
	put_file(at("sys/ublkb3/queue/nr_requests"), "64");
	if (symlink(s.loop.path, at("dev/ublkb3")) < 0 ||
	    symlink("../../ublkb3",
		    at("sys/dev/block/%u:%u", major(s.loop.rdev), minor(s.loop.rdev))) < 0)
		return -1;
	dev_dirfd = open_folder("dev");
	sys_dirfd = open_folder("sys");
	proc_dirfd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return 0;
}

static int teardown(void **state)
{
	char command[160];

	(void)state;
	close(dev_dirfd);
	close(sys_dirfd);
	close(proc_dirfd);
	snprintf(command, sizeof(command), "rm -rf %s/dev %s/sys", s.dir, s.dir);
	if (system(command))
		return -1;
	scratch_free(&s);
	return 0;
}

static void broker(struct disk_serve *d, int mount_fd)
{
	int pair[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	worker_fd = pair[1];
	*d = (struct disk_serve){ .mount_fd = mount_fd,
				  .file_fd = -1,
				  .ublk = { .fd = -1,
					    .dev_dirfd = dev_dirfd,
					    .sys_dirfd = sys_dirfd,
					    .proc_dirfd = proc_dirfd,
					    .worker_fd = pair[0],
					    .card_bytes = BYTES,
					    .end = &end } };
}

static void end_broker(struct disk_serve *d)
{
	ublk_control_close(d->ublk.control);
	disk_serve_close(d);
	close(d->ublk.worker_fd);
	if (worker_fd >= 0)
		close(steal_fd(&worker_fd));
}

static int ask(struct disk_serve *d, struct broker_message m, int fd[BROKER_FDS])
{
	for (unsigned i = 0; i < BROKER_FDS; i++)
		fd[i] = -1;
	disk_serve(d, &m, fd);
	return m.result;
}

static int ask_closing(struct disk_serve *d, struct broker_message m)
{
	int fd[BROKER_FDS], r = ask(d, m, fd);

	for (unsigned i = 0; i < BROKER_FDS; i++)
		if (fd[i] >= 0)
			close(fd[i]);
	return r;
}

static const struct broker_message queue = { .op = BROKER_UBLK_QUEUE,
					     .n = { 64, BYTES, 64 * KIB } },
				   begin = { .op = BROKER_UBLK_START, .n = { 128 } },
				   detach = { .op = BROKER_DETACH },
				   failed = { .op = BROKER_DETACH, .n = { 1 } },
				   used = { .op = BROKER_IN_USE };

static bool is_file(const char *name, const char *text)
{
	char is[64];

	return io_read_text(AT_FDCWD, at("%s", name), is, sizeof(is)) >= 0 &&
	       !strncmp(is, text, strlen(text));
}

/* ---- tests ---- */

static void test_life(void **state)
{
	int fd[BROKER_FDS], mount_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	struct disk_serve d;
	struct stat st;

	(void)state;
	broker(&d, mount_fd);
	ublk_disk_open(&d.ublk, LABEL);
	assert_int_equal(ask_closing(&d, begin), -ENODEV); /* there is no device */
	assert_int_equal(ask(&d, queue, fd), 0);
	assert_true(fd[0] >= 0 && fd[1] < 0);
	close(fd[0]);
	assert_int_equal(driver.info.queue_depth, 64);
	assert_true(driver.info.flags & UBLK_F_USER_RECOVERY);
	assert_int_equal(driver.params.basic.dev_sectors, BYTES / 512);
	assert_int_equal(driver.params.basic.max_sectors, 128);
	assert_int_equal(end, ID + 1);
	assert_true(disk_serve_rdev(&d) == 0 && disk_serve_fd(&d) < 0);
	assert_int_equal(ask_closing(&d, queue), -EALREADY);
	assert_true(fcntl(mount_fd, F_GETFD) >= 0);
	assert_int_equal(ask(&d, begin, fd), 0);
	assert_true(fcntl(mount_fd, F_GETFD) < 0); /* FUSE is not needed any more */
	assert_int_equal(fstat(fd[0], &st), 0);
	assert_true(st.st_rdev == s.loop.rdev && disk_serve_rdev(&d) == s.loop.rdev);
	assert_true(fcntl(fd[1], F_GETFL) & O_DIRECT);
	close(fd[0]);
	close(fd[1]);
	assert_int_equal(ask_closing(&d, queue), -EALREADY); /* it is no disk of a dead server */
	assert_true(is_file("sys/ublkb3/queue/scheduler", "none"));
	assert_true(is_file("sys/ublkb3/queue/nr_requests", "63"));
	assert_int_equal(ask_closing(&d, used), 0);
	fd[0] = open(s.loop.path, O_RDONLY | O_EXCL | O_CLOEXEC);
	assert_int_equal(ask_closing(&d, used), 1);
	assert_int_equal(ask_closing(&d, detach), -EBUSY);
	assert_string_equal(driver.calls, "add params start ");
	close(fd[0]);
	assert_int_equal(ask_closing(&d, detach), 0);
	assert_string_equal(driver.calls, "add params start stop delete ");
	assert_true(driver.end_at_delete == 0 && disk_serve_rdev(&d) == 0);
	end_broker(&d);
}

/* What failed leaves nothing, and FUSE can be tried. */
static void test_failures(void **state)
{
	int mount_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	struct disk_serve d;

	(void)state;
	broker(&d, mount_fd);
	ublk_disk_open(&d.ublk, LABEL);
	driver.params_result = -EINVAL;
	assert_int_equal(ask_closing(&d, queue), -EINVAL);
	assert_string_equal(driver.calls, "add params stop delete ");
	driver.params_result = 0;
	assert_int_equal(ask_closing(&d, queue), -EALREADY); /* not without end */
	assert_string_equal(driver.calls, "add params stop delete ");
	assert_int_equal(end, 0);
	assert_true(fcntl(mount_fd, F_GETFD) >= 0);
	end_broker(&d);
}

static void test_start_fails(void **state)
{
	int mount_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	struct disk_serve d;

	(void)state;
	broker(&d, mount_fd);
	ublk_disk_open(&d.ublk, LABEL);
	assert_int_equal(ask_closing(&d, queue), 0);
	unlink(at("sys/ublkb3/queue/nr_requests"));
	assert_int_equal(ask_closing(&d, begin), -ENOENT);
	assert_true(disk_serve_rdev(&d) == s.loop.rdev); /* the kernel has it */
	assert_int_equal(ask_closing(&d, failed), 0);
	assert_string_equal(driver.calls, "add params start stop delete ");
	assert_int_equal(ask_closing(&d, queue), -EALREADY);
	assert_int_equal(end, 0);
	assert_true(fcntl(mount_fd, F_GETFD) >= 0);
	end_broker(&d);
}

/* A loop device that was attached in between */
static void test_both(void **state)
{
	struct disk_serve d;

	(void)state;
	broker(&d, -1);
	ublk_disk_open(&d.ublk, LABEL);
	assert_int_equal(ask_closing(&d, queue), 0);
	d.have_loop = true;
	assert_int_equal(ask_closing(&d, begin), -EALREADY);
	assert_string_equal(driver.calls, "add params ");
	d.have_loop = false;
	end_broker(&d);
}

/* More than the driver's limits, which a worker that was taken over may ask for */
static void test_limits(void **state)
{
	struct disk_serve d;

	(void)state;
	static const uint64_t wrong[][2] = {
		{ BYTES + 512, 64 * KIB }, { BYTES, 0 }, { BYTES, 512 }, { BYTES, 64 * KIB + 1 }
	};

	broker(&d, -1);
	ublk_disk_open(&d.ublk, LABEL);
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
		assert_int_equal(ask_closing(&d, (struct broker_message){ .op = BROKER_UBLK_QUEUE,
									  .n = { 64, wrong[i][0],
										 wrong[i][1] } }),
				 -EINVAL);
	assert_string_equal(driver.calls, "");
	assert_int_equal(ask_closing(&d, (struct broker_message){ .op = BROKER_UBLK_QUEUE,
								  .n = { 1000, BYTES, GIB } }),
			 0);
	assert_int_equal(driver.info.queue_depth, UBLK_DEPTH_MAX);
	assert_int_equal(driver.params.basic.max_sectors, UBLK_IO_BYTES_MAX / 512);
	end_broker(&d);
}

static void test_none(void **state)
{
	struct disk_serve d;

	(void)state;
	unlink(at("dev/ublk-control"));
	broker(&d, -1);
	ublk_disk_open(&d.ublk, LABEL);
	assert_int_equal(ask_closing(&d, queue), -ENODEV);
	end_broker(&d);
}

static void make_mark(const char *label)
{
	struct disk_serve d;

	broker(&d, -1);
	ublk_disk_open(&d.ublk, label);
	assert_int_equal(ask_closing(&d, queue), 0);
	end_broker(&d);
	driver.calls[0] = '\0';
}

static void test_take_over(void **state)
{
	int fd[BROKER_FDS];
	struct disk_serve d;

	(void)state;
	make_mark(LABEL);
	end = 77; /* a worker that was taken over may write there */
	broker(&d, -1);
	assert_int_equal(disk_serve_take(&d, s.loop.fd, dev_dirfd, sys_dirfd), 0);
	ublk_disk_open(&d.ublk, LABEL);
	assert_int_equal(end, ID + 1);
	assert_true(disk_serve_rdev(&d) == s.loop.rdev);
	driver.busy = 3;
	assert_int_equal(ask(&d, queue, fd), 0);
	assert_true(fd[0] >= 0);
	close(fd[0]);
	assert_int_equal(ask(&d, begin, fd), 0);
	assert_true(fd[0] < 0 && fd[1] < 0); /* no disk is opened */
	assert_string_equal(driver.calls, "recover recovered ");
	assert_true(is_file("sys/ublkb3/queue/nr_requests", "64"));
	end_broker(&d);
}

/* The wait for the dead server ends with the worker. */
static void test_worker_gone(void **state)
{
	struct disk_serve d;
	uint64_t begin_ns = now_ns();

	(void)state;
	make_mark(LABEL);
	broker(&d, -1);
	assert_int_equal(disk_serve_take(&d, s.loop.fd, dev_dirfd, sys_dirfd), 0);
	ublk_disk_open(&d.ublk, LABEL);
	driver.busy = INT32_MAX;
	close(steal_fd(&worker_fd));
	assert_int_equal(ask_closing(&d, queue), -ECONNRESET);
	assert_true(now_ns() - begin_ns < 10000000000ull);
	end_broker(&d);
}

/* The disk of another volume, and what is no disk of ublk */
static void test_not_ours(void **state)
{
	_cleanup_close_ int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	struct disk_serve d;

	(void)state;
	make_mark("cowfs:other");
	end = 0;
	broker(&d, -1);
	assert_int_equal(disk_serve_take(&d, s.loop.fd, dev_dirfd, sys_dirfd), 0);
	ublk_disk_open(&d.ublk, LABEL);
	assert_true(disk_serve_rdev(&d) == 0 && disk_serve_fd(&d) < 0 && end == 0);
	assert_int_equal(ask_closing(&d, queue), -ESTALE);
	assert_int_equal(ask_closing(&d, begin), -ENODEV);
	assert_string_equal(driver.calls, "");
	assert_int_equal(ublk_disk_take(&d.ublk, null_fd, sys_dirfd), -ESRCH);
	unlink(at("sys/dev/block/%u:%u", major(s.loop.rdev), minor(s.loop.rdev)));
	assert_int_equal(symlink("../../loop3",
				 at("sys/dev/block/%u:%u", major(s.loop.rdev), minor(s.loop.rdev))),
			 0);
	assert_int_equal(ublk_disk_take(&d.ublk, s.loop.fd, sys_dirfd), -ESRCH);
	end_broker(&d);
}

/* The supervisor ends what has the mark, whatever number it finds. */
static void test_end(void **state)
{
	struct ublk_control *c;

	(void)state;
	make_mark(LABEL);
	assert_int_equal(ublk_control_open(&c), 0);
	transport_end(c, ID + 1, "cowfs:other");
	transport_end(c, ID + 2, LABEL);
	assert_string_equal(driver.calls, "");
	transport_end(c, ID + 1, LABEL);
	assert_string_equal(driver.calls, "stop ");
	ublk_control_close(c);
}

/* What a worker has written as its disk */
static void test_left(void **state)
{
	(void)state;
	make_mark(LABEL);
	driver.info.state = UBLK_S_DEV_DEAD;
	assert_int_equal(ublk_left_detach("/dev/ublkb7/ublkb3", LABEL), -ESRCH);
	assert_int_equal(ublk_left_detach("/dev/ublkb3/../ublkb3", LABEL), -ESRCH);
	assert_int_equal(ublk_left_detach("/dev/ublkb3x", LABEL), -ESRCH);
	assert_int_equal(ublk_left_detach("/dev/ublkb3", "cowfs:other"), -ESRCH);
	assert_string_equal(driver.calls, "");
	assert_int_equal(ublk_left_detach("/dev/ublkb3", LABEL), 0);
	assert_string_equal(driver.calls, "delete ");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_life, setup, teardown),
		cmocka_unit_test_setup_teardown(test_failures, setup, teardown),
		cmocka_unit_test_setup_teardown(test_start_fails, setup, teardown),
		cmocka_unit_test_setup_teardown(test_both, setup, teardown),
		cmocka_unit_test_setup_teardown(test_limits, setup, teardown),
		cmocka_unit_test_setup_teardown(test_none, setup, teardown),
		cmocka_unit_test_setup_teardown(test_take_over, setup, teardown),
		cmocka_unit_test_setup_teardown(test_worker_gone, setup, teardown),
		cmocka_unit_test_setup_teardown(test_not_ours, setup, teardown),
		cmocka_unit_test_setup_teardown(test_end, setup, teardown),
		cmocka_unit_test_setup_teardown(test_left, setup, teardown),
	};

	if (scratch_not_root("ublk_disk_test"))
		return 0;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
