/* SPDX-License-Identifier: MIT */
/*
 * Notes on the design
 * - BLKFLSBUF syncs the file system, and then drops all clean pages of the disk that nothing refers to:
 *   the metadata that ext2, ext3 and ext4 have cached. Pages of a mapping are referred to. So what is cached is
 *   mapped during the call.
 * - cachestat counts the cached pages of a range, so a range is split until it is cached as a whole. mincore
 *   does not see these pages: ext reads blocks, and sets no flag of the page.
 * - MADV_POPULATE_READ returns an error where a read of the memory would raise a signal. It reads nothing from
 *   the disk, except blocks of a page of which others are cached, and a page that was evicted meanwhile.
 *   A limit of time keeps a slow card from making a commit slow.
 * - MADV_RANDOM: nothing is read ahead, and the end of the mapping is no use of its pages. The pages are not
 *   locked, whatever the process has locked (mlockall).
 */
#include "fs/flush.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <linux/fs.h>

#include "base/util.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

#define WINDOW_BYTES (2 * MIB)
#define RUN_BYTES (64 * KIB) /* at most this is populated between two looks at the clock */
#define SPLIT 8
/* More is hardly metadata, but what a program has read of the disk. */
#define KEEP_MOST_BYTES GIB
#define KEEP_MOST_NS 200000000ull

struct kept {
	int disk_fd;
	uint64_t page_bytes, left_bytes, end_ns;
	uint8_t **window;
	size_t windows;
	uint64_t off_bytes; /* of the newest window */
};

/* Bytes of the range in the page cache; 0 also on an error. */
static uint64_t cached_bytes(const struct kept *k, uint64_t off_bytes, uint64_t len_bytes)
{
	const uint64_t range[2] = { off_bytes, len_bytes };
	uint64_t pages[5]; /* cached, dirty, in writeback, evicted, evicted of late */

	return syscall(__NR_cachestat, k->disk_fd, range, pages, 0) < 0 ? 0
									: pages[0] * k->page_bytes;
}

static int next_window(struct kept *k, uint64_t off_bytes)
{
	uint8_t **more = reallocarray(k->window, k->windows + 1, sizeof(*more));
	void *at;

	if (!more)
		return -ENOMEM;
	k->window = more;
	at = mmap(NULL, WINDOW_BYTES, PROT_READ, MAP_SHARED, k->disk_fd, (off_t)off_bytes);
	if (at == MAP_FAILED)
		return -errno;
	k->window[k->windows++] = at;
	k->off_bytes = off_bytes;
	return munlock(at, WINDOW_BYTES) < 0 || madvise(at, WINDOW_BYTES, MADV_RANDOM) < 0 ? -errno
											   : 0;
}

/* Maps pages that are cached. They lie in one window. */
static void keep_run(struct kept *k, uint64_t off_bytes, uint64_t len_bytes)
{
	uint64_t begin = off_bytes / WINDOW_BYTES * WINDOW_BYTES;

	if ((!k->windows || k->off_bytes != begin) && next_window(k, begin) < 0)
		k->left_bytes = 0;
	else if (madvise(k->window[k->windows - 1] + (off_bytes - begin), len_bytes,
			 MADV_POPULATE_READ) < 0)
		k->left_bytes = 0; /* Linux before 5.14; the card fails */
	k->left_bytes -= min_u64(k->left_bytes, len_bytes);
}

static void keep(struct kept *k, uint64_t off_bytes, uint64_t len_bytes)
{
	uint64_t part_bytes, cached = k->left_bytes ? cached_bytes(k, off_bytes, len_bytes) : 0;

	if (!cached || now_ns() >= k->end_ns)
		return;
	if (len_bytes <= RUN_BYTES && cached == len_bytes) {
		keep_run(k, off_bytes, len_bytes);
		return;
	}
	/* no part lies in two windows */
	part_bytes = round_up_u64(len_bytes / SPLIT,
				  len_bytes > WINDOW_BYTES ? WINDOW_BYTES : k->page_bytes);
	for (uint64_t at = 0; at < len_bytes && part_bytes < len_bytes; at += part_bytes)
		keep(k, off_bytes + at, min_u64(part_bytes, len_bytes - at));
}

int flush_disk(int disk_fd)
{
	struct kept k = { .disk_fd = disk_fd,
			  .page_bytes = (uint64_t)sysconf(_SC_PAGESIZE),
			  .left_bytes = KEEP_MOST_BYTES,
			  .end_ns = now_ns() + KEEP_MOST_NS };
	uint64_t bytes;
	int r, e;

	if (ioctl(disk_fd, BLKGETSIZE64, &bytes) == 0)
		keep(&k, 0, round_up_u64(bytes, WINDOW_BYTES));
	r = ioctl(disk_fd, BLKFLSBUF, 0);
	e = errno;
	for (size_t i = 0; i < k.windows; i++)
		munmap(k.window[i], WINDOW_BYTES);
	free(k.window);
	errno = e;
	return r;
}
