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
 * I2  `loose`: until the next commit that a sync comes before, the live file system may read from the card
 *     blocks that the newest generation leaves free: those that were written in place since the last one. So nothing is
 *     spilled or padded over there, and nothing is trimmed at all. Which they are is not known after a commit of the image
 *     as it is, with its journal, and by a worker that takes over: then they are all that are free.
 */
#include <errno.h>
#include <string.h>

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

static int read_view(void *ctx, uint64_t blk, uint64_t blks, void *buf)
{
	return snapshot_read(ctx, blk_to_bytes(blk), buf, blk_to_bytes(blks));
}

/* The card will have the superblocks of the image, so RAM must have those of the live file system. */
static int keep_super(struct volume *v, uint64_t blk, uint8_t *unit)
{
	int r = view_peek_sealed(v->view, blk, 1, unit);

	return r == -ENODATA ? view_fill(v->view, blk) : r;
}

static int keep_supers(struct volume *v)
{
	_cleanup_free_ uint8_t *unit = io_alloc(COW_BLK_BYTES);
	int r = unit ? keep_super(v, SUPER_BLK, unit) : -ENOMEM;

	return r == 0 ? keep_super(v, replay_journal_blk(v->replay), unit) : r;
}

/* What is only damaged, or cannot be read, is committed as it is, with its journal. */
static int open_sealed(struct volume *v)
{
	const struct blk_reader raw = { .read = read_raw, .ctx = v, .volume_blks = v->volume_blks };
	int r = replay_open(&v->replay, &raw, &v->replayed);

	return r == -EOPNOTSUPP || r == -EUCLEAN ? 0 : r;
}

int replayed_begin(struct volume *v, struct quiesce_report *q)
{
	bool any = q->instant && !q->readonly && fs_ops(v->live_kind)->settle;
	int r = 0;

	if (any || q->unsynced) {
		r = open_sealed(v);
		q->raw = !v->replay && (q->unsynced || r == 0);
		/* a reader that died is found again, and reported, when the image is classified */
		r = r == -ENOENT || r == -EOWNERDEAD ? 0 : r;
	}
	if (r == 0 && v->replay) {
		v->clean = replay_reader(v->replay);
		if (replay_aborted(v->replay)) {
			q->failed = q->unsynced = true;
			q->instant = false;
		}
		v->kept->keeps = true;
		r = keep_supers(v);
	}
	v->unsynced = q->unsynced;
	if (v->unsynced && v->replay && !v->kept->loose)
		(void)!generation_new(&v->loose, v->store, v->volume_blks);
	v->kept->loose |= v->unsynced;
	return r;
}

/* Blocks that it changes count as changed in the volume as well, for who lists what differs. */
int replayed_in_view(struct volume *v, struct snapshot *s)
{
	const struct blk_reader raw = { .read = read_view,
					.ctx = s,
					.volume_blks = v->volume_blks };
	_cleanup_free_ uint8_t *buf = io_alloc(2 * COW_BLK_BYTES);
	struct replay *y = NULL;
	int r = buf ? replay_open(&y, &raw, &v->replayed) : -ENOMEM;

	if (r < 0)
		return r == -ENOENT ? 0 : r;
	for (uint64_t u = replay_next(y, 0); r == 0 && u != UINT64_MAX; u = replay_next(y, u + 1)) {
		r = raw.read(raw.ctx, u, 1, buf);
		memcpy(buf + COW_BLK_BYTES, buf, COW_BLK_BYTES);
		if (r == 0)
			r = replay_unit(y, u, buf);
		if (r < 0 || !memcmp(buf, buf + COW_BLK_BYTES, COW_BLK_BYTES))
			continue;
		r = snapshot_write(s, blk_to_bytes(u), buf, COW_BLK_BYTES);
		if (r == 0)
			r = view_fill(v->view, u);
	}
	replay_close(y);
	return r;
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

void replayed_forget(struct volume *v)
{
	v->kept->loose = false;
	generation_free(v->loose);
	v->loose = NULL;
}

void replayed_committed(struct volume *v)
{
	bool loose = v->kept->loose && v->unsynced;

	if (!loose || !v->replay)
		replayed_forget(v);
	v->kept->loose = loose;
	if (!v->replay || replay_mark(v->replay, &v->replayed) < 0)
		v->replayed = (struct replay_mark){ 0 };
}

void replayed_end(struct volume *v)
{
	replay_close(v->replay);
	v->replay = NULL;
}
