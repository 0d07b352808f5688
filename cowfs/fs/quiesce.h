/* SPDX-License-Identifier: MIT */
/*
 * Syncs the file system on a loop device, and runs the seal.
 *
 * A file system that bears power cuts is sealed at any moment: its image is one that a mount replays, or
 * that the commit replays (fs/replay.h). No write is waited for, so no program can hold a seal, and
 * there is nothing to undo. Others are sealed while they are mounted read-only or not at all.
 *
 * Nothing here makes an unmount fail: no mount is opened. The sync names the device (BLKFLSBUF); an
 * unmount waits for it. Only the mount of a btrfs before Linux 6.17 is opened, for its sync.
 */
#ifndef COWFS_FS_QUIESCE_H
#define COWFS_FS_QUIESCE_H

#include <sys/types.h>

#include "base/util.h"

struct quiesce_target {
	int proc_dirfd; /* descriptor of /proc, kept from start: all lookups begin here */
	dev_t dev;	/* st_dev of the loop device's file system = rdev of the loop device */
	int loop_fd;	/* the loop block device */
	/* Called after the sync, with the ctx of the seal; false: -ENODATA. May be NULL. */
	bool (*needed)(void *seal_ctx);
	/*
	 * Called repeatedly while a sync is pending, with the ctx of the seal: are writes withheld until
	 * the seal? If so, it would not end, and the seal runs without it, or says why it must not. May be
	 * NULL.
	 */
	bool (*stopped)(void *seal_ctx);
	/* the same if the user of the device is not visible (an unmount flushes dirty data) */
	bool unseen;
	bool any;      /* the image of a mounted one is whole at any moment after a sync */
	bool unsynced; /* and without one, it is that of a power cut: if a sync fails or does not end */
	/*
	 * Sync again until one is short: a file that is renamed over another one during a sync may lack its content behind it,
	 * if the file system does not write that first.
	 */
	bool again;
	uint64_t sync_ns; /* time limit of a sync; 0: 10 s */
};

struct quiesce_report {
	bool mounted, readonly;
	bool instant;  /* sealed at any moment, after a sync */
	bool unsynced; /* sealed while in use, and no sync has ended before */
	bool raw; /* and so the image needs a replay, or it needs one that fails: all of it is in use (volume/replayed.c) */
	bool stopped; /* because writes were withheld, or the user of the device is not visible */
	bool failed;  /* the sync: -EIO or -EROFS */
	bool hidden;  /* mounted or claimed where this process cannot see it; claimed is -ESTALE */
	char holder[64];  /* of a hidden one: "comm[pid]" of a process, if found */
	uint64_t sync_ns; /* the syncs before the seal */
};

/*
 * seal(ctx) must be quick. Errors before it: -EOPNOTSUPP mounted read-write, and not `any`; -ETIMEDOUT, -EALREADY
 * the sync does not end, or an earlier one; -ESTALE the device is claimed, but not by a mount (fsck);
 * -ENODATA not needed. After it: -ETXTBSY the device got another user meanwhile, and the sealed image may
 * not be consistent.
 */
int quiesce_run(const struct quiesce_target *t, int (*seal)(void *ctx), void *seal_ctx,
		struct quiesce_report *ret) MUST_CHECK;

/*
 * What needs privileges: the broker's side, and this process's if there is no broker.
 */
enum disk_sync { SYNC_FLUSH, SYNC_FSYNC };
/* Of what is mounted from the disk, wherever. -ENOENT: a btrfs whose mount cannot be seen, before Linux 6.17. sys_dirfd as for mounts_in_kernel. */
int disk_sync(int proc_dirfd, int sys_dirfd, dev_t dev, int loop_fd, enum disk_sync how) MUST_CHECK;
/* Does anything hold the device exclusively? *ret_mounted: does the kernel say that a file system is mounted
 * from it, wherever? Otherwise it may be a checker. */
bool disk_claimed(int proc_dirfd, int sys_dirfd, dev_t dev, int loop_fd, bool *ret_mounted);

#endif
