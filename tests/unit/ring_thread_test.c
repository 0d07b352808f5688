/* SPDX-License-Identifier: MIT */
/*
 * The ring engine, without ublk: reads of a real loop device that the ring starts and completes, work
 * that is handed to it and from it, and its end.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "card/async.h"
#include "card/blockdev.h"
#include "export/ring_thread.h"
#include "export/uring.h"
#include "scratch.h"

enum { BLKS = 256, READS = 100, ROUNDS = 20 };

static struct scratch s;
static struct card *card;
static struct async *async;
static struct ring *ring;
static sem_t done;

static bool no_uring(void)
{
	char why[160];

	if (uring_check(why, sizeof(why)) == 0)
		return false;
	print_message("skipped: %s\n", why);
	return true;
}

static int begin_nothing(void *ctx, struct ring *r)
{
	(void)ctx;
	return ring_is_mine(r) ? 0 : -EPERM;
}

static int begin_fails(void *ctx, struct ring *r)
{
	(void)ctx, (void)r;
	return -EXDEV;
}

static void end(struct ring_work *w)
{
	(void)w;
	ring_end(ring);
}

static struct ring_work end_work = { .call = end };

/* ---- reads of the card ---- */

struct one {
	struct async_read io;
	struct ring_work start;
	uint64_t *buf;
	uint64_t blk;
	int r;
};

static void one_done(struct async_read *io, int r)
{
	struct one *o = container_of(io, struct one, io);

	assert_true(ring_is_mine(ring));
	o->r = r;
	sem_post(&done);
}

static void one_start(struct ring_work *w)
{
	struct one *o = container_of(w, struct one, start);

	assert_int_equal(async_read(async, &o->io, blk_to_bytes(o->blk), o->buf, 2 * COW_BLK_BYTES),
			 0);
}

static int setup(void **state)
{
	uint64_t block[COW_BLK_BYTES / 8];
	int fd;

	(void)state;
	sem_init(&done, 0, 0);
	if (!scratch_new(&s, NULL, blk_to_bytes(BLKS)))
		return -1;
	fd = open(s.image, O_RDWR | O_CLOEXEC);
	for (uint64_t i = 0; i < BLKS; i++) {
		for (size_t j = 0; j < ARRAY_SIZE(block); j++)
			block[j] = i << 20 | j;
		if (io_pwrite_full(fd, block, sizeof(block), blk_to_bytes(i)) < 0)
			return -1;
	}
	close(fd);
	return blockdev_open(&card, s.loop.path, BLOCKDEV_RDONLY, NULL);
}

static int teardown(void **state)
{
	(void)state;
	card_close(card);
	scratch_free(&s);
	return 0;
}

/* More reads at once than the io_uring has entries. */
static void reads(char *memory, struct iovec registered)
{
	const struct ring_params p = { .fd = -1, .memory = registered, .begin = begin_nothing };
	static struct one one[READS];

	if (no_uring())
		skip();
	assert_int_equal(async_new(&async, card, READS), 0);
	assert_int_equal(ring_new(&ring, &p), 0);
	async_take_over(async, ring_read, ring);
	/* of a thread that is not the ring's: it has to read by itself */
	one[0].buf = io_alloc(2 * COW_BLK_BYTES);
	assert_int_equal(async_read(async, &one[0].io, 0, one[0].buf, COW_BLK_BYTES), -EAGAIN);
	free(one[0].buf);
	for (unsigned i = 0; i < READS; i++) {
		one[i].buf = (uint64_t *)(memory + i * 2ul * COW_BLK_BYTES);
		one[i].io.done = one_done;
		one[i].start.call = one_start;
	}
	for (unsigned round = 0; round < ROUNDS; round++) {
		for (unsigned i = 0; i < READS; i++) {
			one[i].blk = (round * 131 + i * 17) % (BLKS - 2);
			ring_post(ring, &one[i].start);
		}
		for (unsigned i = 0; i < READS; i++)
			sem_wait(&done);
		for (unsigned i = 0; i < READS; i++) {
			assert_int_equal(one[i].r, 0);
			assert_int_equal(one[i].buf[3], one[i].blk << 20 | 3);
			assert_int_equal(one[i].buf[COW_BLK_BYTES / 8], (one[i].blk + 1) << 20);
		}
	}
	/* the end of the medium */
	assert_int_equal(truncate(s.image, (off_t)blk_to_bytes(BLKS / 2)), 0);
	one[0].blk = BLKS - 2;
	ring_post(ring, &one[0].start);
	sem_wait(&done);
	assert_int_equal(one[0].r, -EIO);
	ring_post(ring, &end_work);
	ring_free(ring);
	async_take_over(async, NULL, NULL);
	assert_int_equal(async_read(async, &one[0].io, 0, one[0].buf, COW_BLK_BYTES), -EAGAIN);
	async_free(async);
}

static void test_reads(void **state)
{
	char *memory = io_alloc(READS * 2ul * COW_BLK_BYTES);

	(void)state;
	reads(memory, (struct iovec){ NULL, 0 });
	free(memory);
}

/* Some of them into registered memory. */
static void test_reads_into_registered_memory(void **state)
{
	const size_t half = READS / 2 * 2ul * COW_BLK_BYTES;
	char *memory = io_alloc(2 * half);

	(void)state;
	reads(memory, (struct iovec){ memory + half, half });
	free(memory);
}

/* As with a limit of locked memory: it works without. */
static void test_memory_cannot_be_registered(void **state)
{
	char *memory = io_alloc(READS * 2ul * COW_BLK_BYTES);

	(void)state;
	reads(memory, (struct iovec){ memory, SIZE_MAX / 4 });
	free(memory);
}

/* ---- work for other threads ---- */

static void back(struct ring_work *w)
{
	(void)w;
	assert_true(ring_is_mine(ring));
	sem_post(&done);
}

static void blocks(struct ring_work *w)
{
	assert_false(ring_is_mine(ring));
	w->call = back;
	ring_post(ring, w);
}

static void test_work_goes_there_and_back(void **state)
{
	const struct ring_params p = { .fd = -1, .begin = begin_nothing };
	static struct ring_work work[READS];

	(void)state;
	if (no_uring())
		skip();
	assert_int_equal(ring_new(&ring, &p), 0);
	for (unsigned round = 0; round < ROUNDS; round++) {
		for (unsigned i = 0; i < READS; i++) {
			work[i].call = blocks;
			ring_block(ring, &work[i]);
		}
		for (unsigned i = 0; i < READS; i++)
			sem_wait(&done);
	}
	ring_post(ring, &end_work);
	ring_free(ring);
}

static void test_begin_may_fail(void **state)
{
	const struct ring_params p = { .fd = -1, .begin = begin_fails };

	(void)state;
	if (no_uring())
		skip();
	assert_int_equal(ring_new(&ring, &p), -EXDEV);
}

#ifdef COWFS_URING
/* Nothing but what was named, and no other file. */
static void test_restricted(void **state)
{
	static const uint8_t ops[] = { IORING_OP_NOP };
	struct io_uring_sqe *sqe;
	uint64_t number;
	struct uring u;
	int res;

	(void)state;
	if (no_uring())
		skip();
	assert_int_equal(uring_new(&u, 2, 0), 0);
	assert_int_equal(uring_restrict(&u, ops, 1), 0);
	sqe = uring_sqe(&u);
	sqe->opcode = IORING_OP_NOP;
	sqe->user_data = 7;
	assert_int_equal(uring_submit(&u, 1), 0);
	assert_true(uring_take(&u, &number, &res));
	assert_int_equal(number, 7);
	assert_int_equal(res, 0);
	sqe = uring_sqe(&u);
	sqe->opcode = IORING_OP_OPENAT;
	sqe->fd = AT_FDCWD;
	sqe->addr = (uintptr_t) "/";
	assert_int_equal(uring_submit(&u, 1), 0);
	assert_true(uring_take(&u, &number, &res));
	assert_int_equal(res, -EACCES);
	assert_non_null(uring_sqe(&u));
	assert_non_null(uring_sqe(&u));
	assert_null(uring_sqe(&u)); /* full */
	uring_free(&u);
}

/* The kernel goes on writing to the rings for some time after the close. */
static void test_memory_after_the_end(void **state)
{
	enum { RINGS = 32 };
	uint64_t *block[RINGS];
	const size_t words = 16 * KIB / 8;
	struct uring u[RINGS];

	(void)state;
	if (no_uring())
		skip();
	for (unsigned i = 0; i < RINGS; i++)
		assert_int_equal(uring_new(&u[i], 2, 0), 0);
	for (unsigned i = 0; i < RINGS; i++)
		uring_free(&u[i]);
	for (unsigned i = 0; i < RINGS; i++) {
		block[i] = io_alloc(words * 8);
		memset(block[i], 0xff, words * 8);
	}
	usleep(300000);
	for (unsigned i = 0; i < RINGS; i++) {
		for (size_t j = 0; j < words; j++)
			assert_int_equal(block[i][j], UINT64_MAX);
		free(block[i]);
	}
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_reads, setup, teardown),
		cmocka_unit_test_setup_teardown(test_reads_into_registered_memory, setup, teardown),
		cmocka_unit_test_setup_teardown(test_memory_cannot_be_registered, setup, teardown),
		cmocka_unit_test(test_work_goes_there_and_back),
		cmocka_unit_test(test_begin_may_fail),
#ifdef COWFS_URING
		cmocka_unit_test(test_restricted),
		cmocka_unit_test(test_memory_after_the_end),
#endif
	};

	sem_init(&done, 0, 0);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
