/* SPDX-License-Identifier: MIT */
/* The card as the kernel shows it: a block device, or an image file for the offline commands. */
#ifndef COWFS_CARD_BLOCKDEV_H
#define COWFS_CARD_BLOCKDEV_H

#include "card/card.h"

enum {
	BLOCKDEV_RDONLY = 1 << 0, /* never opened for writing; set_writable(true) is -EROFS */
	/* O_EXCL: nobody can mount it meanwhile; -EBUSY if somebody has */
	BLOCKDEV_EXCL = 1 << 1,
	BLOCKDEV_ALLOW_FILE = 1 << 2, /* a regular file will do (image builders, check on a PC) */
};

struct card_options {
	uint32_t erase_block_bytes; /* 0: ask sysfs, else guess 4 MiB */
};

/*
 * Opens path with O_DIRECT (a regular file without it if its file system has none).
 * With BLOCKDEV_EXCL the device is set read-only (BLKROSET) until set_writable(true)
 * and one O_RDWR descriptor is kept for life, so that udev sees no close-after-write.
 * A device that was left read-only by an earlier run is accepted.
 * Errors: -ENOTBLK not a block device (nor, if allowed, a regular file), -EBUSY mounted
 * or held, -EROFS hardware write protection, -ENXIO no medium, -ENOENT, -EACCES.
 */
int blockdev_open(struct card **ret, const char *path, unsigned flags,
		  const struct card_options *opt /* NULL: defaults */) MUST_CHECK;

/* A block device or regular file that is open already, for reading and writing, with whatever claim
 * is on it. The card owns fd from now on; on error it stays the caller's. -ENOTBLK: it is
 * neither. */
int blockdev_adopt(struct card **ret, int fd) MUST_CHECK;

/* The kernel refuses writes to it from now on, also those of a mount, until somebody takes that
 * back. */
int blockdev_set_readonly(const char *path) MUST_CHECK;

/* What the disk of this device calls itself, see sysfs_model; "" if nothing, or if there is no such
 * device. */
void blockdev_model(const char *path, char *ret, size_t size_bytes);

#endif
