/* SPDX-License-Identifier: MIT */
/* Full reads and writes: the whole length or an error, never a short count. */
#ifndef COWFS_BASE_IO_H
#define COWFS_BASE_IO_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/util.h"

/* Is r the error of a block whose content cannot be had: it is not read, or does not match its checksum? */
static inline bool io_lost(int r)
{
	return r == -EIO || r == -EBADMSG;
}

/* 0 or -errno; end of file inside the range is -EIO. These functions retry on EINTR. */
int io_pread_full(int fd, void *buf, size_t len_bytes, uint64_t off_bytes) MUST_CHECK;
int io_pwrite_full(int fd, const void *buf, size_t len_bytes, uint64_t off_bytes) MUST_CHECK;
int io_write_full(int fd, const void *buf, size_t len_bytes) MUST_CHECK;

/*
 * Reads a small text file below dirfd (AT_FDCWD allowed), cuts trailing white space, always
 * terminates buf. Returns the length or -errno.
 */
int io_read_text(int dirfd, const char *path, char *buf, size_t size_bytes) MUST_CHECK;
int io_read_u64(int dirfd, const char *path, uint64_t *ret) MUST_CHECK;
/* "8:1", as sysfs has the number of a device. 0: it cannot be read. */
dev_t io_read_rdev(int dirfd, const char *path);
int io_write_text(int dirfd, const char *path, const char *text) MUST_CHECK;

/*
 * Memory for direct I/O: 4 KiB aligned, zeroed; NULL: out of memory. The caller frees it with
 * free().
 */
void *io_alloc(size_t len_bytes);
/*
 * The same with any content, for large buffers that are filled before they are read: zeroing a MiB
 * costs 256 page faults.
 */
void *io_alloc_raw(size_t len_bytes);

/* Closes all descriptors above 2 but these; negative ones count as none. */
void io_keep_only(const int *keep, unsigned n);

#endif
