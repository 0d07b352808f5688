/* SPDX-License-Identifier: MIT */
/* Calls that make a file system whole, or still. */
#ifndef COWFS_FS_QUIESCE_CALL_H
#define COWFS_FS_QUIESCE_CALL_H

#include <sys/ioctl.h>

#include "base/util.h"

/* of fs/ext4/ext4.h of the kernel, which installs no header */
#define EXT4_IOC_CHECKPOINT _IOW('f', 43, uint32_t)

/* Calls that flush. They sleep uninterruptibly until the device has answered. */
enum quiesce_call {
	QUIESCE_FREEZE,
	QUIESCE_THAW,
	QUIESCE_FLUSH, /* BLKFLSBUF of the disk: syncs what is mounted from it */
	QUIESCE_SYNCFS,
	QUIESCE_FSYNC,
	QUIESCE_CREATE,	    /* FSCONFIG_CMD_CREATE of a file system on the disk */
	QUIESCE_CHECKPOINT, /* EXT4_IOC_CHECKPOINT */
	QUIESCE_TOUCH,	    /* a new ctime, so that there is a transaction */
	QUIESCE_CALLS
};

/* Makes the call in a thread that has no other descriptor (thread_call_alone). disk_fd: for
 * QUIESCE_CREATE. 0 or -errno. */
int quiesce_call(enum quiesce_call call, int fd, int disk_fd) MUST_CHECK;

#endif
