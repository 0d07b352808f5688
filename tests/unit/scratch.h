/* SPDX-License-Identifier: MIT */
/*
 * A scratch file system on a loop device over an image file, mounted in a private mount namespace
 * below a private directory. If the test dies, a janitor process cleans up (thaws, unmounts,
 * detaches, removes).
 */
#ifndef COWFS_TESTS_SCRATCH_H
#define COWFS_TESTS_SCRATCH_H

#include "test.h"
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>

#include <linux/fs.h>
#include <linux/loop.h>

#include "export/loop.h"

static const struct loop_limits usual_limits = { 128, LOOP_REQUEST_KB, LOOP_REQUESTS };

struct scratch {
	char dir[64], image[96], mnt[96], label[LO_NAME_SIZE];
	struct loop_dev loop;
	int janitor_fd;
	pid_t janitor;
};

static inline void scratch_thaw(const struct scratch *s)
{
	int fd = open(s->mnt, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return;
	(void)ioctl(fd, FITHAW, 0);
	close(fd);
}

/* Clears only a device with the label of this test. */
static inline void scratch_clear_loop(const struct scratch *s)
{
	struct loop_info64 info;
	int fd = s->loop.path[0] ? open(s->loop.path, O_RDONLY | O_CLOEXEC) : -1;

	if (fd < 0)
		return;
	if (ioctl(fd, LOOP_GET_STATUS64, &info) == 0 &&
	    !strcmp((char *)info.lo_file_name, s->label))
		ioctl(fd, LOOP_CLR_FD);
	close(fd);
}

static inline void scratch_tidy(const struct scratch *s)
{
	struct stat dir, mnt;

	/* everything mounted on the mount point, and never anything else */
	while (stat(s->dir, &dir) == 0 && stat(s->mnt, &mnt) == 0 && mnt.st_dev != dir.st_dev) {
		scratch_thaw(s);
		if (umount2(s->mnt, MNT_DETACH) < 0)
			break;
	}
	scratch_clear_loop(s);
	unlink(s->image);
	rmdir(s->mnt);
	rmdir(s->dir);
}

static inline void scratch_janitor(struct scratch *s)
{
	int pair[2];
	char c;

	if (pipe2(pair, O_CLOEXEC) < 0)
		abort();
	s->janitor = fork();
	if (s->janitor == 0) {
		close(pair[1]);
		close(s->loop.fd);
		close(s->loop.dev_dirfd);
		setsid(); /* timeout(1) kills the whole group */
		if (read(pair[0], &c, 1) != 0)
			_exit(0);
		scratch_tidy(s);
		for (int n = 0; n < 256; n++) { /* what had the label as well */
			snprintf(s->loop.path, sizeof(s->loop.path), "/dev/loop%d", n);
			scratch_clear_loop(s);
		}
		_exit(0);
	}
	close(pair[0]);
	s->janitor_fd = pair[1];
}

/* mkfs: a command that takes the device as its last argument; NULL: none. False: cannot be made
 * here. */
static inline bool scratch_new(struct scratch *s, const char *mkfs, uint64_t image_bytes)
{
	char command[160];
	int fd;

	*s = (struct scratch){ .loop.fd = -1, .dir = "/tmp/cowfs-test-XXXXXX" };
	alarm(1700);
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    !mkdtemp(s->dir))
		abort();
	snprintf(s->image, sizeof(s->image), "%s/image", s->dir);
	snprintf(s->mnt, sizeof(s->mnt), "%s/mount point", s->dir);
	snprintf(s->label, sizeof(s->label), "cowfs-test:%d", getpid());
	fd = open(s->image, O_RDWR | O_CREAT | O_CLOEXEC | O_DIRECT, 0600);
	if (fd < 0 || ftruncate(fd, (off_t)image_bytes) < 0 || mkdir(s->mnt, 0700) < 0 ||
	    loop_attach(&s->loop, fd, &usual_limits, s->label, false, NULL, -1) < 0)
		abort();
	close(fd);
	scratch_janitor(s);
	if (!mkfs)
		return true;
	snprintf(command, sizeof(command), "PATH=$PATH:/sbin:/usr/sbin; %s %s >/dev/null 2>&1",
		 mkfs, s->loop.path);
	return system(command) == 0;
}

static inline int scratch_mount(const struct scratch *s, const char *type, unsigned long flags)
{
	return mount(s->loop.path, s->mnt, type, flags, NULL) < 0 ? -errno : 0;
}

static inline void scratch_free(struct scratch *s)
{
	while (umount(s->mnt) == 0)
		;
	if (s->loop.fd >= 0 && loop_detach(&s->loop) == 0)
		s->loop.path[0] = '\0';
	scratch_tidy(s);
	if (write(s->janitor_fd, "q", 1) != 1)
		abort();
	close(s->janitor_fd);
	waitpid(s->janitor, NULL, 0);
	alarm(0);
}

/* ext4's flag on the device: set while mounted read-write, clear while frozen. Has no side
 * effects. */
static inline bool scratch_needs_recovery(const struct scratch *s)
{
	_cleanup_close_ int fd = open(s->loop.path, O_RDONLY | O_DIRECT | O_CLOEXEC);
	_cleanup_free_ unsigned char *buf = io_alloc(4096);

	if (fd < 0 || io_pread_full(fd, buf, 4096, 0) < 0)
		abort();
	return buf[1024 + 0x60] & 4; /* s_feature_incompat */
}

#endif
