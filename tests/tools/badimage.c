/* SPDX-License-Identifier: MIT */
/*
 * LD_PRELOAD library for tests: an image that libext2fs dies of. BADIMAGE_AT=N: each process dies
 * at the N-th bitmap that it looks at.
 */
#include <stdlib.h>
#include <sys/types.h>

#include <ext2fs/ext2fs.h>

int ext2fs_block_bitmap_csum_verify(ext2_filsys fs, dgrp_t group, char *bitmap, int size)
{
	static long seen;
	const char *at = getenv("BADIMAGE_AT");

	(void)fs, (void)group, (void)bitmap, (void)size;
	if (at && ++seen >= strtol(at, NULL, 10))
		__builtin_trap();
	return 1;
}
