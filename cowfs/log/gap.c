/* SPDX-License-Identifier: MIT */
/*
 * Opening a log: a record of a chain that is damaged, by what lies around it. Only reads.
 *
 * The newer record says where it was, and with which number. Descriptors and wear blocks of its group lie in front of
 * it and have that number. In front of the group lies the record that was the newest one then, since a group begins
 * behind that, or at the start of a segment, whose head names it. So the record is not needed for a chain. That it had
 * no descriptors must be proven, because they may be damaged as well: the counters of the records around it say that
 * nothing was written between them, or it was the first of its epoch.
 *
 * Not with lag: a card that loses writes may have the newer record and not what this one stands for.
 */
#include <errno.h>
#include <string.h>

#include "base/crc32c.h"
#include "log/scan.h"

struct gap {
	struct scan *s;
	const struct log_record *newer;
	struct record_ptr at;
	struct chain_rec rec;
	uint64_t logged_blks, other_blks; /* by its descriptors */
	struct log_head
		head; /* of the segment in which the group begins; seq of last 0: not needed */
	bool first;   /* the group begins there */
	struct log_record prev; /* seq 0: not known */
};

static uint64_t ring_before(const struct log *l, uint64_t lblk)
{
	lblk--;
	return lblk % l->seg_blks ? lblk : (lblk ? lblk : l->ring_blks) - 1;
}

static int read_blk(struct gap *g, uint64_t lblk)
{
	int r = ring_spend(g->s->l, IN_RING, 1);

	return r < 0 ? r
		     : card_read(g->s->l->card, ring_off_bytes(g->s->l, lblk), g->s->buf,
				 COW_BLK_BYTES);
}

/* Back over the wear blocks, then over the descriptors. */
static int find_descriptors(struct gap *g)
{
	struct log *l = g->s->l;
	struct chain_rec *rec = &g->rec;
	uint64_t lblk = ring_before(l, g->at.lblk);
	uint32_t index = 0;
	int r = 0;

	for (uint64_t n = 0; n < l->ring_blks; n++, lblk = ring_before(l, lblk)) {
		enum group_part part;

		r = read_blk(g, lblk);
		if (r < 0)
			return r;
		part = codec_part_of(g->s->buf, l->super.ring_uuid, g->at.epoch, g->at.seq, &index);
		if (part == PART_NONE || (part == PART_WEAR && rec->desc_blks))
			break;
		rec->start_lblk = lblk;
		if (part == PART_WEAR)
			continue;
		rec->desc_blks++;
		rec->desc_lblk = lblk;
		if (!index)
			break;
	}
	lblk = rec->desc_lblk;
	for (uint32_t i = 0; i < rec->desc_blks && r == 0; i++, lblk = ring_next(l, lblk)) {
		r = read_blk(g, lblk);
		if (r == 0)
			rec->desc_crc = crc32c(rec->desc_crc, g->s->buf, COW_BLK_BYTES);
	}
	return r;
}

static int note_extent(void *ctx, const struct desc_extent *e)
{
	struct gap *g = ctx;

	if (e->type == DESC_LOGGED && !g->logged_blks)
		g->rec.start_lblk = e->lblk;
	*(e->type == DESC_LOGGED ? &g->logged_blks : &g->other_blks) += e->blks;
	return 0;
}

/* What was the newest record when the group began? */
static int find_previous(struct gap *g)
{
	struct log *l = g->s->l;
	uint64_t before = g->rec.start_lblk - 1;
	int r;

	g->first = before % l->seg_blks == 0;
	if (!g->first)
		return ring_read_record(l, before, g->s->buf, &g->prev);
	r = read_blk(g, before);
	if (r == 0)
		r = codec_get_head(g->s->buf, l->super.ring_uuid, &g->head);
	if (r == 0 && g->head.last.seq)
		r = ring_read_same(l, g->head.last, g->s->buf, &g->prev);
	return r;
}

/* The first record of an epoch, or of the ring, is an empty one. */
static bool opens_epoch(const struct gap *g)
{
	return g->first && g->head.epoch == g->at.epoch && g->head.last.epoch != g->at.epoch;
}

static bool wrote_nothing(const struct gap *g)
{
	const struct log_record *n = g->newer, *p = &g->prev;

	return p->seq && !strcmp(n->identity, p->identity) &&
	       n->ledger.written_bytes > p->ledger.written_bytes &&
	       n->ledger.direct_blks - n->direct_blks == p->ledger.direct_blks &&
	       n->ledger.logged_blks - n->logged_blks == p->ledger.logged_blks &&
	       n->ledger.zero_blks - n->zero_blks == p->ledger.zero_blks;
}

/* The newer one may be the first record of a hold: a commit that brings only the superblock. */
static bool may_begin_hold(const struct log_record *r)
{
	return r->type == RECORD_COMMIT && !r->direct_blks && !r->zero_blks && r->logged_blks <= 1;
}

/* A whole record there is another one: nothing is damaged. */
static int look(struct gap *g)
{
	struct log_record other;
	int r = ring_read_record(g->s->l, g->at.lblk, g->s->buf, &other);

	return r == 0 ? -EBADMSG : r == -EBADMSG || r == -EIO ? find_descriptors(g) : r;
}

static int fill(struct gap *g, bool last)
{
	struct chain_rec *rec = &g->rec;
	int r = look(g);

	if (r == 0 && rec->desc_blks)
		r = chain_each_extent(g->s->l, rec, note_extent, g);
	if (r < 0)
		return r;
	r = find_previous(g);
	if (r < 0 && r != -EBADMSG && r != -ENOENT && r != -EUCLEAN)
		return r;
	/* the last record of a chain needs no previous one; another record is none of this log's past */
	if (r < 0 || g->prev.seq >= g->at.seq)
		g->prev.seq = 0;
	if (!g->prev.seq && !last)
		return -EBADMSG;
	/* it may be the one that has gone back, to another one */
	if (g->prev.seq && g->prev.flags & RECORD_BACK && g->prev.epoch != g->at.epoch)
		return -EBADMSG;
	if (!rec->desc_blks && !opens_epoch(g) && !wrote_nothing(g))
		return -EBADMSG;
	/* a checkpoint record stands for the commit before it */
	if (!rec->desc_blks && last && g->prev.seq && g->prev.type == RECORD_COMMIT) {
		rec->desc_lblk = g->prev.desc_lblk;
		rec->desc_blks = g->prev.desc_blks;
		rec->desc_crc = g->prev.desc_crc;
		rec->desc_epoch = g->prev.desc_epoch;
		rec->desc_seq = g->prev.desc_seq;
		rec->start_lblk = g->prev.start_lblk;
	}
	return 0;
}

int chain_stand_in(struct scan *s, const struct log_record *newer, bool last, struct chain_rec *ret,
		   struct log_record *ret_prev)
{
	struct gap g = { .s = s, .newer = newer, .at = newer->prev };
	int r;

	if (lag_on(s->l) || !newer->seq || !ring_valid(s->l, g.at.lblk))
		return -EBADMSG;
	g.rec = (struct chain_rec){ .seq = g.at.seq,
				    .start_lblk = g.at.lblk,
				    .type = RECORD_COMMIT,
				    .desc_epoch = g.at.epoch,
				    .desc_seq = g.at.seq,
				    .lblk = g.at.lblk,
				    .held = newer->flags & RECORD_HELD && !may_begin_hold(newer),
				    .stand_in = true };
	r = fill(&g, last);
	*ret = g.rec;
	*ret_prev = g.prev;
	return r;
}
