/* SPDX-License-Identifier: MIT */
/*
 * Read-ahead of the base.
 *
 * Notes on the design
 * - The kernel reads ahead inside a file. A program that reads many small files, or walks a tree,
 *   asks for single blocks that lie close together on the card (inode tables, directories, files
 *   written one after another). Several such streams run at a time. A card takes a millisecond for
 *   each request, whatever its size. On a fast card the request costs more than the bytes.
 * - A stream is a place near which the last requests were. Its window grows while its content is
 *   used, and shrinks to nothing when less than a quarter is used. Random reads match no stream and
 *   cost a search in a small table. The worst case, blocks just beyond each window, costs 9 %.
 * - Sizes come from a replay of the requests of a cold read of 9,000 files and of a tree walk, at 1
 *   ms a request and 20 MB/s. With windows of 64 KiB both take 0.7 of the time, with 32 KiB 0.75.
 *   Windows of 128 KiB, more windows, or aligned ones are hardly better. A window pays off once a
 *   fifth of it is used.
 *
 * I1  A window is used only under the epoch under which its read began. The blocks that a stack
 *     shows from the base do not change there while the stack is published or pinned. A newer layer
 *     in every stack of that time covers all blocks that the commit writes in place, checkpoints
 *     included. A window may hold garbage for covered blocks, but no request reads those. Gaps that
 *     a plan writes over (commit/plan.h) do change: they are free blocks, whose content is
 *     undefined until the file system writes them.
 * I2  A window's buffer is written only while it is `filling`. Only an idle window becomes
 *     `filling`.
 * I3  Readers wait for the card alone: a window is filled without any lock held. A read that was
 *     only started is queued in the window's list, and the thread that fills the window answers it.
 */
#include "export/readahead.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "base/io.h"

#define WINDOWS 8
#define STREAMS 16
#define WINDOW_MAX_BLKS 16u
#define WINDOW_MIN_BLKS 4u
#define NEAR_BLKS 32u /* a request within this distance of the last one belongs to the stream */
#define PAUSE 4	      /* requests without a window after one that did not pay off */
#define NOWHERE (UINT64_MAX / 2)

struct window {
	uint64_t epoch, blk;
	unsigned blks; /* 0: empty */
	bool filling;
	struct readahead_read *waiting; /* used while filling */
	struct async_read io;		/* the read that fills it */
	struct readahead *readahead;
	_Atomic unsigned users; /* threads that copy from it or fill it */
	unsigned stream;
	uint64_t used_at;
	char *buf;
};

struct stream {
	uint64_t last_blk, used_at;
	unsigned window_blks; /* size of the last window; 0: none */
	unsigned used_blks;   /* how much of it was used */
	unsigned pause;	      /* requests left without a window */
};

struct readahead {
	struct card *base;
	struct async *async; /* NULL: not available for this card */
	uint64_t base_blks;
	pthread_mutex_t lock;
	pthread_cond_t filled;
	uint64_t clock;
	struct stream stream[STREAMS];
	struct window window[WINDOWS];
};

int readahead_new(struct readahead **ret, struct card *base, unsigned depth)
{
	struct readahead *a = calloc(1, sizeof(*a));
	int r;

	if (!a)
		return -ENOMEM;
	a->base = base;
	a->base_blks = base->geo.size_bytes / COW_BLK_BYTES;
	pthread_mutex_init(&a->lock, NULL);
	pthread_cond_init(&a->filled, NULL);
	for (unsigned i = 0; i < STREAMS; i++)
		a->stream[i].last_blk = NOWHERE;
	for (unsigned i = 0; i < WINDOWS; i++) {
		a->window[i].readahead = a;
		a->window[i].buf = io_alloc(blk_to_bytes(WINDOW_MAX_BLKS));
		if (!a->window[i].buf) {
			readahead_free(a);
			return -ENOMEM;
		}
	}
	r = depth ? async_new(&a->async, base, depth + WINDOWS) : 0;
	if (r < 0 && r != -ENOTSUP) {
		readahead_free(a);
		return r;
	}
	*ret = a;
	return 0;
}

void readahead_free(struct readahead *a)
{
	if (!a)
		return;
	async_free(a->async);
	for (unsigned i = 0; i < WINDOWS; i++)
		free(a->window[i].buf);
	pthread_cond_destroy(&a->filled);
	pthread_mutex_destroy(&a->lock);
	free(a);
}

/* ---- under the lock ---- */

static struct window *find_window(struct readahead *a, uint64_t epoch, uint64_t blk, uint64_t blks)
{
	for (struct window *w = a->window; w < a->window + WINDOWS; w++)
		if (w->blks && w->epoch == epoch && blk >= w->blk && blk + blks <= w->blk + w->blks)
			return w;
	return NULL;
}

static struct window *idle_window(struct readahead *a)
{
	struct window *oldest = NULL;

	for (struct window *w = a->window; w < a->window + WINDOWS; w++)
		if (!atomic_load_explicit(&w->users, memory_order_acquire) &&
		    (!oldest || w->used_at < oldest->used_at))
			oldest = w;
	return oldest;
}

/* The stream near which blk lies. If there is none, restarts the stream that was idle longest. */
static struct stream *find_stream(struct readahead *a, uint64_t blk)
{
	struct stream *oldest = a->stream;

	for (struct stream *s = a->stream; s < a->stream + STREAMS; s++) {
		if (blk + NEAR_BLKS >= s->last_blk && blk <= s->last_blk + NEAR_BLKS)
			return s;
		if (s->used_at < oldest->used_at)
			oldest = s;
	}
	*oldest = (struct stream){ .last_blk = NOWHERE };
	return oldest;
}

/* How much to read for a request that no window covers. 0: the request alone. */
static unsigned plan(struct stream *s)
{
	if (s->last_blk == NOWHERE)
		return 0;
	if (s->pause) {
		s->pause--;
		return 0;
	}
	if (!s->window_blks)
		s->window_blks = WINDOW_MIN_BLKS;
	else if (s->used_blks * 4 >= s->window_blks)
		s->window_blks = min_u64(2 * s->window_blks, WINDOW_MAX_BLKS);
	else
		s->window_blks /= 2;
	if (s->window_blks < WINDOW_MIN_BLKS) {
		s->window_blks = 0;
		s->pause = PAUSE;
	}
	s->used_blks = 0;
	return s->window_blks;
}

static void note(struct readahead *a, struct stream *s, uint64_t blk, uint64_t blks)
{
	s->last_blk = blk + blks;
	s->used_at = ++a->clock;
}

/* A window for this request, ready to be filled. NULL: none is wanted, or none is available. */
static struct window *begin_window(struct readahead *a, uint64_t epoch, uint64_t blk, uint64_t blks)
{
	struct stream *s = find_stream(a, blk);
	unsigned n = plan(s);
	struct window *w = n > blks ? idle_window(a) : NULL;

	note(a, s, blk, blks);
	if (!w)
		return NULL;
	w->epoch = epoch;
	w->blk = blk;
	w->blks = (unsigned)min_u64(n, a->base_blks - blk);
	w->stream = (unsigned)(s - a->stream);
	w->used_at = a->clock;
	w->filling = true;
	atomic_store_explicit(&w->users, 1, memory_order_relaxed);
	return w;
}

/* ---- */

static int read_card(struct readahead *a, uint64_t blk, uint64_t blks, void *buf)
{
	return card_read(a->base, blk_to_bytes(blk), buf, blk_to_bytes(blks));
}

static void copy_out(const struct window *w, uint64_t blk, uint64_t blks, void *buf)
{
	memcpy(buf, w->buf + blk_to_bytes(blk - w->blk), blk_to_bytes(blks));
}

static void leave(struct window *w)
{
	atomic_fetch_sub_explicit(&w->users, 1, memory_order_release);
}

/* Under the lock: registers a user of w. */
static void enter(struct readahead *a, struct window *w, uint64_t blk, uint64_t blks)
{
	struct stream *s = &a->stream[w->stream];

	atomic_fetch_add_explicit(&w->users, 1, memory_order_relaxed);
	note(a, s, blk, blks);
	s->used_blks += (unsigned)blks;
	w->used_at = a->clock;
}

static void own_done(struct async_read *io, int r)
{
	struct readahead_read *rd = container_of(io, struct readahead_read, io);

	rd->done(rd, r);
}

/* Reads the range of rd and nothing else. */
static int start_own(struct readahead *a, struct readahead_read *rd)
{
	rd->io.done = own_done;
	return async_read(a->async, &rd->io, blk_to_bytes(rd->blk), rd->buf,
			  blk_to_bytes(rd->blks)) == 0
		       ? READAHEAD_PENDING
		       : -EAGAIN;
}

/* Called by the thread that filled the window. Its error may belong to a block that rd does not
 * want. */
static void answer(struct readahead_read *rd, bool ok)
{
	struct window *w = rd->window;
	int r = 0;

	if (ok)
		copy_out(w, rd->blk, rd->blks, rd->buf);
	leave(w);
	if (!ok)
		r = start_own(rd->readahead, rd);
	if (r == READAHEAD_PENDING)
		return;
	rd->done(rd, r < 0 ? read_card(rd->readahead, rd->blk, rd->blks, rd->buf) : 0);
}

/* Ends the filling, and answers the reads that wait for it. The caller still uses w. */
static void filled(struct readahead *a, struct window *w, int r)
{
	struct readahead_read *rd, *next;

	pthread_mutex_lock(&a->lock);
	if (r < 0)
		w->blks = 0;
	w->filling = false;
	rd = w->waiting;
	w->waiting = NULL;
	pthread_cond_broadcast(&a->filled);
	pthread_mutex_unlock(&a->lock);
	for (; rd; rd = next) {
		next = rd->next;
		answer(rd, r == 0);
	}
}

int readahead_read(struct readahead *a, uint64_t epoch, uint64_t blk, uint64_t blks, void *buf)
{
	bool to_fill = false, ok;
	struct window *w;

	if (blks >= WINDOW_MAX_BLKS) /* large enough for a request of its own */
		return read_card(a, blk, blks, buf);
	pthread_mutex_lock(&a->lock);
	while ((w = find_window(a, epoch, blk, blks)) && w->filling)
		pthread_cond_wait(&a->filled, &a->lock);
	if (w)
		enter(a, w, blk, blks);
	else
		to_fill = (w = begin_window(a, epoch, blk, blks));
	pthread_mutex_unlock(&a->lock);
	ok = w;
	if (to_fill) {
		int r = read_card(a, w->blk, w->blks, w->buf);

		filled(a, w, r);
		ok = r == 0;
	}
	if (ok)
		copy_out(w, blk, blks, buf);
	if (w)
		leave(w);
	/* the error may belong to a block that this read does not want */
	return ok ? 0 : read_card(a, blk, blks, buf);
}

static void window_done(struct async_read *io, int r)
{
	struct window *w = container_of(io, struct window, io);

	filled(w->readahead, w, r);
	leave(w);
}

/* Fills w, which has waiting reads, asynchronously or not. */
static void start_fill(struct readahead *a, struct window *w)
{
	w->io.done = window_done;
	if (async_read(a->async, &w->io, blk_to_bytes(w->blk), w->buf, blk_to_bytes(w->blks)) < 0)
		window_done(&w->io, read_card(a, w->blk, w->blks, w->buf));
}

int readahead_start(struct readahead *a, uint64_t epoch, uint64_t blk, uint64_t blks, void *buf,
		    struct readahead_read *rd)
{
	bool hit = false, to_fill = false;
	struct window *w;

	if (!a->async)
		return -EAGAIN;
	rd->readahead = a;
	rd->blk = blk;
	rd->blks = blks;
	rd->buf = buf;
	if (blks >= WINDOW_MAX_BLKS)
		return start_own(a, rd);
	pthread_mutex_lock(&a->lock);
	w = find_window(a, epoch, blk, blks);
	if (w) {
		enter(a, w, blk, blks);
		hit = !w->filling;
	} else if ((w = begin_window(a, epoch, blk, blks))) {
		/* for rd, besides the filling */
		atomic_fetch_add_explicit(&w->users, 1, memory_order_relaxed);
		to_fill = true;
	}
	if (w && !hit) {
		rd->window = w;
		rd->next = w->waiting;
		w->waiting = rd;
	}
	pthread_mutex_unlock(&a->lock);
	if (hit) {
		copy_out(w, blk, blks, buf);
		leave(w);
		return 0;
	}
	if (to_fill)
		start_fill(a, w);
	return w ? READAHEAD_PENDING : start_own(a, rd);
}
