/* SPDX-License-Identifier: MIT */
/*
 * A generation: store file and presence map.
 *
 * The store file has the blocks at identity offsets, so there is no allocator here, either.
 *
 * The map is one file in memory, mapped shared, with two parts. A leaf stands for 64 MiB of the volume,
 * and has 32 bits in `top`:
 *
 *	0		all its blocks are BLK_ABSENT
 *	from, to	the blocks from..to-1 of the leaf are BLK_HOLE, the others BLK_ABSENT
 *	HAS_PAGE	the states are in its page of `words`, which holds the pages at identity
 *			offsets: block b has the two bits 2*(b%32) of words[b/32]
 *
 * So a discard of any length needs no page, in whatever pieces it comes.
 *
 * M1  A page is never accessed before top says HAS_PAGE, except to fill it, and not even read, because a
 *     read through the mapping would allocate it.
 * M2  A page is allocated (fallocate) and filled before top says HAS_PAGE, which is final. So marking
 *     cannot fail half way, and no memory shortage arrives as SIGBUS. Only one thread fills pages.
 * M3  Words and top change by compare-and-swap or exchange only, and the counters by the difference
 *     of what was exchanged. So the counters are exact however the marks interleave.
 * M4  A page of the store under a block that is not BLK_DATA is garbage. The holder of the block's
 *     lock may drop it at any time. Whole blocks are written before the mark.
 */
#include "ram/generation.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/invariant.h"
#include "base/io.h"
#include "ram/store.h"

#define LEAF_BYTES 4096u
#define WORD_BLKS 32u
#define LEAF_WORDS (LEAF_BYTES / 8)
#define LEAF_BLKS (LEAF_WORDS * WORD_BLKS)
#define HAS_PAGE UINT32_MAX
#define LOW_BITS UINT64_C(0x5555555555555555)
#define CACHE_LINE_BYTES 64

struct generation {
	_Atomic unsigned refs;
	const struct ram_store *store;
	uint64_t id;
	int store_fd, map_fd;
	uint64_t volume_blks, leaves;
	size_t top_bytes, map_bytes;
	_Atomic uint32_t *top;
	_Atomic uint64_t *words;
	pthread_mutex_t page_lock; /* M2 */
	/* on another cache line than the fields that every look-up reads */
	alignas(CACHE_LINE_BYTES) _Atomic uint64_t data_blks;
	_Atomic uint64_t hole_blks;
};

/* ---- construction and destruction ---- */

static int fallocate_full(int fd, int mode, uint64_t off_bytes, uint64_t len_bytes)
{
	while (fallocate(fd, mode, (off_t)off_bytes, (off_t)len_bytes) < 0)
		if (errno != EINTR)
			return -errno;
	return 0;
}

static int map_open(struct generation *g)
{
	void *p;
	int r;

	g->leaves = (g->volume_blks + LEAF_BLKS - 1) / LEAF_BLKS;
	g->top_bytes = round_up_u64(g->leaves * sizeof(*g->top), LEAF_BYTES);
	g->map_bytes = g->top_bytes + g->leaves * LEAF_BYTES;
	r = ram_store_map_file(g->store, g->id, g->map_bytes);
	if (r < 0)
		return r;
	g->map_fd = r;
	if (fallocate_full(g->map_fd, 0, 0, g->top_bytes) < 0)
		return -ENOMEM;
	p = mmap(NULL, g->map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, g->map_fd, 0);
	if (p == MAP_FAILED)
		return -errno;
	/* the mapping is shared, so a child could change it: the metadata reader may be forked
	 * again */
	(void)madvise(p, g->map_bytes, MADV_DONTFORK);
	g->top = p;
	g->words = (_Atomic uint64_t *)((char *)p + g->top_bytes);
	return 0;
}

static int open_generation(struct generation **ret, struct ram_store *s, uint64_t volume_blks,
			   uint64_t id)
{
	struct generation *g;
	int r;

	if (!volume_blks || volume_blks > INT64_MAX / 4 / COW_BLK_BYTES ||
	    volume_blks / LEAF_BLKS >= SIZE_MAX / 2 / LEAF_BYTES)
		return -EINVAL;
	g = aligned_alloc(CACHE_LINE_BYTES, sizeof(*g));
	if (!g)
		return -ENOMEM;
	*g = (struct generation){ .refs = 1,
				  .store = s,
				  .id = id ? id : ram_store_new_id(s),
				  .store_fd = -1,
				  .map_fd = -1,
				  .volume_blks = volume_blks,
				  .page_lock = PTHREAD_MUTEX_INITIALIZER };
	r = map_open(g);
	if (r == 0)
		r = g->store_fd = ram_store_file(s, g->id, blk_to_bytes(volume_blks));
	if (r < 0) {
		generation_free(g);
		return r;
	}
	*ret = g;
	return 0;
}

int generation_new(struct generation **ret, struct ram_store *s, uint64_t volume_blks)
{
	return open_generation(ret, s, volume_blks, 0);
}

uint64_t generation_id(const struct generation *g)
{
	return g->id;
}

struct generation *generation_ref(struct generation *g)
{
	atomic_fetch_add(&g->refs, 1);
	return g;
}

bool generation_is_shared(const struct generation *g)
{
	return atomic_load(&g->refs) > 1;
}

void generation_free(struct generation *g)
{
	unsigned refs = g ? atomic_fetch_sub(&g->refs, 1) : 0;

	if (!g || !INVARIANT("generation references", refs) || refs > 1)
		return;
	if (g->top)
		munmap((void *)g->top, g->map_bytes);
	pthread_mutex_destroy(&g->page_lock);
	cleanup_closep(&g->map_fd);
	cleanup_closep(&g->store_fd);
	ram_store_remove(g->store, g->id);
	free(g);
}

uint64_t generation_volume_blks(const struct generation *g)
{
	return g->volume_blks;
}

void generation_stats(const struct generation *g, struct generation_stats *ret)
{
	ret->data_blks = atomic_load_explicit(&g->data_blks, memory_order_relaxed);
	ret->hole_blks = atomic_load_explicit(&g->hole_blks, memory_order_relaxed);
}

uint64_t generation_map_bytes(const struct generation *g)
{
	struct stat st;

	return fstat(g->map_fd, &st) < 0 ? 0 : (uint64_t)st.st_blocks * 512;
}

/* ---- looking ---- */

/* The run of holes that top shows; both 0: none. */
static uint64_t hole_from(uint32_t top)
{
	return top >> 16;
}

static uint64_t hole_to(uint32_t top)
{
	return top & 0xffff;
}

static uint32_t hole_run(uint64_t from, uint64_t to)
{
	return from < to ? (uint32_t)(from << 16 | to) : 0;
}

static uint32_t look_top(const struct generation *g, uint64_t leaf)
{
	return atomic_load_explicit(&g->top[leaf], memory_order_acquire);
}

/* first leaf at or after this one that has blocks; end if none */
static uint64_t next_leaf(const struct generation *g, uint64_t leaf, uint64_t end)
{
	while (leaf < end && !atomic_load_explicit(&g->top[leaf], memory_order_relaxed))
		leaf++;
	return leaf;
}

/* number of blocks of word from this one on that have the state, up to the end of the word */
static unsigned run_in_word(uint64_t word, unsigned first, unsigned state)
{
	uint64_t diff = word ^ state * LOW_BITS;

	diff = (diff | diff >> 1) & LOW_BITS;
	diff >>= 2 * first;
	return diff ? (unsigned)__builtin_ctzll(diff) / 2 : WORD_BLKS - first;
}

/* State of block pos. Returns how many blocks from it on have it, at most up to the end of the leaf, or of
 * the word that a page has. Without a block: up to the next leaf that has some, or that of block end. */
static uint64_t short_run(const struct generation *g, uint64_t pos, uint64_t end,
			  unsigned *ret_state)
{
	uint64_t leaf = pos / LEAF_BLKS, word;
	uint32_t top = look_top(g, leaf);
	uint64_t at = pos % LEAF_BLKS, from = hole_from(top), to = hole_to(top);

	if (top == HAS_PAGE) {
		/* one load gives state and run, so both hold at the same moment */
		word = atomic_load_explicit(&g->words[pos / WORD_BLKS], memory_order_acquire);
		*ret_state = word >> 2 * (pos % WORD_BLKS) & 3;
		return run_in_word(word, pos % WORD_BLKS, *ret_state);
	}
	*ret_state = at >= from && at < to ? BLK_HOLE : BLK_ABSENT;
	if (!top)
		return next_leaf(g, leaf + 1, end / LEAF_BLKS) * LEAF_BLKS - pos;
	return (at < from ? from : at < to ? to : LEAF_BLKS) - at;
}

uint64_t generation_run(const struct generation *g, uint64_t blk, uint64_t max_blks,
			enum blk_state *ret_state)
{
	unsigned state = BLK_ABSENT, next;
	uint64_t pos, end, n;

	*ret_state = BLK_ABSENT;
	if (blk >= g->volume_blks || !max_blks)
		return 1;
	end = blk + min_u64(max_blks, g->volume_blks - blk);
	pos = blk + short_run(g, blk, end, &state);
	for (; pos < end; pos += n) {
		n = short_run(g, pos, end, &next);
		if (next != state)
			break;
	}
	*ret_state = (enum blk_state)state;
	return min_u64(pos, end) - blk;
}

bool generation_next(const struct generation *g, uint64_t *blk, uint64_t max_blks,
		     uint64_t *ret_blks, enum blk_state *ret_state)
{
	uint64_t pos = *blk;

	while (pos < g->volume_blks) {
		enum blk_state state;
		uint64_t n = generation_run(g, pos, max_u64(max_blks, 1), &state);

		if (state != BLK_ABSENT) {
			*blk = pos;
			*ret_blks = n;
			*ret_state = state;
			return true;
		}
		/* absent for at least this long; now without the cut at max_blks */
		n = generation_run(g, pos, g->volume_blks - pos, &state);
		if (state == BLK_ABSENT)
			pos += n;
	}
	return false;
}

/* ---- changing ---- */

static bool in_volume(const struct generation *g, uint64_t blk, uint64_t blks)
{
	return blk <= g->volume_blks && blks <= g->volume_blks - blk;
}

/* Puts the state into the blocks of mask; returns the previous word. */
static uint64_t exchange_word(_Atomic uint64_t *word, uint64_t mask, uint64_t pattern)
{
	uint64_t old;

	if (mask == UINT64_MAX)
		return atomic_exchange_explicit(word, pattern, memory_order_acq_rel);
	old = atomic_load_explicit(word, memory_order_relaxed);
	while (!atomic_compare_exchange_weak_explicit(word, &old, (old & ~mask) | (pattern & mask),
						      memory_order_acq_rel, memory_order_relaxed))
		;
	return old;
}

/* Marks blocks of a leaf, the page of which is given; adds to *change how the counters change, modulo 2^64. */
static void mark_words(_Atomic uint64_t *page, uint64_t from, uint64_t to, unsigned state,
		       struct generation_stats *change)
{
	for (uint64_t n; from < to; from += n) {
		uint64_t first = from % WORD_BLKS, mask, old;

		n = min_u64(WORD_BLKS - first, to - from);
		mask = UINT64_MAX >> (64 - 2 * n) << 2 * first;
		old = exchange_word(&page[from / WORD_BLKS], mask, state * LOW_BITS) & mask;
		change->data_blks += (state == BLK_DATA ? n : 0) -
				     (uint64_t)__builtin_popcountll(old & LOW_BITS);
		change->hole_blks += (state == BLK_HOLE ? n : 0) -
				     (uint64_t)__builtin_popcountll(old >> 1 & LOW_BITS);
	}
}

/* M2. Nothing to do if there is a page. */
static int add_page(struct generation *g, uint64_t leaf)
{
	_Atomic uint64_t *page = &g->words[leaf * LEAF_WORDS];
	struct generation_stats none = { 0 };
	uint32_t top = look_top(g, leaf);

	if (top == HAS_PAGE)
		return 0;
	if (fallocate_full(g->map_fd, 0, g->top_bytes + leaf * LEAF_BYTES, LEAF_BYTES) < 0)
		return -ENOMEM;
	pthread_mutex_lock(&g->page_lock);
	top = look_top(g, leaf);
	while (top != HAS_PAGE) { /* again, if another thread has changed the run */
		mark_words(page, 0, LEAF_BLKS, BLK_ABSENT, &none);
		mark_words(page, hole_from(top), hole_to(top), BLK_HOLE, &none);
		if (atomic_compare_exchange_strong(&g->top[leaf], &top, HAS_PAGE))
			break;
	}
	pthread_mutex_unlock(&g->page_lock);
	return 0;
}

/* Of one leaf: blocks from..to-1. */
struct part {
	uint64_t leaf, from, to;
};

static struct part first_part(uint64_t blk, uint64_t end)
{
	uint64_t from = blk % LEAF_BLKS;

	return (struct part){ blk / LEAF_BLKS, from, min_u64(LEAF_BLKS, from + (end - blk)) };
}

/* What top becomes when this part of its leaf is marked. */
static uint32_t top_after(uint32_t top, const struct part *p, unsigned state)
{
	uint64_t from = hole_from(top), to = hole_to(top);

	if (top == HAS_PAGE || state == BLK_DATA)
		return HAS_PAGE;
	if (state == BLK_HOLE && !top)
		return hole_run(p->from, p->to);
	if (state == BLK_HOLE)
		return p->from <= to && p->to >= from
			       ? hole_run(min_u64(p->from, from), max_u64(p->to, to))
			       : HAS_PAGE;
	if (p->to <= from || p->from >= to)
		return top;
	if (p->from <= from)
		return hole_run(p->to, to);
	return p->to >= to ? hole_run(from, p->from) : HAS_PAGE;
}

/* -ENOMEM: nothing was marked. */
static int mark_part(struct generation *g, const struct part *p, unsigned state,
		     struct generation_stats *change)
{
	uint32_t top = look_top(g, p->leaf), next;
	int r;

	while ((next = top_after(top, p, state)) != HAS_PAGE)
		if (atomic_compare_exchange_weak(&g->top[p->leaf], &top, next)) {
			change->hole_blks += hole_to(next) - hole_from(next);
			change->hole_blks -= hole_to(top) - hole_from(top);
			return 0;
		}
	r = add_page(g, p->leaf);
	if (r == 0)
		mark_words(&g->words[p->leaf * LEAF_WORDS], p->from, p->to, state, change);
	return r;
}

int generation_mark(struct generation *g, uint64_t blk, uint64_t blks, enum blk_state state)
{
	const uint64_t end = blk + blks;
	struct generation_stats change = { 0 };
	struct part p;
	int r = in_volume(g, blk, blks) ? 0 : -EINVAL;

	for (uint64_t pos = blk; r == 0 && pos < end; pos += p.to - p.from) {
		p = first_part(pos, end);
		if (top_after(look_top(g, p.leaf), &p, state) == HAS_PAGE)
			r = add_page(g, p.leaf);
	}
	for (uint64_t pos = blk; r == 0 && pos < end; pos += p.to - p.from) {
		p = first_part(pos, end);
		r = mark_part(g, &p, state, &change);
	}
	atomic_fetch_add_explicit(&g->data_blks, change.data_blks, memory_order_relaxed);
	atomic_fetch_add_explicit(&g->hole_blks, change.hole_blks, memory_order_relaxed);
	return r;
}

static struct generation_stats count(const struct generation *g)
{
	struct generation_stats s = { 0 };

	for (uint64_t leaf = next_leaf(g, 0, g->leaves); leaf < g->leaves;
	     leaf = next_leaf(g, leaf + 1, g->leaves)) {
		uint32_t top = look_top(g, leaf);

		if (top != HAS_PAGE)
			s.hole_blks += hole_to(top) - hole_from(top);
		for (uint64_t i = 0; top == HAS_PAGE && i < LEAF_WORDS; i++) {
			uint64_t word = g->words[leaf * LEAF_WORDS + i];

			s.data_blks += (uint64_t)__builtin_popcountll(word & LOW_BITS);
			s.hole_blks += (uint64_t)__builtin_popcountll(word >> 1 & LOW_BITS);
		}
	}
	return s;
}

bool generation_check(const struct generation *g)
{
	struct generation_stats s = count(g);
	struct stat st;

	return INVARIANT("M3 counts", s.data_blks == g->data_blks && s.hole_blks == g->hole_blks) &&
	       (fstat(g->store_fd, &st) < 0 ||
		INVARIANT("M4 store", (uint64_t)st.st_blocks * 512 >= blk_to_bytes(s.data_blks)));
}

static void free_pages(struct generation *g, uint64_t blk, uint64_t blks)
{
	/* an error leaves garbage in RAM that no mark points to (M4), so it is not reported */
	(void)fallocate_full(g->store_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			     blk_to_bytes(blk), blk_to_bytes(blks));
}

int generation_punch(struct generation *g, uint64_t blk, uint64_t blks)
{
	int r = generation_mark(g, blk, blks, BLK_HOLE);

	if (r == 0 && blks)
		free_pages(g, blk, blks);
	return r;
}

void generation_drop(struct generation *g, uint64_t blk, uint64_t blks)
{
	if (!in_volume(g, blk, blks))
		return;
	for (uint64_t end = blk + blks; blk < end;) {
		enum blk_state state;
		uint64_t n = generation_run(g, blk, end - blk, &state);

		if (state != BLK_DATA)
			free_pages(g, blk, n);
		blk += n;
	}
}

int generation_open(struct generation **ret, struct ram_store *s, uint64_t volume_blks, uint64_t id)
{
	struct generation_stats stats;
	struct generation *g;
	int r = -EPROTO;

	/* an empty one instead of one that was removed would be a loss that nobody notices */
	if (id && ram_store_has(s, id))
		r = open_generation(&g, s, volume_blks, id);
	if (r < 0)
		return r;
	stats = count(g);
	g->data_blks = stats.data_blks;
	g->hole_blks = stats.hole_blks;
	/* what a write left that was killed before its mark */
	generation_drop(g, 0, volume_blks);
	*ret = g;
	return 0;
}

/* ---- content ---- */

static bool bytes_in_volume(const struct generation *g, uint64_t off_bytes, size_t len_bytes)
{
	uint64_t size_bytes = blk_to_bytes(g->volume_blks);

	return off_bytes <= size_bytes && len_bytes <= size_bytes - off_bytes;
}

int generation_read(const struct generation *g, uint64_t off_bytes, void *buf, size_t len_bytes)
{
	return bytes_in_volume(g, off_bytes, len_bytes)
		       ? io_pread_full(g->store_fd, buf, len_bytes, off_bytes)
		       : -EINVAL;
}

int generation_write(struct generation *g, uint64_t off_bytes, const void *buf, size_t len_bytes)
{
	return bytes_in_volume(g, off_bytes, len_bytes)
		       ? io_pwrite_full(g->store_fd, buf, len_bytes, off_bytes)
		       : -EINVAL;
}
