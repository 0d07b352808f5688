/* SPDX-License-Identifier: MIT */
/* Faults of the simulated card: failed operations, power cuts, damage. Notes in sim_private.h. */
#include <errno.h>
#include <string.h>

#include "sim/sim_private.h"

#define SECTOR_BYTES 512u

/* ---- switches ---- */

void sim_settle(struct card *c, size_t n)
{
	struct sim *s = sim_lock(c);

	sim_settle_pending(s, n);
	sim_unlock(s);
}

void sim_cut_at(struct card *c, uint64_t n)
{
	struct sim *s = sim_lock(c);

	s->state.cut_countdown = n;
	sim_unlock(s);
}

void sim_fail_at(struct card *c, unsigned ops, uint64_t n, int err, bool forever)
{
	struct sim *s = sim_lock(c);

	s->state.fail.ops = ops;
	s->state.fail.countdown = n;
	s->state.fail.err = err;
	s->state.fail.forever = forever;
	sim_unlock(s);
}

void sim_unplug(struct card *c)
{
	struct sim *s = sim_lock(c);

	s->state.unplug_countdown = 0;
	s->state.gone = true;
	sim_unlock(s);
}

void sim_unplug_at(struct card *c, uint64_t n)
{
	struct sim *s = sim_lock(c);

	s->state.unplug_countdown = n;
	sim_unlock(s);
}

void sim_set_lie(struct card *c, unsigned lie)
{
	struct sim *s = sim_lock(c);

	s->state.lie = lie;
	sim_unlock(s);
}

void sim_set_collateral(struct card *c, uint64_t from_bytes)
{
	struct sim *s = sim_lock(c);

	s->state.collateral_from = from_bytes;
	sim_unlock(s);
}

void sim_seed(struct card *c, uint64_t seed)
{
	struct sim *s = sim_lock(c);

	s->state.random = seed;
	sim_unlock(s);
}

void sim_set_model(struct card *c, struct flash_model *m)
{
	struct sim *s = sim_lock(c);

	flash_model_free(s->model);
	s->model = m;
	sim_unlock(s);
}

struct flash_model *sim_model(const struct card *c)
{
	return sim_of(c)->model;
}

void sim_set_cache(struct card *c, size_t blks)
{
	struct sim *s = sim_lock(c);

	s->state.cache_blks = blks;
	sim_unlock(s);
}

uint64_t sim_ops(const struct card *c)
{
	struct sim *s = sim_lock(c);
	uint64_t n = s->state.ops;

	sim_unlock(s);
	return n;
}

size_t sim_pending(const struct card *c)
{
	struct sim *s = sim_lock(c);
	size_t n = s->n_pending;

	sim_unlock(s);
	return n;
}

uint64_t sim_pending_blk(const struct card *c, size_t i)
{
	struct sim *s = sim_lock(c);
	uint64_t blk = i < s->n_pending ? s->pending[i].blk : UINT64_MAX;

	sim_unlock(s);
	return blk;
}

bool sim_is_dead(const struct card *c)
{
	struct sim *s = sim_lock(c);
	bool dead = s->state.dead;

	sim_unlock(s);
	return dead;
}

static void pending_shuffle(struct sim *s)
{
	for (size_t i = s->n_pending; i > 1; i--) {
		size_t k = (size_t)(sim_random(s) % i);
		struct sim_pending p = s->pending[i - 1];

		s->pending[i - 1] = s->pending[k];
		s->pending[k] = p;
	}
}

static struct sim_block *tear(struct sim *s, const struct sim_block *old,
			      const struct sim_block *new)
{
	struct sim_block *b = sim_block_copy(old);
	uint64_t sectors = sim_random(s);

	for (size_t off = 0; off < COW_BLK_BYTES; off += SECTOR_BYTES, sectors >>= 1)
		if (sectors & 1)
			memcpy(b->bytes + off, new->bytes + off, SECTOR_BYTES);
	return b;
}

static struct sim_block *garble(struct sim *s)
{
	struct sim_block *b = sim_block_new();

	for (size_t off = 0; off < COW_BLK_BYTES; off += sizeof(uint64_t))
		memcpy(b->bytes + off, &(uint64_t){ sim_random(s) }, sizeof(uint64_t));
	return b;
}

static void pending_settle(struct sim *s, const struct sim_pending *p, enum sim_fate fate)
{
	struct sim_block *b = NULL;

	switch (fate) {
	case SIM_DROPPED:
		return;
	case SIM_DONE:
		b = sim_block_ref(p->block);
		break;
	case SIM_TORN:
		b = tear(s, sim_store_get(&s->durable, p->blk), p->block);
		break;
	case SIM_GARBAGE:
		b = garble(s);
		break;
	}
	sim_store_set(&s->durable, p->blk, b);
	sim_block_unref(b);
}

static bool is_pending(const struct sim *s, uint64_t blk)
{
	for (size_t i = 0; i < s->n_pending; i++)
		if (s->pending[i].blk == blk)
			return true;
	return false;
}

/* Damages the erase block of the last write, except for the blocks in flight. */
static void collateral(struct sim *s, uint64_t last_blk)
{
	const struct card_geometry *g = &s->card.geo;
	uint64_t eb = (blk_to_bytes(last_blk) + g->disk_off_bytes) / g->erase_block_bytes *
		      g->erase_block_bytes;
	uint64_t from = eb > g->disk_off_bytes ? eb - g->disk_off_bytes : 0;
	uint64_t end = min_u64(eb + g->erase_block_bytes - g->disk_off_bytes, g->size_bytes);

	for (uint64_t off = max_u64(from, s->state.collateral_from); off < end;
	     off += COW_BLK_BYTES) {
		struct sim_block *b;

		if (is_pending(s, off / COW_BLK_BYTES))
			continue;
		b = garble(s);
		sim_store_set(&s->durable, off / COW_BLK_BYTES, b);
		sim_store_set(&s->view, off / COW_BLK_BYTES, b);
		sim_block_unref(b);
	}
}

/*
 * Marks the card dead first. Then nothing changes pending while fate() is called without the lock,
 * so that it may call sim_pending_blk().
 */
static void lose_pending(struct card *c, enum sim_fate (*fate)(void *arg, size_t i), void *arg)
{
	struct sim *s = sim_lock(c);
	struct sim_bias bias = sim_random_bias(s, SIM_GARBAGE + 1);

	s->state.dead = true;
	if (s->n_pending && s->state.collateral_from != UINT64_MAX)
		collateral(s, s->pending[s->n_pending - 1].blk);
	if (!fate)
		pending_shuffle(s);
	sim_unlock(s);
	for (size_t i = 0; i < s->n_pending; i++)
		pending_settle(s, &s->pending[i],
			       fate ? fate(arg, i) : sim_random_fate(s, SIM_GARBAGE + 1, bias));
	sim_lock(c);
	for (size_t i = 0; i < s->n_pending; i++)
		sim_store_set(&s->view, s->pending[i].blk,
			      sim_store_get(&s->durable, s->pending[i].blk));
	sim_forget_pending(s);
	s->state.dead = s->state.gone = false;
	sim_unlock(s);
}

void sim_replug(struct card *c, bool lost)
{
	struct sim *s;

	if (lost)
		lose_pending(c, NULL, NULL);
	s = sim_lock(c);
	s->state.unplug_countdown = 0;
	s->state.gone = false;
	sim_unlock(s);
}

void sim_power_cycle(struct card *c, enum sim_fate (*fate)(void *arg, size_t i), void *arg)
{
	struct sim *s;

	lose_pending(c, fate, arg);
	s = sim_lock(c);
	s->state.cut_countdown = s->state.fail.countdown = s->state.unplug_countdown = 0;
	if (c->writable)
		c->account.writable_ns += now_ns() - c->writable_since_ns;
	c->writable = false;
	sim_unlock(s);
	if (card_is_away(c))
		card_back(c);
}

/* ---- direct access ---- */

static bool span_is_valid(const struct card *c, uint64_t off_bytes, size_t len_bytes)
{
	return off_bytes <= c->geo.size_bytes && len_bytes <= c->geo.size_bytes - off_bytes;
}

static int read_store(const struct card *c, bool durable, uint64_t off_bytes, void *buf,
		      size_t len_bytes)
{
	const struct sim_store *store;
	struct sim *s;
	uint8_t *to = buf;

	if (!span_is_valid(c, off_bytes, len_bytes))
		return -EINVAL;
	s = sim_lock(c);
	store = durable ? &s->durable : &s->view;
	while (len_bytes) {
		size_t from = off_bytes % COW_BLK_BYTES;
		size_t len = min_u64(len_bytes, COW_BLK_BYTES - from);

		sim_block_read(sim_store_get(store, off_bytes >> COW_BLK_SHIFT), from, to, len);
		to += len, off_bytes += len, len_bytes -= len;
	}
	sim_unlock(s);
	return 0;
}

int sim_peek(const struct card *c, uint64_t off_bytes, void *buf, size_t len_bytes)
{
	return read_store(c, true, off_bytes, buf, len_bytes);
}

int sim_look(const struct card *c, uint64_t off_bytes, void *buf, size_t len_bytes)
{
	return read_store(c, false, off_bytes, buf, len_bytes);
}

void sim_set_noise(struct card *c, bool on)
{
	struct sim *s = sim_lock(c);

	s->state.noise = on;
	sim_unlock(s);
}

int sim_discard(struct card *c, uint64_t off_bytes, uint64_t len_bytes)
{
	uint64_t first = off_bytes >> COW_BLK_SHIFT, end = first + (len_bytes >> COW_BLK_SHIFT);
	size_t kept = 0;
	struct sim *s;
	int r;

	if ((off_bytes | len_bytes) % COW_BLK_BYTES ||
	    !range_fits(off_bytes, len_bytes, c->geo.size_bytes))
		return -EINVAL;
	s = sim_lock(c);
	r = sim_answers(s) ? 0 : -EIO;
	for (size_t i = 0; i < s->n_pending && !r; i++) {
		if (s->pending[i].blk >= first && s->pending[i].blk < end)
			sim_block_unref(s->pending[i].block);
		else
			s->pending[kept++] = s->pending[i];
	}
	if (!r)
		s->n_pending = kept;
	for (uint64_t blk = first; blk < end && !r; blk++) {
		sim_store_set(&s->durable, blk, s->state.noise ? &sim_noise : NULL);
		sim_store_set(&s->view, blk, s->state.noise ? &sim_noise : NULL);
	}
	if (s->model && !r)
		flash_model_discard(s->model, off_bytes, len_bytes);
	sim_unlock(s);
	return r;
}

int sim_poke(struct card *c, uint64_t off_bytes, const void *buf, size_t len_bytes)
{
	struct sim *s;
	const uint8_t *from = buf;

	if (!span_is_valid(c, off_bytes, len_bytes))
		return -EINVAL;
	s = sim_lock(c);
	while (len_bytes) {
		struct sim_pending at = { .blk = off_bytes >> COW_BLK_SHIFT };
		size_t to = off_bytes % COW_BLK_BYTES;
		size_t len = min_u64(len_bytes, COW_BLK_BYTES - to);

		at.block = sim_block_copy(sim_store_get(&s->durable, at.blk));
		memcpy(at.block->bytes + to, from, len);
		sim_store_set(&s->durable, at.blk, at.block);
		sim_block_unref(at.block);
		sim_view_refresh(s, &at, 1);
		from += len, off_bytes += len, len_bytes -= len;
	}
	sim_unlock(s);
	return 0;
}
