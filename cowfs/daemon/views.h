/* SPDX-License-Identifier: MIT */
/*
 * The views of a volume: a FUSE session for each. The client has made the mount, and passes its
 * /dev/fuse. A view ends with the last user of that mount.
 */
#ifndef COWFS_DAEMON_VIEWS_H
#define COWFS_DAEMON_VIEWS_H

#include "volume/volume.h"

struct views;

/* gone: called by any thread once a view has lost its mount; views_reap is due. */
int views_new(struct views **ret, struct volume *v, void (*gone)(void *ctx), void *ctx) MUST_CHECK;
/* Ends all views: their users get errors. Waits for their reads. NULL allowed. */
void views_free(struct views *vs);

/* Job thread: makes the image and serves it on fuse_fd, which is duplicated. 0, or -errno with a
 * sentence in res->why. */
int views_open(struct views *vs, int fuse_fd, struct volume_image *im,
	       struct volume_result *res) MUST_CHECK;
/* Frees what views without a mount hold. Waits for nothing. One thread at a time. */
void views_reap(struct views *vs);

#endif
