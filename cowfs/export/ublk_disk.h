/* SPDX-License-Identifier: MIT */
/* The disk of ublk in the broker, for a worker that may not make one: all commands to the driver. The
 * worker's side, which serves the requests, is in ublk.c. */
#ifndef COWFS_EXPORT_UBLK_DISK_H
#define COWFS_EXPORT_UBLK_DISK_H

#include <stdatomic.h>
#include <sys/types.h>

#include "base/util.h"

#define UBLK_DEPTH_MAX 64u
#define UBLK_IO_BYTES_MAX (256u * KIB)

struct ublk_control;

struct ublk_disk {
	struct ublk_control *control; /* NULL: none */
	int error;		      /* why not */
	int dev_dirfd, sys_dirfd, proc_dirfd;
	int worker_fd;	       /* a socket: a wait ends when the worker's end is closed */
	_Atomic uint32_t *end; /* transport_params; NULL: nobody takes the disk over */
	uint64_t card_bytes;   /* the most that a disk may have */
	uint64_t mark;
	uint32_t id;
	unsigned depth;
	bool made;	  /* there was a device: no second one */
	bool added, live; /* there is a device; the kernel has the disk */
	bool queued;	  /* the worker has the character device */
	int fd;		  /* of the disk; -1 */
	dev_t rdev;
};

/* Of a volume that is taken over. disk_fd comes from a worker that may have been taken over.
 * -ESRCH: it is no disk of ublk. Whose it is, ublk_disk_open finds out. disk_fd stays the caller's. */
int ublk_disk_take(struct ublk_disk *d, int disk_fd, int sys_dirfd) MUST_CHECK;
/* Opens the control device, before system calls are restricted. The descriptors are the caller's and
 * stay open. Errors are kept in d->error. -ESTALE: the disk that was taken has not the mark of the label. */
void ublk_disk_open(struct ublk_disk *d, const char *label);

/*
 * Makes a device, or gets the one that was taken away from its dead server, which may take a minute.
 * Returns its character device, which the kernel lets one process have: the caller passes it on and
 * closes it. On failure nothing is left. -EALREADY: asked a second time.
 */
int ublk_disk_queue(struct ublk_disk *d, unsigned depth, uint64_t bytes,
		    uint64_t max_io_bytes) MUST_CHECK;
/* The worker has fetched with all tags: the disk is there, or goes on. A new one has d->fd then. */
int ublk_disk_start(struct ublk_disk *d, unsigned read_ahead_kb) MUST_CHECK;
/* Another descriptor of it, or -errno. */
int ublk_disk_reopen(const struct ublk_disk *d, int flags) MUST_CHECK;
/* 1, 0, -errno */
int ublk_disk_in_use(const struct ublk_disk *d);
/* -EBUSY: it is in use and stays; a plain open is reported after 5 s. failed: the start failed, so
 * nobody is looked for. The worker ends its requests afterwards. */
int ublk_disk_remove(struct ublk_disk *d, bool failed) MUST_CHECK;

/* Does the device have the mark of the label, so that transport_end may end it? */
bool ublk_is_of(struct ublk_control *c, uint32_t id, const char *label);

#endif
