/* SPDX-License-Identifier: MIT */
/*
 * Pins: a request says "I use what is published now", and the commit thread waits until nobody
 * uses what it has replaced. As sleepable RCU: enter and leave are lock-free and touch one cache
 * line that few threads share; all the cost is in pins_synchronize.
 *
 *	reader				commit thread
 *	p = pins_enter();		publish new
 *	x = published;			pins_synchronize();
 *	use x;				free old
 *	pins_leave(p);
 */
#ifndef COWFS_EXPORT_PIN_H
#define COWFS_EXPORT_PIN_H

#include <stdalign.h>
#include <stdatomic.h>

#include "base/util.h"

#define PIN_SLOTS 32
#define PIN_LINE_BYTES 64

struct pins {
	alignas(PIN_LINE_BYTES) _Atomic unsigned phase, grace;
	struct {
		alignas(PIN_LINE_BYTES) _Atomic unsigned held[2];
	} slot[PIN_SLOTS];
};

struct pin {
	_Atomic unsigned *held;
};

/* All zero is a valid struct pins; it needs no other initialisation and no destruction. */

struct pin pins_enter(struct pins *p);
void pins_leave(struct pin pin);
bool pins_none(const struct pins *p); /* is no pin held? */

/*
 * Waits until every pin that was entered before this call has been left. A pin that it need not
 * wait for sees all that the caller did before the call. One thread at a time; not while holding a
 * pin.
 */
void pins_synchronize(struct pins *p);

#endif
