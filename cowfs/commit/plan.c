/* SPDX-License-Identifier: MIT */
#include "commit/plan.h"

#include <errno.h>
#include <string.h>

#include "base/array.h"

#define LARGE_COMMIT_BLKS (32 * MIB / COW_BLK_BYTES)
#define WEAR_SHARE 16 /* part of the wear that counts as time */

/* One unit of the card, and its blocks that are to be written. */
struct unit {
	uint64_t first_blk, blks; /* on the volume */
	size_t piece, n_pieces;
	uint64_t new_blks;
	uint64_t ns;			  /* cost in place */
	uint64_t write_ns, main_write_ns; /* part of ns and of main_ns: the requests alone */
	bool whole;			  /* filled, including gaps */
	bool visited;			  /* by a checkpoint in any case */
	size_t main_piece;		  /* first piece of its largest run */
	uint64_t main_blks, main_ns;	  /* of that run: without gaps; cost in place if alone */
	enum { IN_PLACE, MAIN_IN_PLACE, IN_LOG } way;
};

/* A way to save time with the log. */
struct saving {
	size_t unit;
	uint64_t ns, blks; /* saved time, and blocks needed in the log */
	uint64_t home_ns;  /* writing them home later, without a merge */
	bool all;	   /* the whole unit; otherwise all but its largest run */
};

struct planner {
	const struct plan_query *q;
	bool fills;		  /* plan_fills */
	struct extent_run *piece; /* direct, cut at the edges of units */
	bool *bridge;		  /* the gap after this piece is also written */
	size_t n_pieces, pieces_cap;
	struct unit *unit;
	size_t n_units, units_cap;
};

/* ---- costs ---- */

uint64_t plan_append_ns(const struct card_costs *p, uint64_t blks)
{
	return flash_speed_ns(&p->write, MIB) * blks / (MIB / COW_BLK_BYTES);
}

static uint64_t write_ns(const struct card_costs *p, uint64_t blks)
{
	return flash_speed_ns(&p->write, blk_to_bytes(blks));
}

/* Duration of the merge that closes a unit after new_blks were written. */
static uint64_t merge_ns(const struct card_costs *p, uint64_t new_blks)
{
	return costs_merge_ns(p, blk_to_bytes(new_blks));
}

/* The same, with wear: the time to program what it copies. A shutdown pays all of it, because the
 * next session may write the block again. Elsewhere a larger share makes commits slower than
 * without a plan. */
static uint64_t close_ns(const struct planner *pl, uint64_t new_blks)
{
	const struct card_costs *p = pl->q->profile;
	uint64_t unit_blks = p->unit_bytes / COW_BLK_BYTES,
		 copied = unit_blks > new_blks ? unit_blks - new_blks : 0;

	return merge_ns(p, new_blks) +
	       plan_append_ns(p, copied) / (pl->q->last && !pl->q->home_follows ? 1 : WEAR_SHARE);
}

/* Cost of a jump within a unit, apart from that of the requests. new_blks: blocks written to the
 * unit since it was opened. */
static uint64_t jump_ns(const struct card_costs *p, uint64_t new_blks)
{
	if (!p->unit_bytes)
		return p->seek_ns;
	return p->open_random || p->absorb > 1 ? 0 : merge_ns(p, new_blks);
}

/* A disk has no units; blocks that are close together are planned together. */
static uint64_t unit_bytes(const struct card_costs *p)
{
	return p->unit_bytes ? p->unit_bytes : MIB;
}

static uint64_t unit_of(const struct card_costs *p, uint64_t disk_off_bytes, uint64_t blk)
{
	return (disk_off_bytes + blk_to_bytes(blk)) / unit_bytes(p);
}

bool plan_fills(const struct card_costs *p, bool last, uint64_t blks)
{
	return last || p->absorb == 1 || blks >= LARGE_COMMIT_BLKS;
}

unsigned plan_open_units(const struct card_costs *p)
{
	return p && p->absorb == 1 ? (unsigned)p->open_units : 0;
}

bool plan_bridges(const struct card_costs *p, uint64_t disk_off_bytes, uint64_t end_blk,
		  uint64_t next_blk, uint64_t run_blks, uint64_t next_blks)
{
	uint64_t gap = next_blk - end_blk, apart, as_one;

	if (next_blk <= end_blk ||
	    unit_of(p, disk_off_bytes, end_blk) != unit_of(p, disk_off_bytes, next_blk))
		return false;
	apart = write_ns(p, run_blks) + jump_ns(p, run_blks) + write_ns(p, next_blks);
	as_one = write_ns(p, run_blks + gap + next_blks);
	return as_one < apart;
}

/* ---- cutting ---- */

static int add_piece(struct planner *pl, uint64_t blk, uint64_t blks)
{
	const struct plan_query *q = pl->q;
	uint64_t unit_blks = unit_bytes(q->profile) / COW_BLK_BYTES;
	uint64_t off = q->disk_off_bytes / COW_BLK_BYTES + blk, into = off % unit_blks;
	struct unit *u = pl->n_units ? &pl->unit[pl->n_units - 1] : NULL;
	/* the first unit may begin before the volume */
	uint64_t first = into > blk ? 0 : blk - into;
	const struct extent_run piece = { blk, blks };

	if (!u || blk >= u->first_blk + u->blks) {
		if (ARRAY_ROOM(pl->unit, pl->units_cap, pl->n_units + 1) < 0)
			return -ENOMEM;
		u = &pl->unit[pl->n_units++];
		*u = (struct unit){ .first_blk = first,
				    .blks = min_u64(unit_blks - into + (blk - first),
						    q->volume_blks - first),
				    .piece = pl->n_pieces };
	}
	if (ARRAY_ADD(pl->piece, pl->n_pieces, pl->pieces_cap, piece) < 0)
		return -ENOMEM;
	u->n_pieces++;
	u->new_blks += blks;
	return 0;
}

static int cut(struct planner *pl)
{
	const struct plan_query *q = pl->q;
	uint64_t unit_blks = unit_bytes(q->profile) / COW_BLK_BYTES,
		 off = q->disk_off_bytes / COW_BLK_BYTES;

	for (size_t i = 0; i < q->direct->n; i++) {
		const struct extent_run *e = &q->direct->e[i];

		for (uint64_t k = 0, n; k < e->blks; k += n) {
			int r;

			n = min_u64(e->blks - k, unit_blks - (off + e->blk + k) % unit_blks);
			r = add_piece(pl, e->blk + k, n);
			if (r < 0)
				return r;
		}
	}
	return 0;
}

/* ---- one unit ---- */

static int is_free(const struct planner *pl, uint64_t from, uint64_t to, bool *ret)
{
	*ret = true;
	if (from == to)
		return 0;
	*ret = false;
	return pl->q->is_free ? pl->q->is_free(pl->q->ctx, from, to - from, ret) : 0;
}

/* Can the whole unit be written, and is that the cheapest way? */
static int try_whole(struct planner *pl, struct unit *u)
{
	uint64_t at = u->first_blk, ns = write_ns(pl->q->profile, u->blks);
	bool free = true;
	int r = 0;

	if (!pl->fills || ns >= u->ns || blk_to_bytes(u->blks) != unit_bytes(pl->q->profile))
		return 0;
	for (size_t i = 0; i <= u->n_pieces && r == 0 && free; i++) {
		const struct extent_run *e = i < u->n_pieces ? &pl->piece[u->piece + i] : NULL;

		r = is_free(pl, at, e ? e->blk : u->first_blk + u->blks, &free);
		at = e ? e->blk + e->blks : at;
	}
	if (r == 0 && free) {
		u->whole = true;
		u->ns = ns;
	}
	return r;
}

/* Chooses the gaps between the pieces that are written over. */
static int bridge_unit(struct planner *pl, struct unit *u)
{
	uint64_t written = 0;
	int r = 0;

	for (size_t i = u->piece; i + 1 < u->piece + u->n_pieces && r == 0; i++) {
		const struct extent_run *e = &pl->piece[i], *next = e + 1;
		uint64_t end = e->blk + e->blks;

		written += e->blks;
		if (pl->fills && plan_bridges(pl->q->profile, pl->q->disk_off_bytes, end, next->blk,
					      written, next->blks))
			r = is_free(pl, end, next->blk, &pl->bridge[i]);
		if (pl->bridge[i])
			written += next->blk - end;
		else
			written = 0;
	}
	return r;
}

/* The run of pieces without a jump that begins with piece i. Gives its blocks, and how many of them
 * are gaps; returns the piece after it. */
static size_t next_run(const struct planner *pl, const struct unit *u, size_t i, uint64_t *ret_blks,
		       uint64_t *ret_gap_blks)
{
	const struct extent_run *first = &pl->piece[i];
	uint64_t pieces = first->blks;

	while (pl->bridge[i] && i + 1 < u->piece + u->n_pieces)
		pieces += pl->piece[++i].blks;
	*ret_blks = pl->piece[i].blk + pl->piece[i].blks - first->blk;
	*ret_gap_blks = *ret_blks - pieces;
	return i + 1;
}

/* Cost in place of all runs, or (main_only) of only the largest one; *ret_write_ns: of the requests
 * alone. The stream comes from somewhere else unless goes_on. */
static uint64_t runs_ns(const struct planner *pl, struct unit *u, bool goes_on, bool main_only,
			uint64_t *ret_write_ns)
{
	const struct card_costs *p = pl->q->profile;
	uint64_t ns = 0, written = 0, blks, gaps;

	*ret_write_ns = 0;
	for (size_t i = u->piece, end = i + u->n_pieces; i < end;) {
		size_t next = next_run(pl, u, i, &blks, &gaps);

		if (main_only && i != u->main_piece) {
			i = next;
			continue;
		}
		if (written) {
			ns += jump_ns(p, written);
			if (p->absorb == 1 && !p->open_random)
				written = 0;
		} else if (!goes_on && !p->unit_bytes) {
			ns += jump_ns(p, 0);
		}
		ns += write_ns(p, blks);
		*ret_write_ns += write_ns(p, blks);
		written += blks;
		i = next;
	}
	if (p->unit_bytes && blk_to_bytes(written) < p->unit_bytes)
		ns += close_ns(pl, written);
	return ns;
}

static int price_unit(struct planner *pl, struct unit *u)
{
	const struct extent_run *first = &pl->piece[u->piece];
	bool goes_on = u->piece && first->blk == u->first_blk &&
		       first[-1].blk + first[-1].blks == first->blk;
	uint64_t blks, gaps, most = 0;
	int r = bridge_unit(pl, u);

	for (size_t i = u->piece, end = i + u->n_pieces, next; i < end && r == 0; i = next) {
		next = next_run(pl, u, i, &blks, &gaps);
		if (blks > most) {
			most = blks;
			u->main_piece = i;
			u->main_blks = blks - gaps;
		}
	}
	if (r < 0)
		return r;
	u->visited = pl->q->is_visited && pl->q->is_visited(pl->q->ctx, u->first_blk, u->blks);
	u->ns = runs_ns(pl, u, goes_on, false, &u->write_ns);
	u->main_ns = runs_ns(pl, u, goes_on, true, &u->main_write_ns);
	return try_whole(pl, u);
}

/* ---- blocks that go to the log ---- */

/* Most saved per block first. */
static int by_saving(const void *a, const void *b)
{
	const struct saving *x = a, *y = b;
	uint64_t x_low, y_low;
	uint64_t x_high = mul_u64(x->ns, y->blks, &x_low), y_high = mul_u64(y->ns, x->blks, &y_low);

	if (x_high != y_high)
		return x_high > y_high ? -1 : 1;
	return x_low > y_low ? -1 : x_low < y_low;
}

/*
 * Appending now and writing home later must together cost less than what is saved. Two visits to a
 * unit that become one save a whole merge: each copies what the other wrote. A card with a shared
 * log gathers the blocks of several commits itself, so in a commit like any other nothing is saved.
 */
static bool pays(const struct planner *pl, const struct unit *u, const struct saving *s)
{
	const struct plan_query *q = pl->q;
	uint64_t home_ns = s->home_ns,
		 shared_ns = merge_ns(q->profile, 0) - merge_ns(q->profile, s->blks);

	if (!s->blks || (q->home_follows && !u->visited) || (!pl->fills && !q->home_follows))
		return false;
	if (u->visited)
		home_ns -= min_u64(home_ns, shared_ns);
	return plan_append_ns(q->profile, s->blks) + home_ns < s->ns;
}

static void add_saving(const struct planner *pl, struct saving *s, size_t *n, struct saving new)
{
	if (pays(pl, &pl->unit[new.unit], &new))
		s[(*n)++] = new;
}

static int choose_log(struct planner *pl)
{
	struct saving *s = calloc(2 * pl->n_units + 1, sizeof(*s));
	uint64_t left = pl->q->log_blks;
	size_t n = 0;

	if (!s)
		return -ENOMEM;
	for (size_t i = 0; i < pl->n_units; i++) {
		const struct unit *u = &pl->unit[i];

		add_saving(pl, s, &n, (struct saving){ i, u->ns, u->new_blks, u->write_ns, true });
		if (!u->whole && u->main_ns < u->ns)
			add_saving(pl, s, &n,
				   (struct saving){ i, u->ns - u->main_ns,
						    u->new_blks - u->main_blks,
						    u->write_ns - u->main_write_ns, false });
	}
	qsort(s, n, sizeof(*s), by_saving);
	for (size_t i = 0; i < n; i++) {
		struct unit *u = &pl->unit[s[i].unit];

		/* the whole unit after all but one run: the remaining run joins only if it pays by
		 * itself */
		if (u->way == MAIN_IN_PLACE && s[i].all) {
			s[i].blks = u->main_blks;
			s[i].ns = u->main_ns;
			s[i].home_ns = u->main_write_ns;
			if (!pays(pl, u, &s[i]))
				continue;
		}
		if (u->way == IN_LOG || s[i].blks > left)
			continue;
		u->way = s[i].all ? IN_LOG : MAIN_IN_PLACE;
		left -= s[i].blks;
	}
	free(s);
	return 0;
}

/* ---- the lists ---- */

/* Is the piece, in a run that begins with piece `run`, written in place? */
static bool stays(const struct unit *u, size_t run)
{
	return u->way == IN_PLACE || (u->way == MAIN_IN_PLACE && run == u->main_piece);
}

static int put_unit(struct plan *ret, const struct planner *pl, const struct unit *u)
{
	uint64_t blks, gaps;
	int r = u->whole && u->way == IN_PLACE ? extents_add(&ret->runs, u->first_blk, u->blks) : 0;

	for (size_t i = u->piece, end = i + u->n_pieces, run = i; i < end && r == 0; run = i) {
		size_t next = next_run(pl, u, run, &blks, &gaps);

		if (stays(u, run) && !u->whole)
			r = extents_add(&ret->runs, pl->piece[run].blk, blks);
		for (; i < next && r == 0; i++)
			r = extents_add(stays(u, run) ? &ret->direct : &ret->logged,
					pl->piece[i].blk, pl->piece[i].blks);
	}
	return r;
}

static int put(struct plan *ret, const struct planner *pl)
{
	int r = 0;

	for (size_t i = 0; i < pl->n_units && r == 0; i++) {
		const struct unit *u = &pl->unit[i];

		r = put_unit(ret, pl, u);
		ret->units += u->way != IN_LOG;
		ret->ns += u->way == IN_PLACE ? u->ns : u->way == MAIN_IN_PLACE ? u->main_ns : 0;
		if (u->way != IN_PLACE)
			ret->ns +=
				plan_append_ns(pl->q->profile,
					       u->new_blks - (u->way == IN_LOG ? 0 : u->main_blks));
	}
	return r;
}

int plan_make(struct plan *ret, const struct plan_query *q)
{
	struct planner pl = { .q = q,
			      .fills = plan_fills(q->profile, q->last, extents_blks(q->direct)) };
	int r = cut(&pl);

	if (r == 0) {
		pl.bridge = calloc(pl.n_pieces + 1, sizeof(*pl.bridge));
		r = pl.bridge ? 0 : -ENOMEM;
	}
	for (size_t i = 0; i < pl.n_units && r == 0; i++)
		r = price_unit(&pl, &pl.unit[i]);
	if (r == 0)
		r = choose_log(&pl);
	if (r == 0)
		r = put(ret, &pl);
	free(pl.piece);
	free(pl.bridge);
	free(pl.unit);
	return r;
}

void plan_clear(struct plan *p)
{
	extents_clear(&p->direct);
	extents_clear(&p->logged);
	extents_clear(&p->runs);
	*p = (struct plan){ 0 };
}
