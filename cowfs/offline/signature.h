/* SPDX-License-Identifier: MIT */
/* What a device holds that formatting would destroy or mistake: signatures, as wipefs(8) finds
 * them. */
#ifndef COWFS_OFFLINE_SIGNATURE_H
#define COWFS_OFFLINE_SIGNATURE_H

#include "fs/fsinfo.h"

struct signatures {
	unsigned n;
	/* "a GPT partition table with 3 partitions and a swap area"; "" if n is 0 */
	char text[512];
	const char *advice; /* what to name instead of the device, "" if nothing is known */
};

/*
 * Reads the device through the page cache; blocks. fs: what cowfs found there. A known file system
 * is not counted itself, and neither is what lies in blocks that it gives to files: their content
 * may be anything. -errno.
 */
int signatures_find(const char *path, const struct fsinfo *fs, struct signatures *ret) MUST_CHECK;

#endif
