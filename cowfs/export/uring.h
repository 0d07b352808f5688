/* SPDX-License-Identifier: MIT */
/*
 * The little of io_uring that cowfs needs, without liburing. COWFS_URING is defined if the kernel's
 * headers know it; otherwise uring_new returns -ENOTSUP.
 *
 * The memory of the rings is the caller's (IORING_SETUP_NO_MMAP, Linux 6.5), for this reason: a
 * mapping of the io_uring would keep it open as long as any thread of a killed process sleeps in I/O
 * on its own volume. Its operations would not be cancelled, and so the I/O would never end.
 *
 * The kernel writes to the rings for some time after the close (their end is work for a kernel
 * thread). So their memory is a mapping of its own, and nothing else gets these pages.
 */
#ifndef COWFS_EXPORT_URING_H
#define COWFS_EXPORT_URING_H

#include <stdatomic.h>
#include <sys/uio.h>

#include "base/util.h"

#if __has_include(<linux/io_uring.h>)
#include <linux/io_uring.h>
#ifdef IORING_SETUP_DEFER_TASKRUN /* Linux 6.1 */
#define COWFS_URING
#endif
#endif

#define URING_ENTRIES 64u /* in submission at a time: one page of 4 KiB */

/* One thread at a time. */
struct uring {
	int fd;
	void *mem;
	unsigned entries, sq_mask, cq_mask, sqe_bytes;
	unsigned tail, submitted;
	_Atomic unsigned *sq_tail, *cq_head, *cq_tail;
	char *sqes;
	struct io_uring_cqe *cqes;
};

#ifdef COWFS_URING
/* flags: IORING_SETUP_*; it is disabled until uring_restrict. */
int uring_new(struct uring *u, unsigned entries, unsigned flags) MUST_CHECK;
/* Operations name this file by index 0 and IOSQE_FIXED_FILE. Before uring_restrict. */
int uring_register_file(struct uring *u, int fd) MUST_CHECK;
/* IORING_OP_READ_FIXED reads into this memory, which stays pinned. Before uring_restrict. -ENOMEM: it
 * is more than may be locked. */
int uring_register_memory(struct uring *u, struct iovec memory) MUST_CHECK;
/* From now on only operations of the list are possible. Call it in the thread that submits. */
int uring_restrict(struct uring *u, const uint8_t ops[], unsigned n) MUST_CHECK;
void uring_free(struct uring *u);
/* The next entry, zeroed. NULL: submit first. */
struct io_uring_sqe *uring_sqe(struct uring *u);
/* Is anything filled in and not submitted? */
static inline bool uring_pending(const struct uring *u)
{
	return u->tail != u->submitted;
}
/* Submits what was filled in, and waits for that number of completions. -EINTR, ... */
int uring_submit(struct uring *u, unsigned wait);
/* Takes a completion. False: none is there. */
bool uring_take(struct uring *u, uint64_t *ret_user_data, int *ret_res);
#endif

/* Can this process make an io_uring? 0, or -errno with a clause in why. Keeps nothing. */
int uring_check(char *why, size_t n) MUST_CHECK;

#endif
