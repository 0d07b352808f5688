/* SPDX-License-Identifier: MIT */
/*
 * Opening a log: finds the records. Only reads.
 *
 * It reads all heads first, then the segments whose heads are unreadable, then the others from
 * the newest serial down, until a generation is chosen.
 */
#include <errno.h>
#include <string.h>

#include "base/array.h"
#include "base/io.h"
#include "log/scan.h"

static int add_candidate(struct scan *s, const struct log_record *rec)
{
	const struct candidate c = { .epoch = rec->epoch, .seq = rec->seq, .lblk = rec->lblk };

	if (s->n == 2 * SCAN_KEPT) {
		chain_sort(s);
		s->n = SCAN_KEPT;
	}
	if (ARRAY_ADD(s->cand, s->n, s->cap, c) < 0)
		return -ENOMEM;
	s->rep->highest_seq = max_u64(s->rep->highest_seq, rec->seq);
	s->fallback_floor = max_u64(s->fallback_floor, rec->fallback_seq);
	s->l->epoch = max_u64(s->l->epoch, rec->epoch);
	if (rec->ledger.written_bytes >= s->rep->ledger.written_bytes) {
		s->rep->ledger = rec->ledger;
		s->l->wear.head = *rec;
	}
	return 0;
}

/* A power cut leaves such a block as well. */
static void note_torn(struct scan *s, const uint8_t *blk)
{
	s->torn_seq = max_u64(s->torn_seq, codec_torn_seq(blk, s->l->super.ring_uuid));
}

static int read_tolerant(struct scan *s, uint64_t lblk, uint64_t blks)
{
	int r = ring_spend(s->l, IN_RING, 0);

	return r < 0 ? r : ring_read_tolerant(s->l, lblk, blks, s->buf, &s->rep->unreadable_blks);
}

static int scan_segment(struct scan *s, uint32_t seg)
{
	struct log *l = s->l;
	uint64_t first = (uint64_t)seg * l->seg_blks;

	/* start after the head, which was read */
	for (uint64_t i = 1; i < l->seg_blks; i += STAGE_BLKS) {
		uint64_t n = min_u64(STAGE_BLKS, l->seg_blks - i);
		int r = read_tolerant(s, first + i, n);

		if (r < 0)
			return r;
		for (uint64_t k = 0; k < n; k++) {
			struct log_record rec;

			if (codec_get_record(s->buf + blk_to_bytes(k), l->super.ring_uuid, &rec) <
				    0 ||
			    !verify_record_place(l, &rec, first + i + k)) {
				note_torn(s, s->buf + blk_to_bytes(k));
				continue;
			}
			r = add_candidate(s, &rec);
			if (r < 0)
				return r;
		}
	}
	return 0;
}

struct seg_order {
	uint32_t seg;
	bool valid;
	uint64_t serial;
};

static int unreadable_then_newest(const void *a, const void *b)
{
	const struct seg_order *x = a, *y = b;

	if (x->valid != y->valid)
		return x->valid ? 1 : -1;
	return x->serial > y->serial ? -1 : x->serial < y->serial;
}

int scan_find_newest(struct scan *s)
{
	struct log *l = s->l;
	uint32_t n = l->super.seg_count;
	_cleanup_free_ struct seg_order *order = calloc(n, sizeof(*order));
	int r = 0;

	if (!order)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++) {
		struct log_head h;

		r = read_tolerant(s, i * l->seg_blks, 1);
		if (r < 0)
			return r;
		order[i].seg = i;
		if (codec_get_head(s->buf, l->super.ring_uuid, &h) < 0 || h.seg != i)
			continue;
		order[i].valid = true;
		order[i].serial = h.serial;
		l->max_serial = max_u64(l->max_serial, h.serial);
		l->epoch = max_u64(l->epoch, h.epoch);
		/* it was durable before this segment was opened (R7) */
		s->fallback_floor = max_u64(s->fallback_floor, h.fallback_seq);
		s->newest_seq = max_u64(s->newest_seq, h.last.seq);
	}
	qsort(order, n, sizeof(*order), unreadable_then_newest);
	r = 0;
	for (uint32_t i = 0; i < n && r == 0; i++) {
		/* A card that loses FLUSHes may have kept a record and lost the head of its
		 * segment. The next head there would reveal that record. With lag the whole ring
		 * is scanned, so that a later scan makes the same choice. */
		if (order[i].valid && !order[i].serial && !lag_on(l))
			break; /* the rest is void */
		r = scan_segment(s, order[i].seg);
		if (r == 0 && order[i].valid && !lag_on(l))
			r = chain_choose(s);
	}
	s->all = true;
	if (r == 0)
		r = chain_choose(s);
	/* a live ring gets its first record before its superblock (log_prepare): no record at
	 * all means damage */
	return r == 0 ? -EUCLEAN : r;
}
