/* SPDX-License-Identifier: MIT */
/*
 * Finds content of a device that formatting would destroy or misread: signatures, as in wipefs(8).
 */
#ifndef COWFS_OFFLINE_SIGNATURE_H
#define COWFS_OFFLINE_SIGNATURE_H

#include "fs/fsinfo.h"

struct signatures {
	unsigned n;
	/* "a GPT partition table with 3 partitions and a swap area"; "" if n is 0 */
	char text[512];
	char advice[64]; /* the device to use instead, "" if none is known */
};

/*
 * Reads the device through the page cache; blocks. fs: the file system that cowfs found there. A
 * known file system is not counted itself. Signatures in blocks that it gives to files are not
 * counted either, because their content may be anything. -errno; -EOWNERDEAD: boxed_error.
 */
int signatures_find(const char *path, const struct fsinfo *fs, struct signatures *ret) MUST_CHECK;

#endif
