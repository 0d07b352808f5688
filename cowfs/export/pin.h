/* SPDX-License-Identifier: MIT */
/*
 * Pins: a request declares that it uses the currently published object. The commit thread waits
 * until nothing uses the object that it replaced. This works like sleepable RCU: enter and leave
 * are lock-free and touch one cache line that few threads share. pins_synchronize bears all the
 * cost.
 *
 * 	reader				commit thread
 * 	p = pins_enter();		publish new
 * 	x = published;			pins_synchronize();
 * 	use x;				free old
 * 	pins_leave(p);
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

/* A struct pins of all zeroes is valid. It needs no other initialisation and no destruction. */

struct pin pins_enter(struct pins *p);
void pins_leave(struct pin pin);
bool pins_none(const struct pins *p); /* is no pin held? */

/*
 * Waits until every pin that was entered before this call has been left. A pin that it does not
 * wait for sees all effects of the caller before the call. One thread at a time; not while holding
 * a pin.
 */
void pins_synchronize(struct pins *p);

#endif
