/* SPDX-License-Identifier: MIT */
/* A scratch ext4, and the observations of its seal. Behind cmocka.h. */
#ifndef COWFS_TESTS_QUIESCE_H
#define COWFS_TESTS_QUIESCE_H

#include "test.h"
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

#include "fs/quiesce.h"
#include "export/fuse_mount.h"
#include "scratch.h"

#define EXT4 "mkfs.ext4 -q -F"
#define EXT4_BYTES (32 * MIB)

static struct scratch s;
static int proc_dirfd = -1;

static struct probe {
	unsigned calls;
	int result;	     /* result of the seal */
	bool needs_recovery; /* as the device shows it */
	int *fd;	     /* for what the test opens in the seal */
	atomic_bool stopped; /* writes are withheld until the seal */
} p;
static struct quiesce_target t;
static struct quiesce_report rep;

static inline int open_proc(void **state)
{
	proc_dirfd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return proc_dirfd < 0;
}

static inline int seal(void *ctx)
{
	struct probe *seen = ctx;

	seen->calls++;
	seen->needs_recovery = scratch_needs_recovery(&s);
	return seen->result;
}

static inline bool stopped(void *ctx)
{
	return ((struct probe *)ctx)->stopped;
}

static inline int setup_ext4(void **state)
{
	if (!scratch_new(&s, EXT4, EXT4_BYTES) || scratch_mount(&s, "ext4", 0) < 0)
		return -1;
	p = (struct probe){ 0 };
	t = (struct quiesce_target){ .proc_dirfd = proc_dirfd,
				     .dev = s.loop.rdev,
				     .loop_fd = s.loop.fd,
				     .any = true,
				     .sync_ns = 600000000000ull };
	return 0;
}

static inline int teardown(void **state)
{
	scratch_thaw(&s);
	scratch_free(&s);
	return 0;
}

/* ---- a /proc made by the test ---- */

/* Writes a file in it, and the folders of its path. */
static inline void fake_put(int dirfd, const char *path, const char *text)
{
	char part[128];
	int fd;

	for (const char *end = strchr(path, '/'); end; end = strchr(end + 1, '/')) {
		snprintf(part, sizeof(part), "%.*s", (int)(end - path), path);
		assert_true(mkdirat(dirfd, part, 0700) == 0 || errno == EEXIST);
	}
	fd = openat(dirfd, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(io_write_full(fd, text, strlen(text)), 0);
	close(fd);
}

static inline int fake_proc(char path[160])
{
	int fd;

	snprintf(path, 160, "%s/proc", s.dir);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(mount("none", path, "tmpfs", 0, NULL), 0);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(fd >= 0);
	return fd;
}

static inline void fake_end(const char *path, int fd)
{
	close(fd);
	assert_int_equal(umount(path), 0);
	rmdir(path);
}

#endif
