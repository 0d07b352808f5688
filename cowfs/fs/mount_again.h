/* SPDX-License-Identifier: MIT */
/*
 * A second mount of a file system, which is never attached. It gives a descriptor, makes no unmount fail, and
 * looks no path up. An unmount meanwhile succeeds, and the device is free when the descriptor is closed.
 */
#ifndef COWFS_FS_MOUNT_AGAIN_H
#define COWFS_FS_MOUNT_AGAIN_H

#include "fs/quiesce.h"

/* Time limit of a checkpoint, or of the sync of a file system that is sealed at any moment. RAM serves them; longer
 * than a commit of several volumes waits in it. */
#define INSTANT_NS (10 * 1000000000ull)

struct use {
	const char *type;
	bool readonly;
	int mount_fd; /* -1: none yet */
};

/*
 * For a file system that is mounted where this process cannot see it: in another mount namespace,
 * or unmounted lazily. A second mount must name the same driver, and be read-only if the first one
 * is. A device that is not mounted at all (a checker has it) is busy whatever the name. -ESTALE.
 */
int join_hidden(struct use *u, const struct quiesce_target *t, void *seal_ctx) MUST_CHECK;
/* -ENXIO: it is not mounted any more; -ESTALE: it is, but cannot be mounted again. */
int join(struct use *u, const struct quiesce_target *t, void *seal_ctx) MUST_CHECK;
/* Does BLKFLSBUF sync it? */
bool flush_syncs(const char *type);
int sync_used(struct use *u, const struct quiesce_target *t, void *seal_ctx) MUST_CHECK;

#endif
