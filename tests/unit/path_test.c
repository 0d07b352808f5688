/* SPDX-License-Identifier: MIT */
/* Tests of base/path.h, as root: which links are followed, what is said of the others, files that are replaced. */
#include <sys/xattr.h>

#include "test.h"
#include "base/path.h"
#include "workdir.h"

#define NOBODY 65534
#define NONE 0xffff /* half of an id of an ACL */

static char why[2 * 4096];

static const char *in_dir(const char *name)
{
	static char path[256];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return path;
}

/* The inode behind the path, or -errno. */
static long opened(const char *name, int flags)
{
	int fd = path_open(*name == '/' ? name : in_dir(name), flags, why, sizeof(why));
	struct stat st;

	if (fd < 0)
		return fd;
	assert_int_equal(fstat(fd, &st), 0);
	close(fd);
	return (long)st.st_ino;
}

static long inode(const char *name)
{
	struct stat st;

	assert_int_equal(lstat(in_dir(name), &st), 0);
	return (long)st.st_ino;
}

static int make_tree(void **state)
{
	static const char make[] =
		"cd %s && umask 022 && chmod 755 . && mkdir -p etc/deep home/roots open && echo x >etc/file && "
		"ln -s etc ours && ln -s ../etc/file etc/link && ln -s /nowhere etc/gone && ln -s loop loop && "
		"ln -s ../../etc home/roots/etc && chown %d home && ln -s ../etc home/theirs && "
		"chown -h %d home/theirs && ln -s ../etc home/of-root && chmod 777 open && ln -s ../etc open/link && "
		"mkdir sticky && chmod 1777 sticky && ln -s ../etc sticky/ours && ln -s ../etc sticky/theirs && "
		"chown -h %d sticky/theirs && ln -s \"$PWD/etc\" absolute && ln -s home/theirs indirect";
	char cmd[1024];

	if (workdir_new("path") < 0)
		return -1;
	snprintf(cmd, sizeof(cmd), make, dir, NOBODY, NOBODY, NOBODY);
	return system(cmd);
}

TEST(test_links_of_root)
{
	if (geteuid())
		skip();
	assert_int_equal(opened("etc/deep", O_PATH), inode("etc/deep"));
	assert_int_equal(opened("ours", O_PATH), inode("etc"));
	assert_int_equal(opened("ours", O_PATH | O_NOFOLLOW), inode("ours"));
	assert_int_equal(opened("ours/deep/..//link", O_RDONLY), inode("etc/file"));
	assert_int_equal(opened("absolute/deep", O_RDONLY | O_DIRECTORY), inode("etc/deep"));
	assert_int_equal(opened("sticky/ours/file", O_RDONLY), inode("etc/file"));
	assert_int_equal(opened("ours/", O_RDONLY | O_DIRECTORY), inode("etc"));
	assert_int_equal(opened("home/../ours/file", O_RDONLY), inode("etc/file"));
	assert_int_equal(opened("/", O_PATH), opened("/proc/..", O_PATH));
	assert_int_equal(opened("etc/gone", O_RDONLY), -ENOENT);
	assert_int_equal(opened("etc/file", O_RDONLY | O_DIRECTORY), -ENOTDIR);
	assert_int_equal(opened("etc/file/x", O_RDONLY), -ENOTDIR);
	assert_string_equal(why, "");
	assert_int_equal(opened("loop", O_PATH), -ELOOP);
	assert_string_equal(why, "");
	assert_int_equal(path_open("", O_PATH, why, sizeof(why)), -ENOENT);
}

TEST(test_links_of_others)
{
	static const struct {
		const char *path, *link, *user;
	} refused[] = {
		{ "home/theirs", "home/theirs", "65534" },
		{ "home/theirs/deep", "home/theirs", "65534" },
		{ "home/of-root/file", "home/of-root", "65534" }, /* he may have moved it here */
		{ "home/roots/etc/file", "home/roots/etc", "65534" },
		{ "home/roots/../../ours/file", "ours",
		  "65534" }, /* he may have moved that folder */
		{ "open/link/file", "open/link", NULL },
		{ "sticky/theirs/file", "sticky/theirs", "65534" },
		{ "indirect/file", "home/theirs", "65534" },
	};

	if (geteuid())
		skip();
	for (size_t i = 0; i < ARRAY_SIZE(refused); i++) {
		assert_int_equal(opened(refused[i].path, O_PATH), -ELOOP);
		assert_non_null(strstr(why, refused[i].link));
		assert_non_null(strstr(why, refused[i].user ? refused[i].user : "somebody else"));
	}
	/* what is no link is opened */
	assert_int_equal(opened("home/roots", O_PATH | O_DIRECTORY), inode("home/roots"));
	assert_int_equal(opened("home/theirs", O_PATH | O_NOFOLLOW), inode("home/theirs"));
}

TEST(test_replaced)
{
	struct stat st;
	char text[8];
	int fd;

	if (geteuid())
		skip();
	assert_int_equal(path_replace_file(in_dir("ours/new"), "abc", 3, why, sizeof(why)), 0);
	assert_int_equal(stat(in_dir("etc/new"), &st), 0);
	assert_int_equal(st.st_size, 3);
	assert_int_equal(st.st_mode & 07777, 0644);
	/* only asks */
	assert_int_equal(path_replace_file(in_dir("etc/other"), NULL, 0, why, sizeof(why)), 0);
	assert_int_equal(stat(in_dir("etc/other"), &st), -1);
	/* a link at the end is replaced */
	assert_int_equal(path_replace_file(in_dir("etc/link"), "de", 2, why, sizeof(why)), 0);
	assert_int_equal(lstat(in_dir("etc/link"), &st), 0);
	assert_true(S_ISREG(st.st_mode));
	fd = open(in_dir("etc/file"), O_RDONLY);
	assert_int_equal(read(fd, text, sizeof(text)), 2);
	assert_memory_equal(text, "x\n", 2);
	close(fd);
	assert_int_equal(path_replace_file("/dev/null", "x", 1, why, sizeof(why)), -EINVAL);
	assert_int_equal(path_replace_file(in_dir("etc/"), "x", 1, why, sizeof(why)), -EINVAL);
	assert_int_equal(path_replace_file(in_dir("home/theirs/x"), "x", 1, why, sizeof(why)),
			 -ELOOP);
	assert_non_null(strstr(why, "home/theirs"));
}

TEST(test_below)
{
	int fd = open(dir, O_PATH | O_DIRECTORY), other;

	if (geteuid())
		skip();
	other = path_open_below(fd, "etc/deep", O_PATH);
	assert_true(other >= 0);
	close(other);
	assert_int_equal(path_open_below(fd, "ours/deep", O_PATH), -ELOOP);
	assert_true(path_link_below(fd, "ours/deep", why, sizeof(why)));
	assert_string_equal(why, "ours is a symbolic link of user 0");
	assert_true(path_link_below(fd, "home/theirs/x", why, sizeof(why)));
	assert_string_equal(why, "home/theirs is a symbolic link of user 65534");
	assert_false(path_link_below(fd, "home/theirs", why, sizeof(why)));
	assert_int_equal(path_open_below(fd, "../etc", O_PATH), -EXDEV);
	assert_true(path_exists(fd, "loop"));
	assert_false(path_exists(fd, "none"));
	close(fd);
}

/* 0 opened, or -errno. */
static int ours(const char *name)
{
	int fd = path_open_ours(in_dir(name));

	if (fd >= 0)
		close(fd);
	return fd < 0 ? fd : 0;
}

/* Under a umask of 002 the group root can write. */
TEST(test_owned_by_root)
{
	/* user::rw-, user 65534: rw-, group::r--, mask::rw-, other::r-- */
	static const uint16_t acl[] = {
		2, 0,	 1,    6,  NONE, NONE, 2,    6,	 NOBODY, 0,    4,
		4, NONE, NONE, 16, 6,	 NONE, NONE, 32, 4,	 NONE, NONE
	};

	if (geteuid())
		skip();
	assert_int_equal(ours("etc/file"), 0);
	assert_int_equal(chmod(in_dir("etc/file"), 0664), 0);
	assert_int_equal(chmod(in_dir("etc"), 0775), 0);
	assert_int_equal(ours("etc/file"), 0);
	assert_int_equal(chown(in_dir("etc"), 0, NOBODY), 0);
	assert_int_equal(ours("etc/file"), -EPERM);
	assert_int_equal(chown(in_dir("etc"), 0, 0), 0);
	assert_int_equal(chmod(in_dir("etc/file"), 0646), 0);
	assert_int_equal(ours("etc/file"), -EPERM);
	assert_int_equal(chmod(in_dir("etc/file"), 0644), 0);
	if (setxattr(in_dir("etc/file"), "system.posix_acl_access", acl, sizeof(acl), 0) == 0) {
		assert_int_equal(ours("etc/file"), -EPERM);
		assert_int_equal(removexattr(in_dir("etc/file"), "system.posix_acl_access"), 0);
	}
	assert_int_equal(chmod(in_dir("etc"), 0755), 0);
}

TEST(test_lease)
{
	int file_fd = open(in_dir("etc/file"), O_RDWR), path_fd = open(in_dir("etc/file"), O_PATH),
	    fd;
	uint64_t before_ns = now_ns();
	char mine[64];

	if (geteuid())
		skip();
	signal(SIGIO, SIG_IGN);
	assert_false(path_lease(path_fd, why, sizeof(why)));
	if (fcntl(file_fd, F_SETLEASE, F_WRLCK) < 0)
		skip();
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(path_reopen(path_fd, O_RDONLY), -EBUSY);
	assert_true(now_ns() - before_ns < 40000000000ull); /* a wait for a lease: 45 s */
	assert_true(path_lease(path_fd, why, sizeof(why)));
	snprintf(mine, sizeof(mine), "process %d of user 0 holds a lease on it", getpid());
	assert_string_equal(why, mine);
	close(file_fd);
	fd = path_reopen(path_fd, O_RDONLY);
	assert_true(fd >= 0);
	close(fd);
	close(path_fd);
}

TEST_GROUP(make_tree, workdir_remove)
