/* SPDX-License-Identifier: MIT */
/*
 * The gate: what stands between a write and its reply. It admits a write or refuses it, counts it
 * against a budget, and holds its reply back. Mechanism only: who sets the budget and the rate
 * (volume/monitor.c) is told when the budget is used up.
 *
 * I1  A write is applied before its reply is held: no serving thread ever sleeps here, and a read
 *     needs nothing that a held write has, but a tag of the loop device.
 * I2  Held replies leave in order, as many bytes a second as the rate says.
 * I3  Tags come free at all times: with more than GATE_TAGS_HELD replies held, one leaves every
 *     GATE_TAG_NS whatever the rate; and none is held longer than GATE_LONGEST_NS, so that nobody
 *     takes the device for dead. Both unless the gate is shut, or stopped.
 * I4  Once as many bytes were admitted as gate_set_stop allows, all replies are held until it
 *     allows more: what is applied then is at most what was in flight, however late the policy
 *     looks.
 */
#ifndef COWFS_EXPORT_GATE_H
#define COWFS_EXPORT_GATE_H

#include "base/util.h"

#define GATE_OPEN UINT64_MAX /* as a rate: nothing is held */
#define GATE_TAGS_HELD 64u   /* of the loop device's 128; of fewer tags half, see gate_set_tags */
#define GATE_TAG_NS 10000000ull
#define GATE_LONGEST_NS 10000000000ull

struct gate;

struct gate_stats {
	uint64_t held, longest_ns; /* now; of those that have left */
	uint64_t paced;		   /* replies held ever */
	uint64_t refused;
	uint64_t full_errors; /* writes for which the store had no room: should be 0 */
};

/* look(ctx): the budget is used up, or the store was full. From serving threads; must not block. */
int gate_new(struct gate **ret, void (*look)(void *ctx), void *ctx) MUST_CHECK;
void gate_free(struct gate *g); /* NULL allowed; stopped */

/* ---- export: reply(req, bytes) ends a held write; from the gate's thread */
int gate_start(struct gate *g, void (*reply)(void *req, size_t bytes)) MUST_CHECK;
void gate_stop(struct gate *g); /* answers all that is held, joins the thread */

/* ---- serving threads */
/* Before a write: 0, or the -errno that it is refused with. bytes: of whole blocks. */
int gate_admit(struct gate *g, size_t bytes);
/* After it. True: reply will be called, maybe before this returns. False: the caller answers. */
bool gate_hold(struct gate *g, void *req, size_t bytes);
void gate_store_full(struct gate *g); /* a write got -ENOSPC */
void gate_look(struct gate *g);	      /* what was written may change the policy: look is called */

/* ---- policy, one thread */
/* look is called once so many bytes more were admitted. */
void gate_set_budget(struct gate *g, uint64_t bytes);
/* bytes/s, 0: none until the rate changes, GATE_OPEN. shut: I3 does not hold. At once, also for
 * what is held. Any thread. */
void gate_set_rate(struct gate *g, uint64_t bytes_per_s, bool shut);
/* All that was ever admitted; and how much that may become before all replies are held (UINT64_MAX:
 * no limit). */
uint64_t gate_admitted(const struct gate *g);
void gate_set_stop(struct gate *g, uint64_t admitted_bytes);
/* The loop device has so many tags, at most 2 * GATE_TAGS_HELD: half of them may be held. Before
 * the first write. */
void gate_set_tags(struct gate *g, unsigned tags);
void gate_refuse(struct gate *g, int error); /* -errno for all writes from now on; 0: admit */
void gate_stats(const struct gate *g, struct gate_stats *ret);

/* When the oldest of `held` replies is due. last_ns: when the one before it left; since_ns: when it
 * came itself. UINT64_MAX: not before something changes. */
uint64_t gate_due_ns(uint64_t last_ns, uint64_t since_ns, size_t bytes, unsigned held,
		     uint64_t bytes_per_s, bool shut);

#endif
