/* SPDX-License-Identifier: MIT */
/*
 * The ring engine: one thread with an io_uring, which starts operations, takes their completions and
 * serves what RAM has, and a few threads for what blocks.
 *
 * I1  The ring thread never waits for the card nor for a lock that is held across I/O. What would
 *     goes to ring_block.
 * I2  Only the ring thread uses the io_uring. Others hand work to it with ring_post.
 * I3  No resource is created or grown while I/O runs. Without requests no thread wakes up.
 */
#ifndef COWFS_EXPORT_RING_THREAD_H
#define COWFS_EXPORT_RING_THREAD_H

#include <sys/uio.h>

#include "base/util.h"

struct async_read;
struct io_uring_sqe;
struct ring;

/* An operation of the io_uring, from its submission to done. Caller-owned. */
struct ring_op {
	void (*done)(struct ring_op *op, int res); /* ring thread; res: of the completion */
};

/* Work for another thread. Caller-owned; reusable once call is entered. */
struct ring_work {
	void (*call)(struct ring_work *w);
	struct ring_work *next; /* private */
};

#define RING_WORKERS 3u

struct ring_params {
	int fd;		     /* a file that operations name with ring_sqe_file; -1: none */
	struct iovec memory; /* reads of the card into it cost less; of 0 bytes: none */
	/* Called first in the ring thread. Submits operations. 0, or -errno: the thread ends. */
	int (*begin)(void *ctx, struct ring *r);
	void *ctx;
};

/* On return begin has returned 0, and its operations are submitted. fd and memory must outlive the ring.
 * -ENOTSUP: this build or this kernel has none. */
int ring_new(struct ring **ret, const struct ring_params *p) MUST_CHECK;
/* Waits for ring_end, then until nothing is in flight or queued. Frees r. NULL allowed. */
void ring_free(struct ring *r);

/* ---- ring thread */
bool ring_is_mine(const struct ring *r); /* is the caller the ring thread? Any thread */
/* An entry to fill in, except for user_data and what names the file. */
struct io_uring_sqe *ring_sqe(struct ring *r, struct ring_op *op);
void ring_sqe_file(struct io_uring_sqe *sqe); /* it is for fd of the parameters */
void ring_flush(struct ring *r); /* submits what was filled in: the kernel has taken its memory */
/* The submit of async_take_over; ctx is the ring. -EAGAIN in other threads. */
int ring_read(void *ctx, int fd, struct async_read *io);
void ring_end(struct ring *r); /* the thread ends once nothing else is in flight */

/* ---- any thread */
void ring_post(struct ring *r, struct ring_work *w); /* call runs in the ring thread */
void ring_block(struct ring *r,
		struct ring_work *w); /* call runs in another thread, and may block */

#endif
