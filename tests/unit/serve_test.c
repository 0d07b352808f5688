/* SPDX-License-Identifier: MIT */
/* Leader and followers over a queue made by this test. */
#include "test.h"

#include <semaphore.h>

#include "export/serve.h"

enum kind { QUICK, HAND_OVER, STUCK, LOOP };

struct queue {
	struct serve *serve;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	enum kind kind[4096];
	unsigned first, n;
	bool end;
	sem_t release; /* HAND_OVER and STUCK wait for this */
	atomic_uint by_waited, quick, waiting, receivers, most_receivers;
	pthread_t by[4096]; /* threads that served the quick ones */
};

static struct queue q;

static ssize_t receive(void *ctx, void *buf)
{
	ssize_t n = -EAGAIN;
	unsigned now;

	pthread_mutex_lock(&q.lock);
	now = ++q.receivers;
	if (now > q.most_receivers)
		q.most_receivers = now;
	while (!q.n && !q.end)
		pthread_cond_wait(&q.changed, &q.lock);
	if (q.end) {
		n = -ENODEV;
	} else if (q.n) {
		*(enum kind *)buf = q.kind[q.first];
		q.first = (q.first + 1) % ARRAY_SIZE(q.kind);
		q.n--;
		n = sizeof(enum kind);
	}
	q.receivers--;
	pthread_mutex_unlock(&q.lock);
	return n;
}

static void wait_released(void)
{
	q.waiting++;
	sem_wait(&q.release);
	q.waiting--;
}

static void handle(void *ctx, void *buf, size_t len_bytes)
{
	assert_int_equal(len_bytes, sizeof(enum kind));
	switch (*(enum kind *)buf) {
	case QUICK:
		q.by[q.quick % ARRAY_SIZE(q.by)] = pthread_self();
		q.by_waited += serve_waited();
		q.quick++;
		break;
	case HAND_OVER:
		serve_hand_over(q.serve);
		serve_hand_over(q.serve); /* once is enough, twice is harmless */
		wait_released();
		break;
	case STUCK:
		wait_released();
		break;
	case LOOP:
		while (sem_trywait(&q.release) < 0)
			;
	}
}

static const struct serve_ops ops = { .buf_bytes = 4096, .receive = receive, .handle = handle };

static void put(enum kind kind)
{
	pthread_mutex_lock(&q.lock);
	q.kind[(q.first + q.n++) % ARRAY_SIZE(q.kind)] = kind;
	pthread_cond_signal(&q.changed);
	pthread_mutex_unlock(&q.lock);
}

/* until *what is n, or after 100 s */
static void wait_for(atomic_uint *what, unsigned n)
{
	uint64_t until = now_ns() + 100000000000u;

	while (*what != n && now_ns() < until)
		usleep(200);
	assert_int_equal(*what, n);
}

static int setup(void **state)
{
	memset(&q, 0, sizeof(q));
	pthread_mutex_init(&q.lock, NULL);
	pthread_cond_init(&q.changed, NULL);
	sem_init(&q.release, 0, 0);
	return serve_new(&q.serve, 3, &ops, NULL) < 0 || serve_start(q.serve) < 0 ? -1 : 0;
}

static int teardown(void **state)
{
	pthread_mutex_lock(&q.lock);
	q.end = true;
	pthread_cond_broadcast(&q.changed);
	pthread_mutex_unlock(&q.lock);
	for (unsigned i = 0; i < ARRAY_SIZE(q.kind); i++)
		sem_post(&q.release); /* threads that still wait after a failure */
	serve_free(q.serve);
	sem_destroy(&q.release);
	pthread_cond_destroy(&q.changed);
	pthread_mutex_destroy(&q.lock);
	return 0;
}

TEST(test_one_receives, setup, teardown)
{
	for (unsigned i = 0; i < 1000; i++) {
		put(QUICK);
		wait_for(&q.quick, i + 1);
	}
	assert_in_range(q.most_receivers, 1, 2); /* the watch replaces one that stands still */
	for (unsigned i = 1, moved = 0; i < 1000; i++)
		assert_in_range(moved += !pthread_equal(q.by[i], q.by[i - 1]), 0, 20);
}

/* two of three wait, the third serves everything else */
TEST(test_hand_over, setup, teardown)
{
	put(HAND_OVER);
	put(HAND_OVER);
	wait_for(&q.waiting, 2);
	for (unsigned i = 0; i < 100; i++)
		put(QUICK);
	wait_for(&q.quick, 100);
	put(HAND_OVER); /* now no thread is left */
	wait_for(&q.waiting, 3);
	put(QUICK);
	usleep(20000);
	assert_int_equal(q.quick, 100);
	sem_post(&q.release); /* the first free thread continues */
	wait_for(&q.quick, 101);
	sem_post(&q.release);
	sem_post(&q.release);
	wait_for(&q.waiting, 0);
	put(QUICK);
	wait_for(&q.quick, 102);
}

/* no hand-over: the watch detects it */
TEST(test_stuck, setup, teardown)
{
	for (unsigned round = 0; round < 5; round++) {
		uint64_t since = now_ns();

		put(STUCK);
		put(QUICK);
		wait_for(&q.quick, round + 1);
		assert_true(now_ns() - since > SERVE_STUCK_MS / 2 * 1000000u);
		wait_for(&q.waiting, 1);
		sem_post(&q.release);
		wait_for(&q.waiting, 0);
		if (round % 2)
			usleep(5 * SERVE_STUCK_MS * 1000); /* meanwhile the watch sleeps */
	}
}

static bool loops_within(unsigned ms)
{
	bool loops = false;

	for (unsigned i = 0; i < ms / 10 && !loops; i++) {
		loops = serve_loops(q.serve, 100000000);
		usleep(10000);
	}
	return loops;
}

/* A thread that waits does not loop, nor one that serves many requests. */
TEST(test_loops, setup, teardown)
{
	put(STUCK);
	wait_for(&q.waiting, 1);
	for (unsigned i = 0; i < 500; i++)
		put(QUICK);
	assert_false(loops_within(500));
	put(LOOP);
	assert_true(loops_within(20000));
	put(QUICK); /* others serve */
	wait_for(&q.quick, 501);
	sem_post(&q.release);
	sem_post(&q.release);
	wait_for(&q.waiting, 0);
}

/* all stuck but one, then the last: the first that comes back serves */
TEST(test_all_stuck, setup, teardown)
{
	for (unsigned i = 0; i < 3; i++)
		put(STUCK);
	put(QUICK);
	wait_for(&q.waiting, 3);
	sem_post(&q.release);
	wait_for(&q.quick, 1);
	sem_post(&q.release);
	sem_post(&q.release);
	wait_for(&q.waiting, 0);
}

/* a lone request was waited for, those of a queue were not */
TEST(test_waited, setup, teardown)
{
	for (unsigned i = 0; i < 50; i++) {
		wait_for(&q.receivers, 1); /* it waits from now on */
		usleep(1000);
		put(QUICK);
		wait_for(&q.quick, i + 1);
	}
	assert_int_equal(q.by_waited, 50);
	for (unsigned i = 0; i < 3; i++)
		put(STUCK);
	wait_for(&q.waiting, 3);
	for (unsigned i = 0; i < 1000; i++)
		put(QUICK);
	sem_post(&q.release);
	sem_post(&q.release);
	sem_post(&q.release);
	wait_for(&q.quick, 1050);
	assert_in_range(q.by_waited, 50, 1000); /* a receiver may be slow in between */
}
