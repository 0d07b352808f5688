/* SPDX-License-Identifier: MIT */
/*
 * Read-ahead of the base across files: small reads that keep close to each other are served from a
 * few windows that were read in one request. A fixed 512 KiB for a volume, locked like all our
 * memory: the base is not cached a second time.
 */
#ifndef COWFS_EXPORT_AHEAD_H
#define COWFS_EXPORT_AHEAD_H

#include "base/util.h"
#include "card/card.h"

struct ahead;

int ahead_new(struct ahead **ret, struct card *base) MUST_CHECK;
void ahead_free(struct ahead *a); /* NULL allowed; nobody reads any more */

/*
 * Blocks of the base, as card_read; any number of threads. epoch names the layer stack that the
 * caller has pinned: while one is published, no block that it shows from the base changes there,
 * and a window that was read under one epoch is never used under another.
 */
int ahead_read(struct ahead *a, uint64_t epoch, uint64_t blk, uint64_t blks, void *buf) MUST_CHECK;

#endif
