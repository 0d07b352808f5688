/* SPDX-License-Identifier: MIT */
/* The card as the kernel presents it: a block device, or an image file for the offline commands. */
#ifndef COWFS_CARD_BLOCKDEV_H
#define COWFS_CARD_BLOCKDEV_H

#include <sys/types.h>

#include "card/card.h"

enum {
	/* never opened for writing, and no setting of the device is changed; set_writable(true) returns
	 * -EROFS */
	BLOCKDEV_RDONLY = 1 << 0,
	/* O_EXCL: no other process can mount it meanwhile; -EBUSY if it is mounted or held */
	BLOCKDEV_EXCL = 1 << 1,
	/* also accept a regular file (image builders, check on a PC) */
	BLOCKDEV_ALLOW_FILE = 1 << 2,
};

struct card_options {
	uint32_t erase_block_bytes; /* 0: use sysfs, otherwise guess 4 MiB */
};

/*
 * Opens path with O_DIRECT (a regular file without it if its file system does not support it). With
 * BLOCKDEV_EXCL alone the device is set read-only (BLKROSET) until set_writable(true). One O_RDWR
 * descriptor stays open for the whole life, so that udev sees no close-after-write. A device that
 * an earlier run left read-only is accepted.
 * Errors: -ENOTBLK not a block device (nor, if allowed, a regular file), -EBUSY mounted or held,
 * -EROFS hardware write protection, -ENXIO no medium, -ENOENT, -EACCES.
 */
int blockdev_open(struct card **ret, const char *path, unsigned flags,
		  const struct card_options *opt /* NULL: defaults */) MUST_CHECK;

/*
 * For a process that takes over: what a card from blockdev_open is, and its descriptors (-1: none),
 * which stay its own. blockdev_take_over owns them on success, sets the card read-only again, and
 * opens nothing.
 */
#define BLOCKDEV_FDS 3
struct blockdev_kept {
	struct card_geometry geo;
	bool locked;
};
void blockdev_keep(struct card *c, struct blockdev_kept *ret, int ret_fd[BLOCKDEV_FDS]);
int blockdev_take_over(struct card **ret, const struct blockdev_kept *kept,
		       const int fd[BLOCKDEV_FDS], unsigned number) MUST_CHECK;
/*
 * Another device in its place, of a card that is away and examined (card_examine). fd: its descriptors; they
 * become those that the card had. An error has changed nothing.
 */
int blockdev_exchange(struct card *c, int fd[BLOCKDEV_FDS]) MUST_CHECK;
/* Opens a device node as blockdev_open with BLOCKDEV_EXCL. devdir: in sysfs. -ESTALE: it is not rdev. */
int blockdev_claim(int dirfd, const char *name, dev_t rdev, int devdir, bool *ret_was_readonly,
		   int ret_fd[BLOCKDEV_FDS]) MUST_CHECK;
int blockdev_bytes(int fd, uint64_t *ret) MUST_CHECK;
/* Is this device gone? stat_fd: ret_fd[2] of blockdev_keep; without one a partition never is. */
bool blockdev_gone(int fd, int stat_fd);
/* Where a process may not set a device read-only, the broker does it: number 0 the base, 1 the log. This is a card
 * of a daemon, so its reads and writes are tried again (card.h). */
void blockdev_through_broker(struct card *c, unsigned number);
/* What set_writable does, in the broker. fd: of a block device. */
int blockdev_fd_set_writable(int fd, bool writable) MUST_CHECK;

/* A part of a card from blockdev_open as a card of its own, with a copy of its descriptor, and without async reads. It can be set
 * writable while the disk is. Multiples of COW_BLK_BYTES; -EINVAL: not within the disk. */
int blockdev_part(struct card **ret, struct card *disk, uint64_t off_bytes,
		  uint64_t size_bytes) MUST_CHECK;
/* Its folder in sysfs; negative: path is not a block device, or sysfs does not know it. */
int blockdev_open_sysfs(const char *path) MUST_CHECK;

/* From now on the kernel refuses writes to it, including those of a mount, until the setting is
 * reverted. */
int blockdev_set_readonly(const char *path) MUST_CHECK;

/* The name that the disk of this device reports, see sysfs_model; "" if it has none, or if there is
 * no such device. */
void blockdev_model(const char *path, char *ret, size_t size_bytes);
/* As sysfs_layer. */
const char *blockdev_layer(const char *path);
/* Its path, and that: a note. */
#define CARD_LAYER                                                                                 \
	"%s is made by %s: if its card is pulled out, it does not come back by itself. Detach it then, open it again, attach it"
/* What identifies it, as in card_geometry; "" if it reports nothing, or if there is no such device. */
void blockdev_identity(const char *path, char *ret, size_t size_bytes);

#endif
