/* SPDX-License-Identifier: MIT */
/*
 * Inside the simulated card: what is durable, what is pending in its cache, and the faults.
 *
 * I1  view = durable, overlaid by the pending block writes in issue order: what reads see, and
 *     what a good, honest flush would make durable.
 * I2  pending is in issue order, so its epochs (good flushes before the write) never fall.
 * I3  a dead card changes nothing until its power is cycled, nor does one that is gone.
 */
#ifndef COWFS_SIM_SIM_PRIVATE_H
#define COWFS_SIM_SIM_PRIVATE_H

#include <pthread.h>

#include "sim/sim.h"
#include "sim/sim_store.h"

struct sim_pending {
	uint64_t blk, epoch;
	struct sim_block *block;
};

/* members without pointers; a clone copies them whole */
struct sim_state {
	uint64_t epoch; /* successful flushes, lies included */
	unsigned lie;
	uint64_t collateral_from; /* UINT64_MAX: off */
	uint64_t random;
	size_t cache_blks; /* 0: no limit */
	uint64_t ops;
	uint64_t cut_countdown; /* 0: disarmed, as for the next ones */
	uint64_t unplug_countdown;
	struct {
		unsigned ops;
		uint64_t countdown;
		int err;
		bool forever;
	} fail;
	bool dead;
	bool gone;  /* sim_unplug */
	bool noise; /* sim_set_noise */
	struct card_counters seen;
};

struct sim {
	struct card card;     /* must be first: see sim_of */
	pthread_mutex_t lock; /* protects everything below */
	struct sim_state state;
	struct sim_store durable, view;
	struct sim_pending *pending;
	size_t n_pending, pending_room;
	struct flash_model *model; /* NULL: none */
};

static inline struct sim *sim_of(const struct card *c)
{
	return (struct sim *)c;
}

static inline struct sim *sim_lock(const struct card *c)
{
	struct sim *s = sim_of(c);

	pthread_mutex_lock(&s->lock);
	return s;
}

static inline bool sim_answers(const struct sim *s)
{
	return !s->state.dead && !s->state.gone;
}

static inline void sim_unlock(struct sim *s)
{
	pthread_mutex_unlock(&s->lock);
}

/* ---- sim_cache.c ---- */

/*
 * Chooses among n fates. The favourite and its strength are drawn once per event. If all fates
 * were always equally likely, a cut with forty pending writes would never leave all but one of
 * them done, the schedule that finds most bugs.
 */
struct sim_bias {
	unsigned favourite, in_64;
};

uint64_t sim_random(struct sim *s);
struct sim_bias sim_random_bias(struct sim *s, unsigned n);
unsigned sim_random_fate(struct sim *s, unsigned n, struct sim_bias bias);
void sim_cache_add(struct sim *s, uint64_t blk, const void *buf);
/* Handles a successful flush: the last `lie` epochs stay in the cache. */
void sim_cache_flush(struct sim *s);
/* Restores I1 after a change of durable or pending; the blocks of old may differ now. */
void sim_view_refresh(struct sim *s, const struct sim_pending *old, size_t n_old);
void sim_forget_pending(struct sim *s);
void sim_settle_pending(struct sim *s, size_t n); /* makes the first n durable */
/* After a failed write or flush: each pending write becomes durable, stays, or is lost. */
void sim_scramble_pending(struct sim *s);

#endif
