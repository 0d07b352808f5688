/* SPDX-License-Identifier: MIT */
/*
 * Opening a log: judges candidates and chooses one. Only reads.
 *
 * Rules (docs/FORMAT.md): R1 the newest valid record whose chain along prev back to its tail is
 * complete; R6 a manifest entry removes older log entries of its block; R7 never below the
 * highest fallback found: in that case the log is broken and nothing is replayed; R12 the index
 * is the replay. Besides, the base must be the one that the record knew (docs/FORMAT.md, "Whose
 * base is it?").
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/array.h"
#include "fs/fs_ops.h"
#include "log/merge.h"
#include "log/scan.h"

/* ---- one candidate ---- */

struct gather {
	struct merge m;
	struct index_list list; /* of the current record */
	uint64_t max_bytes;
	bool first; /* it is the newest one, and a commit */
	bool joint; /* that is one of several logs */
};

static int gather_extent(void *ctx, const struct desc_extent *e)
{
	struct gather *g = ctx;
	uint64_t bytes = g->m.bytes + g->list.n * sizeof(*g->list.e) +
			 g->list.n_crcs * sizeof(*g->list.crcs);

	if (e->type == DESC_LENT)
		return -EADDRNOTAVAIL;
	if (e->type == DESC_JOINT) { /* of an older record: a newer one has confirmed it */
		g->joint |= g->first;
		return 0;
	}
	if (bytes > g->max_bytes)
		return -EFBIG;
	return index_list_add(&g->list, ring_index_kind(e->type), e->blk, e->blks, e->lblk, e->crc);
}

/* R6, R12: oldest first, each record is laid over the older ones */
static int build_index(struct log *l, const struct chain *ch, struct log_index **ret,
		       bool *ret_joint)
{
	struct gather g = { .max_bytes = SCAN_INDEX_BYTES + blk_to_bytes(l->ring_blks) / 16 };
	int r = 0;

	for (size_t i = ch->n; i-- > 0 && r == 0;) {
		g.first = i == 0 && ch->rec[i].type == RECORD_COMMIT;
		r = chain_each_extent(l, &ch->rec[i], gather_extent, &g);
		if (r == 0)
			r = merge_add(&g.m, &g.list);
		index_list_clear(&g.list);
	}
	if (r == 0)
		r = merge_finish(&g.m, l->base, l->card, l->super.ring_off_bytes, ret);
	merge_clear(&g.m);
	*ret_joint = g.joint;
	return r == -EINVAL ? -EBADMSG : r;
}

static int chain_add(struct chain *ch, const struct log_record *r)
{
	const struct chain_rec x = { .seq = r->seq,
				     .start_lblk = r->start_lblk,
				     .type = r->type,
				     .desc_lblk = r->desc_lblk,
				     .desc_blks = r->desc_blks,
				     .desc_crc = r->desc_crc,
				     .desc_epoch = r->desc_epoch,
				     .desc_seq = r->desc_seq,
				     .lblk = r->lblk,
				     .held = r->flags & RECORD_HELD };

	return ARRAY_ADD(ch->rec, ch->n, ch->cap, x);
}

/* *ret: the record behind the damaged one, seq 0: the chain ends there. e: why it is needed, and the answer if there is no
 * way past it. */
static int pass_over(struct scan *s, struct chain *ch, const struct log_record *newer, int e,
		     struct log_record *ret)
{
	bool last = newer->prev.seq <= ch->head.tail_seq;
	struct chain_rec x;
	int r = chain_stand_in(s, newer, last, &x, ret);

	if (r < 0)
		return r == -EBADMSG || r == -EIO ? e : r;
	if (last)
		ret->seq = 0;
	ch->passed_seq = x.seq; /* the oldest one */
	return ARRAY_ADD(ch->rec, ch->n, ch->cap, x);
}

static int load_chain(struct scan *s, const struct log_record *head, struct chain *ch)
{
	struct log_record r = *head;

	ch->head = *head;
	for (;;) {
		struct log_record prev;
		int e = chain_add(ch, &r);

		if (e < 0)
			return e;
		/* its own seq: everything up to and including it is checkpointed */
		if (r.seq <= head->tail_seq)
			break;
		/* such a chain may be a cycle */
		if (ch->n == CHAIN_MAX || r.prev.seq >= r.seq) {
			snprintf(s->why, sizeof(s->why),
				 "the chain of record %llu does not lead back to its tail",
				 (unsigned long long)head->seq);
			return -EBADMSG;
		}
		e = ring_read_same(s->l, r.prev, s->buf, &prev);
		if (e == -EBADMSG || e == -EIO)
			e = pass_over(s, ch, &r, e, &prev);
		if (e == -EBADMSG)
			snprintf(s->why, sizeof(s->why),
				 "record %llu, which record %llu builds on, is gone",
				 (unsigned long long)r.prev.seq, (unsigned long long)r.seq);
		if (e < 0)
			return e;
		if (!prev.seq) { /* the chain ends at the one that was passed over */
			r.seq = r.prev.seq;
			break;
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

/* A retired record leaves the base free to change, so nothing waits in the log. Only a file
 * system must be present if there was one. */
static int match_retired(struct scan *s, const struct log_record *rec, const struct log_index *ix,
			 bool *ret)
{
	struct fs_fingerprint now;
	int r;

	if (log_index_blks(ix)) {
		snprintf(s->why, sizeof(s->why),
			 "record %llu is retired, but blocks wait for their checkpoint",
			 (unsigned long long)rec->seq);
		return -EBADMSG;
	}
	r = ring_base_fingerprint(s->l, &now);
	*ret = r == 0 && (now.kind != FS_UNKNOWN || rec->fingerprint.kind == FS_UNKNOWN);
	return r;
}

/* An older record could only take the content of the base for garbage of a cut checkpoint. But
 * the newer record is complete and came after that checkpoint. */
static int note_gone(struct scan *s, const struct log_record *rec)
{
	struct fs_fingerprint now;
	int r = ring_base_fingerprint(s->l, &now);

	s->gone = r == 0 && now.kind == FS_UNKNOWN && rec->fingerprint.kind != FS_UNKNOWN;
	return r;
}

/*
 * Nothing waits behind this record, so the base is complete. A FAT has no guard, and no field that each write to it
 * changes: it may look again as it did for an older record, whose blocks would be written over what is there.
 */
static bool is_complete_fat(const struct scan *s, const struct log_record *rec)
{
	return !s->foreign_blks && !lag_on(s->l) && rec->fingerprint.kind != FS_UNKNOWN &&
	       fs_ops(rec->fingerprint.kind)->unguarded;
}

static int note_foreign(struct scan *s, const struct log_record *rec, const struct log_index *ix)
{
	int r;

	if (s->foreign.seq)
		return -EBADMSG;
	r = note_gone(s, rec);
	if (r < 0)
		return r;
	s->foreign = *rec;
	s->foreign_blks = log_index_blks(ix);
	s->gone |= is_complete_fat(s, rec);
	r = ring_explain_foreign(s->l, rec, s->why, sizeof(s->why));
	strcpy(s->foreign_why, s->why);
	return r;
}

static int check_base(struct scan *s, const struct log_record *rec, const struct log_index *ix)
{
	bool match;
	int r;

	if (s->l->flags & LOG_ANY_BASE)
		return 0;
	if (s->gone)
		return -EBADMSG;
	r = rec->type == RECORD_RETIRED ? match_retired(s, rec, ix, &match)
					: ring_base_matches(s->l, rec, ix, &match);
	return r < 0 || match ? r : note_foreign(s, rec, ix);
}

/* Behind verify_chain: what a card has lost of the newest commit is no change of the base. */
static int check_samples(struct scan *s, const struct log_record *rec, const struct log_index *ix)
{
	bool match;
	int r;

	if (s->l->flags & LOG_ANY_BASE || rec->type == RECORD_RETIRED)
		return 0;
	r = sample_match(s->l, rec, ix, &match);
	return r < 0 || match ? r : note_foreign(s, rec, ix);
}

/* With lag the card may keep only the record before the chosen one: the blocks that it needs
 * stay. */
static int note_candidates(struct scan *s, const struct chain *ch)
{
	uint64_t tail_lblk = ch->rec[ch->n - 1].start_lblk, older_lblk = tail_lblk;
	struct log_record prev;
	struct chain older = { 0 };
	unsigned same = 1;
	int r = 0;

	for (size_t i = 0; i + 1 < ch->n && ch->rec[i].type != RECORD_COMMIT &&
			   ch->rec[i].type != RECORD_CHECKPOINT;
	     i++)
		same++;
	if (lag_on(s->l) && ch->head.floor_seq != ch->head.seq && ch->head.prev.seq)
		r = ring_read_same(s->l, ch->head.prev, s->buf, &prev);
	else
		r = -EBADMSG;
	if (r == 0)
		r = load_chain(s, &prev, &older);
	if (r == 0)
		older_lblk = older.rec[older.n - 1].start_lblk;
	free(older.rec);
	if (r == -ENOMEM)
		return r;
	lag_opened(s->l, tail_lblk, older_lblk, same);
	return 0;
}

/* The generation at the oldest end of the run of records with the flag. Its chain is a part of this
 * one, and has the same tail, since nothing goes home while it is held. 1, 0 none is held, -errno */
static int find_held(struct scan *s, const struct chain *ch, struct chain *ret)
{
	struct chain part = *ch;
	int r;

	while (part.n > 1 && part.rec[0].held && part.rec[1].held) {
		part.rec++;
		part.n--;
	}
	if (!part.rec[0].held)
		return 0;
	s->rep->hold_lost = part.rec[0].stand_in;
	if (s->rep->hold_lost)
		return 0;
	r = ring_read_record(s->l, part.rec[0].lblk, s->buf, &part.head);
	if (r < 0 || part.head.tail_seq != ch->head.tail_seq)
		return r; /* cowfs writes no such run */
	*ret = part;
	return 1;
}

static int take_held(struct scan *s, const struct chain *held)
{
	struct log_index *ix = NULL;
	bool joint;
	int r = build_index(s->l, held, &ix, &joint);

	if (r == 0)
		r = hold_set(s->l, &held->head, ix);
	s->l->hold.back = s->l->newest.flags & RECORD_BACK; /* LOG_NOT_BACK */
	s->l->hold.boots = (s->l->newest.flags & RECORD_BOOTS) >> RECORD_BOOTS_SHIFT;
	return r;
}

/* The newest record asks to go back: the log is that of the held generation, behind this record. */
static int go_back(struct scan *s, const struct chain *held)
{
	struct log *l = s->l;
	int r = hold_set(l, &held->head, log_index_ref(l->index));

	l->hold.going = true;
	l->chain_records = held->n;
	s->rep->back_seq = l->newest.seq;
	s->rep->back_generation = l->hold.generation;
	s->rep->back_s = l->hold.time_s;
	s->rep->trial_over = (l->newest.flags & RECORD_BOOTS) >> RECORD_BOOTS_SHIFT == 1;
	if (lag_on(l))
		sample_forget(l);
	return r;
}

/* Of cowfs 0.1.0: only the log of another volume knows whether such a commit counts. */
static int refuse_joint(struct scan *s, const struct log_record *rec)
{
	snprintf(s->why, sizeof(s->why),
		 "record %llu is of a commit of several volumes: cowfs 0.1.0 completes it, with "
		 "cowctl recover while all their cards are plugged in",
		 (unsigned long long)rec->seq);
	return -EADDRNOTAVAIL;
}

/* Is this the state of the base and the log? *ret_ix: what waits in the log. newest: the record that leads to it. Its samples
 * stay on the base; those of a held generation may have been written over since. With lag they may be lost. */
static int check_chain(struct scan *s, const struct chain *ch, const struct log_record *newest,
		       struct log_index **ret_ix)
{
	const struct log_record *rec = &ch->head;
	bool joint;
	int r;

	snprintf(s->why, sizeof(s->why), "the descriptors of record %llu are damaged",
		 (unsigned long long)rec->seq);
	r = build_index(s->l, ch, ret_ix, &joint);
	if (r == -EFBIG) {
		snprintf(s->why, sizeof(s->why),
			 "the descriptors of record %llu have more extents than a ring of "
			 "this size can have",
			 (unsigned long long)rec->seq);
		r = -EBADMSG;
	}
	/* The generation may be complete, so no older one is taken in its place. */
	if (r == -EADDRNOTAVAIL)
		snprintf(s->why, sizeof(s->why),
			 "a part of generation %llu is in space that was lent to its commit: cowfs "
			 "0.1.0 completes it, with cowctl recover --lend DEVICE|FILE",
			 (unsigned long long)rec->ledger.commits);
	if (r == 0)
		r = check_base(s, rec, *ret_ix);
	if (r == 0)
		r = verify_chain(s, ch);
	if (r == 0 && (newest->seq == rec->seq || !lag_on(s->l)))
		r = check_samples(s, newest, *ret_ix);
	return r == 0 && joint ? refuse_joint(s, rec) : r;
}

static int choose(struct scan *s, const struct chain *ch, const struct chain *held, bool back,
		  struct log_index *ix)
{
	struct log *l = s->l;
	int r;

	log_index_unref(l->index);
	l->index = ix;
	l->newest = ch->head;
	l->chain_records = ch->n;
	s->rep->passed_seq = ch->passed_seq ? ch->passed_seq : l->opening->copied_seq;
	r = note_candidates(s, ch);
	if (r == 0 && held->n)
		r = back ? go_back(s, held) : take_held(s, held);
	return r;
}

/* 0 chosen, -EBADMSG candidate rejected, else an error that ends the scan */
static int try_candidate(struct scan *s, const struct log_record *rec)
{
	struct log *l = s->l;
	struct chain ch = { 0 }, held = { 0 };
	struct log_index *ix = NULL;
	bool back;
	int r;

	l->opening->copied_seq = 0;
	s->rep->hold_lost = false;
	r = load_chain(s, rec, &ch);

	if (r == 0)
		r = find_held(s, &ch, &held);
	/* what came behind the held generation is of no importance then */
	back = r == 1 && rec->flags & RECORD_BACK && !(l->flags & LOG_NOT_BACK);
	if (r >= 0)
		r = check_chain(s, back ? &held : &ch, rec, &ix);
	if (r < 0)
		log_index_unref(ix);
	else
		r = choose(s, &ch, &held, back, ix);
	free(ch.rec);
	return r;
}

/* ---- which one ---- */

/* newest epoch first, then newest sequence: the upper half of an epoch counts up (log_prepare) */
static int newest_first(const void *a, const void *b)
{
	const struct candidate *x = a, *y = b;

	if (x->epoch >> 32 != y->epoch >> 32)
		return x->epoch >> 32 > y->epoch >> 32 ? -1 : 1;
	return x->seq > y->seq ? -1 : x->seq < y->seq;
}

void chain_sort(struct scan *s)
{
	if (s->n)
		qsort(s->cand, s->n, sizeof(*s->cand), newest_first);
}

/* The record was read before, but only its place was kept. */
static int try_place(struct scan *s, const struct candidate *c)
{
	struct log_record rec;
	int r = ring_read_same(s->l, (struct record_ptr){ c->seq, c->epoch, c->lblk }, s->buf,
			       &rec);

	return r < 0 ? r : try_candidate(s, &rec);
}

/* A record below the floor is never chosen. Segments that are not scanned yet may have better
 * ones: an attempt that was cut leaves a new head over records of the previous lap. */
int chain_choose(struct scan *s)
{
	chain_sort(s);
	for (size_t i = 0; i < s->n; i++) {
		struct candidate *c = &s->cand[i];
		int r;

		if (c->tried)
			continue;
		if (c->seq < s->fallback_floor || (!s->all && c->seq < s->newest_seq))
			continue;
		s->why[0] = '\0';
		r = try_place(s, c);
		c->tried = true;
		if (r == -EIO && s->l->flags & LOG_UNREADABLE) {
			snprintf(s->why, sizeof(s->why),
				 "record %llu, or what it refers to, cannot be read",
				 (unsigned long long)c->seq);
			r = -EBADMSG;
		}
		if (r == 0) {
			s->rep->rejected = (unsigned)i;
			return 1;
		}
		if ((r == -EBADMSG && !s->rep->why[0]) || r == -EADDRNOTAVAIL)
			strcpy(s->rep->why, s->why);
		if (r != -EBADMSG)
			return r;
	}
	return 0;
}
