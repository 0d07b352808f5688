/* SPDX-License-Identifier: MIT */
/* Bounds what a block device may have dirty in the page cache, through /sys/class/bdi (kernel >=
 * 6.2). */
#ifndef COWFS_EXPORT_BDI_H
#define COWFS_EXPORT_BDI_H

#include <sys/types.h>

#include "base/util.h"

struct bdi_limit {
	int max_bytes_fd, min_bytes_fd, strict_fd, max_ratio_fd; /* -1: closed */
};

#define BDI_LIMIT_CLOSED ((struct bdi_limit){ -1, -1, -1, -1 })

/* Does this kernel know it? By path: before start only, like bdi_limit_open. */
bool bdi_can_limit(void);
int bdi_limit_open(struct bdi_limit *ret, dev_t rdev) MUST_CHECK;
/* The kernel keeps it as a share of its own limit, which follows the free memory: to be set again
 * from time to time. All of it is the device's at once: alone the maximum would have the kernel
 * begin with a hundredth of its own limit for a device that has not written lately, and hold
 * writers for up to 200 ms each time. */
int bdi_limit_set(const struct bdi_limit *b, uint64_t bytes) MUST_CHECK;
/* Gives the device its defaults back: its number outlives the volume. */
void bdi_limit_close(struct bdi_limit *b);

/* What the whole system may have dirty now; UINT64_MAX if it cannot be told. */
uint64_t global_dirty_bytes(void);

#endif
