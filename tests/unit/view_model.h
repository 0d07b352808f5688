/* SPDX-License-Identifier: MIT */
/* A view, and a model of its expected content. Behind cmocka.h. */
#ifndef COWFS_TESTS_VIEW_MODEL_H
#define COWFS_TESTS_VIEW_MODEL_H

#include "test.h"
#include <semaphore.h>
#include <sys/uio.h>

#include "base/bytes.h"
#include "base/crc32c.h"
#include "sim/sim.h"
#include "export/pin.h"
#include "export/view.h"
#include "log/index_build.h"

enum {
	BLKS = 2503,
	BYTES = BLKS * COW_BLK_BYTES,
	RING_OFF = 2560 * COW_BLK_BYTES, /* a region of the same card serves as the log's ring */
	RING_BLKS = 4096,
};

struct fixture {
	struct card *card;
	struct ram_store *store;
	struct view *v;
	struct log_index *index; /* the one published; the view has the reference */
	uint64_t ring_pos;
	uint8_t *live, *sealed, *committed, *buf; /* images */
	uint8_t *active_map, *below_map;	  /* enum blk_state of each block */
	uint8_t top_map[BLKS],
		kept_map[BLKS]; /* the newest sealed generation; view_release_keeping */
	bool is_sealed;
};

static inline void home_write(struct fixture *f, uint64_t blk, uint64_t blks, const void *buf)
{
	assert_int_equal(card_set_writable(f->card, true), 0);
	assert_int_equal(card_write(f->card, blk_to_bytes(blk), buf, blk_to_bytes(blks)), 0);
	assert_int_equal(card_flush(f->card), 0);
	assert_int_equal(card_set_writable(f->card, false), 0);
}

static inline void setup(struct fixture *f, uint64_t limit_bytes)
{
	const struct sim_params params = { .size_bytes = RING_OFF + RING_BLKS * COW_BLK_BYTES };

	*f = (struct fixture){ 0 };
	rnd_begin(1);
	f->live = io_alloc(BYTES);
	f->sealed = io_alloc(BYTES);
	f->committed = io_alloc(BYTES);
	f->buf = io_alloc(BYTES);
	f->active_map = calloc(1, BLKS);
	f->below_map = calloc(1, BLKS);
	assert_int_equal(sim_new(&f->card, &params), 0);
	rnd_fill(f->committed, BYTES);
	memcpy(f->live, f->committed, BYTES);
	home_write(f, 0, BLKS, f->committed);
	assert_int_equal(ram_store_open(&f->store, limit_bytes), 0);
	f->index = log_index_empty();
	assert_int_equal(view_new(&f->v, f->store, f->card, BLKS, f->index), 0);
	log_index_unref(f->index);
	assert_int_equal(view_volume_blks(f->v), BLKS);
}

/* RAM is used in pages, of 4 KiB or, on some machines, 16 KiB. */
static inline uint64_t page_bytes(void)
{
	return (uint64_t)sysconf(_SC_PAGESIZE);
}

static inline uint64_t used_pages(const struct fixture *f)
{
	return ram_store_used_bytes(f->store) / page_bytes();
}

static inline void teardown(struct fixture *f)
{
	view_free(f->v);
	assert_int_equal(used_pages(f), 0);
	ram_store_close(f->store);
	card_close(f->card);
	free(f->live);
	free(f->sealed);
	free(f->committed);
	free(f->buf);
	free(f->active_map);
	free(f->below_map);
}

/* ---- operations on view and model alike ---- */

static inline void do_write(struct fixture *f, uint64_t off, size_t len)
{
	rnd_fill(f->live + off, len);
	assert_int_equal(view_write(f->v, off, f->live + off, len), 0);
	for (uint64_t b = off / COW_BLK_BYTES; len && b <= (off + len - 1) / COW_BLK_BYTES; b++)
		f->active_map[b] = BLK_DATA;
}

static inline void check_live(struct fixture *f, uint64_t off, size_t len)
{
	assert_int_equal(view_read(f->v, off, f->buf, len), 0);
	assert_memory_equal(f->buf, f->live + off, len);
}

/* The view's runs are those of the two maps, upper over lower. */
static inline void check_runs(struct fixture *f, const uint8_t *upper, const uint8_t *lower,
			      bool (*next)(struct view *v, uint64_t *blk, uint64_t max_blks,
					   uint64_t *ret_blks, enum blk_state *ret_state))
{
	uint64_t blk = 0, seen_to = 0, n, max = 1 + rnd(300);
	enum blk_state st;

	for (;;) {
		bool found = next(f->v, &blk, max, &n, &st);

		if (!found)
			blk = BLKS;
		for (; seen_to < blk; seen_to++)
			assert_false((upper && upper[seen_to]) || lower[seen_to]);
		if (!found)
			return;
		assert_in_range(n, 1, max);
		for (; seen_to < blk + n; seen_to++)
			assert_int_equal(st,
					 upper && upper[seen_to] ? upper[seen_to] : lower[seen_to]);
		blk += n;
	}
}

static inline void count_states(const uint8_t *map, struct generation_stats *ret)
{
	*ret = (struct generation_stats){ 0 };
	for (uint64_t b = 0; b < BLKS; b++) {
		ret->data_blks += map[b] == BLK_DATA;
		ret->hole_blks += map[b] == BLK_HOLE;
	}
}

static inline void check_all(struct fixture *f)
{
	struct generation_stats active, below, want;

	check_live(f, 0, BYTES);
	assert_int_equal(view_read_live(f->v, 0, BLKS, f->buf), 0);
	assert_memory_equal(f->buf, f->live, BYTES);
	assert_int_equal(view_read_committed(f->v, 0, BLKS, f->buf), 0);
	assert_memory_equal(f->buf, f->committed, BYTES);
	check_runs(f, f->active_map, f->below_map, view_next_live);
	view_dirty(f->v, &active, &below);
	count_states(f->active_map, &want);
	assert_memory_equal(&active, &want, sizeof(want));
	if (!f->is_sealed) { /* one failed layer at most: sums are exact */
		count_states(f->below_map, &want);
		assert_memory_equal(&below, &want, sizeof(want));
		count_states(f->kept_map, &want);
		assert_int_equal(view_kept_blks(f->v), want.data_blks);
		assert_int_equal(view_read_sealed(f->v, 0, 1, f->buf), -EINVAL);
		return;
	}
	assert_int_equal(view_read_sealed(f->v, 0, BLKS, f->buf), 0);
	assert_memory_equal(f->buf, f->sealed, BYTES);
	check_runs(f, NULL, f->below_map, view_next_sealed);
}

static inline void do_seal(struct fixture *f)
{
	assert_int_equal(view_seal(f->v), 0);
	assert_int_equal(view_check_sealed(f->v), 0);
	assert_int_equal(view_seal(f->v), -EBUSY);
	for (uint64_t b = 0; b < BLKS; b++)
		if (f->active_map[b] || f->kept_map[b])
			f->below_map[b] = f->active_map[b] ? f->active_map[b] : f->kept_map[b];
	memcpy(f->top_map, f->active_map, BLKS);
	memset(f->active_map, 0, BLKS);
	memset(f->kept_map, 0, BLKS);
	memcpy(f->sealed, f->live, BYTES);
	f->is_sealed = true;
}

static inline void do_fail(struct fixture *f)
{
	assert_int_equal(view_fail(f->v), 0);
	assert_int_equal(view_fail(f->v), -EINVAL);
	f->is_sealed = false;
}

/* ---- a reader that sleeps between look-up and copy ---- */

/* A card in front of the card, whose reads wait: so a request holds its pin as long as the test
 * needs. */
struct gate {
	struct card card;
	struct card *inner;
	sem_t arrived, go;
};

/* Replaces the C library's function: threads that ask for it stop before they copy from the
 * store. */
static _Thread_local struct gate *my_gate;

ssize_t pread(int fd, void *buf, size_t len, off_t off)
{
	const struct iovec iov = { .iov_base = buf, .iov_len = len };

	if (my_gate) {
		sem_post(&my_gate->arrived);
		sem_wait(&my_gate->go);
	}
	return preadv(fd, &iov, 1, off);
}

#endif
