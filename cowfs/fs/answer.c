// SPDX-License-Identifier: MIT
#include "fs/answer.h"

#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

uint64_t answer_patience_ns = 60 * 1000000000ull;

void answer_skip(struct iovec **iov, size_t *n, size_t bytes)
{
	for (; *n && bytes >= (*iov)->iov_len; (*iov)++, (*n)--)
		bytes -= (*iov)->iov_len;
	if (*n) {
		(*iov)->iov_base = (char *)(*iov)->iov_base + bytes;
		(*iov)->iov_len -= bytes;
	}
}

struct served {
	int fd;
	struct fsimage im;
	struct fsimage_facts facts;
	struct fsimage_range *ranges;
	size_t n;
	uint8_t *bits;
};

/* Passes all of iov, in or out; blocks. */
static bool pass(int fd, bool in, struct iovec *iov, size_t n)
{
	while (n) {
		struct msghdr m = { .msg_iov = iov, .msg_iovlen = n };
		/*
		 * The C library of i386 makes these calls through socketcall(2), whose arguments the
		 * filter of fsproc.c cannot see.
		 */
		ssize_t done = in ? syscall(SYS_recvmsg, fd, &m, 0)
				  : syscall(SYS_sendmsg, fd, &m, MSG_NOSIGNAL);

		if (done <= 0)
			return false;
		answer_skip(&iov, &n, (size_t)done);
	}
	return true;
}

static bool reply(int fd, int err, uint64_t n, const void *data, size_t bytes)
{
	struct answer a = { .err = err, .bytes = err ? 0 : bytes, .blks = n };
	struct iovec iov[2] = { { &a, sizeof(a) }, { (void *)data, (size_t)a.bytes } };

	return pass(fd, false, iov, a.bytes ? 2 : 1);
}

static int read_there(void *ctx, uint64_t blk, uint64_t blks, void *buf)
{
	struct answer want = { .more = 1, .blk = blk, .blks = blks };
	struct iovec out = { &want, sizeof(want) };
	int32_t err;
	struct iovec in[2] = { { &err, sizeof(err) }, { buf, blk_to_bytes(blks) } };
	int fd = *(int *)ctx;

	if (!pass(fd, false, &out, 1) || !pass(fd, true, &in[0], 1))
		return -EIO;
	return err ? err : pass(fd, true, &in[1], 1) ? 0 : -EIO;
}

static bool serve_open(struct served *s, const struct question *q)
{
	struct blk_reader r = { read_there, &s->fd, q->number };
	int err;

	s->facts.journal.part.next = q->verified;
	err = s->bits ? -EINVAL
		      : fsimage_open(&s->im, &r, (enum fs_kind)q->kind, q->ask, &s->facts);

	if (!err)
		s->bits = calloc(GROUPS_PER_ANSWER, s->im.bitmap_bytes);
	if (!err && !s->bits)
		err = -ENOMEM;
	return reply(s->fd, err, 0, &s->facts, sizeof(s->facts));
}

_Static_assert(sizeof(struct fsimage_range) == ITEM_BYTES, "an item");
_Static_assert(sizeof(struct fsimage_move) == ITEM_BYTES, "an item");

static bool serve_items(struct served *s, const struct question *q, int err, const void *items,
			size_t n)
{
	size_t first = (size_t)min_u64(q->number, n);

	return reply(s->fd, err, n, n ? (const uint8_t *)items + first * ITEM_BYTES : NULL,
		     min_u64(ITEMS_PER_ANSWER, n - first) * ITEM_BYTES);
}

static bool serve_log(struct served *s, const struct question *q)
{
	int err = s->ranges ? 0 : fsimage_log(&s->im, &s->facts.journal, &s->ranges, &s->n);

	return serve_items(s, q, err, s->ranges, s->n);
}

static bool serve_replay(struct served *s, const struct question *q)
{
	size_t n;
	const struct fsimage_move *list = fsimage_replay(&s->im, &n);

	return serve_items(s, q, 0, list, n);
}

static bool serve_group(struct served *s, const struct question *q)
{
	size_t n = 0;
	int err;

	do
		err = fsimage_group(&s->im, q->number + n, s->bits + n * s->im.bitmap_bytes);
	while (!err && ++n < min_u64(q->ask, GROUPS_PER_ANSWER));
	/* an error is the answer of the group that it is about, if that is asked for */
	return reply(s->fd, n ? 0 : err, 0, s->bits, n * s->im.bitmap_bytes);
}

void answer_serve(int fd)
{
	struct served s = { .fd = fd };
	struct question q;
	bool ok = true;

	while (ok) {
		struct iovec iov = { &q, sizeof(q) };

		if (!pass(fd, true, &iov, 1))
			return;
		if (q.what == ASK_OPEN)
			ok = serve_open(&s, &q);
		else if (!s.bits)
			ok = false;
		else
			ok = q.what == ASK_LOG	    ? serve_log(&s, &q)
			     : q.what == ASK_REPLAY ? serve_replay(&s, &q)
						    : serve_group(&s, &q);
	}
}
