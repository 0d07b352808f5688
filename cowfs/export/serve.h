/* SPDX-License-Identifier: MIT */
/*
 * The serving threads, as leader and followers: one of them, the leader, receives requests and
 * serves them; the others sleep. What may have to wait for the card is no work for the leader: it
 * hands over first, the next thread receives from then on, and the one that waited becomes a
 * follower.
 *
 * I1  While requests can be received, somebody receives them: a leader that is stuck in one request
 *     for longer than SERVE_STUCK_MS, in whatever, is replaced without being asked.
 * I2  Nothing is created or grown while I/O runs. Without requests no thread wakes up.
 */
#ifndef COWFS_EXPORT_SERVE_H
#define COWFS_EXPORT_SERVE_H

#include "base/util.h"

#define SERVE_STUCK_MS 40

struct serve;

struct serve_ops {
	size_t buf_bytes; /* each thread has a buffer of its own, io_alloc'ed */
	/* Waits for a request: its length; -EAGAIN: nothing this time; any other -errno ends all
	 * threads. */
	ssize_t (*receive)(void *ctx, void *buf);
	void (*handle)(void *ctx, void *buf, size_t len_bytes);
};

int serve_new(struct serve **ret, unsigned threads, const struct serve_ops *ops,
	      void *ctx) MUST_CHECK;
/* On an error some threads may run already: make receive fail, then serve_free. */
int serve_start(struct serve *s) MUST_CHECK;
/* From within handle: what this thread does next may wait. Does nothing in a thread that does not
 * lead. */
void serve_hand_over(struct serve *s);
/* From within handle: had this thread to wait for the request? Then no other waits behind it, most
 * likely. */
bool serve_waited(void);
/* NULL allowed. Joins the threads, which end after receive has begun to fail. */
void serve_free(struct serve *s);

#endif
