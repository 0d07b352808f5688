/* SPDX-License-Identifier: MIT */
/*
 * A snapshot: an image of the volume, for a view, that only the view changes: the file system replays
 * its journal in it. For each block it shows the newest of
 * 	1 written		RAM, by the view
 * 	2 shared generations	RAM, of the merged view (an image of now); never change
 * 	3 saved			RAM, blocks of the card from before they were overwritten
 * 	4 log, base		card, as the index says that the snapshot took
 *
 * S1  Nothing on the card is held for a snapshot. The commit thread calls snapshot_save ahead of
 *     each write to a card: whatever the snapshot reads at that place goes to `saved` first.
 * S2  The commit thread never waits for a reader. A reader that has read from the card looks
 *     again: if `saved` has got one of its blocks meanwhile, the read is repeated.
 * S3  A snapshot that cannot keep a block is ended: all its reads fail from then on. Its RAM is
 *     returned as soon as no read is under way.
 */
#ifndef COWFS_EXPORT_SNAPSHOT_H
#define COWFS_EXPORT_SNAPSHOT_H

#include "card/card.h"
#include "export/layers.h"
#include "ram/generation.h"

struct snapshot;

/* l: from view_copy_layers with room for SNAPSHOT_ROOM; on success it belongs to the snapshot. The
 * store must outlive the snapshot, the cards must outlive its end. max_bytes: of the store; the view
 * writes nothing above it. */
#define SNAPSHOT_ROOM 2u
int snapshot_new(struct snapshot **ret, struct ram_store *store, struct layers *l,
		 uint64_t volume_blks, uint64_t max_bytes) MUST_CHECK;
struct snapshot *snapshot_ref(struct snapshot *s);
void snapshot_unref(struct snapshot *s); /* NULL allowed */
uint64_t snapshot_volume_blks(const struct snapshot *s);

/* Any thread and alignment. -EINVAL outside the volume, -EIO ended, errors of the card. */
int snapshot_read(struct snapshot *s, uint64_t off_bytes, void *buf, size_t len_bytes) MUST_CHECK;
/* Likewise, in RAM. -ENOSPC: the limit is reached. */
int snapshot_write(struct snapshot *s, uint64_t off_bytes, const void *buf,
		   size_t len_bytes) MUST_CHECK;

/* ---- commit thread only ---- */

/* Nothing reads these blocks: they read zero unless RAM has them, and are not saved. */
int snapshot_forget(struct snapshot *s, uint64_t blk, uint64_t blks) MUST_CHECK;
/* Saves what the snapshot reads in this range of the card, which is about to be overwritten. max_blks
 * bounds the blocks that it takes; *ret_blks is their number. -ENOSPC: more are needed, or the store is
 * full. After an error: snapshot_end. */
int snapshot_save(struct snapshot *s, struct card *c, uint64_t off_bytes, uint64_t len_bytes,
		  uint64_t max_blks, uint64_t *ret_blks) MUST_CHECK;

/* ---- any thread ---- */
void snapshot_end(struct snapshot *s);
bool snapshot_ended(const struct snapshot *s);

/* Calls each for the generations that the snapshot holds; for none if it has ended. */
void snapshot_each(struct snapshot *s, void (*each)(void *ctx, const struct generation *g),
		   void *ctx);

#endif
