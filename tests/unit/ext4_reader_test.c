// SPDX-License-Identifier: MIT
/*
 * A session that was taken over: it answers anything, at any time, and nothing of it may reach beyond an error or a wrong
 * answer. The sessions here are threads (this program has a fsproc.c of its own).
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "commit/ext4_reader.h"
#include "commit/fsproc.h"

#define BLKS 512
#define ROUNDS 3000

static uint8_t image[BLKS * COW_BLK_BYTES];
static unsigned seed;
static pthread_t thread;
static int other_fd;

/* the messages of ext4_reader.c */
struct answer {
	uint32_t more;
	int32_t err;
	uint64_t blk, blks;
};

static struct answer answer(unsigned *s)
{
	static const uint64_t numbers[] = {0, 1, 16, 17, BLKS - 1, BLKS, 1u << 17, UINT64_MAX};
	struct answer a = {.more = rand_r(s) % 3 == 0, .err = rand_r(s) % 4 ? 0 : -117};

	a.blk = numbers[(unsigned)rand_r(s) % ARRAY_SIZE(numbers)];
	a.blks = numbers[(unsigned)rand_r(s) % ARRAY_SIZE(numbers)];
	if (rand_r(s) % 2)
		a.blk = 0, a.blks = 16;
	return a;
}

static struct ext4_facts facts(unsigned *s)
{
	struct ext4_facts f = {.blocks = 2048, .block_shift = 10, .first_data_block = 1, .blocks_per_group = 8192,
			       .gdt_blocks = 1, .gdt_block = {2}, .journal = {.sb_block = 100, .log_blocks = 9}};
	uint8_t *p = (uint8_t *)&f;

	for (int n = rand_r(s) % 3; n; n--)
		p[(unsigned)rand_r(s) % 64] = (uint8_t)rand_r(s);
	return f;
}

static void *hostile(void *ctx)
{
	unsigned s = seed;
	bool floods = rand_r(&s) % 8 == 0;
	uint8_t data[70000] = {0};

	(void)ctx;
	for (int i = 0; i < 400; i++) {
		struct answer a = answer(&s);
		struct ext4_facts f = facts(&s);
		size_t sizes[] = {0, sizeof(f), 1024, 64 * sizeof(struct ext4_range), 2048 * sizeof(struct ext4_range), 69999};
		struct iovec iov[2] = {{&a, sizeof(a)}, {data, sizes[(unsigned)rand_r(&s) % ARRAY_SIZE(sizes)]}};
		struct msghdr m = {.msg_iov = iov, .msg_iovlen = 2};

		for (size_t k = 0; k < 64; k++)
			data[(unsigned)rand_r(&s) % 1024] = (uint8_t)(rand_r(&s) >> rand_r(&s) % 24);
		if (i == 0 || rand_r(&s) % 2)
			a.err = 0, a.more = 0, iov[1].iov_len = sizeof(f), memcpy(data, &f, sizeof(f));
		if (floods)
			a = (struct answer){.more = 1, .blks = 16}, iov[1].iov_len = 0;
		else if (recv(other_fd, data, 1, MSG_TRUNC) <= 0)
			break;
		if (sendmsg(other_fd, &m, MSG_NOSIGNAL) < 0)
			break;
	}
	close(other_fd);
	return NULL;
}

bool fsproc_on(void)
{
	return true;
}

int fsproc_session(int *ret_pid_fd)
{
	int pair[2];

	*ret_pid_fd = -1;
	if (thread)
		pthread_join(thread, NULL);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	other_fd = pair[1];
	seed++;
	assert_int_equal(pthread_create(&thread, NULL, hostile, NULL), 0);
	return pair[0];
}

static int image_read(void *ctx, uint64_t blk, uint64_t blks, void *buf)
{
	(void)ctx;
	assert_true(blks && blk < BLKS && blks <= BLKS - blk);
	memcpy(buf, image + blk_to_bytes(blk), blk_to_bytes(blks));
	return 0;
}

static void put(size_t off, uint64_t v, size_t width)
{
	memcpy(image + 1024 + off, &v, width);
}

static void test_hostile_session(void **state)
{
	const struct blk_reader r = {image_read, NULL, BLKS};
	unsigned good = 0, died = 0;

	(void)state;
	put(0x38, 0xef53, 2); /* an ext3 with a journal, as far as fsinfo.c looks */
	put(0x5c, 4, 4);
	put(0xe0, 8, 4);
	put(4, 2048, 4);
	alarm(300);
	for (int i = 0; i < ROUNDS; i++) {
		struct fs_fingerprint fp;
		struct fsinfo info;
		struct fsmap *m;
		int e = i % 3 == 0 ? fsinfo_probe(&r, &info) : i % 3 == 1 ? fsinfo_fingerprint(&r, &fp) : fsmap_open(&m, &r);

		good += !e;
		died += e == -EOWNERDEAD;
		assert_true(e <= 0);
		if (!e && i % 3 == 1)
			assert_in_range(fp.n_marks, 0, FS_MARKS);
		if (e || i % 3 < 2)
			continue;
		for (uint64_t b = 0; b < BLKS && !e; b++) {
			enum blk_use use;
			uint64_t n;

			e = fsmap_run(m, b, BLKS - b, &use, &n);
			assert_true(e || (n && n <= BLKS - b && use <= USE_JOURNAL));
		}
		fsmap_close(m);
	}
	alarm(0);
	pthread_join(thread, NULL);
	assert_true(good > 100 && died > 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_hostile_session),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
