/* SPDX-License-Identifier: MIT */
#include "export/parked.h"

#include <errno.h>
#include <string.h>

#include "base/io.h"
#include "base/thread.h"

#define STACK_BYTES (128 * KIB)
#define PAUSE_NS 50000000ull
/* tried in a row before a pause: requests may wait for two cards, of which one is back */
#define TRIES 8u

struct parked {
	struct parked_ops ops;
	void *ctx;
	pthread_mutex_t lock; /* of all below; held for moments */
	pthread_cond_t changed;
	struct parked_request *first, **last;
	unsigned n; /* taken and not answered */
	bool refused;
	pthread_t thread;
	bool running, to_join;
	void *buf; /* of the thread */
};

int parked_new(struct parked **ret, const struct parked_ops *ops, void *ctx)
{
	struct parked *p = calloc(1, sizeof(*p));

	if (!p)
		return -ENOMEM;
	p->ops = *ops;
	p->ctx = ctx;
	p->last = &p->first;
	pthread_mutex_init(&p->lock, NULL);
	thread_cond_init(&p->changed);
	*ret = p;
	return 0;
}

/* ---- with the lock held ---- */

static void put(struct parked *p, struct parked_request *r)
{
	r->next = NULL;
	*p->last = r;
	p->last = &r->next;
}

static struct parked_request *get(struct parked *p)
{
	struct parked_request *r = p->first;

	if (r)
		p->first = r->next;
	if (!p->first)
		p->last = &p->first;
	return r;
}

/* Releases the lock meanwhile. True: the request stays parked. */
static bool serve(struct parked *p, struct parked_request *r)
{
	int result = -EIO;
	bool refused = p->refused;

	pthread_mutex_unlock(&p->lock);
	if (!refused)
		result = p->ops.serve(p->ctx, r, p->buf);
	if (result != -ENOMEDIUM)
		p->ops.answer(p->ctx, r, p->buf, result);
	pthread_mutex_lock(&p->lock);
	if (result == -ENOMEDIUM) {
		put(p, r);
		return true;
	}
	free(r);
	p->n--;
	return false;
}

static void *parked_thread(void *arg)
{
	struct parked *p = arg;
	unsigned failed = 0;

	pthread_mutex_lock(&p->lock);
	while (p->n) {
		bool pause = failed >= min_u64(p->n, TRIES) && !p->refused;
		struct parked_request *r = pause ? NULL : get(p);

		if (r) {
			failed = serve(p, r) ? failed + 1 : 0;
		} else {
			thread_cond_wait_until(&p->changed, &p->lock, now_ns() + PAUSE_NS);
			failed = 0;
		}
	}
	p->running = false;
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

static void join(struct parked *p)
{
	if (p->to_join)
		pthread_join(p->thread, NULL);
	p->to_join = false;
	free(p->buf);
	p->buf = NULL;
}

static bool start(struct parked *p)
{
	if (p->running)
		return true;
	join(p); /* it has ended */
	p->buf = io_alloc(p->ops.buf_bytes);
	p->running = p->to_join = p->buf && thread_start(&p->thread, "cowfs-parked", STACK_BYTES,
							 parked_thread, p) == 0;
	return p->running;
}

/* ---- */

static struct parked_request *try_take(struct parked *p, size_t data_bytes)
{
	struct parked_request *r = malloc(sizeof(*r) + data_bytes);
	bool ok;

	pthread_mutex_lock(&p->lock);
	p->n++; /* the thread ends without */
	ok = r && p->n <= PARKED_MAX && start(p);
	p->n -= !ok;
	pthread_mutex_unlock(&p->lock);
	if (!ok)
		free(r);
	return ok ? r : NULL;
}

void parked_add(struct parked *p, void *req, enum parked_kind kind, uint64_t off_bytes,
		uint64_t len_bytes, const void *data)
{
	size_t data_bytes = data ? len_bytes : 0;
	struct parked_request *r;

	while (!(r = try_take(p, data_bytes)))
		usleep(PAUSE_NS / 1000);
	r->req = req;
	r->kind = kind;
	r->off_bytes = off_bytes;
	r->len_bytes = len_bytes;
	if (data)
		memcpy(r->data, data, data_bytes);
	LOCKED(&p->lock);
	put(p, r);
	pthread_cond_signal(&p->changed);
}

void parked_refuse(struct parked *p, bool on)
{
	LOCKED(&p->lock);
	p->refused = on;
	pthread_cond_signal(&p->changed);
}

void parked_free(struct parked *p)
{
	if (!p)
		return;
	parked_refuse(p, true);
	join(p);
	pthread_cond_destroy(&p->changed);
	pthread_mutex_destroy(&p->lock);
	free(p);
}
