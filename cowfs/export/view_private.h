/* SPDX-License-Identifier: MIT */
/*
 * Internals of the view, shared by the serving side (view.c) and the commit side (view_commit.c).
 *
 * Lock order: seal_lock, then stripes by ascending index, then pin. The commit thread takes
 * seal_lock for one pointer store. It waits for pins (view_synchronize) without holding anything. A
 * holder of a pin waits for nothing but the card.
 */
#ifndef COWFS_EXPORT_VIEW_PRIVATE_H
#define COWFS_EXPORT_VIEW_PRIVATE_H

#include <pthread.h>

#include "export/layers.h"
#include "export/pin.h"
#include "export/view.h"

/* Stripes are assigned to the volume in order, wrapping around at the end of the table. A change is
 * done in pieces that end at multiples of VIEW_PIECE_BYTES, so one piece never needs both ends of
 * the table. */
#define VIEW_STRIPES 256
#define VIEW_STRIPE_BYTES (64 * KIB)
#define VIEW_PIECE_BYTES (2 * MIB)
_Static_assert(VIEW_STRIPES *VIEW_STRIPE_BYTES % VIEW_PIECE_BYTES == 0,
	       "pieces do not wrap around");
_Static_assert(VIEW_STRIPE_BYTES % COW_BLK_BYTES == 0, "a block has one stripe");

struct view {
	struct ram_store *store;
	bool plain; /* its stack is not in the store's record */
	struct readahead *readahead;
	uint64_t volume_blks;
	_Atomic(struct layers *) layers; /* stored by the commit thread, loaded under a pin */

	/* belongs to the commit thread; others read sealed */
	_Atomic bool sealed;
	struct layers *spare;	/* private; room for all layers of `layers` */
	struct layers *retired; /* freed at the next synchronize */

	pthread_rwlock_t seal_lock;
	pthread_mutex_t stripe[VIEW_STRIPES];
	struct pins pins;

	alignas(PIN_LINE_BYTES) struct {
		_Atomic uint64_t read_calls, read_bytes, write_calls, written_bytes, punch_calls,
			punched_bytes, read_errors, write_errors;
	} counters;
};

/* Under a pin. */
static inline struct layers *view_layers(const struct view *v)
{
	return atomic_load_explicit(&v->layers, memory_order_acquire);
}

#endif
