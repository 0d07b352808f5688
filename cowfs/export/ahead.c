/* SPDX-License-Identifier: MIT */
/*
 * Read-ahead of the base.
 *
 * Notes on the design
 * - The kernel reads ahead inside of a file. Whoever reads many small files, or walks a tree, asks
 *   for single blocks that lie close together on the card (inode tables, directories, files written
 *   one after another), several such streams at a time. A card takes a millisecond for
 *   each request, whatever its size, and on a fast one the request costs more than the bytes.
 * - A stream is a place near which the last requests were. Its window grows while what it brings is
 *   used, and shrinks to nothing when less than a quarter is. Random reads match no stream and
 *   cost a search in a small table; the worst there is, blocks just beyond each window, 9 %.
 * - Sizes by replaying the requests of a cold read of 9,000 files and of a tree walk, at 1 ms a
 *   request and 20 MB/s: with windows of 64 KiB both take 0.7 of the time, of 32 KiB 0.75; of
 *   128 KiB, more of them, or aligned ones hardly better. A window pays from a fifth used.
 *
 * I1  A window is used only under the epoch under which its reading began. What a stack shows from
 *     the base does not change there while the stack is published or pinned; all that the commit
 *     writes in place, checkpoints included, is covered by a newer layer in every stack of that
 *     time. A window may hold garbage for covered blocks, and nobody asks for those. Gaps that a
 *     plan writes over (commit/plan.h) do change: free blocks, whose content means nothing until
 *     somebody has written them above.
 * I2  A window's buffer is written only while it is `filling`, which only an idle one becomes.
 * I3  Who waits, waits for the card alone: a window is filled without any lock held. A read that
 *     was only started stands in the window's list and is answered by who fills it.
 */
#include "export/ahead.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "base/io.h"

#define WINDOWS 8
#define STREAMS 16
#define WINDOW_MAX_BLKS 16u
#define WINDOW_MIN_BLKS 4u
#define NEAR_BLKS 32u /* so far from the last request belongs to the stream */
#define PAUSE 4	      /* requests, after a window that was not worth it */
#define NOWHERE (UINT64_MAX / 2)

struct window {
	uint64_t epoch, blk;
	unsigned blks; /* 0: nothing in it */
	bool filling;
	struct ahead_read *waiting; /* while filling */
	struct async_read io;	    /* that fills it */
	struct ahead *ahead;
	_Atomic unsigned users; /* copying from it, or filling it */
	unsigned stream;
	uint64_t used_at;
	char *buf;
};

struct stream {
	uint64_t last_blk, used_at;
	unsigned window_blks; /* of the last window; 0: none */
	unsigned used_blks;   /* what it was good for */
	unsigned pause;	      /* so many requests without a window */
};

struct ahead {
	struct card *base;
	struct async *async; /* NULL: this card has none */
	uint64_t base_blks;
	pthread_mutex_t lock;
	pthread_cond_t filled;
	uint64_t clock;
	struct stream stream[STREAMS];
	struct window window[WINDOWS];
};

int ahead_new(struct ahead **ret, struct card *base, unsigned depth)
{
	struct ahead *a = calloc(1, sizeof(*a));
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
		a->window[i].ahead = a;
		a->window[i].buf = io_alloc(blk_to_bytes(WINDOW_MAX_BLKS));
		if (!a->window[i].buf) {
			ahead_free(a);
			return -ENOMEM;
		}
	}
	r = depth ? async_new(&a->async, base, depth + WINDOWS) : 0;
	if (r < 0 && r != -ENOTSUP) {
		ahead_free(a);
		return r;
	}
	*ret = a;
	return 0;
}

void ahead_free(struct ahead *a)
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

static struct window *find_window(struct ahead *a, uint64_t epoch, uint64_t blk, uint64_t blks)
{
	for (struct window *w = a->window; w < a->window + WINDOWS; w++)
		if (w->blks && w->epoch == epoch && blk >= w->blk && blk + blks <= w->blk + w->blks)
			return w;
	return NULL;
}

static struct window *idle_window(struct ahead *a)
{
	struct window *oldest = NULL;

	for (struct window *w = a->window; w < a->window + WINDOWS; w++)
		if (!atomic_load_explicit(&w->users, memory_order_acquire) &&
		    (!oldest || w->used_at < oldest->used_at))
			oldest = w;
	return oldest;
}

/* The stream near which blk lies; or the one that was idle for longest, begun anew. */
static struct stream *find_stream(struct ahead *a, uint64_t blk)
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

/* How much to read for a request that no window has; 0: the request alone. */
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

static void note(struct ahead *a, struct stream *s, uint64_t blk, uint64_t blks)
{
	s->last_blk = blk + blks;
	s->used_at = ++a->clock;
}

/* A window for this request, ready to be filled; NULL: none is wanted, or to be had. */
static struct window *begin_window(struct ahead *a, uint64_t epoch, uint64_t blk, uint64_t blks)
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

static int read_card(struct ahead *a, uint64_t blk, uint64_t blks, void *buf)
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

/* Under the lock: what has found w uses it. */
static void enter(struct ahead *a, struct window *w, uint64_t blk, uint64_t blks)
{
	struct stream *s = &a->stream[w->stream];

	atomic_fetch_add_explicit(&w->users, 1, memory_order_relaxed);
	note(a, s, blk, blks);
	s->used_blks += (unsigned)blks;
	w->used_at = a->clock;
}

static void own_done(struct async_read *io, int r)
{
	struct ahead_read *rd = container_of(io, struct ahead_read, io);

	rd->done(rd, r);
}

/* Reads the range of rd and nothing else. */
static int start_own(struct ahead *a, struct ahead_read *rd)
{
	rd->io.done = own_done;
	return async_read(a->async, &rd->io, blk_to_bytes(rd->blk), rd->buf,
			  blk_to_bytes(rd->blks)) == 0
		       ? AHEAD_PENDING
		       : -EAGAIN;
}

/* From who filled the window; the error that he met may be that of a block that rd does not
 * want. */
static void answer(struct ahead_read *rd, bool ok)
{
	struct window *w = rd->window;
	int r = 0;

	if (ok)
		copy_out(w, rd->blk, rd->blks, rd->buf);
	leave(w);
	if (!ok)
		r = start_own(rd->ahead, rd);
	if (r == AHEAD_PENDING)
		return;
	rd->done(rd, r < 0 ? read_card(rd->ahead, rd->blk, rd->blks, rd->buf) : 0);
}

/* Ends the filling, and answers who waits for it; the caller still uses w. */
static void filled(struct ahead *a, struct window *w, int r)
{
	struct ahead_read *rd, *next;

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

int ahead_read(struct ahead *a, uint64_t epoch, uint64_t blk, uint64_t blks, void *buf)
{
	bool to_fill = false, ok;
	struct window *w;

	if (blks >= WINDOW_MAX_BLKS) /* worth a request of its own */
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
	/* an error may be that of a block that nobody wants */
	return ok ? 0 : read_card(a, blk, blks, buf);
}

static void window_done(struct async_read *io, int r)
{
	struct window *w = container_of(io, struct window, io);

	filled(w->ahead, w, r);
	leave(w);
}

/* Fills w, in which somebody waits, one way or the other. */
static void start_fill(struct ahead *a, struct window *w)
{
	w->io.done = window_done;
	if (async_read(a->async, &w->io, blk_to_bytes(w->blk), w->buf, blk_to_bytes(w->blks)) < 0)
		window_done(&w->io, read_card(a, w->blk, w->blks, w->buf));
}

int ahead_start(struct ahead *a, uint64_t epoch, uint64_t blk, uint64_t blks, void *buf,
		struct ahead_read *rd)
{
	bool hit = false, to_fill = false;
	struct window *w;

	if (!a->async)
		return -EAGAIN;
	rd->ahead = a;
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
		/* rd, beside the filling */
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
	return w ? AHEAD_PENDING : start_own(a, rd);
}
