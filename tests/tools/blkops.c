/* SPDX-License-Identifier: MIT */
/*
 * blkops FILE read|write DEPTH COUNT BLOCKS [KIB]: direct I/O of 4 KiB, or KIB, on FILE, at random places among its
 * first BLOCKS blocks of that size, DEPTH at a time (1: pread and pwrite; otherwise Linux AIO, which submits
 * that many and waits for all of them). Prints nanoseconds for each operation: instructions, in a guest whose clock counts them.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <libaio.h>

#include "base/util.h"

#define ALIGN_BYTES 4096
#define DEPTH_MAX 64

static unsigned bytes = 4096;

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static long long place(uint64_t blocks)
{
	static uint64_t x = 88172645463325252u;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return (long long)(x % blocks * bytes);
}

static void one_at_a_time(int fd, int write, uint64_t count, uint64_t blocks, void *buf)
{
	for (uint64_t i = 0; i < count; i++) {
		long long off = place(blocks);

		if ((write ? pwrite(fd, buf, bytes, off) : pread(fd, buf, bytes, off)) !=
		    (ssize_t)bytes)
			fail("I/O");
	}
}

static void many(int fd, int write, unsigned depth, uint64_t count, uint64_t blocks, char *buf)
{
	struct iocb io[DEPTH_MAX], *list[DEPTH_MAX];
	struct io_event ev[DEPTH_MAX];
	io_context_t ctx = 0;

	if (io_setup((int)depth, &ctx) < 0)
		fail("io_setup");
	for (uint64_t ended = 0; ended < count; ended += depth) {
		for (unsigned i = 0; i < depth; i++) {
			char *at = buf + (size_t)i * bytes;
			long long off = place(blocks);

			list[i] = &io[i];
			if (write)
				io_prep_pwrite(list[i], fd, at, bytes, off);
			else
				io_prep_pread(list[i], fd, at, bytes, off);
		}
		if (io_submit(ctx, depth, list) != (int)depth ||
		    io_getevents(ctx, depth, depth, ev, NULL) != (int)depth)
			fail("AIO");
		for (unsigned i = 0; i < depth; i++)
			if (ev[i].res != bytes)
				fail("I/O");
	}
	io_destroy(ctx);
}

int main(int argc, char **argv)
{
	unsigned depth = argc == 6 || argc == 7 ? (unsigned)atoi(argv[3]) : 0;
	uint64_t count, blocks, since;
	int fd, write;
	char *buf;

	if (depth < 1 || depth > DEPTH_MAX)
		return 2;
	if (argc == 7)
		bytes = (unsigned)atoi(argv[6]) * 1024;
	write = strcmp(argv[2], "write") == 0;
	count = strtoull(argv[4], NULL, 10);
	blocks = strtoull(argv[5], NULL, 10);
	fd = open(argv[1], O_RDWR | O_DIRECT | O_CLOEXEC);
	buf = aligned_alloc(ALIGN_BYTES, (size_t)depth * bytes);
	if (fd < 0 || !buf)
		fail(argv[1]);
	memset(buf, 0x5a, (size_t)depth * bytes);
	since = now_ns();
	if (depth == 1)
		one_at_a_time(fd, write, count, blocks, buf);
	else
		many(fd, write, depth, count, blocks, buf);
	printf("%llu\n", (unsigned long long)((now_ns() - since) / count));
	return 0;
}
