/* SPDX-License-Identifier: MIT */
/*
 * An ext3 or ext4 that was sealed at any moment: neither frozen, nor is its journal empty.
 *
 * The commit writes the image as the replay of its journal leaves it (fs/replay.h): clean, and with bitmaps
 * that are the truth. No block of the journal goes to the card. The live file system goes on with what it has:
 * - its journal, and its two superblocks, which differ from those of the image, stay in RAM;
 * - so do blocks that the image leaves free: the running transaction may have written data there
 *   (overlap.c). If writers wait for RAM, what no generation uses is written in place, as the live file
 *   system has it, and without an entry in the log (with lag: with one);
 * - a block that the replay writes is one that the driver holds in memory until it has written it home.
 *
 * I1  Nothing that RAM keeps goes before a sync has ended: the seal after this one may be at any moment, too.
 *     So each such commit keeps it again, of all layers.
 * I2  `loose`: until the next commit that is not at any moment, the live file system may read from the card
 *     blocks that the newest generation leaves free. So nothing is trimmed, spilled or padded over there.
 */
#include <errno.h>

#include "base/io.h"
#include "fs/fs_ops.h"
#include "fs/replay.h"
#include "volume/private.h"

#define SUPER_BLK 0

static int read_raw(void *ctx, uint64_t blk, uint64_t blks, void *buf)
{
	const struct volume *v = ctx;

	return view_read_sealed(v->view, blk, blks, buf);
}

/* The card will have the superblocks of the image, so RAM must have those of the live file system. */
static bool has_supers(struct volume *v)
{
	_cleanup_free_ uint8_t *unit = io_alloc(COW_BLK_BYTES);

	return unit && view_peek_sealed(v->view, SUPER_BLK, 1, unit) == 0 &&
	       view_peek_sealed(v->view, replay_journal_blk(v->replay), 1, unit) == 0;
}

void replayed_fill(struct volume *v)
{
	uint64_t journal_bytes = v->instant.watch.off_bytes;

	if (!fs_ops(v->instant.kind)->settle || !journal_bytes)
		return;
	/* without them the image is committed with its journal */
	(void)!view_fill(v->view, SUPER_BLK);
	(void)!view_fill(v->view, journal_bytes / COW_BLK_BYTES);
}

int replayed_begin(struct volume *v)
{
	const struct blk_reader raw = { .read = read_raw, .ctx = v, .volume_blks = v->volume_blks };
	int r;

	if (v->diverged || v->diverged_lost)
		return 0;
	r = replay_open(&v->replay, &raw);
	if (r == -ENOENT || r == -EOPNOTSUPP || r == -EUCLEAN || r == -EOWNERDEAD)
		return 0;
	if (r == 0 && !has_supers(v))
		replayed_end(v);
	if (r < 0 || !v->replay)
		return r;
	v->clean = replay_reader(v->replay);
	v->kept->keeps = v->kept->loose = true;
	return 0;
}

int replayed_note(struct volume *v)
{
	int r = v->replay ? overlap_note(v, SUPER_BLK, 1) : 0;

	return r == 0 && v->replay ? overlap_note(v, replay_journal_blk(v->replay), 1) : r;
}

bool replayed_next(struct volume *v, uint64_t *blk, uint64_t max_blks, uint64_t *ret_blks,
		   enum blk_state *state)
{
	uint64_t at = *blk, unit = replay_next(v->replay, *blk), n;
	bool found = view_next_sealed(v->view, &at, max_blks, ret_blks, state);

	if (unit == UINT64_MAX ||
	    (found && (unit >= at + *ret_blks || (unit >= at && *state == BLK_DATA)))) {
		*blk = at;
		return found;
	}
	if (found && unit > at) { /* a hole, up to what the replay writes */
		*blk = at;
		*ret_blks = unit - at;
		return true;
	}
	for (n = 1; n < max_blks && replay_next(v->replay, unit + n) == unit + n;)
		n++;
	*blk = unit;
	*ret_blks = found && unit < at ? min_u64(n, at - unit) : found ? 1 : n;
	*state = BLK_DATA;
	return true;
}

void replayed_end(struct volume *v)
{
	replay_close(v->replay);
	v->replay = NULL;
}
