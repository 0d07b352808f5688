/* SPDX-License-Identifier: MIT */
/* The card interface of the simulated card: operations, its cache, creation and cloning. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/array.h"
#include "sim/sim_private.h"

/* ---- operations ---- */

/* Counts the operation and returns its result: 0, or an error after applying the faults. */
static int op_issue(struct sim *s, enum sim_op op)
{
	if (s->state.unplug_countdown && --s->state.unplug_countdown == 0) {
		s->state.gone = true;
		return -EIO;
	}
	if (op != SIM_READ) {
		s->state.ops++;
		if (s->state.cut_countdown && --s->state.cut_countdown == 0) {
			s->state.dead = true;
			return -EIO;
		}
	}
	if (!s->state.fail.countdown || !(s->state.fail.ops & op))
		return 0;
	if (s->state.fail.countdown > 1) {
		s->state.fail.countdown--;
		return 0;
	}
	if (!s->state.fail.forever)
		s->state.fail.countdown = 0;
	if (op != SIM_READ)
		sim_scramble_pending(s);
	return s->state.fail.err;
}

static int sim_read(struct card *c, uint64_t off_bytes, void *buf, size_t len_bytes)
{
	struct sim *s = sim_lock(c);
	uint64_t blk = off_bytes >> COW_BLK_SHIFT;
	uint8_t *to = buf;
	int r = !sim_answers(s) ? -EIO : op_issue(s, SIM_READ);

	for (size_t n = r < 0 ? 0 : len_bytes >> COW_BLK_SHIFT; n; n--, to += COW_BLK_BYTES)
		sim_block_read(sim_store_get(&s->view, blk++), 0, to, COW_BLK_BYTES);
	if (s->model && r == 0)
		flash_model_read(s->model, off_bytes, len_bytes);
	sim_unlock(s);
	return r;
}

static int sim_write(struct card *c, uint64_t off_bytes, const void *buf, size_t len_bytes)
{
	struct sim *s = sim_lock(c);
	uint64_t blk = off_bytes >> COW_BLK_SHIFT;
	const uint8_t *from = buf;
	int r = -EIO;

	if (sim_answers(s)) {
		for (size_t n = len_bytes >> COW_BLK_SHIFT; n; n--, from += COW_BLK_BYTES)
			sim_cache_add(s, blk++, from);
		s->state.seen.write_ios++;
		s->state.seen.written_bytes += len_bytes;
		r = op_issue(s, SIM_WRITE);
		if (s->model && r == 0)
			flash_model_write(s->model, off_bytes, len_bytes, 0);
		if (s->state.cache_blks && s->n_pending > s->state.cache_blks && sim_answers(s))
			sim_settle_pending(s, s->n_pending - s->state.cache_blks / 2);
	}
	sim_unlock(s);
	return r;
}

static int sim_flush(struct card *c)
{
	struct sim *s = sim_lock(c);
	int r = -EIO;

	if (sim_answers(s)) {
		s->state.seen.flushes++;
		r = op_issue(s, SIM_FLUSH);
		if (r == 0)
			sim_cache_flush(s);
		if (s->model && r == 0)
			flash_model_flush(s->model);
	}
	sim_unlock(s);
	return r;
}

static int sim_set_writable(struct card *c, bool writable)
{
	struct sim *s = sim_lock(c);
	int r = sim_answers(s) ? 0 : -EIO;

	(void)writable;
	sim_unlock(s);
	return r;
}

static int sim_counters(struct card *c, struct card_counters *ret)
{
	struct sim *s = sim_lock(c);
	int r = sim_answers(s) ? 0 : -EIO;

	if (r == 0)
		*ret = s->state.seen;
	sim_unlock(s);
	return r;
}

static bool sim_gone(struct card *c)
{
	struct sim *s = sim_lock(c);
	bool gone = s->state.gone;

	sim_unlock(s);
	return gone;
}

static void sim_close(struct card *c)
{
	struct sim *s = sim_of(c);

	sim_forget_pending(s);
	free(s->pending);
	flash_model_free(s->model);
	sim_store_free(&s->durable);
	sim_store_free(&s->view);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

static const struct card_ops sim_ops_table = {
	.read = sim_read,
	.write = sim_write,
	.flush = sim_flush,
	.set_writable = sim_set_writable,
	.counters = sim_counters,
	.discard = sim_discard,
	.gone = sim_gone,
	.close = sim_close,
};

/* ---- making ---- */

int sim_new(struct card **ret, const struct sim_params *p)
{
	uint64_t size_bytes = round_down_u64(p->size_bytes, COW_BLK_BYTES);
	struct sim *s;
	int r;

	if (!size_bytes || p->erase_block_bytes % COW_BLK_BYTES)
		return -EINVAL;
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	pthread_mutex_init(&s->lock, NULL);
	s->card.ops = &sim_ops_table;
	s->state.collateral_from = UINT64_MAX;
	s->card.geo = (struct card_geometry){
		.size_bytes = size_bytes,
		.disk_off_bytes = p->disk_off_bytes,
		.erase_block_bytes = p->erase_block_bytes ? p->erase_block_bytes
							  : (uint32_t)(4 * MIB),
		.eb_source = p->erase_block_bytes ? CARD_EB_REPORTED : CARD_EB_GUESSED,
		.path = "sim",
	};
	snprintf(s->card.geo.identity, sizeof(s->card.geo.identity), "%s",
		 p->identity ? p->identity : "sim");
	r = sim_store_init(&s->durable, size_bytes >> COW_BLK_SHIFT);
	if (r == 0)
		r = sim_store_init(&s->view, size_bytes >> COW_BLK_SHIFT);
	if (r < 0) {
		sim_close(&s->card);
		return r;
	}
	*ret = &s->card;
	return 0;
}

static void account_copy(struct card_account *to, const struct card_account *from)
{
	to->write_calls = from->write_calls;
	to->written_bytes = from->written_bytes;
	to->read_calls = from->read_calls;
	to->read_bytes = from->read_bytes;
	to->flushes = from->flushes;
	to->writable_ns = from->writable_ns;
}

static int clone_memory(struct sim *s, const struct sim *from)
{
	int r;

	if (from->model) {
		r = flash_model_clone(&s->model, from->model);
		if (r < 0)
			return r;
	}
	s->pending_room = from->n_pending + 1;
	s->pending = malloc(s->pending_room * sizeof(*s->pending));
	if (!s->pending)
		return -ENOMEM;
	r = sim_store_clone(&s->durable, &from->durable);
	if (r == 0)
		r = sim_store_clone(&s->view, &from->view);
	if (r < 0)
		return r;
	for (; s->n_pending < from->n_pending; s->n_pending++) {
		s->pending[s->n_pending] = from->pending[s->n_pending];
		sim_block_ref(s->pending[s->n_pending].block);
	}
	return 0;
}

int sim_clone(struct card **ret, const struct card *from_card)
{
	struct sim *s = calloc(1, sizeof(*s)), *from;
	int r;

	if (!s)
		return -ENOMEM;
	pthread_mutex_init(&s->lock, NULL);
	s->card.ops = from_card->ops;
	s->card.geo = from_card->geo;
	s->card.writable = from_card->writable;
	s->card.writable_since_ns = from_card->writable_since_ns;
	account_copy(&s->card.account, &from_card->account);
	from = sim_lock(from_card);
	s->state = from->state;
	r = clone_memory(s, from);
	sim_unlock(from);
	if (r < 0) {
		sim_close(&s->card);
		return r;
	}
	*ret = &s->card;
	return 0;
}
