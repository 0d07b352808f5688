/* SPDX-License-Identifier: MIT */
/* Leaving cgroups and finding memory limits, in trees of files that look like /proc and
 * cgroupfs. */
#include "test.h"
#include "daemon/cgroup.h"

#define NO_LIMIT "9223372036854771712\n"

static char top[] = "/tmp/cowfs-cgroup-XXXXXX";
static int top_fd, proc_fd;

/* Makes the missing folders, too. */
static void put(const char *path, const char *text)
{
	char dir[256];
	int fd;

	for (const char *s = strchr(path, '/'); s; s = strchr(s + 1, '/')) {
		snprintf(dir, sizeof(dir), "%.*s", (int)(s - path), path);
		mkdirat(top_fd, dir, 0700);
	}
	fd = openat(top_fd, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(io_write_full(fd, text, strlen(text)), 0);
	close(fd);
}

static bool left(const char *mount)
{
	char path[128], text[16];

	snprintf(path, sizeof(path), "%s/cgroup.procs", mount);
	assert_true(io_read_text(top_fd, path, text, sizeof(text)) >= 0);
	return !strcmp(text, "0");
}

static int begin(void **state)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf %s/*", top);
	return system(command);
}

static void put_proc(const char *cgroups, const char *mounts)
{
	char text[1024] = "", *to = text;
	const char *at;

	/* "@" is the top */
	for (at = mounts; *at; at++)
		to += *at == '@' ? sprintf(to, "%s", top) : sprintf(to, "%c", *at);
	put("proc/self/cgroup", cgroups);
	put("proc/self/mounts", text);
	proc_fd = openat(top_fd, "proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(proc_fd >= 0);
}

static void assert_limit(uint64_t bytes, const char *path)
{
	struct cgroup_limit l;

	cgroup_limit(proc_fd, &l);
	assert_int_equal(l.bytes, bytes);
	assert_string_equal(l.path, path);
}

TEST(test_v2, begin)
{
	put_proc("0::/user/some:one\n", "cgroup2 @/v2 cgroup2 rw,nsdelegate 0 0\n");
	put("v2/cgroup.procs", "");
	put("v2/user/memory.max", "67108864\n");
	put("v2/user/memory.high", "max\n");
	put("v2/user/some:one/memory.max", "max\n");
	put("v2/user/some:one/memory.high", "max\n");
	assert_limit(64 * MIB, "/user");
	put("v2/user/some:one/memory.high", "33554432\n");
	assert_limit(32 * MIB, "/user/some:one");
	cgroup_leave(proc_fd);
	assert_true(left("v2"));
	close(proc_fd);
}

/* v2 is left in any case: the end of the program that started the daemon may kill this cgroup. */
TEST(test_v2_unlimited, begin)
{
	put_proc("0::/user\n", "cgroup2 @/v2 cgroup2 rw 0 0\n");
	put("v2/cgroup.procs", "");
	put("v2/user/memory.max", "max\n");
	assert_limit(0, "");
	cgroup_leave(proc_fd);
	assert_true(left("v2"));
	close(proc_fd);
}

TEST(test_root, begin)
{
	put_proc("0::/\n", "cgroup2 @/v2 cgroup2 rw 0 0\n");
	put("v2/cgroup.procs", "");
	cgroup_leave(proc_fd);
	assert_false(left("v2"));
	assert_limit(0, "");
	/* of a container */
	put("v2/memory.max", "67108864\n");
	assert_limit(64 * MIB, "/");
	close(proc_fd);
}

TEST(test_v1_and_v2, begin)
{
	put_proc("5:cpu,memory:/box/a\n3:cpuset:/c\n1:name=systemd:/s\n0::/u\n",
		 "tmpfs @ tmpfs rw 0 0\n"
		 "cgroup @/cpuset cgroup rw,cpuset 0 0\n"
		 "cgroup @/a\\040memory cgroup rw,cpu,memory 0 0\n"
		 "cgroup @/systemd cgroup rw,xattr,name=systemd 0 0\n"
		 "cgroup2 @/unified cgroup2 rw 0 0\n");
	put("cpuset/cgroup.procs", "");
	put("cpuset/c/x", "");
	put("a memory/cgroup.procs", "");
	put("a memory/memory.limit_in_bytes", NO_LIMIT);
	put("a memory/box/memory.limit_in_bytes", NO_LIMIT);
	put("a memory/box/a/memory.limit_in_bytes", NO_LIMIT);
	put("systemd/cgroup.procs", "");
	put("systemd/s/x", "");
	put("unified/cgroup.procs", "");
	put("unified/u/x", "");
	assert_limit(0, "");
	cgroup_leave(proc_fd);
	assert_false(left("cpuset"));
	assert_false(left("a memory"));
	assert_true(left("systemd"));
	assert_true(left("unified"));
	put("a memory/box/memory.limit_in_bytes", "67108864\n");
	assert_limit(64 * MIB, "/box");
	cgroup_leave(proc_fd);
	assert_true(left("a memory"));
	assert_false(left("cpuset"));
	close(proc_fd);
}

/* A container without a namespace: its path is not below its visible mount. */
TEST(test_foreign_path, begin)
{
	put_proc("5:memory:/docker/1\n", "cgroup @/memory cgroup ro,memory 0 0\n");
	put("memory/cgroup.procs", "");
	put("memory/memory.limit_in_bytes", "67108864\n");
	assert_limit(64 * MIB, "/");
	cgroup_leave(proc_fd);
	assert_false(left("memory")); /* nowhere to go */
	close(proc_fd);
}

TEST(test_nothing_there, begin)
{
	put_proc("", "");
	assert_limit(0, "");
	cgroup_leave(proc_fd);
	close(proc_fd);
	put_proc("nonsense\n7\n:\n::\n5:memory\n0::x\n", "cgroup2 @/none cgroup2 rw 0 0\n");
	assert_limit(0, "");
	cgroup_leave(proc_fd);
	close(proc_fd);
}

int main(void)
{
	char command[128];
	int failed;

	if (!mkdtemp(top))
		return 1;
	top_fd = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	failed = tests_run(NULL, NULL);
	close(top_fd);
	snprintf(command, sizeof(command), "rm -rf %s", top);
	return system(command) ? 1 : failed;
}
