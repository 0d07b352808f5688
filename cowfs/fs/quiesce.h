/* SPDX-License-Identifier: MIT */
/*
 * Brings the file system on a loop device to a state that is consistent on the device, and runs the
 * seal.
 *
 * Where the driver has a call that empties its journal (ext3 and ext4, EXT4_IOC_CHECKPOINT of Linux
 * 5.14), the seal runs at the instant at which that is done: while the last write of that call, which
 * says that the journal is empty, waits for its answer. The driver begins no transaction before it
 * has the answer. It waits for no program: a transaction never waits for memory of a caller, a lease,
 * or a lock that a user can keep. So nobody can hold such a seal, and there is nothing to thaw.
 *
 * Where a mount replays what it finds at any moment, and cowfs knows the image of the time after that
 * (xfs), the seal follows a sync.
 *
 * Nothing here makes an unmount fail. The sync names the device only (BLKFLSBUF); an unmount waits for
 * it. The other calls go through a second mount of the file system, which is never attached. An unmount
 * during one of them succeeds, and the device is free when the call ends.
 *
 * Otherwise the file system is frozen (FIFREEZE) by a separate thread, which serves no I/O, sealed,
 * and thawed. A freeze waits for every write that is under way, and all other writers wait for it. After
 * `giveup_ns` the call returns -ETIMEDOUT, or seals without a freeze; the freezer thread thaws as
 * soon as the kernel lets it.
 */
#ifndef COWFS_FS_QUIESCE_H
#define COWFS_FS_QUIESCE_H

#include <sys/types.h>

#include "base/util.h"

enum quiesce_watch { QUIESCE_BEGIN, QUIESCE_END };

struct quiesce_target {
	int proc_dirfd;	  /* descriptor of /proc, kept from start: all lookups begin here */
	dev_t dev;	  /* st_dev of the loop device's file system = rdev of the loop device */
	int loop_fd;	  /* the loop block device, for fsync when nothing is mounted */
	const char *type; /* of the file system, for a mount that is not visible; NULL: not known */
	/*
	 * Informs the supervisor (dead-man): passes a descriptor of the root before the freeze
	 * begins and again when it is complete, and -1 after the thaw (or when it shall stay
	 * frozen). Called by either thread, never by both at once; ctx must outlive the last
	 * freeze. Returns 0, or before the freeze -EBUSY: an earlier one is not thawed yet. May be
	 * NULL.
	 */
	int (*frozen)(void *ctx, int mount_fd);
	void *ctx;
	/*
	 * Called after the sync, before the freeze, with the ctx of the seal; false: -ENODATA.
	 * May be NULL.
	 */
	bool (*needed)(void *seal_ctx);
	/*
	 * Called repeatedly while a sync or a freeze is pending, with the ctx of the seal: are
	 * writes withheld until the seal? If so, neither would end, and the seal runs without a
	 * freeze, or says why it must not. May be NULL.
	 */
	bool (*stopped)(void *seal_ctx);
	/* the same if nothing can be frozen because the user of the device is not visible (an unmount
	 * flushes dirty data) */
	bool unseen;
	/*
	 * QUIESCE_BEGIN: from now on the caller watches for the write after which the image is
	 * whole, and seals then. QUIESCE_END: it stops watching; result of the seal, or -EAGAIN: there
	 * was no such write. With the ctx of the seal. NULL: the caller cannot watch.
	 */
	int (*instant)(void *seal_ctx, enum quiesce_watch watch);
	/*
	 * Seals if the image says of itself at that moment that it is whole; if not, -EAGAIN. For a
	 * sync that causes no such write, and for a file system that is mounted read-only. May be NULL.
	 */
	int (*now)(void *seal_ctx);
	bool instant_by_sync; /* a sync causes that write; if not, QUIESCE_CHECKPOINT does */
	bool any_instant;     /* the image is whole at any moment after a sync */
	uint64_t giveup_ns;   /* 0: 10 s */
	bool no_sync;	      /* freeze at once: little is dirty, and writers are to be shut out */
	bool stay_frozen;     /* shutdown: no thaw unless seal fails */
	/* seal even if a freeze is impossible: the image is that of a power cut */
	bool unfrozen;
	/*
	 * the same, but only if its sync or freeze fails with -EIO or -EROFS: it met errors, and
	 * only an unmount ends this state
	 */
	bool unfrozen_failed;
};

struct quiesce_report {
	bool mounted, readonly, frozen;
	bool instant;  /* sealed when the image is whole, without a freeze */
	bool unfrozen; /* sealed while in use and not frozen */
	bool replayed; /* the same, and then the journal was replayed (volume/replayed.c) */
	bool stopped;  /* because writes were withheld, or the user of the device is not visible */
	bool failed;   /* sync or freeze: -EIO or -EROFS */
	bool hidden;   /* mounted or claimed where this process cannot see it; claimed is -ESTALE */
	char holder[64];    /* of a hidden one: "comm[pid]" of a process, if found */
	uint64_t sync_ns;   /* the sync before the seal */
	uint64_t freeze_ns; /* FIFREEZE call */
	uint64_t frozen_ns; /* from frozen to thawed */
};

/*
 * seal(ctx) runs while the file system is frozen (or not mounted, after fsync of the device) and
 * must be quick; its error is returned after the thaw. It does not run if t->instant has sealed.
 * Errors before: -EOPNOTSUPP this file system has no freeze and is mounted read-write; -EBUSY another
 * program has frozen it; -ETIMEDOUT; -EALREADY a freeze that timed out earlier still hangs; -ESTALE the
 * device is claimed, but not by a mount (fsck) or not by a mount of this type; -ENODATA not needed.
 * After seal: -ECANCELED another program thawed meanwhile, -ETXTBSY the device got another user
 * meanwhile. In both cases the sealed image may not be consistent.
 */
int quiesce_run(const struct quiesce_target *t, int (*seal)(void *ctx), void *seal_ctx,
		struct quiesce_report *ret) MUST_CHECK;

/* The same in this process, which has the privileges. */
int quiesce_here(const struct quiesce_target *t, int (*seal)(void *ctx), void *seal_ctx,
		 struct quiesce_report *ret) MUST_CHECK;

/*
 * r: of a run whose seal was not tried. If writes are withheld until the seal, it runs: the program that
 * waits for it cannot remove what blocks the freeze. The broker of a worker that was killed in a sync may be
 * that: it ends with the writes that wait. The result of the seal, or r.
 */
int quiesce_unblock(const struct quiesce_target *t, int (*seal)(void *ctx), void *seal_ctx, int r,
		    struct quiesce_report *rep) MUST_CHECK;

#endif
