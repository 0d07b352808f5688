/* SPDX-License-Identifier: MIT */
/*
 * Brings the file system on a loop device to a state that is consistent on the device (FIFREEZE),
 * runs the seal, and thaws. The freeze is asked for by a thread of its own that serves no I/O.
 *
 * A freeze is not begun while a task is stuck in a write because its data do not come (stuck.h): it
 * would not end. A freeze that does not complete in `bounce_ns` hangs behind some task that sleeps
 * inside splice, sendfile or a write call with a descriptor of this file system: it is found
 * through /proc, bounced (SIGSTOP + SIGCONT: the call unwinds and restarts, the task is unharmed)
 * and named in the report. From 2 s on the FUSE connection that it waits for is aborted, from 10 s
 * on it is killed. After `giveup_ns` the call returns -ETIMEDOUT; the freezer thread thaws as soon
 * as the kernel lets it.
 */
#ifndef COWFS_FS_QUIESCE_H
#define COWFS_FS_QUIESCE_H

#include <sys/types.h>

#include "base/util.h"

struct quiesce_target {
	int proc_dirfd;	  /* descriptor of /proc, kept from start: nothing else is looked up */
	dev_t dev;	  /* st_dev of the loop device's file system = rdev of the loop device */
	int loop_fd;	  /* the loop block device, for fsync when nothing is mounted */
	const char *type; /* of the file system, for a mount that cannot be seen; NULL: not known */
	int fuse_dirfd;	  /* the root of fusectl; -1: none */
	/* Tells the parent (dead-man): a descriptor of the root before the freeze is asked for and
	 * again when it has come, -1 after the thaw (or when it shall stay frozen). Called by
	 * either thread, never by both at once; ctx must outlive the last freeze. May be NULL. */
	void (*frozen)(void *ctx, int mount_fd);
	void *ctx;
	/* Asked after the syncfs, before the freeze, with the ctx of the seal; false: -ENODATA. May
	 * be NULL. */
	bool (*needed)(void *seal_ctx);
	/* Asked again and again while a sync or a freeze is awaited, with the ctx of the seal: are
	 * writes withheld until the seal? Then neither would end, and it is sealed without a
	 * freeze. Also where nothing can be frozen, because who uses the device is not seen (an
	 * unmount flushes what is dirty). May be NULL. */
	bool (*stopped)(void *seal_ctx);
	uint64_t bounce_ns; /* 0: 500 ms */
	uint64_t giveup_ns; /* 0: 30 s */
	bool no_sync;	    /* freeze at once: little is dirty, and who writes is to be shut out */
	bool stay_frozen;   /* shutdown: no thaw unless seal fails */
	/* what is stuck in a write is ended before the freeze, not only while that waits */
	bool cure;
	/* seal all the same if it cannot be frozen: the image is what a power cut leaves */
	bool unfrozen;
	/* the same, but only if its sync or freeze fails with -EIO or -EROFS: it met errors, and
	 * only an unmount ends that */
	bool unfrozen_failed;
};

struct quiesce_report {
	bool mounted, readonly, frozen;
	bool unfrozen;	    /* sealed while it was in use and not frozen */
	bool stopped;	    /* because writes were withheld, or who uses it is not seen */
	bool failed;	    /* sync or freeze: -EIO or -EROFS */
	bool hidden;	    /* mounted or claimed where nobody can look; the latter is -ESTALE */
	char holder[64];    /* of what is hidden: "comm[pid]" of a process, if one was found */
	uint64_t sync_ns;   /* syncfs before the freeze */
	uint64_t freeze_ns; /* FIFREEZE call */
	uint64_t frozen_ns; /* frozen .. thawed */
	unsigned bounced;   /* tasks */
	unsigned aborted;   /* FUSE connections */
	char culprit[64];   /* "comm[pid]" of the first task that was bounced, or is stuck */
};

/*
 * seal(ctx) runs while the file system is frozen (or not mounted, after fsync of the device) and
 * must be quick; its error is returned after the thaw. Errors before: -EOPNOTSUPP this file system
 * has no freeze and is mounted read-write; -EBUSY somebody else has frozen it; -EDEADLK a task is
 * stuck in a write, so no freeze was begun; -ETIMEDOUT; -EALREADY a freeze that timed out earlier
 * still hangs; -ESTALE the device is claimed, but not by a mount (fsck) or not by one of this type;
 * -ENODATA not needed. After seal: -ECANCELED somebody thawed meanwhile, so what was sealed is no
 * consistent image. *ret is filled in any case: who hung is the news.
 */
int quiesce_run(const struct quiesce_target *t, int (*seal)(void *ctx), void *seal_ctx,
		struct quiesce_report *ret) MUST_CHECK;

/* Is a file system of this device mounted anywhere this process (or pid 1) can see? Copies the
 * mount point if where != NULL. 1, 0 or -errno. */
int quiesce_find_mount(int proc_dirfd, dev_t dev, char *where, size_t size_bytes,
		       bool *ret_readonly /* may be NULL */);

/* The same mount, opened for reading; it stays busy until that is closed. -ENOENT: none. */
int quiesce_open_mount(int proc_dirfd, dev_t dev) MUST_CHECK;

#endif
