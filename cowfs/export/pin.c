/* SPDX-License-Identifier: MIT */
/*
 * Why pins_synchronize is correct. A reader enters: E1 ++held[phase], E2 load grace. The commit
 * thread synchronises: S1 ++grace, S2 wait for 0 in every slot, both phases. All four are
 * sequentially consistent, so they have one total order. Either E2 is before S1: then E1 is before
 * S2, whichever phase the reader took, and S2 waits for the reader. Or S1 is before E2: then E2
 * reads the value that S1 wrote, and the reader sees everything done before the call. This argument
 * does not depend on the phase.
 *
 * The phase only makes the wait end although new readers keep coming: while the commit thread waits
 * for one phase, new readers use the other. A reader that loaded the old phase and arrives late
 * only delays the wait.
 *
 * Leaving is a release, and every change of the counter is a read-modify-write. So the 0 that the
 * wait reads carries the effects of all readers of this slot.
 */
#include "export/pin.h"

#include "base/invariant.h"

#define POLL_MIN_NS 20000
#define POLL_MAX_NS 1000000

static unsigned my_slot(void)
{
	static _Atomic unsigned next;
	static _Thread_local unsigned mine; /* 0: not yet assigned */

	if (!mine)
		mine = 1 + atomic_fetch_add_explicit(&next, 1, memory_order_relaxed) % PIN_SLOTS;
	return mine - 1;
}

struct pin pins_enter(struct pins *p)
{
	unsigned phase = atomic_load_explicit(&p->phase, memory_order_relaxed) & 1;
	struct pin pin = { &p->slot[my_slot()].held[phase] };

	atomic_fetch_add(pin.held, 1);
	(void)atomic_load(&p->grace);
	return pin;
}

void pins_leave(struct pin pin)
{
	/* signed: the flags of the subtraction give the answer */
	int left = (int)(atomic_fetch_sub_explicit(pin.held, 1, memory_order_release) - 1);

	(void)INVARIANT("pin count", left >= 0);
}

static void wait_for_phase(struct pins *p, unsigned phase)
{
	struct timespec ts = { .tv_nsec = POLL_MIN_NS };

	for (unsigned i = 0; i < PIN_SLOTS; i++)
		while (atomic_load(&p->slot[i].held[phase])) {
			nanosleep(&ts, NULL);
			ts.tv_nsec = (long)min_u64(2 * (uint64_t)ts.tv_nsec, POLL_MAX_NS);
		}
}

bool pins_none(const struct pins *p)
{
	unsigned held = 0;

	for (unsigned i = 0; i < PIN_SLOTS; i++)
		held |= p->slot[i].held[0] | p->slot[i].held[1];
	return !held;
}

void pins_synchronize(struct pins *p)
{
	unsigned phase = atomic_load_explicit(&p->phase, memory_order_relaxed) & 1;

	atomic_fetch_add(&p->grace, 1);
	wait_for_phase(p, !phase);
	atomic_store_explicit(&p->phase, !phase, memory_order_relaxed);
	wait_for_phase(p, phase);
}
