/* SPDX-License-Identifier: MIT */
/*
 * A reader enters a pin, then looks whether the image has ended; the end is set, then the pins are
 * counted. One of the two sees the other. The last one that leaves an image that has ended frees
 * its RAM. A read looks again afterwards: the end is set ahead of the write that would change what
 * the card returns.
 */
#include "volume/scratch.h"

#include <errno.h>
#include <string.h>

#include "base/thread.h"
#include "export/pin.h"

struct scratch {
	struct pins pins;
	_Atomic unsigned refs;
	_Atomic bool ended, sealed;
	pthread_mutex_t lock; /* protects the release of the view; held for moments */
	struct view *view;    /* under a pin; NULL: released */
	struct ram_store *store;
	uint64_t volume_blks, max_bytes;
	struct pin own; /* of the commit thread, while sealed */
};

int scratch_new(struct scratch **ret, struct ram_store *store, struct card *base,
		uint64_t volume_blks, struct log_index *index, uint64_t max_bytes)
{
	struct scratch *s = aligned_alloc(alignof(struct scratch), sizeof(*s));
	int r;

	if (!s)
		return -ENOMEM;
	memset(s, 0, sizeof(*s));
	r = view_new_plain(&s->view, store, base, volume_blks, index);
	if (r < 0) {
		free(s);
		return r;
	}
	pthread_mutex_init(&s->lock, NULL);
	s->refs = 1;
	s->store = store;
	s->volume_blks = volume_blks;
	s->max_bytes = max_bytes;
	*ret = s;
	return 0;
}

struct scratch *scratch_ref(struct scratch *s)
{
	atomic_fetch_add(&s->refs, 1);
	return s;
}

void scratch_unref(struct scratch *s)
{
	if (!s || atomic_fetch_sub(&s->refs, 1) != 1)
		return;
	view_free(s->view);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

static void leave(struct scratch *s, struct pin pin)
{
	pins_leave(pin);
	atomic_thread_fence(memory_order_seq_cst);
	if (!s->ended)
		return;
	LOCKED(&s->lock);
	if (s->view && pins_none(&s->pins)) {
		view_free(s->view);
		s->view = NULL;
	}
}

/* The result of a request that began before this call. One that failed leaves a hole. */
static int finish(struct scratch *s, struct pin pin, int r)
{
	if (r == 0 && s->ended)
		r = -EIO;
	if (r < 0)
		s->ended = true;
	leave(s, pin);
	return r;
}

int scratch_read(struct scratch *s, uint64_t off_bytes, void *buf, size_t len_bytes)
{
	struct pin pin = pins_enter(&s->pins);

	return finish(s, pin, s->ended ? -EIO : view_read(s->view, off_bytes, buf, len_bytes));
}

static int may_write(const struct scratch *s)
{
	if (s->ended || s->sealed)
		return -EIO;
	return ram_store_room(s->store, s->max_bytes) ? 0 : -ENOSPC;
}

int scratch_write(struct scratch *s, uint64_t off_bytes, const void *buf, size_t len_bytes)
{
	struct pin pin = pins_enter(&s->pins);
	int r = may_write(s);

	if (r == 0)
		r = view_write(s->view, off_bytes, buf, len_bytes);
	return finish(s, pin, r);
}

int scratch_punch(struct scratch *s, uint64_t off_bytes, uint64_t len_bytes)
{
	struct pin pin = pins_enter(&s->pins);
	int r = may_write(s);

	if (r == 0)
		r = view_punch(s->view, off_bytes, len_bytes);
	return finish(s, pin, r);
}

uint64_t scratch_volume_blks(const struct scratch *s)
{
	return s->volume_blks;
}

bool scratch_ended(const struct scratch *s)
{
	return s->ended;
}

void scratch_end(struct scratch *s)
{
	s->ended = true;
	leave(s, pins_enter(&s->pins));
}

uint64_t scratch_held_bytes(struct scratch *s)
{
	struct pin pin = pins_enter(&s->pins);
	struct generation_stats active = { 0 }, below = { 0 };

	if (!s->ended)
		view_dirty(s->view, &active, &below);
	leave(s, pin);
	return blk_to_bytes(active.data_blks + below.data_blks);
}

int scratch_seal(struct scratch *s, struct view **ret_view)
{
	int r;

	s->own = pins_enter(&s->pins);
	s->sealed = true;
	r = s->ended ? -EAGAIN : view_seal(s->view);
	/* a write that began before the seal and is still under way may fail */
	if (r == 0) {
		view_synchronize(s->view);
		r = s->ended ? -EAGAIN : 0;
	}
	if (r < 0)
		scratch_close(s);
	else
		*ret_view = s->view;
	return r;
}

void scratch_close(struct scratch *s)
{
	s->ended = true;
	leave(s, s->own);
}
