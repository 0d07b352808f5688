/* SPDX-License-Identifier: MIT */
/* The disk in the broker, for a worker that may not make one: the FUSE file and its loop device. The worker's
 * side is in transport.c. */
#ifndef COWFS_EXPORT_DISK_SERVE_H
#define COWFS_EXPORT_DISK_SERVE_H

#include "base/broker.h"
#include "export/loop.h"

struct disk_serve {
	int mount_fd; /* of FUSE, until the file is open; -1 */
	int file_fd;  /* until the loop device has it; -1 */
	int abort_fd; /* of the FUSE connection; -1 */
	struct loop_dev loop;
	bool have_loop;
	uint64_t *
		found; /* LOOP_LIMITS limits of the queue from before, for all brokers of the volume */
	char label[64];
	loop_note *note;
};

/*
 * Of a volume that is taken over. loop_fd comes from a worker that may have been taken over: it must be
 * open on a loop device whose file has the name of the label. dev_dirfd, sys_dirfd: /dev and /sys.
 * -ESTALE: it is another device. The descriptors stay the caller's.
 */
int disk_serve_take(struct disk_serve *d, int loop_fd, int dev_dirfd, int sys_dirfd) MUST_CHECK;
/* BROKER_FILE, _ATTACH, _DETACH, _IN_USE. Makes *m the answer. ret_fd: descriptors for it, which the
 * caller closes afterwards; those that are not needed are left alone. */
void disk_serve(struct disk_serve *d, struct broker_message *m, int ret_fd[BROKER_FDS]);
/* Everything that keeps a disk in use. */
void disk_serve_close(struct disk_serve *d);

#endif
