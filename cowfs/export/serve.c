/* SPDX-License-Identifier: MIT */
/*
 * Notes on the design
 * - Why one thread receives: the kernel wakes the threads that wait in read in turn, wherever they
 *   last ran. A chain of small requests, each sent after the previous answer, then wanders over the
 *   CPUs. Where those are busy, it waits for a time slice at each step (docs/BENCHMARKS.md).
 * - The follower that stopped last is woken first, because its stack and buffer are still in the
 *   cache.
 * - Two threads that receive at the same time are correct, only slower. So the check whether a
 *   thread still leads needs no lock: a leader that was replaced at this moment serves one more
 *   request.
 * - The watch looks every SERVE_STUCK_MS / 2 while requests come. It sleeps when none came since
 *   its last look. A leader that begins a request while the watch sleeps wakes it. One thread
 *   writes turn and asleep and the other reads them in opposite order, all sequentially consistent,
 *   so one of the two sees the other.
 */
#include "export/serve.h"

#include <errno.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "base/io.h"
#include "base/thread.h"

#define STACK_BYTES (256 * KIB)
#define STACK_TOUCH_BYTES (64 * KIB)
#define WATCH_STACK_BYTES (64 * KIB)
#define WAITED_NS 3000 /* longer than receiving a request that is already queued */

struct server {
	struct serve *serve;
	pthread_t thread;
	sem_t wake;	       /* of a follower: it leads, or all threads end */
	_Atomic unsigned turn; /* odd: inside a request */
	void *buf;
	bool waited; /* it had to wait for the last request */
	/* of serve_loops: the request that it has met, and the processor time of the thread then */
	unsigned seen_turn;
	uint64_t seen_ns;
};

struct serve {
	struct serve_ops ops;
	void *ctx;
	_Atomic(struct server *) leader; /* written under lock; NULL: the next idle thread leads */
	_Atomic bool ended;
	pthread_mutex_t lock; /* held for moments; protects leader and idle */
	unsigned n_idle;
	struct server **idle; /* a stack */

	pthread_t watch;
	bool watching;
	_Atomic bool asleep;
	sem_t watch_wake;

	unsigned n, started;
	struct server server[];
};

static __thread struct server *self;

/* Lock held. */
static void lead_next(struct serve *s)
{
	struct server *next = s->n_idle ? s->idle[--s->n_idle] : NULL;

	s->leader = next;
	if (next)
		sem_post(&next->wake);
}

void serve_hand_over(struct serve *s)
{
	if (!s)
		return;
	LOCKED(&s->lock);
	if (s->leader == self)
		lead_next(s);
}

bool serve_waited(void)
{
	return self->waited;
}

static void sleep_on(sem_t *sem)
{
	while (sem_wait(sem) < 0)
		; /* EINTR */
}

/* Returns when this thread leads, or all threads end. */
static void follow(struct serve *s, struct server *me)
{
	bool wait;

	pthread_mutex_lock(&s->lock);
	wait = s->leader && s->leader != me && !s->ended;
	if (wait)
		s->idle[s->n_idle++] = me;
	else
		s->leader = me;
	pthread_mutex_unlock(&s->lock);
	if (wait)
		sleep_on(&me->wake);
}

/* Wakes all threads so that they see the end. */
static void end(struct serve *s)
{
	s->ended = true;
	pthread_mutex_lock(&s->lock);
	while (s->n_idle)
		sem_post(&s->idle[--s->n_idle]->wake);
	pthread_mutex_unlock(&s->lock);
	sem_post(&s->watch_wake);
}

static void lead(struct serve *s, struct server *me)
{
	while (s->leader == me && !s->ended) {
		uint64_t since_ns = now_ns();
		ssize_t n = s->ops.receive(s->ctx, me->buf);

		if (n == -EAGAIN)
			continue;
		if (n < 0) {
			end(s);
			return;
		}
		me->waited = now_ns() - since_ns > WAITED_NS;
		me->turn++;
		if (s->asleep && atomic_exchange(&s->asleep, false))
			sem_post(&s->watch_wake);
		s->ops.handle(s->ctx, me->buf, (size_t)n);
		me->turn++;
	}
}

static void touch_stack(void)
{
	volatile char pad[STACK_TOUCH_BYTES];

	for (size_t i = 0; i < sizeof(pad); i += COW_BLK_BYTES)
		pad[i] = 0;
}

static void *server_thread(void *arg)
{
	struct server *me = self = arg;
	struct serve *s = me->serve;

	touch_stack();
	while (!s->ended) {
		follow(s, me);
		lead(s, me);
	}
	return NULL;
}

/* ---- the watch ---- */

struct sight {
	struct server *leader;
	unsigned turn;
};

static struct sight look(struct serve *s)
{
	struct server *leader = s->leader;

	return (struct sight){ leader, leader ? leader->turn : 0 };
}

static void replace(struct serve *s, struct server *stuck)
{
	LOCKED(&s->lock);
	if (s->leader == stuck)
		lead_next(s);
}

static void *watch_thread(void *arg)
{
	struct serve *s = arg;
	struct sight before = { NULL, 0 };
	unsigned stuck_for = 0;

	while (!s->ended) {
		struct sight now = look(s);
		bool same = now.leader && now.leader == before.leader && now.turn == before.turn;

		if (same && now.turn % 2 && ++stuck_for == 2) {
			replace(s, now.leader);
			stuck_for = 0;
		} else if (!same) {
			stuck_for = 0;
		} else if (now.turn % 2 == 0) {
			struct sight again;

			s->asleep = true;
			again = look(s);
			if (again.leader == now.leader && again.turn == now.turn) {
				sleep_on(&s->watch_wake);
			} else if (!atomic_exchange(&s->asleep, false)) {
				sleep_on(&s->watch_wake); /* its post is under way */
			}
		}
		before = now;
		if (!s->ended)
			usleep(SERVE_STUCK_MS / 2 * 1000);
	}
	return NULL;
}

static uint64_t cpu_time_ns(pthread_t thread)
{
	struct timespec t = { 0 };
	clockid_t clock;

	if (pthread_getcpuclockid(thread, &clock) == 0)
		(void)clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

bool serve_loops(struct serve *s, uint64_t cpu_ns)
{
	for (struct server *me = s->server; me < s->server + s->started; me++) {
		unsigned turn = me->turn;

		if (turn % 2 && turn == me->seen_turn) {
			if (cpu_time_ns(me->thread) - me->seen_ns >= cpu_ns)
				return true;
		} else if (turn % 2) {
			me->seen_ns = cpu_time_ns(me->thread);
		}
		me->seen_turn = turn;
	}
	return false;
}

/* ---- */

void serve_free(struct serve *s)
{
	if (!s)
		return;
	for (unsigned i = 0; i < s->started; i++)
		pthread_join(s->server[i].thread, NULL);
	if (s->watching)
		pthread_join(s->watch, NULL);
	for (unsigned i = 0; i < s->n; i++) {
		free(s->server[i].buf);
		sem_destroy(&s->server[i].wake);
	}
	sem_destroy(&s->watch_wake);
	pthread_mutex_destroy(&s->lock);
	free(s->idle);
	free(s);
}

int serve_new(struct serve **ret, unsigned threads, const struct serve_ops *ops, void *ctx)
{
	struct serve *s = calloc(1, sizeof(*s) + threads * sizeof(s->server[0]));
	bool ok;

	if (!s)
		return -ENOMEM;
	s->ops = *ops;
	s->ctx = ctx;
	pthread_mutex_init(&s->lock, NULL);
	sem_init(&s->watch_wake, 0, 0);
	s->idle = calloc(threads, sizeof(struct server *));
	ok = s->idle;
	for (; s->n < threads; s->n++) {
		struct server *me = &s->server[s->n];

		me->serve = s;
		sem_init(&me->wake, 0, 0);
		me->buf = io_alloc(ops->buf_bytes);
		ok = ok && me->buf;
	}
	if (!ok) {
		serve_free(s);
		return -ENOMEM;
	}
	*ret = s;
	return 0;
}

int serve_start(struct serve *s)
{
	int r = 0;

	for (; !r && s->started < s->n; s->started += !r)
		r = thread_start(&s->server[s->started].thread, "cowfs-serve", STACK_BYTES,
				 server_thread, &s->server[s->started]);
	if (!r) {
		r = thread_start(&s->watch, "cowfs-watch", WATCH_STACK_BYTES, watch_thread, s);
		s->watching = r == 0;
	}
	return r;
}
