/* SPDX-License-Identifier: MIT */
/* Takes the guard from the superblock on a device: what no tool of a file system does.
 * usage: unguard DEVICE */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "fs/guard.h"

int main(int argc, char **argv)
{
	static const uint64_t may[] = GUARD_BLKS;
	static uint8_t blk[COW_BLK_BYTES];
	int fd = argc == 2 ? open(argv[1], O_RDWR | O_CLOEXEC) : -1, failed = fd < 0;

	for (size_t i = 0; i < ARRAY_SIZE(may) && !failed; i++) {
		off_t off = (off_t)blk_to_bytes(may[i]);

		failed = pread(fd, blk, sizeof(blk), off) != sizeof(blk);
		guard_take(blk);
		failed |= pwrite(fd, blk, sizeof(blk), off) != sizeof(blk);
	}
	if (failed || fsync(fd) < 0) {
		perror(argc == 2 ? argv[1] : "usage: unguard DEVICE");
		return 1;
	}
	return close(fd) < 0;
}
