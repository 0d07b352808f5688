/* SPDX-License-Identifier: MIT */
/*
 * Lag: a card that may lose what it acknowledged last.
 *
 * With lag 1, once a record's FLUSH has returned, all that was written before the record before it
 * was acknowledged counts as durable, and nothing else does. So recovery may choose the newest
 * record or the one before (the older candidate), while the next one is being written;
 * docs/FORMAT.md, "Lag". What follows for the ring:
 *
 * L1  A record's tail is never above the record before it: so every candidate reads back what its
 *     own attempt and the one before wrote (floor), and rejects itself if a part of that is
 *     missing.
 * L2  tail_lblk, from where the ring is busy, is that of the older candidate; so is what is
 *     spilled.
 * L3  Nothing that the older candidate uses is written in place, and nothing that its floor's
 *     record wrote in place either. The newest record is its own floor with lag 0: what it wrote in
 *     place is read back, also where its image leaves that block free.
 * L4  Before the first home write both candidates have one image and read it from the log; before
 *     the record that carries the tail the home writes count as durable. Empty records see to both.
 * L5  What a session finds may be in the card's cache only: its first write is preceded by empty
 *     records until the newest three have one image.
 *
 * The empty records need room. A ring that power cut after power cut has filled up is freed as with
 * lag 0: the record that carries the tail is then its own floor.
 */
#include <errno.h>
#include <string.h>

#include "log/ring.h"

bool lag_on(const struct log *l)
{
	return l->super.lag && l->super.state != SUPER_PENDING;
}

static struct log_index *ref(struct log_index *ix)
{
	return ix ? log_index_ref(ix) : NULL;
}

static void forget_older(struct lag *g)
{
	log_index_unref(g->index);
	g->index = NULL;
	for (unsigned i = 0; i < ARRAY_SIZE(g->direct); i++) {
		log_index_unref(g->direct[i]);
		g->direct[i] = NULL;
	}
}

void lag_close(struct log *l)
{
	forget_older(&l->lag);
}

/* ---- what the next record carries ---- */

uint64_t lag_tail_seq(const struct log *l)
{
	if (!l->newest.seq)
		return 0;
	if (!l->home_done)
		return l->newest.tail_seq;
	/* the copy in a checkpoint record still names blocks that are checkpointed now */
	return lag_on(l) && !l->lag.alone && l->newest.type != RECORD_CHECKPOINT ? l->newest.seq
										 : 0;
}

void lag_floors(const struct log *l, struct log_record *rec)
{
	rec->floor_seq = rec->seq;
	rec->fallback_seq = lag_oldest_seq(l);
	if (!lag_on(l) || !l->newest.seq)
		return;
	if (!l->lag.alone)
		rec->floor_seq = l->newest.seq;
}

uint64_t lag_oldest_seq(const struct log *l)
{
	return lag_on(l) && l->lag.older_seq ? l->lag.older_seq : l->newest.seq;
}

/* ---- a record became durable, or counts as durable ---- */

static uint64_t own_tail_lblk(const struct log *l, const struct log_record *rec)
{
	if (rec->tail_seq == rec->seq || !l->newest.seq)
		return rec->start_lblk;
	return rec->tail_seq == l->newest.seq ? l->newest.start_lblk : l->lag.tail_lblk;
}

void lag_accept(struct log *l, const struct log_record *rec)
{
	struct lag *g = &l->lag;
	bool self = rec->tail_seq == rec->seq,
	     moves = self || (l->home_done && rec->tail_seq == l->newest.seq);
	bool alone = !lag_on(l) || !l->newest.seq || rec->floor_seq == rec->seq,
	     spilled = g->spilled;
	uint64_t tail_lblk = g->tail_lblk;

	if (self || rec->tail_seq == l->newest.seq)
		l->chain_records = !self;
	l->chain_records++;
	g->tail_lblk = own_tail_lblk(l, rec);
	/* a copy still needs the record that it copies */
	if (moves && rec->type != RECORD_CHECKPOINT)
		g->spilled = false;
	l->tail_lblk = alone ? g->tail_lblk : tail_lblk;
	l->spilled = g->spilled || (!alone && spilled);
	g->same = rec->type == RECORD_COMMIT ? 1 : g->same + 1;
	g->alone = false;
	g->older_seq = alone ? 0 : l->newest.seq;
	if (alone) {
		struct log_index *own = rec->type == RECORD_CHECKPOINT ? ref(g->direct[0]) : NULL;

		forget_older(&l->lag);
		g->direct[0] = own;
		return;
	}
	log_index_unref(g->index);
	g->index = ref(l->index);
	log_index_unref(g->direct[2]);
	g->direct[2] = g->direct[1];
	g->direct[1] = g->direct[0];
	/* a copy is read back like what it copies: as a floor of the next record, too */
	g->direct[0] = rec->type == RECORD_CHECKPOINT ? ref(g->direct[1]) : NULL;
}

void lag_note_direct(struct log *l, struct log_index *direct)
{
	log_index_unref(l->lag.direct[0]);
	l->lag.direct[0] = direct;
}

int lag_direct_set(const struct log *l, struct log_index **ret)
{
	struct index_list list = { 0 };
	struct log_index *empty;
	int r = 0;

	*ret = NULL;
	if (!l->at.direct_blks)
		return 0;
	for (size_t i = 0; i < l->at.list.n && r == 0; i++)
		if (l->at.list.e[i].kind == INDEX_HOME)
			r = index_list_add(&list, INDEX_ZERO, l->at.list.e[i].blk,
					   l->at.list.e[i].blks, 0, NULL);
	empty = r == 0 ? log_index_empty() : NULL;
	if (r == 0)
		r = empty ? index_list_overlay(ret, empty, &list, NULL, NULL, 0) : -ENOMEM;
	log_index_unref(empty);
	index_list_clear(&list);
	return r;
}

/* ---- opening ---- */

void lag_opened(struct log *l, uint64_t tail_lblk, uint64_t older_tail_lblk, unsigned same)
{
	const struct log_record *n = &l->newest;

	l->lag.tail_lblk = l->tail_lblk = tail_lblk;
	l->lag.spilled = l->spilled;
	l->lag.cold = lag_on(l);
	l->lag.same = same;
	if (!lag_on(l) || n->floor_seq == n->seq)
		return;
	l->tail_lblk = older_tail_lblk;
	l->lag.older_seq = n->floor_seq;
}

void lag_begin_anew(struct log *l)
{
	l->lag.alone = l->lag.cold = true;
	l->lag.same = 0;
	l->lag.older_seq = 0;
	l->lag.spilled = false;
	l->lag.tail_lblk = l->tail_lblk;
	forget_older(&l->lag);
}

void lag_forget_tail(struct log *l)
{
	lag_begin_anew(l);
	l->lag.tail_lblk = l->tail_lblk = own_tail_lblk(l, &l->newest);
	l->spilled = false;
}

/* ---- queries of a commit ---- */

struct log_index *log_older_index(const struct log *l)
{
	return lag_on(l) && !l->lag.cold && l->lag.same < 2 ? ref(l->lag.index) : NULL;
}

bool log_older_unknown(const struct log *l)
{
	return lag_on(l) && l->lag.cold;
}

uint64_t log_held_run(const struct log *l, uint64_t blk, uint64_t max_blks, bool *ret_held)
{
	max_blks = sample_held_run(l, blk, max_blks, ret_held);
	for (unsigned i = 0; !*ret_held && i < ARRAY_SIZE(l->lag.direct); i++) {
		enum log_where where = LOG_HOME;

		if (l->lag.direct[i] && !log_older_unknown(l))
			max_blks = log_index_run(l->lag.direct[i], blk, max_blks, &where);
		*ret_held = where != LOG_HOME;
	}
	return max_blks;
}
