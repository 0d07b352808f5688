/* SPDX-License-Identifier: MIT */
/*
 * The throttle's thread sleeps until the oldest held reply is due. A change of the rate wakes it.
 *
 * The list has room for one reply per tag of the loop device and some more. If it is full, a write
 * is answered at once.
 */
#include "export/throttle.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/invariant.h"
#include "base/thread.h"

#define HELD_MAX 256u
#define STACK_BYTES (128 * KIB)

struct held {
	void *req;
	size_t bytes;
	uint64_t since_ns;
};

struct throttle {
	void (*look)(void *ctx);
	void *ctx;
	void (*reply)(void *req, size_t bytes);
	pthread_t thread;
	bool started;

	_Atomic int64_t budget_bytes;
	_Atomic int refuse;
	_Atomic bool holding; /* rate is not THROTTLE_OPEN; serving threads read only this */
	_Atomic uint64_t refused, full_errors;
	_Atomic uint64_t admitted_bytes, stop_bytes;

	/* lock: everything below. Held for moments, never across a reply. */
	pthread_mutex_t lock;
	pthread_cond_t changed;
	uint64_t rate;
	bool shut, stop;
	struct held held[HELD_MAX];
	unsigned first, n, tags_held;
	uint64_t last_ns;
	_Atomic uint64_t held_now, longest_ns, paced; /* written under lock */
};

uint64_t throttle_due_ns(uint64_t last_ns, uint64_t since_ns, size_t bytes, unsigned held,
			 uint64_t bytes_per_s, bool shut)
{
	uint64_t from_ns = max_u64(last_ns, since_ns), due_ns = UINT64_MAX;

	if (bytes_per_s == THROTTLE_OPEN)
		return from_ns;
	if (bytes_per_s)
		due_ns = from_ns + (uint64_t)bytes * 1000000000u / bytes_per_s;
	if (!shut)
		due_ns = min_u64(due_ns, since_ns + THROTTLE_LONGEST_NS);
	if (held > THROTTLE_TAGS_HELD && !shut)
		due_ns = min_u64(due_ns, last_ns + THROTTLE_TAG_NS);
	return due_ns;
}

int throttle_new(struct throttle **ret, void (*look)(void *ctx), void *ctx)
{
	struct throttle *g = calloc(1, sizeof(*g));

	if (!g)
		return -ENOMEM;
	g->look = look;
	g->ctx = ctx;
	g->rate = THROTTLE_OPEN;
	g->budget_bytes = INT64_MAX;
	g->stop_bytes = UINT64_MAX;
	g->tags_held = THROTTLE_TAGS_HELD;
	pthread_mutex_init(&g->lock, NULL);
	thread_cond_init(&g->changed);
	*ret = g;
	return 0;
}

void throttle_free(struct throttle *g)
{
	if (!g)
		return;
	(void)INVARIANT("throttle count", !g->n && !g->held_now && !g->started);
	pthread_cond_destroy(&g->changed);
	pthread_mutex_destroy(&g->lock);
	free(g);
}

static bool is_stopped(const struct throttle *g)
{
	return g->admitted_bytes >= g->stop_bytes;
}

/* ---- the thread ---- */

static uint64_t due_ns(const struct throttle *g)
{
	const struct held *h = &g->held[g->first];

	if (is_stopped(g) && !g->stop)
		return UINT64_MAX;
	return throttle_due_ns(g->last_ns, h->since_ns, h->bytes,
			       g->n > g->tags_held ? THROTTLE_TAGS_HELD + 1 : 0,
			       g->stop ? THROTTLE_OPEN : g->rate, g->shut);
}

/* Called with the lock held; releases it meanwhile. */
static void let_go(struct throttle *g)
{
	struct held h = g->held[g->first];
	uint64_t now = now_ns();

	(void)INVARIANT("throttle count", g->n && g->n <= HELD_MAX);
	g->first = (g->first + 1) % HELD_MAX;
	g->held_now = --g->n;
	g->longest_ns = max_u64(g->longest_ns, now - h.since_ns);
	g->last_ns = now;
	pthread_mutex_unlock(&g->lock);
	g->reply(h.req, h.bytes);
	pthread_mutex_lock(&g->lock);
}

static void *throttle_thread(void *arg)
{
	struct throttle *g = arg;

	pthread_mutex_lock(&g->lock);
	while (g->n || !g->stop) {
		uint64_t due = g->n ? due_ns(g) : UINT64_MAX;

		if (due <= now_ns()) {
			let_go(g);
		} else if (due == UINT64_MAX) {
			pthread_cond_wait(&g->changed, &g->lock);
		} else {
			thread_cond_wait_until(&g->changed, &g->lock, due);
		}
	}
	pthread_mutex_unlock(&g->lock);
	return NULL;
}

int throttle_start(struct throttle *g, void (*reply)(void *req, size_t bytes))
{
	int r;

	g->reply = reply;
	r = thread_start(&g->thread, "cowfs-throttle", STACK_BYTES, throttle_thread, g);
	g->started = r == 0;
	return r;
}

void throttle_stop(struct throttle *g)
{
	if (!g->started)
		return;
	pthread_mutex_lock(&g->lock);
	g->stop = true;
	pthread_cond_signal(&g->changed);
	pthread_mutex_unlock(&g->lock);
	pthread_join(g->thread, NULL);
	g->started = false;
}

/* ---- serving threads ---- */

int throttle_admit(struct throttle *g, size_t bytes)
{
	int64_t before = atomic_fetch_sub_explicit(&g->budget_bytes, (int64_t)bytes,
						   memory_order_relaxed);
	uint64_t admitted = atomic_fetch_add_explicit(&g->admitted_bytes, bytes,
						      memory_order_relaxed);
	uint64_t stop = atomic_load_explicit(&g->stop_bytes, memory_order_relaxed);
	int r;

	if ((before >= 0 && before < (int64_t)bytes) ||
	    (admitted < stop && stop - admitted <= bytes))
		g->look(g->ctx); /* called by the thread whose write used the last of the budget */
	r = atomic_load_explicit(&g->refuse, memory_order_relaxed);
	if (r < 0)
		g->refused++;
	return r;
}

bool throttle_hold(struct throttle *g, void *req, size_t bytes)
{
	if (!atomic_load_explicit(&g->holding, memory_order_relaxed) && !is_stopped(g))
		return false;
	LOCKED(&g->lock);
	if ((g->rate == THROTTLE_OPEN && !is_stopped(g)) || g->stop || !g->started ||
	    g->n == HELD_MAX)
		return false;
	g->held[(g->first + g->n) % HELD_MAX] =
		(struct held){ .req = req, .bytes = bytes, .since_ns = now_ns() };
	g->held_now = ++g->n;
	g->paced++;
	pthread_cond_signal(&g->changed);
	return true;
}

void throttle_store_full(struct throttle *g)
{
	g->full_errors++;
	g->look(g->ctx);
}

void throttle_look(struct throttle *g)
{
	g->look(g->ctx);
}

/* ---- policy ---- */

void throttle_set_budget(struct throttle *g, uint64_t bytes)
{
	g->budget_bytes = (int64_t)min_u64(bytes, INT64_MAX);
}

void throttle_set_rate(struct throttle *g, uint64_t bytes_per_s, bool shut)
{
	LOCKED(&g->lock);
	if (g->rate != bytes_per_s || g->shut != shut) {
		g->rate = bytes_per_s;
		g->shut = shut;
		g->holding = bytes_per_s != THROTTLE_OPEN;
		pthread_cond_signal(&g->changed);
	}
}

void throttle_set_tags(struct throttle *g, unsigned tags)
{
	g->tags_held = tags / 2;
}

uint64_t throttle_admitted(const struct throttle *g)
{
	return g->admitted_bytes;
}

void throttle_set_stop(struct throttle *g, uint64_t admitted_bytes)
{
	LOCKED(&g->lock);
	g->stop_bytes = admitted_bytes;
	pthread_cond_signal(&g->changed);
}

void throttle_refuse(struct throttle *g, int error)
{
	g->refuse = error;
}

void throttle_stats(const struct throttle *g, struct throttle_stats *ret)
{
	ret->held = g->held_now;
	ret->longest_ns = g->longest_ns;
	ret->paced = g->paced;
	ret->refused = g->refused;
	ret->full_errors = g->full_errors;
}
