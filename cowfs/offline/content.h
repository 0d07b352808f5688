/* SPDX-License-Identifier: MIT */
/* What is lost if all of a device is overwritten, in words. */
#ifndef COWFS_OFFLINE_CONTENT_H
#define COWFS_OFFLINE_CONTENT_H

#include "offline/offline.h"

/*
 * f: the device alone, open; its log is looked for and opened. found: its file system. *ret: the object of a
 * sentence. Blocks. -errno as signatures_find.
 */
int content_name(struct offline *f, const struct fsinfo *found, char *ret, size_t bytes) MUST_CHECK;

#endif
