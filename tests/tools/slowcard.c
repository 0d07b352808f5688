/* SPDX-License-Identifier: MIT */
/*
 * A slow card: one file on a FUSE mount that passes reads and writes on to another file, at a
 * card's speed. For loop devices on top of it.
 *
 *	slowcard FILE MOUNTPOINT KIB_PER_SECOND MICROSECONDS QUEUE
 *
 * Each request takes MICROSECONDS, up to QUEUE of them at once (1: a card without command queue),
 * and then its bytes pass a bus of KIB_PER_SECOND, one after another. The file is MOUNTPOINT/card.
 * Runs until it is unmounted.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/prctl.h>

#include "base/parse.h"
#include "sim/cardmount.h"

static struct {
	uint64_t bytes_per_s, latency_ns;
	pthread_mutex_t lock;
	pthread_cond_t served;
	uint64_t queue, asked, done; /* first come, first served, however busy the machine is */
	uint64_t bus_free_ns; /* when the last byte that was promised the bus will have passed */
} card;

static void sleep_until(uint64_t at_ns)
{
	const struct timespec ts = { .tv_sec = (time_t)(at_ns / 1000000000u),
				     .tv_nsec = (long)(at_ns % 1000000000u) };

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL) == EINTR)
		;
}

static void spend(enum cardmount_op op, uint64_t off_bytes, uint64_t len_bytes, const void *buf)
{
	uint64_t ready_ns, done_ns;

	/* waiting for a place in the queue is not the card's time, but it serves nothing meanwhile
	 */
	pthread_mutex_lock(&card.lock);
	for (uint64_t nr = card.asked++; nr >= card.done + card.queue;)
		pthread_cond_wait(&card.served, &card.lock);
	pthread_mutex_unlock(&card.lock);
	ready_ns = now_ns() + card.latency_ns;
	sleep_until(ready_ns);
	pthread_mutex_lock(&card.lock);
	done_ns = max_u64(ready_ns, card.bus_free_ns) + len_bytes * 1000000000u / card.bytes_per_s;
	card.bus_free_ns = done_ns;
	pthread_mutex_unlock(&card.lock);
	sleep_until(done_ns);
	pthread_mutex_lock(&card.lock);
	card.done++;
	pthread_cond_broadcast(&card.served);
	pthread_mutex_unlock(&card.lock);
}

int main(int argc, char **argv)
{
	struct cardmount m = { .threads = 32, .done = spend };
	uint64_t kib, us, queue;

	if (argc != 6 || parse_u64(argv[3], &kib) < 0 || parse_u64(argv[4], &us) < 0 ||
	    parse_u64(argv[5], &queue) < 0 || !kib || !queue) {
		fprintf(stderr,
			"usage: slowcard FILE MOUNTPOINT KIB_PER_SECOND MICROSECONDS QUEUE\n");
		return 2;
	}
	card.bytes_per_s = kib * 1024;
	card.latency_ns = us * 1000;
	m.fd = open(argv[1], O_RDWR | O_CLOEXEC);
	if (m.fd < 0) {
		perror(argv[1]);
		return 1;
	}
	prctl(PR_SET_TIMERSLACK, 1);
	card.queue = queue;
	pthread_mutex_init(&card.lock, NULL);
	pthread_cond_init(&card.served, NULL);
	return cardmount_serve(&m, argv[2]) < 0;
}
