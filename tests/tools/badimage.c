/* SPDX-License-Identifier: MIT */
/*
 * LD_PRELOAD library for tests: an image that libext2fs dies of. BADIMAGE_AT=N: each process dies
 * at the N-th bitmap that it looks at.
 */
#include <blkid/blkid.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/types.h>

#include <ext2fs/ext2fs.h>

int ext2fs_block_bitmap_csum_verify(ext2_filsys fs, dgrp_t group, char *bitmap, int size)
{
	static long seen;
	const char *at = getenv("BADIMAGE_AT");

	if (at && ++seen >= strtol(at, NULL, 10))
		__builtin_trap();
	return 1;
}

/*
 * BADIMAGE_OWNS=FILE: an image that takes over the process at the first look of libext2fs or
 * libblkid. It makes FILE, and dies.
 */
static void own(void)
{
	const char *file = getenv("BADIMAGE_OWNS");

	if (!file)
		return;
	(void)!open(file, O_WRONLY | O_CREAT, 0666);
	__builtin_trap();
}

errcode_t ext2fs_open2(const char *name, const char *options, int flags, int super,
		       unsigned block_size, io_manager manager, ext2_filsys *ret)
{
	own();
	return ((typeof(&ext2fs_open2))dlsym(RTLD_NEXT, "ext2fs_open2"))(
		name, options, flags, super, block_size, manager, ret);
}

int blkid_do_probe(blkid_probe pr)
{
	own();
	return ((typeof(&blkid_do_probe))dlsym(RTLD_NEXT, "blkid_do_probe"))(pr);
}

int blkid_do_safeprobe(blkid_probe pr)
{
	own();
	return ((typeof(&blkid_do_safeprobe))dlsym(RTLD_NEXT, "blkid_do_safeprobe"))(pr);
}
