/* SPDX-License-Identifier: MIT */
/*
 * Opening a log: find the records, choose the generation, build the index. Only reads.
 *
 * Rules (numbers as in docs/FORMAT.md): R1 the newest valid record whose chain along prev back to its tail is
 * complete; R4 every CRC must match, record, descriptor, payload, manifest; R5 payload and manifests are read back over
 * [floor .. N] only, superseded blocks skipped; R6 a manifest entry takes older log entries of its block out; R7 never
 * below the highest fallback seen: then the log is broken, nothing is replayed; R12 the index is the replay. And the base
 * must be the one that the record knew (docs/FORMAT.md, "Whose base is it?").
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/io.h"
#include "log/ring.h"

struct candidate {
	struct log_record rec;
	bool tried;
};

struct scan {
	struct log *l;
	struct log_open_report *rep;
	uint8_t *buf; /* STAGE_BLKS blocks */
	struct candidate *cand;
	size_t n, cap;
	char why[sizeof(((struct log_open_report *)0)->why)]; /* the candidate at hand is not the one */
	uint64_t fallback_floor; /* highest fallback_seq seen */
	uint64_t newest_seq;	 /* a segment's head knows of it: nothing older is chosen before all segments are scanned */
	bool all;		 /* they are */
	struct log_record foreign; /* the newest record that is complete but does not know this base; seq 0: none */
	uint64_t foreign_blks;	   /* that wait in the log with it */
	char foreign_why[sizeof(((struct log_open_report *)0)->why)];
};

struct chain {
	struct log_record *rec; /* newest first */
	size_t n, cap;
};

/* A record that lies elsewhere than it says is a stray copy; its group lies inside the ring. */
static bool record_sane(const struct log *l, const struct log_record *rec, uint64_t lblk)
{
	return rec->lblk == lblk && rec->desc_blks <= l->ring_blks && ring_valid(l, rec->start_lblk) &&
	       (!rec->desc_blks || ring_valid(l, rec->desc_lblk));
}

int ring_read_record(struct log *l, uint64_t lblk, uint8_t *blk, struct log_record *ret)
{
	int r;

	if (!ring_valid(l, lblk))
		return -EBADMSG;
	r = card_read(l->card, ring_off_bytes(l, lblk), blk, COW_BLK_BYTES);
	if (r < 0)
		return r;
	r = codec_get_record(blk, l->super.ring_uuid, ret);
	return r == 0 && record_sane(l, ret, lblk) ? 0 : -EBADMSG;
}

/* Payload may not leave its segment; nothing may leave the volume. */
static bool extent_sane(const struct log *l, const struct desc_extent *e)
{
	uint64_t volume_blks = l->super.fs_bytes / COW_BLK_BYTES;

	if (e->blk >= volume_blks || e->blks > volume_blks - e->blk)
		return false;
	if (e->type == DESC_SPILLED)
		return e->lblk < volume_blks && e->blks <= volume_blks - e->lblk;
	return e->type != DESC_LOGGED ||
	       (ring_valid(l, e->lblk) && e->lblk / l->seg_blks == (e->lblk + e->blks - 1) / l->seg_blks);
}

int ring_each_extent(struct log *l, const struct log_record *rec, int (*each)(void *ctx, const struct desc_extent *e),
		     void *ctx)
{
	_cleanup_free_ uint8_t *blks = NULL;
	uint64_t lblk = rec->desc_lblk;
	uint32_t crc = 0;

	if (!rec->desc_blks)
		return 0;
	blks = io_alloc((size_t)rec->desc_blks * COW_BLK_BYTES);
	if (!blks)
		return -ENOMEM;
	for (uint32_t i = 0; i < rec->desc_blks; i++, lblk = ring_next(l, lblk)) {
		uint8_t *b = blks + (size_t)i * COW_BLK_BYTES;
		int r = card_read(l->card, ring_off_bytes(l, lblk), b, COW_BLK_BYTES);

		if (r < 0)
			return r;
		crc = crc32c(crc, b, COW_BLK_BYTES);
	}
	if (crc != rec->desc_crc)
		return -EBADMSG;
	for (uint32_t i = 0; i < rec->desc_blks; i++) {
		struct desc_cursor c;
		struct desc_extent e;
		int r = desc_open(&c, blks + (size_t)i * COW_BLK_BYTES, l->super.ring_uuid, rec->desc_epoch,
				  rec->desc_seq, i);

		while (r == 0 && (r = desc_next(&c, &e)) == 1)
			r = extent_sane(l, &e) ? each(ctx, &e) : -EBADMSG;
		if (r < 0)
			return r == -EUCLEAN ? -EBADMSG : r;
	}
	return 0;
}

int ring_check_extent(struct log *l, const struct desc_extent *e, uint64_t *ret_bad_blk)
{
	_cleanup_free_ uint8_t *buf = NULL;
	struct card *c = e->type == DESC_LOGGED ? l->card : l->base;
	uint64_t off = e->type == DESC_LOGGED ? ring_off_bytes(l, e->lblk) :
					      blk_to_bytes(e->type == DESC_DIRECT ? e->blk : e->lblk);

	if (e->type == DESC_ZERO)
		return 0;
	buf = io_alloc(min_u64(e->blks, STAGE_BLKS) * COW_BLK_BYTES);
	if (!buf)
		return -ENOMEM;
	for (uint64_t i = 0; i < e->blks; i += STAGE_BLKS) {
		uint64_t n = min_u64(STAGE_BLKS, e->blks - i);
		int r = card_read(c, off + blk_to_bytes(i), buf, blk_to_bytes(n));

		if (r < 0)
			return r;
		for (uint64_t k = 0; k < n; k++)
			if (crc32c_back(buf + blk_to_bytes(k), COW_BLK_BYTES) != e->crc[i + k]) {
				*ret_bad_blk = e->blk + i + k;
				return -EBADMSG;
			}
	}
	return 0;
}

/* ---- one candidate ---- */

struct verify {
	struct log *l;
	const struct log_index *dom; /* blocks that newer records speak of */
	struct index_list own;	     /* and this record */
	bool check;
	char *why;
	size_t why_bytes;
};

static int verify_extent(void *ctx, const struct desc_extent *e)
{
	struct verify *v = ctx;
	uint64_t bad = 0;

	for (uint64_t i = 0; v->check && i < e->blks;) {
		enum log_where where;
		uint64_t run = log_index_run(v->dom, e->blk + i, e->blks - i, &where);
		struct desc_extent part = *e;
		int r;

		part.blk = e->blk + i;
		part.lblk = e->lblk + i;
		part.blks = (uint32_t)run;
		part.crc = e->crc ? e->crc + i : NULL;
		i += run;
		if (where != LOG_HOME)
			continue;
		r = ring_check_extent(v->l, &part, &bad);
		if (r == -EBADMSG)
			snprintf(v->why, v->why_bytes, "%s of block %llu does not match its checksum",
				 e->type == DESC_DIRECT ? "content in place" : "payload", (unsigned long long)bad);
		if (r < 0)
			return r;
	}
	return index_list_add(&v->own, INDEX_ZERO, e->blk, e->blks, 0, NULL);
}

/* R4, R5 over [floor .. N] */
static int verify_chain(struct scan *s, const struct chain *ch)
{
	struct log_index *dom = log_index_empty(), *next;
	int r = dom ? 0 : -ENOMEM;

	for (size_t i = 0; i < ch->n && r == 0; i++) {
		struct verify v = { .l = s->l,
				    .dom = dom,
				    .check = ch->rec[i].seq >= ch->rec[0].floor_seq,
				    .why = s->why,
				    .why_bytes = sizeof(s->why) };

		if (!v.check)
			break;
		r = ring_each_extent(s->l, &ch->rec[i], verify_extent, &v);
		if (r == 0)
			r = index_list_overlay(&next, dom, &v.own, NULL, NULL, 0);
		if (r == 0) {
			log_index_unref(dom);
			dom = next;
		}
		index_list_clear(&v.own);
	}
	log_index_unref(dom);
	return r;
}

static int gather_extent(void *ctx, const struct desc_extent *e)
{
	return index_list_add(ctx, ring_index_kind(e->type), e->blk, e->blks, e->lblk, e->crc);
}

/* R6, R12: oldest first, every record laid over what was before */
static int build_index(struct log *l, const struct chain *ch, struct log_index **ret)
{
	struct log_index *ix = log_index_empty(), *next;
	int r = ix ? 0 : -ENOMEM;

	for (size_t i = ch->n; i-- > 0 && r == 0;) {
		struct index_list list = { 0 };

		/* a tail at its own record says: everything before and in it is home */
		r = ring_each_extent(l, &ch->rec[i], gather_extent, &list);
		if (r == 0)
			r = index_list_overlay(&next, ix, &list, l->base, l->card, l->super.ring_off_bytes);
		if (r == 0) {
			log_index_unref(ix);
			ix = next;
		}
		index_list_clear(&list);
	}
	if (r < 0)
		log_index_unref(ix);
	else
		*ret = ix;
	return r == -EINVAL ? -EBADMSG : r;
}

static int load_chain(struct scan *s, const struct log_record *head, struct chain *ch)
{
	struct log_record r = *head;

	for (;;) {
		struct log_record prev;
		int e;

		if (ch->n == ch->cap) {
			size_t cap = ch->cap ? ch->cap * 2 : 16;
			void *p = realloc(ch->rec, cap * sizeof(*ch->rec));

			if (!p)
				return -ENOMEM;
			ch->rec = p;
			ch->cap = cap;
		}
		ch->rec[ch->n++] = r;
		if (r.seq <= head->tail_seq)
			break;
		e = ring_read_record(s->l, r.prev.lblk, s->buf, &prev);
		if (e < 0 && e != -EBADMSG)
			return e;
		if (e < 0 || prev.seq != r.prev.seq || prev.epoch != r.prev.epoch) {
			snprintf(s->why, sizeof(s->why), "record %llu, which record %llu builds on, is gone",
				 (unsigned long long)r.prev.seq, (unsigned long long)r.seq);
			return -EBADMSG;
		}
		r = prev;
	}
	if (r.seq != head->tail_seq) {
		snprintf(s->why, sizeof(s->why), "the chain of record %llu misses its tail %llu",
			 (unsigned long long)head->seq, (unsigned long long)head->tail_seq);
		return -EBADMSG;
	}
	return 0;
}

/* A retired record leaves the base to anybody. */
static int check_base(struct scan *s, const struct log_record *rec, const struct log_index *ix)
{
	bool match;
	int r;

	if (s->l->any_base || rec->type == RECORD_RETIRED)
		return 0;
	r = ring_base_matches(s->l, rec, ix, &match);
	if (r < 0 || match)
		return r;
	if (s->foreign.seq)
		return -EBADMSG;
	s->foreign = *rec;
	s->foreign_blks = log_index_data_blks(ix) + log_index_zero_blks(ix);
	r = ring_explain_foreign(s->l, rec, s->why, sizeof(s->why));
	strcpy(s->foreign_why, s->why);
	return r;
}

/* With lag the one before the chosen one may be all that the card keeps: what it needs stays. */
static int note_candidates(struct scan *s, const struct chain *ch)
{
	uint64_t tail_lblk = ch->rec[ch->n - 1].start_lblk, older_lblk = tail_lblk;
	struct log_record prev;
	struct chain older = { 0 };
	unsigned same = 1;
	int r = 0;

	for (size_t i = 0; i + 1 < ch->n && ch->rec[i].type != RECORD_COMMIT && ch->rec[i].type != RECORD_CHECKPOINT; i++)
		same++;
	if (lag_on(s->l) && ch->rec[0].floor_seq != ch->rec[0].seq && ch->rec[0].prev.seq)
		r = ring_read_record(s->l, ch->rec[0].prev.lblk, s->buf, &prev);
	else
		r = -EBADMSG;
	if (r == 0 && prev.seq == ch->rec[0].prev.seq && prev.epoch == ch->rec[0].prev.epoch)
		r = load_chain(s, &prev, &older);
	else if (r == 0)
		r = -EBADMSG;
	if (r == 0)
		older_lblk = older.rec[older.n - 1].start_lblk;
	free(older.rec);
	if (r == -ENOMEM)
		return r;
	lag_opened(s->l, tail_lblk, older_lblk, same);
	return 0;
}

/* 0 chosen, -EBADMSG not this one, else an error that ends the scan */
static int try_candidate(struct scan *s, const struct log_record *rec)
{
	struct log *l = s->l;
	struct chain ch = { 0 };
	struct log_index *ix = NULL;
	int r = load_chain(s, rec, &ch);

	if (r == 0) {
		snprintf(s->why, sizeof(s->why), "the descriptors of record %llu are damaged",
			 (unsigned long long)rec->seq);
		r = build_index(l, &ch, &ix);
	}
	if (r == 0)
		r = check_base(s, rec, ix);
	if (r == 0)
		r = verify_chain(s, &ch);
	if (r < 0) {
		log_index_unref(ix);
	} else {
		log_index_unref(l->index);
		l->index = ix;
		l->newest = *rec;
		l->chain_records = ch.n;
		r = note_candidates(s, &ch);
	}
	free(ch.rec);
	return r;
}

/* ---- scanning ---- */

static int add_candidate(struct scan *s, const struct log_record *rec)
{
	if (s->n == s->cap) {
		size_t cap = s->cap ? s->cap * 2 : 64;
		void *p = realloc(s->cand, cap * sizeof(*s->cand));

		if (!p)
			return -ENOMEM;
		s->cand = p;
		s->cap = cap;
	}
	s->cand[s->n++] = (struct candidate){ .rec = *rec };
	s->rep->highest_seq = max_u64(s->rep->highest_seq, rec->seq);
	s->fallback_floor = max_u64(s->fallback_floor, rec->fallback_seq);
	s->l->epoch = max_u64(s->l->epoch, rec->epoch);
	if (rec->ledger.written_bytes >= s->rep->ledger.written_bytes)
		s->rep->ledger = rec->ledger;
	return 0;
}

/*
 * A page whose programming was cut may stay unreadable for ever, so a block that fails twice counts as garbage,
 * and is told. Behind a valid record everything was flushed: an error there ends the attach instead (try_candidate).
 */
static int read_tolerant(struct scan *s, uint64_t lblk, uint64_t blks)
{
	int r = card_read(s->l->card, ring_off_bytes(s->l, lblk), s->buf, blk_to_bytes(blks));

	if (r != -EIO)
		return r;
	for (uint64_t k = 0; k < blks; k++) {
		uint8_t *b = s->buf + blk_to_bytes(k);

		r = card_read(s->l->card, ring_off_bytes(s->l, lblk + k), b, COW_BLK_BYTES);
		if (r == -EIO) {
			memset(b, 0, COW_BLK_BYTES);
			s->rep->unreadable_blks++;
		} else if (r < 0) {
			return r;
		}
	}
	return 0;
}

static int scan_segment(struct scan *s, uint32_t seg)
{
	struct log *l = s->l;
	uint64_t first = (uint64_t)seg * l->seg_blks;

	/* behind the head, which was read */
	for (uint64_t i = 1; i < l->seg_blks; i += STAGE_BLKS) {
		uint64_t n = min_u64(STAGE_BLKS, l->seg_blks - i);
		int r = read_tolerant(s, first + i, n);

		if (r < 0)
			return r;
		for (uint64_t k = 0; k < n; k++) {
			struct log_record rec;

			if (codec_get_record(s->buf + blk_to_bytes(k), l->super.ring_uuid, &rec) < 0 ||
			    !record_sane(l, &rec, first + i + k))
				continue;
			r = add_candidate(s, &rec);
			if (r < 0)
				return r;
		}
	}
	return 0;
}

/* newest epoch first, then newest sequence: an epoch counts up in its upper half (log_prepare) */
static int newest_first(const void *a, const void *b)
{
	const struct log_record *x = &((const struct candidate *)a)->rec, *y = &((const struct candidate *)b)->rec;

	if (x->epoch >> 32 != y->epoch >> 32)
		return x->epoch >> 32 > y->epoch >> 32 ? -1 : 1;
	return x->seq > y->seq ? -1 : x->seq < y->seq;
}

/* 1 chosen, 0 none yet, -errno. A record below the floor is never chosen, but better ones may be in segments that
 * are still to be scanned: an attempt that was cut leaves a new head over records of the lap before. */
static int try_all(struct scan *s)
{
	if (s->n)
		qsort(s->cand, s->n, sizeof(*s->cand), newest_first);
	for (size_t i = 0; i < s->n; i++) {
		struct candidate *c = &s->cand[i];
		int r;

		if (c->tried)
			continue;
		if (c->rec.seq < s->fallback_floor || (!s->all && c->rec.seq < s->newest_seq))
			continue;
		r = try_candidate(s, &c->rec);
		c->tried = true;
		if (r == 0) {
			s->rep->rejected = (unsigned)i;
			return 1;
		}
		if (r != -EBADMSG)
			return r;
		if (!s->rep->why[0])
			strcpy(s->rep->why, s->why);
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

static int find_newest(struct scan *s)
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
		if (order[i].valid && !order[i].serial)
			break; /* void from here on */
		r = scan_segment(s, order[i].seg);
		if (r == 0 && order[i].valid)
			r = try_all(s);
	}
	s->all = true;
	if (r == 0)
		r = try_all(s);
	/* a live ring was given its first record before its super record (log_prepare): none at all is damage */
	return r == 0 ? -EUCLEAN : r;
}

/* Nobody else's change hurts a log in which nothing waits: the base is complete, the epoch is new. */
static int accept_changed_base(struct log *l, struct scan *s)
{
	struct fs_fingerprint fp;
	int r = ring_base_fingerprint(l, &fp);

	if (r < 0)
		return r;
	l->newest = s->foreign;
	l->newest.fingerprint = fp;
	l->tail_lblk = l->newest.start_lblk;
	l->chain_records = 1;
	lag_begin_anew(l);
	s->rep->rejected = 0;
	return 1;
}

static void set_state(struct log *l, struct log_open_report *rep, int found)
{
	if (found < 0) {
		l->broken = true;
		rep->state = rep->base_changed ? LOG_FOREIGN : LOG_BROKEN;
		if (!rep->why[0])
			snprintf(rep->why, sizeof(rep->why), "no complete generation was found");
	} else if (found == 0) {
		rep->state = LOG_EMPTY;
	} else if (rep->rejected) {
		rep->state = LOG_FELL_BACK;
	} else if (l->newest.type == RECORD_RETIRED) {
		rep->state = LOG_RETIRED;
	} else {
		rep->state = l->newest.flags & RECORD_CLEAN ? LOG_CLEAN : LOG_LIVE;
	}
}

int log_open(struct log **ret, struct card *base, struct card *logcard, const struct log_super *super, unsigned flags,
	     struct log_open_report *ret_report)
{
	struct log_open_report rep = { 0 };
	struct log *l = calloc(1, sizeof(*l));
	struct scan s = { .l = l, .rep = &rep };
	uint64_t before = logcard->account.read_bytes;
	int r;

	if (!l)
		return -ENOMEM;
	l->base = base;
	l->card = logcard;
	l->super = *super;
	l->seg_blks = super->seg_bytes / COW_BLK_BYTES;
	l->ring_blks = l->seg_blks * super->seg_count;
	/* a pending ring is short, and used once: it knows no erase blocks */
	l->segs_per_eb = super->state == SUPER_PENDING
				 ? 1
				 : (uint32_t)max_u64(1, super->erase_block_bytes / super->seg_bytes);
	l->need_open = true;
	l->lag.cold = lag_on(l);
	l->any_base = flags & LOG_ANY_BASE;
	l->stage = io_alloc(STAGE_BLKS * COW_BLK_BYTES);
	l->index = log_index_empty();
	s.buf = l->stage;
	r = l->stage && l->index ? 0 : -ENOMEM;
	if (r == 0 && super->state != SUPER_VIRGIN && !(flags & LOG_FRESH))
		r = find_newest(&s);
	/* the file system that was to be shrunk has been used since, and has its blocks back */
	if (r == -EUCLEAN && super->state == SUPER_PENDING && !rep.highest_seq)
		r = 0;
	if (r == -EUCLEAN && s.foreign.seq) {
		rep.base_changed = true;
		strcpy(rep.why, s.foreign_why);
		if (!s.foreign_blks)
			r = accept_changed_base(l, &s);
	}
	free(s.cand);
	if (r < 0 && r != -EUCLEAN) {
		log_close(l);
		return r;
	}
	set_state(l, &rep, r);
	l->highest_seq = max_u64(rep.highest_seq, s.newest_seq);
	if (l->newest.seq && l->newest.identity[0] && base->geo.identity[0] &&
	    strcmp(l->newest.identity, base->geo.identity)) {
		rep.clone = true;
		rep.ledger = (struct wear_ledger){ 0 };
	}
	l->ledger = rep.ledger;
	l->ledger.attaches++;
	if (l->newest.seq) {
		l->cursor = (l->newest.lblk + 1) % l->ring_blks;
		l->need_open = rep.rejected || rep.base_changed || rep.clone || !(l->newest.flags & RECORD_CLEAN);
		l->doubt = rep.rejected;
		l->spilled = l->lag.spilled = log_index_spilled_blks(l->index);
		l->home_done = !log_index_data_blks(l->index) && !log_index_zero_blks(l->index);
	}
	rep.newest = l->newest;
	rep.chain_records = l->chain_records;
	rep.live_blks = log_index_data_blks(l->index);
	rep.zero_blks = log_index_zero_blks(l->index);
	rep.read_bytes = logcard->account.read_bytes - before;
	*ret = l;
	*ret_report = rep;
	return 0;
}

void log_close(struct log *l)
{
	if (!l)
		return;
	log_index_unref(l->index);
	lag_close(l);
	index_list_clear(&l->at.list);
	free(l->at.desc);
	free(l->stage);
	free(l);
}

/* ---- check ---- */


int log_verify(struct log *l, void (*say)(void *ctx, const char *line), void *ctx, uint64_t *ret_bad)
{
	_cleanup_free_ uint8_t *buf = io_alloc(COW_BLK_BYTES);
	struct index_entry e;
	uint64_t bad = 0;
	char line[160];

	if (!buf)
		return -ENOMEM;
	if (l->broken)
		bad++;
	for (size_t i = 0; log_index_extent(l->index, i, &e); i++)
		for (uint64_t k = 0; e.kind != INDEX_ZERO && k < e.blks; k++) {
			int r = log_index_read(l->index, e.blk + k, 1, buf);

			if (r == 0)
				continue;
			if (r != -EBADMSG && r != -EIO)
				return r;
			bad++;
			snprintf(line, sizeof(line), "block %llu: its copy in the log %s", (unsigned long long)(e.blk + k),
				 r == -EIO ? "cannot be read" : "does not match its checksum");
			say(ctx, line);
		}
	*ret_bad = bad;
	return 0;
}
