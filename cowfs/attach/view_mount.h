/* SPDX-License-Identifier: MIT */
/*
 * Views: read-only mounts of a volume's committed generation, or of a snapshot of the volume as it
 * is now. The daemon (of a card that is not attached: a process of its own, offline/view_card.c) serves the
 * image as a FUSE file, and this process makes a loop device of it and mounts the file system.
 * Nothing keeps a view but its mount: the last user of the mount ends the loop device, the FUSE file
 * and the image in the daemon.
 */
#ifndef COWFS_ATTACH_VIEW_MOUNT_H
#define COWFS_ATTACH_VIEW_MOUNT_H

#include <sys/types.h>

#include "fs/btrfs.h"
#include "wire/client.h"
#include "wire/failure.h"

enum view_kind {
	VIEW_COMMITTED, /* the newest committed generation */
	VIEW_HELD,	/* the generation that is held */
	VIEW_NOW,	/* all changes up to this call, committed or not */
	VIEW_SCRATCH,	/* committed, and writable in RAM: for a commit of single files */
	VIEW_IMPORT,	/* the same, to be replaced by a generation from elsewhere */
};

enum view_use {
	VIEW_DISK, /* nothing is mounted, so that no replay changes a block */
	VIEW_READ,
	VIEW_WRITE,
};

struct view_mount {
	int dir_fd;		 /* the root of the mounted file system; -1: VIEW_DISK */
	int disk_fd;		 /* its loop device, open for reading */
	char disk[32];		 /* "/dev/loop7" */
	dev_t disk_rdev;	 /* of disk_fd */
	uint64_t generation;	 /* the newest commit that the image contains */
	uint64_t time_s;	 /* of that commit; VIEW_NOW: of the snapshot */
	struct btrfs_mark btrfs; /* in front of the mount; only of btrfs */
	const char *fs_type;	 /* of fs_ops: what goes to fsopen(2) */
	/* the mount has replayed a journal, so it differs in more than the uncommitted blocks */
	bool replays;
	bool unsynced; /* VIEW_NOW: what no sync has written is not in it */
};

/*
 * Makes a FUSE mount, has serve() provide the server of its file, and mounts that: as
 * view_mount_open, whose errors this has. name: of what is shown. serve: gets the /dev/fuse of the
 * mount, which stays this module's, and fills in generation, time_s and fs_type, a type that a file
 * system of cowfs has. 0, or -errno with *err.
 */
typedef int view_serve(void *ctx, int fuse_fd, struct view_mount *m, struct failure *err);
int view_mount_served(const char *name, enum view_use use, view_serve *serve, void *ctx,
		      struct view_mount *ret, struct failure *err) MUST_CHECK;
/*
 * Asks the daemon of c for a view and mounts it (ro unless VIEW_SCRATCH, nodev, nosuid). It is
 * attached to no tree, and ends with the last descriptor of it, at the latest when this process ends.
 *
 * Blocks: for a job of the volume under way, for the sync (VIEW_NOW), at most a minute for the
 * mount itself. 0, or -errno with *err: -EMFILE the volume has 8 views, -EBUSY another scratch
 * image exists, -EOPNOTSUPP the file system cannot be mounted twice, and those of the daemon, of
 * mount(2) and of a lost connection. On error nothing stays.
 */
int view_mount_open(struct client *c, enum view_kind kind, struct view_mount *ret,
		    struct failure *err) MUST_CHECK;
/*
 * The same of two states: of kind, and then of now. Both are mounted side by side. After an error, the caller closes
 * both, which were closed before.
 */
int view_mount_open_both(struct client *c, enum view_kind kind, struct view_mount *ret,
			 struct view_mount *ret_now, struct failure *err) MUST_CHECK;
/* The same, and mounts nothing. */
int view_mount_disk(struct client *c, enum view_kind kind, struct view_mount *ret,
		    struct failure *err) MUST_CHECK;
/* Mounts a disk of that, read-only, for as long as *ret_dir_fd is open: nothing is replayed or written. */
int view_mount_look(const struct view_mount *m, int *ret_dir_fd, struct failure *err) MUST_CHECK;
/* Writes what is dirty into a scratch image. */
int view_mount_sync(struct view_mount *m, struct failure *err) MUST_CHECK;
/* Unmounts a scratch image, whose root only dir_fd refers to. Its content stays until
 * view_mount_close. */
int view_mount_unmount(struct view_mount *m, struct failure *err) MUST_CHECK;
/*
 * A few files of it will be looked at, here and there: each inode that is read brings no others along (ext4 reads
 * 128 KiB). Best effort.
 */
void view_mount_scattered(const struct view_mount *m);
/* Closes the descriptors. This ends the view unless it was attached meanwhile; its RAM is free a moment later. */
void view_mount_close(struct view_mount *m);

#endif
