/* SPDX-License-Identifier: MIT */
/* Takes the guard from the superblock on a device: what no tool of a file system does.
 * usage: unguard DEVICE */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "fs/guard.h"

int main(int argc, char **argv)
{
	static uint8_t blk[COW_BLK_BYTES];
	int fd = argc == 2 ? open(argv[1], O_RDWR | O_CLOEXEC) : -1;

	if (fd < 0 || pread(fd, blk, sizeof(blk), 0) != sizeof(blk)) {
		perror(argc == 2 ? argv[1] : "usage: unguard DEVICE");
		return 1;
	}
	guard_take(blk);
	if (pwrite(fd, blk, sizeof(blk), 0) != sizeof(blk) || fsync(fd) < 0) {
		perror(argv[1]);
		return 1;
	}
	return close(fd) < 0;
}
