/* SPDX-License-Identifier: MIT */
/*
 * Notes on the design
 * - SINGLE_ISSUER and DEFER_TASKRUN (Linux 6.1): completions are prepared by the ring thread itself
 *   when it asks for them, all at once. Without them each request interrupts the thread.
 * - The ring is restricted to the operations that are used here before it is enabled, because a
 *   filter of system calls does not see them.
 * - Other threads wake the ring thread through an eventfd, for which a read is always in flight.
 */
#include "export/ring_thread.h"

#include <errno.h>

#include "export/uring.h"

#ifdef COWFS_URING

#include <semaphore.h>
#include <string.h>
#include <sys/eventfd.h>

#include "base/msg.h"
#include "base/thread.h"
#include "card/async.h"

#define STACK_BYTES (256 * KIB)

struct worker {
	struct ring *ring;
	pthread_t thread;
};

struct queue {
	pthread_mutex_t lock; /* held for moments */
	struct ring_work *first, **last;
};

struct ring {
	struct ring_params p;
	struct uring uring;
	pthread_t thread;
	bool registered; /* p.memory */
	sem_t begun;
	int result; /* of begin; before begun */
	bool end;
	unsigned in_flight; /* besides the wake-up */

	int wake_fd;
	uint64_t wake_count;
	struct ring_op wake;
	struct queue posted;

	struct queue jobs;
	sem_t have_job;
	unsigned workers;
	struct worker worker[RING_WORKERS];
};

static __thread const struct ring *self;

/* ---- queues ---- */

static void queue_init(struct queue *q)
{
	pthread_mutex_init(&q->lock, NULL);
	q->last = &q->first;
}

/* True: it was empty. */
static bool queue_put(struct queue *q, struct ring_work *w)
{
	bool was_empty;

	pthread_mutex_lock(&q->lock);
	was_empty = !q->first;
	w->next = NULL;
	*q->last = w;
	q->last = &w->next;
	pthread_mutex_unlock(&q->lock);
	return was_empty;
}

static struct ring_work *queue_get(struct queue *q)
{
	struct ring_work *w;

	pthread_mutex_lock(&q->lock);
	w = q->first;
	if (w) {
		q->first = w->next;
		if (!q->first)
			q->last = &q->first;
	}
	pthread_mutex_unlock(&q->lock);
	return w;
}

void ring_post(struct ring *r, struct ring_work *w)
{
	if (queue_put(&r->posted, w))
		(void)eventfd_write(r->wake_fd, 1);
}

void ring_block(struct ring *r, struct ring_work *w)
{
	(void)queue_put(&r->jobs, w);
	sem_post(&r->have_job);
}

/* ---- workers ---- */

static void *worker_thread(void *arg)
{
	struct worker *me = arg;
	struct ring *r = me->ring;

	for (;;) {
		struct ring_work *w;

		while (sem_wait(&r->have_job) < 0)
			; /* EINTR */
		w = queue_get(&r->jobs);
		if (!w)
			return NULL;
		w->call(w);
	}
}

/* ---- the ring thread ---- */

bool ring_is_mine(const struct ring *r)
{
	return self == r;
}

void ring_flush(struct ring *r)
{
	while (uring_pending(&r->uring))
		(void)uring_submit(&r->uring, 0);
}

static struct io_uring_sqe *get_sqe(struct ring *r)
{
	struct io_uring_sqe *sqe;

	while (!(sqe = uring_sqe(&r->uring)))
		ring_flush(r);
	return sqe;
}

struct io_uring_sqe *ring_sqe(struct ring *r, struct ring_op *op)
{
	struct io_uring_sqe *sqe = get_sqe(r);

	sqe->user_data = (uintptr_t)op;
	r->in_flight++;
	return sqe;
}

void ring_sqe_file(struct io_uring_sqe *sqe)
{
	sqe->fd = 0;
	sqe->flags |= IOSQE_FIXED_FILE;
}

/* A read of the card has no struct ring_op: bit 0 of user_data says so. */
_Static_assert(_Alignof(struct async_read) > 1, "bit 0 of its address is free");

static bool is_registered(const struct ring *r, const void *buf)
{
	return r->registered &&
	       (uintptr_t)buf - (uintptr_t)r->p.memory.iov_base < r->p.memory.iov_len;
}

int ring_read(void *ctx, int fd, struct async_read *io)
{
	struct ring *r = ctx;
	struct io_uring_sqe *sqe;

	if (!ring_is_mine(r))
		return -EAGAIN;
	sqe = ring_sqe(r, NULL);
	sqe->opcode = is_registered(r, io->iocb.u.c.buf) ? IORING_OP_READ_FIXED : IORING_OP_READ;
	sqe->fd = fd;
	sqe->addr = (uintptr_t)io->iocb.u.c.buf;
	sqe->len = (uint32_t)io->iocb.u.c.nbytes;
	sqe->off = (uint64_t)io->iocb.u.c.offset;
	sqe->user_data = (uintptr_t)io | 1;
	return 0;
}

void ring_end(struct ring *r)
{
	r->end = true;
}

static void arm_wake(struct ring *r)
{
	struct io_uring_sqe *sqe = get_sqe(r);

	sqe->opcode = IORING_OP_READ;
	sqe->fd = r->wake_fd;
	sqe->addr = (uintptr_t)&r->wake_count;
	sqe->len = sizeof(r->wake_count);
	sqe->user_data = (uintptr_t)&r->wake;
}

static void on_wake(struct ring_op *op, int res)
{
	struct ring *r = container_of(op, struct ring, wake);
	struct ring_work *w;

	(void)res;
	while ((w = queue_get(&r->posted)))
		w->call(w);
	arm_wake(r);
}

static void complete(struct ring *r, uint64_t user_data, int res)
{
	struct ring_op *op = (struct ring_op *)(uintptr_t)user_data;

	if (op != &r->wake)
		r->in_flight--;
	if (user_data & 1)
		async_complete((struct async_read *)(uintptr_t)(user_data & ~UINT64_C(1)), res);
	else
		op->done(op, res);
}

static void take_completions(struct ring *r)
{
	uint64_t user_data;
	int res;

	while (uring_take(&r->uring, &user_data, &res))
		complete(r, user_data, res);
}

/* Without it everything works. */
static void register_memory(struct ring *r)
{
	int e = r->p.memory.iov_len ? uring_register_memory(&r->uring, r->p.memory) : -ENOENT;

	r->registered = e == 0;
	if (e < 0 && e != -ENOENT)
		msg(MSG_NOTICE, "the memory for reads cannot be registered with io_uring: %s",
		    strerrordesc_np(-e));
}

static int make_ring(struct ring *r)
{
	static const uint8_t ops[] = { IORING_OP_READ, IORING_OP_READ_FIXED, IORING_OP_URING_CMD };
	int e = uring_new(&r->uring, URING_ENTRIES,
			  IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN);

	if (e < 0)
		return e;
	if (r->p.fd >= 0)
		e = uring_register_file(&r->uring, r->p.fd);
	register_memory(r);
	if (e == 0)
		e = uring_restrict(&r->uring, ops, ARRAY_SIZE(ops));
	if (e < 0)
		uring_free(&r->uring);
	return e;
}

static void *ring_thread(void *arg)
{
	struct ring *r = arg;
	int e = make_ring(r);

	self = r;
	if (e < 0) {
		r->result = e;
		sem_post(&r->begun);
		return NULL;
	}
	arm_wake(r);
	r->result = r->p.begin(r->p.ctx, r);
	(void)uring_submit(&r->uring, 0);
	take_completions(r);
	if (r->result < 0)
		r->end = true;
	sem_post(&r->begun);
	while (!r->end || r->in_flight) {
		e = uring_submit(&r->uring, 1);
		if (e < 0 && e != -EINTR && e != -EAGAIN && e != -EBUSY)
			break;
		take_completions(r);
	}
	uring_free(&r->uring);
	return NULL;
}

/* ---- */

static void free_ring(struct ring *r)
{
	for (unsigned i = 0; i < r->workers; i++)
		sem_post(&r->have_job); /* nothing is queued: it ends */
	for (unsigned i = 0; i < r->workers; i++)
		pthread_join(r->worker[i].thread, NULL);
	if (r->wake_fd >= 0)
		close(r->wake_fd);
	sem_destroy(&r->have_job);
	sem_destroy(&r->begun);
	pthread_mutex_destroy(&r->posted.lock);
	pthread_mutex_destroy(&r->jobs.lock);
	free(r);
}

void ring_free(struct ring *r)
{
	if (!r)
		return;
	pthread_join(r->thread, NULL);
	free_ring(r);
}

static int start_workers(struct ring *r)
{
	int e = 0;

	for (; !e && r->workers < RING_WORKERS; r->workers += !e) {
		struct worker *w = &r->worker[r->workers];

		w->ring = r;
		e = thread_start(&w->thread, "cowfs-serve", STACK_BYTES, worker_thread, w);
	}
	return e;
}

int ring_new(struct ring **ret, const struct ring_params *p)
{
	struct ring *r = calloc(1, sizeof(*r));
	int e;

	if (!r)
		return -ENOMEM;
	r->p = *p;
	r->wake.done = on_wake;
	queue_init(&r->posted);
	queue_init(&r->jobs);
	sem_init(&r->begun, 0, 0);
	sem_init(&r->have_job, 0, 0);
	r->wake_fd = eventfd(0, EFD_CLOEXEC);
	e = r->wake_fd < 0 ? -errno : 0;
	if (e == 0)
		e = start_workers(r);
	if (e == 0)
		e = thread_start(&r->thread, "cowfs-ring", STACK_BYTES, ring_thread, r);
	if (e < 0) {
		free_ring(r);
		return e;
	}
	while (sem_wait(&r->begun) < 0)
		; /* EINTR */
	if (r->result < 0) {
		e = r->result;
		ring_free(r);
		return e;
	}
	*ret = r;
	return 0;
}

#endif
