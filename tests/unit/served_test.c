/* SPDX-License-Identifier: MIT */
/*
 * A FUSE file system whose server was taken over: it answers each name as the test says. What opens its file follows no link of it,
 * and takes nothing but a regular file. Each wall is tested without the other one.
 */
#include "test.h"

#include <linux/fuse.h>
#include <linux/seccomp.h>
#include <seccomp.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <linux/mount.h>

#include "base/kernel.h"
#include "base/mounts.h"
#include "export/fuse_mount.h"
#include "fuse_janitor.h"

static struct served {
	int fuse_fd, mount_fd;
	pthread_t thread;
	mode_t kind;
	char target[64]; /* of a link: a file that only root may read */
} s;

static void answer(uint64_t unique, int error, const void *data, size_t bytes)
{
	struct fuse_out_header h = { .len = (uint32_t)(sizeof(h) + bytes),
				     .error = error,
				     .unique = unique };
	const struct iovec iov[] = { { &h, sizeof(h) }, { (void *)data, bytes } };

	(void)!writev(s.fuse_fd, iov, 2);
}

static void *serve(void *nothing)
{
	static _Alignas(8) char buf[1 << 18];
	const struct fuse_in_header *in = (const void *)buf;
	const struct fuse_init_out init = { .major = FUSE_KERNEL_VERSION,
					    .minor = FUSE_KERNEL_MINOR_VERSION,
					    .max_write = 4096 };
	const struct fuse_open_out opened = { .fh = 1 };

	while (read(s.fuse_fd, buf, sizeof(buf)) > 0) {
		const struct fuse_entry_out e = {
			.nodeid = 2,
			.attr = { .ino = 2, .mode = s.kind | 0777, .nlink = 1, .size = 4096 }
		};
		const struct fuse_attr_out root = {
			.attr = { .ino = 1, .mode = S_IFDIR | 0755, .nlink = 2 }
		};

		switch (in->opcode) {
		case FUSE_INIT:
			answer(in->unique, 0, &init, sizeof(init));
			break;
		case FUSE_LOOKUP:
			answer(in->unique, 0, &e, sizeof(e));
			break;
		case FUSE_GETATTR:
			answer(in->unique, 0, &root, sizeof(root));
			break;
		case FUSE_READLINK:
			answer(in->unique, 0, s.target, strlen(s.target));
			break;
		case FUSE_OPEN:
		case FUSE_OPENDIR:
			answer(in->unique, 0, &opened, sizeof(opened));
			break;
		case FUSE_FORGET:
		case FUSE_RELEASE:
		case FUSE_RELEASEDIR:
			break;
		default:
			answer(in->unique, -ENOSYS, NULL, 0);
		}
	}
	return nothing;
}

/* A mount that follows links, as before there was a flag against it. */
static int mount_that_follows(void)
{
	const int fs_fd = fsopen("fuse", FSOPEN_CLOEXEC);
	char fd[16];
	int r;

	snprintf(fd, sizeof(fd), "%d", s.fuse_fd);
	assert_true(fs_fd >= 0);
	assert_int_equal(fsconfig(fs_fd, FSCONFIG_SET_STRING, "fd", fd, 0), 0);
	assert_int_equal(fsconfig(fs_fd, FSCONFIG_SET_STRING, "rootmode", "40000", 0), 0);
	assert_int_equal(fsconfig(fs_fd, FSCONFIG_SET_STRING, "user_id", "0", 0), 0);
	assert_int_equal(fsconfig(fs_fd, FSCONFIG_SET_STRING, "group_id", "0", 0), 0);
	assert_int_equal(fsconfig(fs_fd, FSCONFIG_CMD_CREATE, NULL, NULL, 0), 0);
	r = fsmount(fs_fd, FSMOUNT_CLOEXEC, MOUNT_ATTR_NODEV);
	close(fs_fd);
	return r;
}

static void start(bool follows)
{
	int abort_fd, fd;

	strcpy(s.target, "/tmp/cowfs-served-XXXXXX");
	fd = mkstemp(s.target);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, 4096), 0);
	close(fd);
	s.fuse_fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	assert_true(s.fuse_fd >= 0);
	if (follows)
		s.mount_fd = mount_that_follows();
	else
		assert_int_equal(fuse_mount_create(s.fuse_fd, &s.mount_fd), 0);
	assert_true(s.mount_fd >= 0);
	abort_fd = fuse_mount_open_abort(s.mount_fd);
	assert_true(abort_fd >= 0);
	janitor_start(abort_fd);
	assert_int_equal(pthread_create(&s.thread, NULL, serve, NULL), 0);
	s.kind = S_IFREG;
	fd = fuse_mount_open_file(s.mount_fd, "honest");
	assert_true(fd >= 0);
	close(fd);
	close(abort_fd);
}

static void stop(void)
{
	int abort_fd = fuse_mount_open_abort(s.mount_fd);

	assert_int_equal(write(abort_fd, "1", 1), 1);
	close(abort_fd);
	pthread_join(s.thread, NULL);
	close(s.mount_fd);
	close(s.fuse_fd);
	unlink(s.target);
	janitor_end();
}

/* Does a plain look-up get to the file of root? */
static bool leads_there(void)
{
	int fd = openat(s.mount_fd, "link", O_RDWR | O_CLOEXEC);
	struct stat got, want;
	bool same = fd >= 0 && fstat(fd, &got) == 0 && stat(s.target, &want) == 0 &&
		    got.st_dev == want.st_dev && got.st_ino == want.st_ino;

	if (fd >= 0)
		close(fd);
	return same;
}

TEST(test_link)
{
	start(true);
	s.kind = S_IFLNK;
	assert_true(leads_there()); /* the attack works where nothing is in its way */
	assert_int_equal(fuse_mount_open_file(s.mount_fd, "link"), -ELOOP);
	stop();
}

TEST(test_mount)
{
	if (!kernel_is(5, 14))
		skip();
	start(false);
	s.kind = S_IFLNK;
	assert_false(leads_there());
	assert_int_equal(fuse_mount_open_file(s.mount_fd, "link"), -ELOOP);
	stop();
}

TEST(test_other_kinds)
{
	static const mode_t kinds[] = { S_IFIFO, S_IFDIR, S_IFCHR, S_IFBLK, S_IFSOCK };
	char name[8];

	start(false);
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		s.kind = kinds[i];
		snprintf(name, sizeof(name), "%zu", i);
		assert_true(fuse_mount_open_file(s.mount_fd, name) < 0);
	}
	s.kind = S_IFREG;
	assert_true(fuse_mount_open_file(s.mount_fd, "../etc/passwd") < 0);
	assert_true(fuse_mount_open_file(s.mount_fd, s.target) < 0);
	stop();
}

/* As Linux before 5.14 answers. */
TEST(test_old_kernel)
{
	scmp_filter_ctx f = seccomp_init(SCMP_ACT_ALLOW);
	pid_t pid;
	int status;

	assert_non_null(f);
	assert_int_equal(seccomp_rule_add(f, SCMP_ACT_ERRNO(EINVAL), SCMP_SYS(fsmount), 1,
					  SCMP_A2_64(SCMP_CMP_MASKED_EQ, MOUNT_ATTR_NOSYMFOLLOW,
						     MOUNT_ATTR_NOSYMFOLLOW)),
			 0);
	pid = fork();
	if (pid == 0) {
		int fd = seccomp_load(f) < 0 ? -1
					     : mounts_new("tmpfs", NULL, MOUNT_ATTR_NOSYMFOLLOW);

		_exit(fd < 0);
	}
	seccomp_release(f);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

TEST_GROUP_OF_ROOT(NULL, NULL)
