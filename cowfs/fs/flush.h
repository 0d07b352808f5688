/* SPDX-License-Identifier: MIT */
/*
 * The sync of whatever is mounted from a disk. It needs no descriptor of the file system, so it makes no
 * unmount fail, and an unmount waits for its end.
 */
#ifndef COWFS_FS_FLUSH_H
#define COWFS_FS_FLUSH_H

#include <sys/syscall.h>

/* newer than some libraries; the distance of the numbers is the same on all architectures */
#ifndef __NR_cachestat
#define __NR_cachestat (__NR_openat2 + 14)
#endif

/*
 * BLKFLSBUF. What the page cache has of the disk stays there, if the kernel says what that is (cachestat of
 * Linux 6.5). 0, or -1 and errno.
 */
int flush_disk(int disk_fd);

#endif
