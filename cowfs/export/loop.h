/* SPDX-License-Identifier: MIT */
/* The loop device on top. Only this file and card/ do ioctls on block devices. */
#ifndef COWFS_EXPORT_LOOP_H
#define COWFS_EXPORT_LOOP_H

#include <sys/types.h>

#include "base/util.h"

#define LOOP_LIMITS 4u

struct loop_dev {
	int fd;		 /* open block device */
	int dev_dirfd;	 /* /dev, kept: nothing is looked up from the root after start */
	int queue_dirfd; /* its queue in sysfs, too; -1: attached by another process */
	uint64_t found[LOOP_LIMITS]; /* of the queue, as they were before (loop.c) */
	unsigned number;
	dev_t rdev;
	char path[32]; /* "/dev/loop7" */
};

/*
 * Takes a free loop device (retries when another process was faster), configures it on file_fd with
 * direct I/O, then sets its queue: max_sectors_kb <= 256, discard_max_bytes <= 64 MiB, as many
 * requests as the driver has, read_ahead_kb. Verifies that direct I/O is really on and that a first
 * block can be read: on return the device answers. On error nothing stays.
 * temporary: it goes with its last user, should this process be killed.
 * label: what LOOP_GET_STATUS64 tells as file name ("cowfs:root"; cut at 63 bytes).
 */
int loop_attach(struct loop_dev *ret, int file_fd, unsigned read_ahead_kb, const char *label,
		bool temporary) MUST_CHECK;
/* Makes its requests smaller and fewer. Right after loop_attach: the queue is frozen for it. */
int loop_limit_requests(const struct loop_dev *d, unsigned max_kb, unsigned tags) MUST_CHECK;
/* -EBUSY while it is mounted or held, and then it stays attached (held by a plain open: said after
 * 5 s). Returns when the kernel has let go of the file; d is closed then, and the queue has the
 * limits again that it had before, if this process has attached it. */
int loop_detach(struct loop_dev *d) MUST_CHECK;
/* Is it mounted, swapped on or otherwise claimed? 1, 0, -errno. */
int loop_in_use(const struct loop_dev *d);

#endif
