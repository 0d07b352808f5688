/* SPDX-License-Identifier: MIT */
/*
 * The broker of a worker (base/broker.h): its process. It is root, and does what the worker may not: set
 * the card read-only and writable, attach and detach the disk, look the mount up and sync it, write the
 * files in /run. It ends with the worker.
 */
#ifndef COWFS_DAEMON_BROKER_SERVE_H
#define COWFS_DAEMON_BROKER_SERVE_H

#include "base/broker.h"
#include "card/find.h"
#include "export/loop.h"
#include "wire/facts.h"

/* What root knows. It outlives a broker, and no worker has it. */
struct broker_root {
	struct facts facts;
	struct broker_card {
		struct find find;
		uint64_t place[2]; /* where the card has blk, or had it */
		bool known;
		dev_t before; /* it was this device, which is gone, and which the supervisor may still keep */
		uint8_t blk[COW_BLK_BYTES];
	} card[2];
	uint64_t found[LOOP_LIMITS]; /* limits of the disk's queue from before */
};

/* What it acts on. The descriptors stay the caller's; -1: none. */
struct broker_facts {
	const char *name;  /* of the volume */
	const char *label; /* of the disk */
	struct broker_root *root;
	int proc_dirfd, dev_dirfd, sys_dirfd;
	int card_fd[2]; /* base and log */
	int stat_fd[2]; /* of them, see blockdev_keep */
	int store_fd;	/* of the RAM store; -1: it is not resized any more */
	int side_fd;	/* the other one */
	int run_fd, run_parent_fd;
	int mount_fd, abort_fd; /* of transport_prepare */
	int keep_fd; /* root's link to the supervisor (link.h), which keeps in these slots: */
	unsigned card_slot[2], disk_slot;
	/* instead of it: the disk that a worker before had, which may have been taken over */
	int disk_fd;
	int kmsg_fd;
	bool keep_root;		    /* of processes that read metadata: fs/fsproc.h */
	void (*prepare)(void *ctx); /* hardens the process */
	void *ctx;
};

#define BROKER_SOCKET_NEW ".control" /* until BROKER_LISTEN */

/* Call it while the process has one thread. The caller's ends of the lanes. -ESTALE: disk_fd is another
 * device. */
int broker_start(const struct broker_facts *f, int ret_lane_fd[BROKER_LANES]) MUST_CHECK;

#endif
