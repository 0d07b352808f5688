/* SPDX-License-Identifier: MIT */
#include "base/io.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

int io_pread_full(int fd, void *buf, size_t len_bytes, uint64_t off_bytes)
{
	char *p = buf;

	while (len_bytes) {
		ssize_t n = pread(fd, p, len_bytes, (off_t)off_bytes);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			return -EIO;
		p += n;
		off_bytes += (uint64_t)n;
		len_bytes -= (size_t)n;
	}
	return 0;
}

int io_pwrite_full(int fd, const void *buf, size_t len_bytes, uint64_t off_bytes)
{
	const char *p = buf;

	while (len_bytes) {
		ssize_t n = pwrite(fd, p, len_bytes, (off_t)off_bytes);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			return -EIO;
		p += n;
		off_bytes += (uint64_t)n;
		len_bytes -= (size_t)n;
	}
	return 0;
}

int io_write_full(int fd, const void *buf, size_t len_bytes)
{
	const char *p = buf;

	while (len_bytes) {
		ssize_t n = write(fd, p, len_bytes);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		p += n;
		len_bytes -= (size_t)n;
	}
	return 0;
}

int io_read_text(int dirfd, const char *path, char *buf, size_t size_bytes)
{
	_cleanup_close_ int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC);
	size_t len = 0;

	if (fd < 0)
		return -errno;
	while (len + 1 < size_bytes) {
		ssize_t n = read(fd, buf + len, size_bytes - 1 - len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		len += (size_t)n;
	}
	while (len && isspace((unsigned char)buf[len - 1]))
		len--;
	buf[len] = '\0';
	return (int)len;
}

dev_t io_read_rdev(int dirfd, const char *path)
{
	unsigned major_no, minor_no;
	char text[32];

	return io_read_text(dirfd, path, text, sizeof(text)) > 0 &&
			       sscanf(text, "%u:%u", &major_no, &minor_no) == 2
		       ? makedev(major_no, minor_no)
		       : 0;
}

int io_read_u64(int dirfd, const char *path, uint64_t *ret)
{
	char buf[64], *end;
	unsigned long long v;
	int r = io_read_text(dirfd, path, buf, sizeof(buf));

	if (r < 0)
		return r;
	errno = 0;
	v = strtoull(buf, &end, 10);
	if (errno || end == buf || *end)
		return -EINVAL;
	*ret = v;
	return 0;
}

int io_write_text(int dirfd, const char *path, const char *text)
{
	_cleanup_close_ int fd = openat(dirfd, path, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	return io_write_full(fd, text, strlen(text));
}

void *io_alloc_raw(size_t len_bytes)
{
	void *p = NULL;

	return posix_memalign(&p, COW_BLK_BYTES, len_bytes ? len_bytes : COW_BLK_BYTES) ? NULL : p;
}

void *io_alloc(size_t len_bytes)
{
	void *p = io_alloc_raw(len_bytes);

	if (p)
		memset(p, 0, len_bytes);
	return p;
}

void io_keep_only(const int *keep, unsigned n)
{
	unsigned from = 3, next;

	do {
		next = ~0u;
		for (unsigned i = 0; i < n; i++)
			if (keep[i] >= (int)from)
				next = (unsigned)keep[i] < next ? (unsigned)keep[i] : next;
		if (next > from)
			close_range(from, next == ~0u ? next : next - 1, 0);
		from = next + 1;
	} while (next != ~0u);
}
