/* SPDX-License-Identifier: MIT */
/* Bounds the dirty pages of a block device in the page cache, through /sys/class/bdi (kernel >=
 * 6.2). */
#ifndef COWFS_EXPORT_BDI_H
#define COWFS_EXPORT_BDI_H

#include <sys/types.h>

#include "base/util.h"

struct bdi_limit {
	int max_bytes_fd, min_bytes_fd, strict_fd, max_ratio_fd; /* -1: closed */
	bool asks; /* the broker, which has the files: of its disk only, and until its end */
};

#define BDI_NO_LIMIT ((uint64_t)INT64_MAX) /* bytes */

#define BDI_LIMIT_CLOSED ((struct bdi_limit){ -1, -1, -1, -1, false })

/* Does this kernel support the limit? Uses a path, so call it before start only, like
 * bdi_limit_open. */
bool bdi_can_limit(void);
int bdi_limit_open(struct bdi_limit *ret, dev_t rdev) MUST_CHECK;
/* Set it again from time to time: the kernel stores it as a share of its own limit, which follows
 * the free memory. The minimum is set to almost the same value. With the maximum alone, the kernel
 * starts a device that has not written lately with a hundredth of its own limit, and holds writers
 * for up to 200 ms each time. BDI_NO_LIMIT restores the defaults of the device. */
int bdi_limit_set(const struct bdi_limit *b, uint64_t bytes) MUST_CHECK;
/* Restores the defaults, because its number outlives the volume. */
void bdi_limit_close(struct bdi_limit *b);
/* Restores the defaults of a device whose limit a killed process has left. Not for the worker: it opens a path. */
void bdi_limit_forget(dev_t rdev);

/* Dirty limit of the whole system now; UINT64_MAX if unknown. */
uint64_t global_dirty_bytes(void);

#endif
