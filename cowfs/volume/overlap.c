/* SPDX-License-Identifier: MIT */
/*
 * Free blocks of a sealed image that the live file system may use.
 *
 * A seal that overlaps with the next transaction (struct fs_instant) may have caught blocks that this
 * transaction has written. They are free in the image, so the commit leaves them out, and the live file
 * system will read them. They stay in RAM until the next seal: the sync before that seal waits for
 * every transaction and every write that was under way at this one. What such a block holds is in use
 * then, and committed, or of no use any more, and released.
 */
#include <errno.h>
#include <stdlib.h>

#include "volume/private.h"

int overlap_begin(struct volume *v)
{
	if (!v->kept->keeps)
		return 0;
	v->overlap = calloc(v->volume_blks / 8 + 1, 1);
	return v->overlap ? 0 : -ENOMEM;
}

void overlap_note(struct volume *v, uint64_t blk, uint64_t blks)
{
	for (uint64_t end = blk + blks; v->overlap && blk < end; blk++)
		v->overlap[blk / 8] |= (uint8_t)(1u << blk % 8);
}

bool overlap_keeps(void *ctx, uint64_t blk)
{
	const struct volume *v = ctx;

	return v->overlap[blk / 8] >> blk % 8 & 1;
}

void overlap_end(struct volume *v)
{
	free(v->overlap);
	v->overlap = NULL;
}
