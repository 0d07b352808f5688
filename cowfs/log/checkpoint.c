/* SPDX-License-Identifier: MIT */
/*
 * Checkpoint: the newest version of every logged block goes home. Its content is in the log, durable, before the first home
 * write; where the same content is at hand in RAM, the log is not read for it.
 *
 *	checkpoint record | FLUSH | home writes | FLUSH	(log_put_tail:) tail record | FLUSH
 *
 * With lag two empty records come before the tail record, and it is written twice (lag.c).
 */
#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "base/crc32c.h"
#include "base/io.h"
#include "log/ring.h"

/* R: a second copy of the newest commit in another segment, before the first home write: a checkpoint cut half way
 * must not hang on one block. */
static int put_checkpoint_begin(struct log *l)
{
	struct log_record rec = l->newest;

	if (rec.type != RECORD_COMMIT)
		return 0;
	rec.type = RECORD_CHECKPOINT;
	rec.flags = 0;
	if (rec.tail_seq == rec.seq)
		rec.tail_seq = 0; /* itself */
	return record_put_empty(l, &rec, ring_seg(l, l->cursor) == ring_seg(l, l->newest.lblk));
}

/*
 * Zeros that are home already are not written: lazy inode tables and discards are mostly that. Never after a failure
 * (R8): what a read shows may then be a write that the card has forgotten by the next power cut.
 */
static int write_zeros_home(struct log *l, uint64_t blk, uint64_t blks, uint8_t *buf)
{
	uint8_t *zero = buf + blk_to_bytes(STAGE_BLKS);
	uint64_t i = 0, end;
	int r = l->suspect ? 0 : card_read(l->base, blk_to_bytes(blk), buf, blk_to_bytes(blks));

	for (; r == 0 && i < blks; i = end) {
		if (!l->suspect && bytes_all_zero(buf + blk_to_bytes(i), COW_BLK_BYTES)) {
			end = i + 1;
			continue;
		}
		for (end = i + 1; end < blks; end++)
			if (!l->suspect && bytes_all_zero(buf + blk_to_bytes(end), COW_BLK_BYTES))
				break;
		r = card_write(l->base, blk_to_bytes(blk + i), zero, blk_to_bytes(end - i));
		l->ledger.checkpoint_blks += r == 0 ? end - i : 0;
	}
	return r;
}

/* n blocks of a data extent, from its i-th on. */
static int read_logged(struct log *l, const struct log_content *c, const struct index_entry *e, uint64_t i, uint64_t n,
		       uint8_t *buf)
{
	uint64_t same = 0;

	/* it may be older or newer than what was logged: of a block that the commit left out because it was free */
	if (c && c->read(c->ctx, e->blk + i, n, buf))
		while (same < n && crc32c_back(buf + blk_to_bytes(same), COW_BLK_BYTES) == e->crc[i + same])
			same++;
	return same == n ? 0 : log_index_read(l->index, e->blk + i, n, buf);
}

/* buf: twice STAGE_BLKS, the second half zero. */
static int write_home(struct log *l, const struct log_content *content, const struct index_entry *e, uint8_t *buf,
		      int (*progress)(void *ctx, uint64_t done_blks, uint64_t total_blks), void *ctx, uint64_t *done)
{
	uint64_t total = log_index_data_blks(l->index) + log_index_zero_blks(l->index);

	for (uint64_t i = 0; i < e->blks; i += STAGE_BLKS) {
		uint64_t n = min_u64(STAGE_BLKS, e->blks - i);
		int r;

		if (e->kind == INDEX_ZERO) {
			r = write_zeros_home(l, e->blk + i, n, buf);
		} else {
			r = read_logged(l, content, e, i, n, buf);
			if (r == 0)
				r = card_write(l->base, blk_to_bytes(e->blk + i), buf, blk_to_bytes(n));
			l->ledger.checkpoint_blks += r == 0 ? n : 0;
		}
		if (r < 0)
			return r;
		*done += n;
		if (progress && progress(ctx, *done, total))
			return -ECANCELED;
	}
	return 0;
}

int log_checkpoint(struct log *l, const struct log_content *content,
		   int (*progress)(void *ctx, uint64_t done_blks, uint64_t total_blks), void *ctx,
		   struct log_index **ret_index)
{
	_cleanup_free_ uint8_t *buf = io_alloc(2 * STAGE_BLKS * COW_BLK_BYTES);
	struct log_index *empty = log_index_empty();
	struct index_entry e;
	uint64_t done = 0;
	int r = buf && empty ? 0 : -ENOMEM;

	if (l->broken)
		r = -EUCLEAN;
	if (l->need_open || l->at.active)
		r = r ? r : -EINVAL;
	if (r == 0 && log_index_extent(l->index, 0, &e)) {
		memset(buf + STAGE_BLKS * COW_BLK_BYTES, 0, STAGE_BLKS * COW_BLK_BYTES);
		r = put_checkpoint_begin(l);
		if (r == 0) /* L4 */
			r = lag_same_image(l);
		for (size_t i = 0; r == 0 && log_index_extent(l->index, i, &e); i++)
			r = write_home(l, content, &e, buf, progress, ctx, &done);
		if (r == 0)
			r = card_flush(l->base);
		/* the record on the card is about the base before; without the index nothing else could tell
		 * that this one is ours, should the tail record fail */
		if (r == 0)
			r = ring_base_fingerprint(l, &l->newest.fingerprint);
		if (r == 0) /* L4 */
			r = lag_pad(l, 2);
	}
	if (r < 0) {
		l->suspect = true;
		log_index_unref(empty);
		return r;
	}
	if (done)
		l->ledger.checkpoints++;
	l->home_done = true;
	log_index_unref(l->index);
	l->index = empty;
	*ret_index = log_index_ref(empty);
	return 0;
}
