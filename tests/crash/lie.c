/* SPDX-License-Identifier: MIT */
/*
 * Cards that lie about FLUSH, and the generations that recovery may find on them.
 *
 * Two kinds. In the first, the last M FLUSHes did not happen (built into the simulator). The second
 * is harder, and lag is specified for it: once a record's FLUSH has returned, everything issued
 * before the acknowledgement of the previous record is durable, and nothing else, however many
 * FLUSHes came in between.
 */
#include <limits.h>
#include <string.h>

#include "crash.h"

static void each_card(struct world *w, void (*fn)(struct world *w, struct card *c, unsigned i))
{
	fn(w, w->c.base, 0);
	if (w->c.log != w->c.base)
		fn(w, w->c.log, 1);
}

static void start(struct world *w, struct card *c, unsigned i)
{
	sim_set_lie(c, w->lie == LIE_RECORDS ? UINT_MAX : w->lie);
	w->acked_pending[i] = sim_pending(c);
	if (collateral == COLLATERAL_RING)
		sim_set_collateral(c, c == w->c.log && !w->shape.external
					      ? blk_to_bytes(w->shape.blks)
				      : i ? 0
					  : UINT64_MAX);
	if (collateral == COLLATERAL_ALL)
		sim_set_collateral(c, 0);
}

void lie_start(struct world *w)
{
	w->record_written = false;
	each_card(w, start);
}

static void settle(struct world *w, struct card *c, unsigned i)
{
	sim_settle(c, w->acked_pending[i]);
	w->acked_pending[i] = sim_pending(c);
}

void lie_wrote(struct world *w, const void *data)
{
	w->record_written |= !memcmp(data, "COWFSREC", 8);
}

/* The log card has flushed. */
void lie_flushed(struct world *w)
{
	if (w->lie == LIE_RECORDS && w->record_written)
		each_card(w, settle);
	w->record_written = false;
}

/* ---- the past ---- */

static void remember_one(struct world *w, const struct image *im)
{
	memmove(w->past + 1, w->past, sizeof(w->past) - sizeof(w->past[0]));
	w->past[0] = (struct past){ .image = *im, .commit = w->commits };
	if (w->n_past < MAX_PAST)
		w->n_past++;
}

/* Called before a commit that returned replaces n. */
void lie_remember(struct world *w)
{
	w->commits++;
	if (!w->lie && !measure)
		return;
	remember_one(w, &w->n);
	for (unsigned i = 0; i + 1 < w->n_tried; i++)
		remember_one(w, &w->tried[i]);
}

void lie_forget(struct world *w)
{
	w->n_past = 0;
}

/* The newest past image that the volume holds; *ret_lost: number of returned commits that are lost
 * with it. NULL: none. */
const struct image *lie_find(const struct world *w, const uint8_t *volume, unsigned *ret_lost)
{
	for (unsigned i = 0; i < w->n_past; i++)
		if (image_differs(&w->past[i].image, volume, w->shape.blks) < 0) {
			*ret_lost = (unsigned)(w->commits - w->past[i].commit) + 1;
			return &w->past[i].image;
		}
	return NULL;
}
