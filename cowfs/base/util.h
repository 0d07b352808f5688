/* SPDX-License-Identifier: MIT */
/* Small helpers for every module: sizes, rounding, cleanup attributes. */
#ifndef COWFS_BASE_UTIL_H
#define COWFS_BASE_UTIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/*
 * The unit of copy-on-write, of the log and of every block number in this program: 4 KiB. A
 * variable that ends in _blk is a block number of the protected volume, _lblk a block number inside
 * the log's ring, _blks a count of blocks, _bytes a byte count, off_bytes a byte offset on a
 * device, _ns nanoseconds, _seq a sequence number of the log.
 */
#define COW_BLK_SHIFT 12
#define COW_BLK_BYTES 4096u

#define KIB (1024ull)
#define MIB (1024ull * KIB)
#define GIB (1024ull * MIB)

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))
#define MUST_CHECK __attribute__((warn_unused_result))
#define PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

static inline uint64_t min_u64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static inline uint64_t max_u64(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* to is any number except 0, not only a power of two (erase blocks of 3 and 12 MiB exist) */
static inline uint64_t round_up_u64(uint64_t v, uint64_t to)
{
	return (v + to - 1) / to * to;
}

static inline bool range_fits(uint64_t off, uint64_t len, uint64_t size)
{
	return off <= size && len <= size - off;
}

static inline uint64_t round_down_u64(uint64_t v, uint64_t to)
{
	return v / to * to;
}

/* v * by: the upper 64 bits, and the lower ones. 32-bit machines have no 128-bit integers. */
uint64_t mul_u64(uint64_t v, uint64_t by, uint64_t *ret_low);

/*
 * v * by / of, rounded down, although v * by may not fit into 64 bits.
 * UINT64_MAX if the result does not fit; of is not 0.
 */
uint64_t mul_div_u64(uint64_t v, uint64_t by, uint64_t of);

static inline uint64_t blk_to_bytes(uint64_t blk)
{
	return blk << COW_BLK_SHIFT;
}

#define CLOCK_IS_SET_S 1577836800ull /* 2020-01-01: an earlier clock is not set */

/* CLOCK_MONOTONIC */
static inline uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static inline void cleanup_freep(void *p)
{
	free(*(void **)p);
}

/* It is -1 then, as it may be before. */
static inline void cleanup_closep(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

#define _cleanup_free_ __attribute__((cleanup(cleanup_freep)))
#define _cleanup_close_ __attribute__((cleanup(cleanup_closep)))

/* takes the descriptor or pointer out of a cleanup variable, so that it stays open or allocated */
static inline int steal_fd(int *fd)
{
	int r = *fd;

	*fd = -1;
	return r;
}

#define steal_ptr(p)                                                                               \
	({                                                                                         \
		__typeof__(p) _stolen = (p);                                                       \
		(p) = NULL;                                                                        \
		_stolen;                                                                           \
	})

#endif
