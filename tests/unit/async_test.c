/* SPDX-License-Identifier: MIT */
/*
 * Reads that no thread waits for, on a real loop device: the right bytes, each answered once,
 * errors as errors; and the read-ahead above them, with a mix of waiting and other readers.
 */
#include "test.h"

#include <semaphore.h>

#include "card/async.h"
#include "card/blockdev.h"
#include "export/readahead.h"
#include "scratch.h"

enum { BLKS = 2048, DEPTH = 16, READERS = 3, READS = 6000 };

static struct scratch s;
static struct card *card;

static void fill(uint64_t *block, uint64_t blk)
{
	for (size_t i = 0; i < COW_BLK_BYTES / 8; i++)
		block[i] = blk << 20 | i;
}

static bool is(const uint64_t *buf, uint64_t blk, uint64_t blks)
{
	uint64_t want[COW_BLK_BYTES / 8];

	for (uint64_t i = 0; i < blks; i++) {
		fill(want, blk + i);
		if (memcmp(buf + i * COW_BLK_BYTES / 8, want, COW_BLK_BYTES))
			return false;
	}
	return true;
}

static int setup(void **state)
{
	uint64_t block[COW_BLK_BYTES / 8];
	int fd;

	if (!scratch_new(&s, NULL, blk_to_bytes(BLKS)))
		return -1;
	fd = open(s.image, O_RDWR | O_CLOEXEC);
	for (uint64_t i = 0; i < BLKS; i++) {
		fill(block, i);
		if (io_pwrite_full(fd, block, sizeof(block), blk_to_bytes(i)) < 0)
			return -1;
	}
	close(fd);
	return blockdev_open(&card, s.loop.path, BLOCKDEV_RDONLY, NULL);
}

static int teardown(void **state)
{
	card_close(card);
	scratch_free(&s);
	return 0;
}

/* Blocks beyond the end of the backing file cannot be read: a medium's error. */
static void cut_image(uint64_t blks)
{
	assert_int_equal(truncate(s.image, (off_t)blk_to_bytes(blks)), 0);
}

struct one {
	struct async_read io;
	sem_t *done;
	atomic_int answers;
	int r;
	uint64_t blk;
	uint64_t *buf;
};

static void one_done(struct async_read *io, int r)
{
	struct one *o = container_of(io, struct one, io);

	o->r = r;
	o->answers++;
	sem_post(o->done);
}

TEST(test_reads, setup, teardown)
{
	struct one one[DEPTH] = { 0 };
	struct async *a;
	sem_t done;

	sem_init(&done, 0, 0);
	assert_int_equal(async_new(&a, card, DEPTH), 0);
	for (unsigned i = 0; i < DEPTH; i++) {
		one[i].buf = io_alloc(4 * COW_BLK_BYTES);
		one[i].io.done = one_done;
		one[i].done = &done;
	}
	for (unsigned round = 0; round < 50; round++) {
		for (unsigned i = 0; i < DEPTH; i++) {
			one[i].blk = (round * 131 + i * 17) % (BLKS - 4);
			one[i].answers = 0;
			assert_int_equal(async_read(a, &one[i].io, blk_to_bytes(one[i].blk),
						    one[i].buf, 4 * COW_BLK_BYTES),
					 0);
		}
		for (unsigned i = 0; i < DEPTH; i++)
			sem_wait(&done);
		for (unsigned i = 0; i < DEPTH; i++) {
			assert_int_equal(one[i].answers, 1);
			assert_int_equal(one[i].r, 0);
			assert_true(is(one[i].buf, one[i].blk, 4));
		}
	}
	assert_int_equal(card->account.read_calls, 50 * DEPTH);
	assert_int_equal(card->account.read_bytes, 50 * DEPTH * 4 * COW_BLK_BYTES);
	/* what does not reach the device is counted by the call that does */
	card->away_ns = 1;
	assert_int_equal(async_read(a, &one[0].io, 0, one[0].buf, COW_BLK_BYTES), -ENOMEDIUM);
	card->away_ns = 0;
	card->shown_end_bytes = COW_BLK_BYTES;
	assert_int_equal(async_read(a, &one[0].io, 0, one[0].buf, COW_BLK_BYTES), -EAGAIN);
	card->shown_end_bytes = 0;
	assert_int_equal(card->account.read_calls, 50 * DEPTH);
	/* refused before the device is touched */
	assert_int_equal(async_read(a, &one[0].io, 512, one[0].buf, COW_BLK_BYTES), -EINVAL);
	assert_int_equal(async_read(a, &one[0].io, 0, one[0].buf, 0), -EINVAL);
	cut_image(BLKS / 2);
	assert_int_equal(
		async_read(a, &one[0].io, blk_to_bytes(BLKS - 8), one[0].buf, COW_BLK_BYTES), 0);
	sem_wait(&done);
	assert_int_equal(one[0].r, -EIO);
	/* the device itself ends before it, as one that is gone: nothing is read, and there is no error */
	assert_int_equal(ioctl(s.loop.fd, LOOP_SET_CAPACITY), 0);
	assert_int_equal(
		async_read(a, &one[0].io, blk_to_bytes(BLKS - 8), one[0].buf, COW_BLK_BYTES), 0);
	sem_wait(&done);
	assert_int_equal(one[0].r, -EIO);
	async_free(a);
	for (unsigned i = 0; i < DEPTH; i++)
		free(one[i].buf);
	sem_destroy(&done);
}

TEST(test_an_image_file_has_none, setup, teardown)
{
	struct card *file;
	struct async *a;

	assert_int_equal(blockdev_open(&file, s.image, BLOCKDEV_RDONLY | BLOCKDEV_ALLOW_FILE, NULL),
			 0);
	assert_int_equal(async_new(&a, file, DEPTH), -ENOTSUP);
	card_close(file);
}

/* ---- read-ahead ---- */

struct readahead_one {
	struct readahead_read rd;
	sem_t done;
	int r;
};

static void readahead_done(struct readahead_read *rd, int r)
{
	struct readahead_one *o = container_of(rd, struct readahead_one, rd);

	o->r = r;
	sem_post(&o->done);
}

/* reads with readahead_start, then waits; buf is garbage before */
static int start_and_wait(struct readahead *a, uint64_t epoch, uint64_t blk, uint64_t blks,
			  void *buf)
{
	struct readahead_one o = { .rd.done = readahead_done };
	int r;

	memset(buf, 0xaa, blk_to_bytes(blks));
	sem_init(&o.done, 0, 0);
	r = readahead_start(a, epoch, blk, blks, buf, &o.rd);
	if (r == READAHEAD_PENDING) {
		sem_wait(&o.done);
		r = o.r;
	}
	sem_destroy(&o.done);
	return r;
}

struct reader {
	struct readahead *a;
	unsigned seed;
	atomic_uint bad, again;
};

static void *read_all_over(void *arg)
{
	struct reader *rd = arg;
	uint64_t *buf = io_alloc(32 * COW_BLK_BYTES), pos = rd->seed * 400;
	uint64_t x, state = rd->seed;

	for (unsigned i = 0; i < READS; i++) {
		uint64_t blks;
		int r;

		x = rnd_next(&state);
		blks = x % 64 ? 1 + x % 5 : 20;
		pos = x % 16 ? (pos + x % 3) % (BLKS - 32) : x / 64 % (BLKS - 32);
		r = x / 7 % 3 ? start_and_wait(rd->a, i / 1000, pos, blks, buf)
			      : readahead_read(rd->a, i / 1000, pos, blks, buf);
		if (r == -EAGAIN)
			rd->again++;
		else if (r < 0 || !is(buf, pos, blks))
			rd->bad++;
		pos += blks;
	}
	free(buf);
	return NULL;
}

TEST(test_ahead_mixed, setup, teardown)
{
	struct reader rd[READERS] = { 0 };
	pthread_t thread[READERS];
	struct readahead *a;

	assert_int_equal(readahead_new(&a, card, DEPTH), 0);
	for (unsigned i = 0; i < READERS; i++) {
		rd[i].a = a;
		rd[i].seed = i + 1;
		assert_int_equal(pthread_create(&thread[i], NULL, read_all_over, &rd[i]), 0);
	}
	for (unsigned i = 0; i < READERS; i++) {
		pthread_join(thread[i], NULL);
		assert_int_equal(rd[i].bad, 0);
		assert_int_equal(rd[i].again, 0);
	}
	assert_true(card->account.read_calls < READERS * READS * 9 / 10); /* windows were used */
	readahead_free(a);
}

/* Two readers wait for one window: one request, both answered. */
TEST(test_ahead_shares_a_window, setup, teardown)
{
	uint64_t *buf = io_alloc(4 * COW_BLK_BYTES);
	struct readahead *a;
	uint64_t calls;

	assert_int_equal(readahead_new(&a, card, DEPTH), 0);
	for (uint64_t blk = 100; blk < 400; blk++) {
		assert_int_equal(start_and_wait(a, 1, blk, 1, buf), 0);
		assert_true(is(buf, blk, 1));
	}
	calls = card->account.read_calls;
	assert_in_range(calls, 15, 30);
	readahead_free(a);
	free(buf);
}

/* A window that cannot be read completely is no error for readers of a part that can. */
TEST(test_ahead_errors, setup, teardown)
{
	uint64_t *buf = io_alloc(4 * COW_BLK_BYTES);
	struct readahead *a;

	cut_image(1000);
	assert_int_equal(readahead_new(&a, card, DEPTH), 0);
	for (uint64_t blk = 960; blk < 1000; blk++) {
		assert_int_equal(start_and_wait(a, 1, blk, 1, buf), 0);
		assert_true(is(buf, blk, 1));
	}
	assert_int_equal(start_and_wait(a, 1, 1000, 1, buf), -EIO);
	assert_int_equal(start_and_wait(a, 1, 1010, 1, buf), -EIO);
	assert_int_equal(start_and_wait(a, 1, 1500, 4, buf), -EIO);
	assert_int_equal(start_and_wait(a, 1, 3, 1, buf), 0);
	readahead_free(a);
	free(buf);
}

TEST_GROUP_OF_ROOT(NULL, NULL)
