/* SPDX-License-Identifier: MIT */
/*
 * After a commit of single files the live volume and the committed generation are two descendants
 * of one generation, the base of both. Until the next full commit the volume must know:
 *
 * - which blocks the base used. Only these can the live file system read from the card: whatever
 *   it has written since is in RAM.
 * - which blocks got metadata of xfs from a commit of single files. Where the live file system
 *   leaves them free they must not stay on the card (docs/design/free.md, "What an xfs leaves
 *   free").
 * - the number of the journal's first transaction that the card can not have: commits write no
 *   journal, so it is that of the base.
 *
 * Commit thread only.
 */
#ifndef COWFS_VOLUME_DIVERGED_H
#define COWFS_VOLUME_DIVERGED_H

#include "export/view.h"
#include "fs/fsinfo.h"

struct diverged;

/* base: the map of the committed generation while nothing has diverged. uuid: NULL, or as
 * commit_source.metadata_uuid. There is one at a time in a store. */
int diverged_new(struct diverged **ret, struct ram_store *store, uint64_t volume_blks,
		 struct fsmap *base, const uint8_t *uuid) MUST_CHECK;
/* What a process knew that has died. -ENOENT: nothing. */
int diverged_take_over(struct diverged **ret, struct ram_store *store,
		       uint64_t volume_blks) MUST_CHECK;
void diverged_free(struct diverged *d); /* NULL allowed */

/*
 * Before the sealed image of `scratch` is committed: whatever `live` would read from the card and
 * these blocks would change goes to a generation below all layers of `live`. On success no reader
 * of `live` looks at these blocks on the card any more. On error nothing has changed.
 * -ENOSPC: the store would hold more than max_bytes. -EFBIG: `live` would have more than
 * max_dirty_blks blocks in RAM (0: any number).
 */
int diverged_keep(struct diverged *d, struct view *live, struct view *scratch,
		  struct ram_store *store, uint64_t max_bytes, uint64_t max_dirty_blks) MUST_CHECK;

/* Number of blocks that are free in the base and in m. Those that the live file system uses of them
 * are in RAM. */
int diverged_count_free(const struct diverged *d, struct fsmap *m, uint64_t *ret_blks) MUST_CHECK;

/* Must a block that is free in the live file system be written all the same? *ret_blks: for how many
 * blocks from blk on, at most max_blks, the answer is the same. */
bool diverged_must_write(const struct diverged *d, uint64_t blk, uint64_t max_blks,
			 uint64_t *ret_blks);
uint32_t diverged_log_sequence(const struct diverged *d);

#endif
