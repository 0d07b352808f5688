/* SPDX-License-Identifier: MIT */
/*
 * Free blocks of a sealed image that the live file system may use.
 *
 * A seal overlaps with the next transaction. It may have caught blocks that this
 * transaction has written. They are free in the image, so the commit leaves them out, and the live file
 * system will read them. They stay in RAM until the next seal: the sync before that seal waits for
 * every transaction and every write that was under way at this one. What such a block holds is in use
 * then, and committed, or of no use any more, and released. So layers below the newest sealed one keep nothing
 * of this kind, unless no sync has ended (replayed.c).
 */
#include "fs/replay.h"
#include "volume/private.h"

int overlap_begin(struct volume *v)
{
	return v->kept->keeps ? generation_new(&v->overlap, v->store, v->volume_blks) : 0;
}

int overlap_note(struct volume *v, uint64_t blk, uint64_t blks)
{
	return v->overlap ? generation_mark(v->overlap, blk, blks, BLK_HOLE) : 0;
}

/* Without memory it stays. */
void overlap_forget(struct volume *v, uint64_t blk, uint64_t blks)
{
	(void)!generation_mark(v->overlap, blk, blks, BLK_ABSENT);
}

bool overlap_keeps(void *ctx, bool newest, uint64_t blk, uint64_t max_blks, uint64_t *ret_blks)
{
	const struct volume *v = ctx;
	enum blk_state state = BLK_ABSENT;

	*ret_blks = max_blks;
	if (newest || v->unsynced)
		*ret_blks = generation_run(v->overlap, blk, max_blks, &state);
	return state != BLK_ABSENT ||
	       (v->replay && replay_needs(v->replay, blk, *ret_blks, ret_blks));
}

void overlap_end(struct volume *v)
{
	generation_free(v->overlap);
	v->overlap = NULL;
}
