/* SPDX-License-Identifier: MIT */
/*
 * The throttle (gate): the step between a write and its reply. It admits or refuses a write, counts
 * it against a budget, and delays its reply. It is mechanism only. The policy (volume/monitor.c)
 * sets the budget and the rate, and is called when the budget is used up.
 *
 * I1  A write is applied before its reply is held. No serving thread ever sleeps here. A held write
 *     keeps nothing that a read needs, except a tag of the loop device.
 * I2  Held replies leave in order, at the configured rate in bytes per second.
 * I3  Tags become free at all times. With more than GATE_TAGS_HELD replies held, one leaves every
 *     GATE_TAG_NS, whatever the rate. No reply is held longer than GATE_LONGEST_NS, so that the
 *     device does not seem dead. Neither applies while the throttle is shut or stopped.
 * I4  Once gate_set_stop's number of bytes is admitted, all replies are held until the number
 *     grows. From then on at most the writes in flight are applied, however late the policy looks.
 */
#ifndef COWFS_EXPORT_GATE_H
#define COWFS_EXPORT_GATE_H

#include "base/util.h"

#define GATE_OPEN UINT64_MAX /* as a rate: nothing is held */
/* of the loop device's 128; half of a smaller number, see gate_set_tags */
#define GATE_TAGS_HELD 64u
#define GATE_TAG_NS 10000000ull
#define GATE_LONGEST_NS 10000000000ull

struct gate;

struct gate_stats {
	uint64_t held, longest_ns; /* now; maximum of the replies that have left */
	uint64_t paced;		   /* replies held since start */
	uint64_t refused;
	uint64_t full_errors; /* writes that found the store full; should be 0 */
};

/* look(ctx): the budget is used up, or the store was full. Called from serving threads; must not
 * block. */
int gate_new(struct gate **ret, void (*look)(void *ctx), void *ctx) MUST_CHECK;
void gate_free(struct gate *g); /* NULL allowed; stopped */

/* ---- export: reply(req, bytes) ends a held write; from the throttle's thread */
int gate_start(struct gate *g, void (*reply)(void *req, size_t bytes)) MUST_CHECK;
void gate_stop(struct gate *g); /* answers all held writes, joins the thread */

/* ---- serving threads */
/* Before a write. Returns 0, or the -errno that refuses the write. bytes: whole blocks. */
int gate_admit(struct gate *g, size_t bytes);
/* After the write. True: reply will be called, possibly before this returns. False: the caller
 * answers. */
bool gate_hold(struct gate *g, void *req, size_t bytes);
void gate_store_full(struct gate *g); /* a write got -ENOSPC */
void gate_look(struct gate *g);	      /* the data just written may change the policy: calls look */

/* ---- policy, one thread */
/* look is called once this number of further bytes was admitted. */
void gate_set_budget(struct gate *g, uint64_t bytes);
/* bytes/s. 0: no reply leaves until the rate changes. GATE_OPEN: no reply is held. shut: I3 does
 * not hold. Takes effect at once, also for held replies. Any thread. */
void gate_set_rate(struct gate *g, uint64_t bytes_per_s, bool shut);
/* Total bytes admitted. gate_set_stop: the total at which all replies are held (UINT64_MAX: no
 * limit). */
uint64_t gate_admitted(const struct gate *g);
void gate_set_stop(struct gate *g, uint64_t admitted_bytes);
/* Number of tags of the loop device, at most 2 * GATE_TAGS_HELD. Half of them may be held. Call
 * before the first write. */
void gate_set_tags(struct gate *g, unsigned tags);
void gate_refuse(struct gate *g, int error); /* -errno for all writes from now on; 0: admit */
void gate_stats(const struct gate *g, struct gate_stats *ret);

/* When the oldest of `held` replies is due. last_ns: when the previous reply left. since_ns: when
 * this write arrived. UINT64_MAX: not before something changes. */
uint64_t gate_due_ns(uint64_t last_ns, uint64_t since_ns, size_t bytes, unsigned held,
		     uint64_t bytes_per_s, bool shut);

#endif
