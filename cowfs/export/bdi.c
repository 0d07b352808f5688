/* SPDX-License-Identifier: MIT */
#include "export/bdi.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "base/broker.h"
#include "base/io.h"

#define BDI_DIR "/sys/class/bdi"

static int open_in(int dirfd, const char *name)
{
	int fd = openat(dirfd, name, O_RDWR | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

static uint64_t ask_number(unsigned which)
{
	struct broker_message m = { .op = BROKER_BDI_CAN };

	return broker_ask(BROKER_MAIN, &m, NULL) < 0 ? 0 : m.n[which];
}

bool bdi_can_limit(void)
{
	char name[300];
	bool can = false;
	struct dirent *e;
	DIR *d;

	if (broker_on())
		return ask_number(0);
	d = opendir(BDI_DIR);
	while (d && (e = readdir(d)) && !can) {
		if (e->d_name[0] == '.')
			continue;
		snprintf(name, sizeof(name), "%s/max_bytes", e->d_name);
		can = faccessat(dirfd(d), name, W_OK, 0) == 0;
	}
	if (d)
		closedir(d);
	return can;
}

static int open_limit(struct bdi_limit *ret, dev_t rdev)
{
	struct bdi_limit b = BDI_LIMIT_CLOSED;
	_cleanup_close_ int dirfd = -1;
	char path[64];

	snprintf(path, sizeof(path), BDI_DIR "/%u:%u", major(rdev), minor(rdev));
	dirfd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (dirfd < 0)
		return -errno;
	b.max_bytes_fd = open_in(dirfd, "max_bytes");
	b.min_bytes_fd = open_in(dirfd, "min_bytes");
	b.strict_fd = open_in(dirfd, "strict_limit");
	b.max_ratio_fd = open_in(dirfd, "max_ratio");
	if (b.max_bytes_fd < 0 || b.min_bytes_fd < 0 || b.strict_fd < 0 || b.max_ratio_fd < 0) {
		bdi_limit_close(&b);
		return -ENOENT;
	}
	*ret = b;
	return 0;
}

int bdi_limit_open(struct bdi_limit *ret, dev_t rdev)
{
	*ret = BDI_LIMIT_CLOSED;
	ret->asks = broker_on();
	return ret->asks ? 0 : open_limit(ret, rdev);
}

static int write_number(int fd, uint64_t n)
{
	char text[24];
	int len = snprintf(text, sizeof(text), "%llu\n", (unsigned long long)n);

	return pwrite(fd, text, (size_t)len, 0) < 0 ? -errno : 0;
}

static void lift(const struct bdi_limit *b)
{
	(void)!write_number(b->min_bytes_fd, 0);
	(void)!write_number(b->strict_fd, 0);
	(void)!write_number(b->max_ratio_fd, 100);
}

int bdi_limit_set(const struct bdi_limit *b, uint64_t bytes)
{
	int r;

	if (b->asks)
		return broker_call(BROKER_LOOK, BROKER_LIMIT, bytes, 0);
	if (b->max_bytes_fd < 0)
		return -EBADF;
	if (bytes == BDI_NO_LIMIT) {
		lift(b);
		return 0;
	}
	/* The maximum must not be below the minimum. The minima of all devices together may be too
	 * much; then there is no minimum. */
	(void)!write_number(b->min_bytes_fd, 0);
	/* -EINVAL: more than the dirty limit of the whole system */
	while ((r = write_number(b->max_bytes_fd, bytes)) == -EINVAL && bytes > MIB)
		bytes /= 2;
	(void)!write_number(b->min_bytes_fd, bytes / 64 * 63);
	return r < 0 ? r : write_number(b->strict_fd, 1);
}

void bdi_limit_close(struct bdi_limit *b)
{
	if (b->strict_fd >= 0 && b->max_ratio_fd >= 0 && b->min_bytes_fd >= 0)
		lift(b);
	cleanup_closep(&b->max_bytes_fd);
	cleanup_closep(&b->min_bytes_fd);
	cleanup_closep(&b->strict_fd);
	cleanup_closep(&b->max_ratio_fd);
}

void bdi_limit_forget(dev_t rdev)
{
	struct bdi_limit b;

	if (open_limit(&b, rdev) == 0)
		bdi_limit_close(&b);
}

uint64_t global_dirty_bytes(void)
{
	static const char name[] = "nr_dirty_threshold ";
	_cleanup_free_ char *text = malloc(64 * KIB);
	unsigned long long pages;
	const char *p;

	if (broker_on())
		return ask_number(1);
	if (!text || io_read_text(AT_FDCWD, "/proc/vmstat", text, 64 * KIB) < 0)
		return UINT64_MAX;
	p = strstr(text, name);
	if (!p || sscanf(p + sizeof(name) - 1, "%llu", &pages) != 1)
		return UINT64_MAX;
	return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}
