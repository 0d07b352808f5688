// SPDX-License-Identifier: MIT
/*
 * The process that reads metadata: it answers as this one does, for sound and for damaged images;
 * its death is one error, once; and it holds nothing that it does not need.
 */
#include <dlfcn.h>
#include "test.h"
#include <sys/syscall.h>

#include <linux/capability.h>
#include <linux/seccomp.h>
#include <seccomp.h>

#include "base/io.h"
#include "base/sandbox.h"
#include "fs/answer.h"
#include "fs/fsinfo.h"
#include "fs/fsproc.h"
#include "fs/reader.h"
#include "workdir.h"

static struct image {
	uint8_t *p;
	uint64_t bytes;
	int fail; /* what reads return */
	pid_t kill_at_read;
} im;

static int image_read(void *ctx, uint64_t blk, uint64_t blks, void *buf)
{
	assert_true(blks && blk_to_bytes(blk + blks) <= im.bytes);
	if (im.kill_at_read)
		kill(im.kill_at_read, SIGSEGV);
	memcpy(buf, im.p + blk_to_bytes(blk), blk_to_bytes(blks));
	return im.fail;
}

static struct blk_reader reader(void)
{
	return (struct blk_reader){ image_read, NULL, im.bytes >> COW_BLK_SHIFT };
}

/* Replaces the C library's function, with buffers as small as a machine may have them. */
static int send_buffer;

int socketpair(int domain, int type, int protocol, int pair[2])
{
	int r = (int)syscall(SYS_socketpair, domain, type, protocol, pair);

	for (int i = 0; i < 2 && r == 0 && send_buffer; i++)
		r = setsockopt(pair[i], SOL_SOCKET, SO_SNDBUF, &send_buffer, sizeof(send_buffer));
	return r;
}

/* Replaces libseccomp's function: a kernel that was built without filters. */
static bool no_filters;

int seccomp_attr_set(scmp_filter_ctx ctx, enum scmp_filter_attr attr, uint32_t value)
{
	int (*real)(scmp_filter_ctx, enum scmp_filter_attr,
		    uint32_t) = (int (*)(scmp_filter_ctx, enum scmp_filter_attr,
					 uint32_t))dlsym(RTLD_NEXT, "seccomp_attr_set");

	return no_filters && attr == SCMP_FLTATR_CTL_TSYNC ? -EOPNOTSUPP : real(ctx, attr, value);
}

static void image_make(const char *options, const char *size)
{
	char cmd[512], path[128];
	struct stat st;
	int fd;

	snprintf(cmd, sizeof(cmd), "cd %s && rm -f image && mke2fs -q -F %s image %s >log 2>&1",
		 dir, options, size);
	assert_int_equal(system(cmd), 0);
	snprintf(path, sizeof(path), "%s/image", dir);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0 && fstat(fd, &st) == 0);
	im = (struct image){ .p = malloc((size_t)st.st_size), .bytes = (uint64_t)st.st_size };
	assert_non_null(im.p);
	assert_int_equal(io_pread_full(fd, im.p, im.bytes, 0), 0);
	close(fd);
}

struct seen {
	struct fsinfo info;
	struct fs_fingerprint fp;
	int probe, fingerprint, map;
	unsigned alarms;
	bool knows;
	uint8_t use[8192];
};

static void see(struct seen *ret)
{
	const struct blk_reader r = reader();
	struct fsmap *m;

	memset(ret, 0, sizeof(*ret));
	ret->probe = fsinfo_probe(&r, &ret->info);
	ret->fingerprint = fsinfo_fingerprint(&r, &ret->fp);
	ret->map = fsmap_open(&m, &r);
	if (ret->map)
		return;
	for (uint64_t b = 0; b < r.volume_blks; b++) {
		enum blk_use use;

		assert_int_equal(fsmap_use(m, b, &use), 0);
		ret->use[b] = (uint8_t)use;
	}
	ret->alarms = fsmap_alarms(m);
	ret->knows = fsmap_knows(m);
	fsmap_close(m);
}

static void compare(void)
{
	static struct seen here, there;

	/* comes first: a fork inherits what a library has already found out */
	fsproc_start(true, false);
	see(&there);
	fsproc_leave();
	see(&here);
	assert_memory_equal(&here, &there, sizeof(here));
}

TEST(test_same_answers)
{
	static const struct {
		const char *options, *size;
	} images[] = {
		{ "-t ext4 -b 1024 -J size=1", "8M" },
		{ "-t ext4 -b 4096", "32M" },
		{ "-t ext3 -b 1024 -J size=8", "32M" }, /* qsort asks for the amount of memory */
		{ "-t ext2 -b 1024 -g 256", "4M" },
		{ "-t ext4 -b 1024 -O ^metadata_csum,uninit_bg", "16M" },
		{ "-t ext4 -b 4096 -O bigalloc -C 65536", "32M" },
	};

	rnd_begin(3);
	for (size_t i = 0; i < ARRAY_SIZE(images); i++) {
		uint8_t *was;

		image_make(images[i].options, images[i].size);
		compare();
		was = malloc(im.bytes);
		memcpy(was, im.p, im.bytes);
		for (int round = 0; round < 12; round++) {
			for (int k = 0; k < 1 + round * 8; k++)
				im.p[1024 + rnd(round < 4 ? 1024 : 128 * KIB)] ^=
					(uint8_t)(1 << rnd(8));
			compare();
			memcpy(im.p, was, im.bytes);
		}
		free(was);
		free(im.p);
	}
}

/* The newest child of a process. */
static pid_t child_of(pid_t pid)
{
	char path[64], text[256];

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", pid, pid);
	if (io_read_text(AT_FDCWD, path, text, sizeof(text)) <= 0)
		return 0;
	return (pid_t)strtol(strrchr(text, ' ') ? strrchr(text, ' ') : text, NULL, 10);
}

static pid_t session(void)
{
	pid_t pid = child_of(getpid());

	assert_true(pid > 0);
	return pid;
}

/* The death of a session is one error; the next question has another session. */
TEST(test_death)
{
	struct blk_reader r;
	enum blk_use use;
	struct fsinfo info;
	struct fsmap *m;

	image_make("-t ext4 -b 1024 -J size=1", "32M");
	r = reader();
	fsproc_start(true, false);
	assert_int_equal(fsmap_open(&m, &r), 0);
	kill(session(), SIGSEGV);
	assert_int_equal(fsmap_use(m, 1000, &use), -EOWNERDEAD);
	assert_int_equal(fsmap_use(m, 1000, &use), -EOWNERDEAD);
	fsmap_close(m);

	assert_int_equal(fsmap_open(&m, &r), 0);
	im.kill_at_read = session(); /* while it waits for blocks */
	assert_int_equal(fsmap_use(m, 1000, &use), -EOWNERDEAD);
	im.kill_at_read = 0;
	fsmap_close(m);

	im.fail = -EIO; /* that is not a death */
	assert_int_equal(fsinfo_probe(&r, &info), -EIO);
	fsproc_leave();
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
	free(im.p);
}

static void assert_line(const char *status, const char *line)
{
	if (!strstr(status, line))
		fail_msg("no '%s' in %s", line, status);
}

TEST(test_has_nothing)
{
	const uint32_t allow = SECCOMP_RET_ALLOW;
	char path[64], user[64], status[8192];
	struct blk_reader r;
	struct fsmap *m;
	pid_t pid;
	uid_t uid;

	image_make("-t ext4 -b 1024", "8M");
	r = reader();
	fsproc_start(true, false);
	assert_int_equal(fsmap_open(&m, &r), 0);
	pid = session();
	uid = SANDBOX_READER_UID + (uid_t)pid;
	snprintf(user, sizeof(user), "\nUid:\t%u\t%u\t%u\t%u", uid, uid, uid, uid);
	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	assert_true(io_read_text(AT_FDCWD, path, status, sizeof(status)) > 0);
	assert_line(status, "\nCapPrm:\t0000000000000000");
	assert_line(status, "\nCapEff:\t0000000000000000");
	assert_line(status, "\nNoNewPrivs:\t1");
#ifndef __SANITIZE_ADDRESS__
	if (syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &allow) == 0) /* not in qemu-user */
		assert_line(status, "\nSeccomp:\t2");
#endif
	if (geteuid() == 0)
		assert_line(status, user);
	snprintf(path, sizeof(path), "/proc/%d/fd/3", pid);
	assert_int_equal(access(path, F_OK), 0);
	snprintf(path, sizeof(path), "/proc/%d/fd/4", pid);
	assert_int_not_equal(access(path, F_OK), 0);
	fsmap_close(m);
	fsproc_leave();
	free(im.p);
}

TEST(test_no_filters)
{
	image_make("-t ext4 -b 1024", "8M");
	no_filters = true;
	compare();
	no_filters = false;
	free(im.p);
}

static bool lives(pid_t pid)
{
	char path[64], status[8192];

	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	return io_read_text(AT_FDCWD, path, status, sizeof(status)) > 0 &&
	       !strstr(status, "\nState:\tZ");
}

/* What a broker does for a worker that asks without end, and names processes that are not sessions. */
TEST(test_limit)
{
	pid_t pid[16], other = fork(), more;
	int fd[16], status;

	if (other == 0)
		while (true)
			pause();
	for (int i = 0; i < 16; i++) {
		fd[i] = fsproc_fork(-1, false, &pid[i]);
		assert_true(fd[i] >= 0);
	}
	assert_int_equal(fsproc_fork(-1, false, &more), -EAGAIN);
	assert_int_equal(fsproc_reap(0), -EPERM);
	assert_int_equal(fsproc_reap(-1), -EPERM);
	assert_int_equal(fsproc_reap(other), -EPERM);
	assert_int_equal(waitpid(other, &status, WNOHANG), 0);
	kill(other, SIGKILL);
	waitpid(other, &status, 0);
	for (int i = 0; i < 16; i++) {
		assert_int_equal(fsproc_reap(pid[i]), 0);
		assert_int_equal(fsproc_reap(pid[i]),
				 -EPERM); /* it may be another process by now */
		close(fd[i]);
	}
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
	fd[0] = fsproc_fork(-1, false, &pid[0]);
	assert_true(fd[0] >= 0);
	close(fd[0]);
	assert_int_equal(fsproc_reap(pid[0]), 0);
}

/* net.core.wmem_default may be smaller than one message. */
TEST(test_small_buffers)
{
	send_buffer = 1; /* the kernel turns this into 4608 */
	image_make("-t ext4 -b 4096", "32M");
	compare();
	free(im.p);
	image_make("-t ext2 -b 65536", "32M"); /* bitmaps of 64 KiB */
	compare();
	free(im.p);
	send_buffer = 0;
}

/* A compromised session need not notice that its socket is closed: it is killed. A session that
 * does not answer is given up. */
TEST(test_stopped_session)
{
	uint64_t patience_ns = answer_patience_ns, begin_ns, slow = 0;
	struct blk_reader r;
	enum blk_use use;
	struct fsmap *m;
	pid_t pid;

	image_make("-t ext4 -b 1024", "32M");
	r = reader();
	fsproc_start(true, false);
	assert_int_equal(fsmap_open(&m, &r), 0);
	pid = session();
	kill(pid, SIGSTOP);
	fsmap_close(m);
	for (int i = 0; i < 2000 && lives(pid); i++)
		usleep(5000);
	assert_false(lives(pid));

	answer_patience_ns = 3000000000; /* the open is a part of it */
	assert_int_equal(fsmap_open(&m, &r), 0);
	kill(session(), SIGSTOP);
	begin_ns = now_ns();
	assert_int_equal(fsmap_use(m, 1000, &use), -EOWNERDEAD);
	assert_true(now_ns() - begin_ns >= 300000000);
	for (uint64_t b = 0; b < 8192; b++) { /* of each group: not again */
		begin_ns = now_ns();
		assert_int_equal(fsmap_use(m, 10 + b % 5000, &use), -EOWNERDEAD);
		slow += now_ns() - begin_ns >= 300000000;
	}
	assert_in_range(slow, 0, 20);
	fsmap_close(m);
	answer_patience_ns = patience_ns;
	fsproc_leave();
	free(im.p);
}

static int setup(void **state)
{
	return workdir_new("fsproc");
}

TEST_GROUP(setup, workdir_remove)
