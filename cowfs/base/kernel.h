/* SPDX-License-Identifier: MIT */
/* The oldest kernel that cowfs runs on. */
#ifndef COWFS_BASE_KERNEL_H
#define COWFS_BASE_KERNEL_H

#include "base/util.h"

/* The first Linux with close_range, the newest call that cowfs cannot do without. The newest ioctl
 * is LOOP_CONFIGURE (5.8). */
#define KERNEL_MIN_MAJOR 5
#define KERNEL_MIN_MINOR 9

/*
 * Is Linux of this release ("6.1.0-37-amd64"; NULL: the running one) new enough? 0, or -ENOSYS with
 * a sentence in why. A release that is not a version passes. Of the running one also whether a filter refuses its calls.
 */
int kernel_check(const char *release, char *why, size_t n) MUST_CHECK;

/* Is the running kernel at least this version? Yes, if its release is not a version. */
bool kernel_is(unsigned major, unsigned minor);

#endif
