/* SPDX-License-Identifier: MIT */
/*
 * The serving threads, as leader and followers. One thread, the leader, receives and serves
 * requests; the others sleep. The leader never blocks on card I/O: it hands over first. Then the
 * next thread receives, and the thread that blocked becomes a follower.
 *
 * I1  While requests can be received, one thread receives them. A leader that spends more than
 *     SERVE_STUCK_MS in one request is replaced without its help, whatever the cause.
 * I2  No resource is created or grown while I/O runs. Without requests no thread wakes up.
 */
#ifndef COWFS_EXPORT_SERVE_H
#define COWFS_EXPORT_SERVE_H

#include "base/util.h"

#define SERVE_STUCK_MS 40

struct serve;

struct serve_ops {
	size_t buf_bytes; /* each thread has its own buffer, from io_alloc */
	/* Waits for a request and returns its length. -EAGAIN: none this time. Any other -errno
	 * ends all threads. */
	ssize_t (*receive)(void *ctx, void *buf);
	void (*handle)(void *ctx, void *buf, size_t len_bytes);
};

int serve_new(struct serve **ret, unsigned threads, const struct serve_ops *ops,
	      void *ctx) MUST_CHECK;
/* On an error some threads may already run: make receive fail, then call serve_free. */
int serve_start(struct serve *s) MUST_CHECK;
/* From within handle: this thread may block from now on. Does nothing in a thread that does not
 * lead, and for NULL: one thread serves alone. */
void serve_hand_over(struct serve *s);
/* From within handle: did this thread have to wait for the request? If so, most likely no other
 * request is queued behind it. */
bool serve_waited(void);
/* Has a thread spent cpu_ns of processor time in one request, since the first call that met it in
 * there? Then it loops: waiting takes none. One thread calls it. */
bool serve_loops(struct serve *s, uint64_t cpu_ns);
/* NULL allowed. Joins the threads, which end once receive fails. */
void serve_free(struct serve *s);

#endif
