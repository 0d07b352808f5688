/* SPDX-License-Identifier: MIT */
/*
 * A generation: store file and presence map.
 *
 * The store file has the blocks at identity offsets, so there is no allocator here, either.
 *
 * The map is one file in memory, mapped shared, with two parts. `top` has a bit for each leaf. `words`
 * holds the leaves at identity offsets: block b has the two bits 2*(b%32) of words[b/32], and a
 * leaf of 4 KiB stands for 64 MiB of the volume.
 *
 * M1  A leaf whose top bit is clear is never accessed, not even read, because a read through the
 *     mapping would allocate the page. All its blocks are BLK_ABSENT.
 * M2  The page of a leaf is allocated (fallocate) before its top bit is set. So marking cannot fail
 *     half way, and no memory shortage arrives as SIGBUS. A top bit is never cleared.
 * M3  Words change by compare-and-swap or exchange only, and the counters by the difference of the
 *     words that were exchanged. So the counters are exact however the marks interleave.
 * M4  A page of the store under a block that is not BLK_DATA is garbage. The holder of the block's
 *     lock may drop it at any time. Whole blocks are written before the mark.
 */
#include "ram/generation.h"

#include <errno.h>
#include <fcntl.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/invariant.h"
#include "base/io.h"
#include "ram/store.h"

#define LEAF_BYTES 4096u
#define WORD_BLKS 32u
#define LEAF_BLKS (LEAF_BYTES / 8 * WORD_BLKS)
#define LOW_BITS UINT64_C(0x5555555555555555)
#define CACHE_LINE_BYTES 64

struct generation {
	_Atomic unsigned refs;
	const struct ram_store *store;
	uint64_t id;
	int store_fd, map_fd;
	uint64_t volume_blks, leaves;
	size_t top_bytes, map_bytes;
	_Atomic uint64_t *top, *words;
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
	g->top_bytes = round_up_u64((g->leaves + 7) / 8, LEAF_BYTES);
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
				  .volume_blks = volume_blks };
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

static bool leaf_is_there(const struct generation *g, uint64_t leaf)
{
	return atomic_load_explicit(&g->top[leaf / 64], memory_order_acquire) >> leaf % 64 & 1;
}

/* first present leaf at or after this one; g->leaves if none */
static uint64_t next_leaf(const struct generation *g, uint64_t leaf)
{
	while (leaf < g->leaves) {
		uint64_t bits = atomic_load_explicit(&g->top[leaf / 64], memory_order_acquire);

		bits >>= leaf % 64;
		if (bits)
			return leaf + (uint64_t)__builtin_ctzll(bits);
		leaf = leaf / 64 * 64 + 64;
	}
	return g->leaves;
}

/* number of blocks of word from this one on that have the state, up to the end of the word */
static unsigned run_in_word(uint64_t word, unsigned first, unsigned state)
{
	uint64_t diff = word ^ state * LOW_BITS;

	diff = (diff | diff >> 1) & LOW_BITS;
	diff >>= 2 * first;
	return diff ? (unsigned)__builtin_ctzll(diff) / 2 : WORD_BLKS - first;
}

uint64_t generation_run(const struct generation *g, uint64_t blk, uint64_t max_blks,
			enum blk_state *ret_state)
{
	unsigned state = BLK_ABSENT;
	uint64_t pos = blk, end;

	if (blk >= g->volume_blks || !max_blks) {
		*ret_state = BLK_ABSENT;
		return 1;
	}
	end = blk + min_u64(max_blks, g->volume_blks - blk);
	while (pos < end) {
		unsigned first = pos % WORD_BLKS, n;
		uint64_t word;

		if (!leaf_is_there(g, pos / LEAF_BLKS)) {
			if (state != BLK_ABSENT)
				break;
			pos = next_leaf(g, pos / LEAF_BLKS + 1) * LEAF_BLKS;
			continue;
		}
		/* one load gives state and run, so both hold at the same moment */
		word = atomic_load_explicit(&g->words[pos / WORD_BLKS], memory_order_acquire);
		if (pos == blk)
			state = word >> 2 * first & 3;
		n = run_in_word(word, first, state);
		pos += n;
		if (n < WORD_BLKS - first)
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

static int reserve_leaves(struct generation *g, uint64_t first, uint64_t last)
{
	for (uint64_t leaf = first; leaf <= last; leaf++) {
		if (leaf_is_there(g, leaf))
			continue;
		if (fallocate_full(g->map_fd, 0, g->top_bytes + leaf * LEAF_BYTES, LEAF_BYTES) < 0)
			return -ENOMEM;
		atomic_fetch_or_explicit(&g->top[leaf / 64], UINT64_C(1) << leaf % 64,
					 memory_order_release);
	}
	return 0;
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

int generation_mark(struct generation *g, uint64_t blk, uint64_t blks, enum blk_state state)
{
	const uint64_t pattern = state * LOW_BITS, end = blk + blks;
	uint64_t was_data = 0, was_hole = 0, marked = 0;
	int r;

	if (!in_volume(g, blk, blks))
		return -EINVAL;
	if (!blks)
		return 0;
	if (state != BLK_ABSENT) {
		r = reserve_leaves(g, blk / LEAF_BLKS, (end - 1) / LEAF_BLKS);
		if (r < 0)
			return r;
	}
	for (uint64_t pos = blk; pos < end;) {
		unsigned first = pos % WORD_BLKS;
		unsigned n = (unsigned)min_u64(WORD_BLKS - first, end - pos);
		uint64_t mask = UINT64_MAX >> (64 - 2 * n) << 2 * first, old;

		if (!leaf_is_there(g, pos / LEAF_BLKS)) { /* only with BLK_ABSENT */
			pos = next_leaf(g, pos / LEAF_BLKS + 1) * LEAF_BLKS;
			continue;
		}
		old = exchange_word(&g->words[pos / WORD_BLKS], mask, pattern) & mask;
		was_data += (uint64_t)__builtin_popcountll(old & LOW_BITS);
		was_hole += (uint64_t)__builtin_popcountll(old >> 1 & LOW_BITS);
		marked += n;
		pos += n;
	}
	/* unsigned wrap-around works as subtraction */
	atomic_fetch_add_explicit(&g->data_blks, (state == BLK_DATA ? marked : 0) - was_data,
				  memory_order_relaxed);
	atomic_fetch_add_explicit(&g->hole_blks, (state == BLK_HOLE ? marked : 0) - was_hole,
				  memory_order_relaxed);
	return 0;
}

static struct generation_stats count(const struct generation *g)
{
	struct generation_stats s = { 0 };

	for (uint64_t leaf = next_leaf(g, 0); leaf < g->leaves; leaf = next_leaf(g, leaf + 1))
		for (uint64_t i = 0; i < LEAF_BYTES / 8; i++) {
			uint64_t word = g->words[leaf * (LEAF_BYTES / 8) + i];

			s.data_blks += (uint64_t)__builtin_popcountll(word & LOW_BITS);
			s.hole_blks += (uint64_t)__builtin_popcountll(word >> 1 & LOW_BITS);
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
