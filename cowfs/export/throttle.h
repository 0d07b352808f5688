/* SPDX-License-Identifier: MIT */
/*
 * The throttle: the step between a write and its reply. It admits or refuses a write, counts
 * it against a budget, and delays its reply. It is mechanism only. The policy (volume/monitor.c)
 * sets the budget and the rate, and is called when the budget is used up.
 *
 * I1  A write is applied before its reply is held. No serving thread ever sleeps here. A held write
 *     keeps nothing that a read needs, except a tag of the loop device.
 * I2  Held replies leave in order, at the configured rate in bytes per second.
 * I3  Tags become free at all times. With more than THROTTLE_TAGS_HELD replies held, one leaves every
 *     THROTTLE_TAG_NS, whatever the rate. No reply is held longer than THROTTLE_LONGEST_NS, so that the
 *     device does not seem dead. Neither applies while the throttle is shut or stopped.
 * I4  Once throttle_set_stop's number of bytes is admitted, all replies are held until the number
 *     grows. From then on at most the writes in flight are applied, however late the policy looks.
 */
#ifndef COWFS_EXPORT_THROTTLE_H
#define COWFS_EXPORT_THROTTLE_H

#include "base/util.h"

#define THROTTLE_OPEN UINT64_MAX /* as a rate: nothing is held */
/* of the loop device's 128; half of a smaller number, see throttle_set_tags */
#define THROTTLE_TAGS_HELD 64u
#define THROTTLE_TAG_NS 10000000ull
#define THROTTLE_LONGEST_NS 10000000000ull

struct throttle;

struct throttle_stats {
	uint64_t held, longest_ns; /* now; maximum of the replies that have left */
	uint64_t paced;		   /* replies held since start */
	uint64_t refused;
	uint64_t full_errors; /* writes that found the store full; should be 0 */
};

/* look(ctx): the budget is used up, or the store was full. Called from serving threads; must not
 * block. */
int throttle_new(struct throttle **ret, void (*look)(void *ctx), void *ctx) MUST_CHECK;
void throttle_free(struct throttle *g); /* NULL allowed; stopped */

/* ---- export: reply(req, bytes) ends a held write; from the throttle's thread */
int throttle_start(struct throttle *g, void (*reply)(void *req, size_t bytes)) MUST_CHECK;
void throttle_stop(struct throttle *g); /* answers all held writes, joins the thread */

/* ---- serving threads */
/* Before a write. Returns 0, or the -errno that refuses the write. bytes: whole blocks. */
int throttle_admit(struct throttle *g, size_t bytes);
/* After the write. True: reply will be called, possibly before this returns. False: the caller
 * answers. */
bool throttle_hold(struct throttle *g, void *req, size_t bytes);
void throttle_store_full(struct throttle *g); /* a write got -ENOSPC */
void throttle_look(
	struct throttle *g); /* the data just written may change the policy: calls look */

/* ---- policy, under a lock */
/* look is called once this number of further bytes was admitted. */
void throttle_set_budget(struct throttle *g, uint64_t bytes);
/* bytes/s. 0: no reply leaves until the rate changes. THROTTLE_OPEN: no reply is held. shut: I3 does
 * not hold. Takes effect at once, also for held replies. Any thread. */
void throttle_set_rate(struct throttle *g, uint64_t bytes_per_s, bool shut);
/* Total bytes admitted. throttle_set_stop: the total at which all replies are held (UINT64_MAX: no
 * limit). */
uint64_t throttle_admitted(const struct throttle *g);
void throttle_set_stop(struct throttle *g, uint64_t admitted_bytes);
/* Number of tags of the loop device, at most 2 * THROTTLE_TAGS_HELD. Half of them may be held. Call
 * before the first write. */
void throttle_set_tags(struct throttle *g, unsigned tags);
void throttle_refuse(struct throttle *g,
		     int error); /* -errno for all writes from now on; 0: admit */
void throttle_stats(const struct throttle *g, struct throttle_stats *ret);

/* When the oldest of `held` replies is due. last_ns: when the previous reply left. since_ns: when
 * this write arrived. UINT64_MAX: not before something changes. */
uint64_t throttle_due_ns(uint64_t last_ns, uint64_t since_ns, size_t bytes, unsigned held,
			 uint64_t bytes_per_s, bool shut);

#endif
