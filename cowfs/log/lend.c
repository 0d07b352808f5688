/* SPDX-License-Identifier: MIT */
/*
 * Lent room: another device or file that takes the payload of one commit which the ring cannot
 * hold.
 *
 * 	payload, header | FLUSH of the lent room | (commit:) FLUSH | record | FLUSH | checkpoint | tail record | FLUSH | header wiped
 *
 * B1  The record is issued after the FLUSH of the lent room: a readable record says that its
 *     payload is there.
 * B2  The header names the attempt by ring uuid, epoch and seq, which no other attempt has. It is
 *     overwritten only when no candidate needs it: by the next attempt, whose open record is
 *     durable, or once the tail record is (log_spilled).
 * B3  A record that needs the room is never passed over in silence for an older one: it may be the
 *     committed one.
 */
#include <errno.h>
#include <string.h>

#include "base/io.h"
#include "log/rules.h"

static int read_head(struct card *lent, struct log_lent_head *ret)
{
	_cleanup_free_ uint8_t *blk = io_alloc(COW_BLK_BYTES);
	int r = blk ? card_read(lent, 0, blk, COW_BLK_BYTES) : -ENOMEM;

	return r < 0 ? r : codec_get_lent(blk, ret);
}

int log_lend(struct log *l, struct card *lent)
{
	struct log_lent_head head;
	int r;

	if (l->lent)
		return -EBUSY;
	if (lent->geo.size_bytes <= blk_to_bytes(LENT_HEAD_BLKS))
		return -ENOSPC;
	r = read_head(lent, &head);
	/* a header of this log belongs to a failed or checkpointed attempt: otherwise the room
	 * would still be lent */
	if (r == 0 && memcmp(head.ring_uuid, l->super.ring_uuid, 16))
		return -EEXIST;
	if (r < 0 && r != -ENOENT && r != -EBADMSG && r != -EUCLEAN)
		return r;
	r = card_set_writable(lent, true);
	if (r == 0) {
		l->lent = lent;
		l->lent_failed = false;
	}
	return r;
}

uint64_t log_lent_blks(const struct log *l)
{
	return l->lent && l->super.state != SUPER_PENDING
		       ? l->lent->geo.size_bytes / COW_BLK_BYTES - LENT_HEAD_BLKS
		       : 0;
}

int lend_seal(struct log *l)
{
	struct log_lent_head head = { .epoch = l->epoch,
				      .seq = l->at.seq,
				      .blks = l->at.lent_blks };
	_cleanup_free_ uint8_t *blk = NULL;
	int r;

	if (!l->at.lent_blks)
		return 0;
	blk = io_alloc(COW_BLK_BYTES);
	if (!blk)
		return -ENOMEM;
	memset(blk, 0, COW_BLK_BYTES);
	memcpy(head.ring_uuid, l->super.ring_uuid, 16);
	codec_put_lent(blk, &head);
	r = card_write(l->lent, 0, blk, COW_BLK_BYTES);
	if (r == 0)
		r = card_flush(l->lent);
	l->lent_failed |= r < 0;
	return r;
}

bool log_lent_failed(const struct log *l)
{
	return l->lent_failed;
}

int lend_check(struct log *l, uint64_t epoch, uint64_t seq)
{
	struct log_lent_head head;
	int r = l->lent ? read_head(l->lent, &head) : -ENOENT;

	if (r == -ENOENT || r == -EBADMSG || r == -EUCLEAN)
		return -EADDRNOTAVAIL;
	if (r < 0)
		return r;
	if (memcmp(head.ring_uuid, l->super.ring_uuid, 16) || head.epoch != epoch ||
	    head.seq != seq || head.blks > l->lent->geo.size_bytes / COW_BLK_BYTES - LENT_HEAD_BLKS)
		return -EADDRNOTAVAIL;
	l->lent_used = true;
	return 0;
}

bool log_lent_needed(const struct log *l)
{
	return l->lent && l->spilled && l->lent_used;
}

int log_unlend(struct log *l)
{
	_cleanup_free_ uint8_t *blk = NULL;
	struct card *lent = l->lent;
	int r;

	if (!lent)
		return 0;
	if (l->undecided)
		return -EBUSY;
	if (log_lent_needed(l))
		return -EBUSY;
	RULE("B2 wipe", !l->spilled || !l->lent_used);
	l->lent = NULL;
	/* after a failed attempt its record may be on the card, and the header its own */
	if (!l->lent_used || epoch_is_due(l))
		return 0;
	l->lent_used = false;
	blk = io_alloc(COW_BLK_BYTES);
	if (!blk)
		return -ENOMEM;
	memset(blk, 0, COW_BLK_BYTES);
	r = card_set_writable(lent, true);
	if (r == 0)
		r = card_write(lent, 0, blk, COW_BLK_BYTES);
	return r < 0 ? r : card_flush(lent);
}
