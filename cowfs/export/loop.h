/* SPDX-License-Identifier: MIT */
/* The loop device on top of the FUSE file. */
#ifndef COWFS_EXPORT_LOOP_H
#define COWFS_EXPORT_LOOP_H

#include <sys/types.h>

#include "base/util.h"

#define LOOP_LIMITS 4u
#define LOOP_REQUEST_KB 256u /* a larger one is no faster on a card */
#define LOOP_REQUESTS 128u   /* hw_queue_depth of the driver, unless configured otherwise */

struct loop_limits {
	unsigned read_ahead_kb;
	unsigned max_kb, tags; /* of requests; most: LOOP_REQUEST_KB, LOOP_REQUESTS */
};

struct loop_dev {
	int fd;		 /* open block device */
	int dev_dirfd;	 /* /dev, kept open: no path is looked up from the root after start */
	int queue_dirfd; /* the device's queue in sysfs; -1: attached by another process */
	uint64_t found[LOOP_LIMITS]; /* queue limits found at attach (loop.c) */
	unsigned number;
	dev_t rdev;
	char path[32]; /* "/dev/loop7" */
};

/*
 * Takes a free loop device, and retries when another process was faster. Configures it on file_fd
 * with direct I/O. Then sets its queue: limits, which may be NULL, and with them discard_max_bytes
 * <= 64 MiB. Verifies that direct I/O is really on and that the first block can be read, so on
 * return the device answers. On error nothing stays.
 * label: the file name that LOOP_GET_STATUS64 reports ("cowfs:root"; cut at 63 bytes).
 * temporary: the device disappears with its last user.
 * note: called with the device that will be configured next, so that it is known if this process is
 * killed. Its error ends the attach. May be NULL.
 * abort_fd: of the file's FUSE connection (fuse_mount.h), or -1. The kernel asks the file while others may wait for the device;
 * -ETIMEDOUT: there was no answer for some seconds, and the connection is gone.
 */
typedef int loop_note(const char *path, dev_t rdev);
int loop_attach(struct loop_dev *ret, int file_fd, const struct loop_limits *limits,
		const char *label, bool temporary, loop_note *note, int abort_fd) MUST_CHECK;
/* The same, read-only, for a file of any file system: with direct I/O only if that has it. */
int loop_attach_lower(struct loop_dev *ret, int file_fd, const char *label) MUST_CHECK;
/* What a process that takes the device over must know, beside the descriptor. */
struct loop_kept {
	unsigned number;
	dev_t rdev;
	char path[32];
};
void loop_keep(const struct loop_dev *d, struct loop_kept *ret);
void loop_take_over(struct loop_dev *ret, const struct loop_kept *kept, int fd);
/* -EBUSY: the device is mounted or held, and stays attached. A plain open is reported after 5 s.
 * Returns once the kernel has released the file. d is closed then. The queue has its earlier limits
 * again if this process attached the device: before the answer, because whoever takes the number next
 * sets limits of its own. */
int loop_detach(struct loop_dev *d) MUST_CHECK;
/* Is it mounted, swapped on or otherwise claimed? 1, 0, -errno. */
int loop_in_use(const struct loop_dev *d);

#endif
