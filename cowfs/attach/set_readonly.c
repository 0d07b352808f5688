/* SPDX-License-Identifier: MIT */
/*
 * set-readonly DEVICE: tells the kernel to refuse writes. For an initramfs whose cowctl could not be run: needs no
 * library but libc, and is a tenth of blockdev(8).
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>

#include "base/program.h"

int main(int argc, char **argv)
{
	int fd, on = 1;

	program_begin();
	if (argc != 2) {
		fputs("usage: set-readonly DEVICE\n", stderr);
		return 2;
	}
	fd = open(argv[1], O_RDONLY | O_CLOEXEC);
	if (fd >= 0 && ioctl(fd, BLKROSET, &on) == 0)
		return 0;
	fprintf(stderr, "set-readonly: %s: %s\n", argv[1], strerror(errno));
	return 1;
}
