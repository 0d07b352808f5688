/* SPDX-License-Identifier: MIT */
/*
 * A generation: store file and presence map.
 *
 * The store file has two halves, both at identity offsets: the blocks as they are, and behind them the
 * packs. A pack lies where its group would, and is shorter by at least a page. So there is no allocator
 * here, either, and a write never has to move what is compressed.
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
 * M5  A pack is written before one of its blocks is marked BLK_PACKED, in one step for the group, and
 *     does not change while one is. After that it is garbage, which goes when no reader can have seen
 *     the mark.
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
#include "ram/packer.h"
#include "ram/store.h"

#define LEAF_BYTES 4096u
#define WORD_BLKS 32u
#define LEAF_BLKS (LEAF_BYTES / 8 * WORD_BLKS)
#define LOW_BITS UINT64_C(0x5555555555555555)
#define CACHE_LINE_BYTES 64
_Static_assert(GENERATION_GROUP_BLKS == PACK_GROUP_BLKS && WORD_BLKS % PACK_GROUP_BLKS == 0,
	       "the marks of a group change in one step");

/* In the map, besides enum blk_state: BLK_DATA whose bytes are in the pack of its group. */
#define BLK_PACKED 3u

/* Of a group: 0 once it is written or marked. */
enum heat { HEAT_COOL = 1, HEAT_PACKED = 2, HEAT_COMPARED = 4 };

struct generation {
	_Atomic unsigned refs;
	const struct ram_store *store;
	uint64_t id;
	int store_fd, map_fd;
	uint64_t volume_blks, leaves;
	size_t top_bytes, map_bytes;
	_Atomic uint64_t *top, *words;
	_Atomic uint8_t *heat; /* enum heat, of each group */
	/* on another cache line than the fields that every look-up reads */
	alignas(CACHE_LINE_BYTES) _Atomic uint64_t data_blks;
	_Atomic uint64_t hole_blks, packed_blks;
};

/* ---- construction and destruction ---- */

static int fallocate_full(int fd, int mode, uint64_t off_bytes, uint64_t len_bytes)
{
	while (fallocate(fd, mode, (off_t)off_bytes, (off_t)len_bytes) < 0)
		if (errno != EINTR)
			return -errno;
	return 0;
}

static uint64_t groups_of(const struct generation *g)
{
	return (g->volume_blks + PACK_GROUP_BLKS - 1) / PACK_GROUP_BLKS;
}

/* of the store file */
static uint64_t half_bytes(const struct generation *g)
{
	return groups_of(g) * PACK_GROUP_BYTES;
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
		r = g->store_fd = ram_store_file(s, g->id, 2 * half_bytes(g));
	if (r >= 0) {
		g->heat = calloc(groups_of(g), sizeof(*g->heat));
		r = g->heat ? 0 : -ENOMEM;
	}
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
	free((void *)g->heat);
	free(g);
}

uint64_t generation_volume_blks(const struct generation *g)
{
	return g->volume_blks;
}

void generation_stats(const struct generation *g, struct generation_stats *ret)
{
	struct stat st;

	ret->data_blks = atomic_load_explicit(&g->data_blks, memory_order_relaxed);
	ret->hole_blks = atomic_load_explicit(&g->hole_blks, memory_order_relaxed);
	ret->packed_blks = atomic_load_explicit(&g->packed_blks, memory_order_relaxed);
	ret->packed_bytes = 0;
	if (ret->packed_blks && fstat(g->store_fd, &st) == 0) {
		uint64_t bytes = (uint64_t)st.st_blocks * 512,
			 plain_bytes = blk_to_bytes(ret->data_blks - ret->packed_blks);

		ret->packed_bytes = bytes - min_u64(bytes, plain_bytes);
	}
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

/* Compressed blocks are data. */
static uint64_t as_data(uint64_t word)
{
	return word & ~((word & LOW_BITS) << 1);
}

/* raw: BLK_PACKED is a state of its own. */
static uint64_t run(const struct generation *g, uint64_t blk, uint64_t max_blks, bool raw,
		    unsigned *ret_state)
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
		if (!raw)
			word = as_data(word);
		if (pos == blk)
			state = word >> 2 * first & 3;
		n = run_in_word(word, first, state);
		pos += n;
		if (n < WORD_BLKS - first)
			break;
	}
	*ret_state = state;
	return min_u64(pos, end) - blk;
}

uint64_t generation_run(const struct generation *g, uint64_t blk, uint64_t max_blks,
			enum blk_state *ret_state)
{
	unsigned state;
	uint64_t n = run(g, blk, max_blks, false, &state);

	*ret_state = (enum blk_state)state;
	return n;
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

/* Under the block's lock. */
static void warm(struct generation *g, uint64_t blk, uint64_t blks)
{
	for (uint64_t i = blk / PACK_GROUP_BLKS; i <= (blk + blks - 1) / PACK_GROUP_BLKS; i++)
		if (atomic_load_explicit(&g->heat[i], memory_order_relaxed))
			atomic_store_explicit(&g->heat[i], 0, memory_order_relaxed);
}

static uint64_t packed_in(uint64_t word)
{
	return (uint64_t)__builtin_popcountll(word & word >> 1 & LOW_BITS);
}

int generation_mark(struct generation *g, uint64_t blk, uint64_t blks, enum blk_state state)
{
	const uint64_t pattern = state * LOW_BITS, end = blk + blks;
	uint64_t was_data = 0, was_hole = 0, was_packed = 0, marked = 0;
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
		warm(g, pos, n);
		was_packed += packed_in(old);
		old = as_data(old);
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
	if (was_packed)
		atomic_fetch_sub_explicit(&g->packed_blks, was_packed, memory_order_relaxed);
	return 0;
}

static struct generation_stats count(const struct generation *g)
{
	struct generation_stats s = { 0 };

	for (uint64_t leaf = next_leaf(g, 0); leaf < g->leaves; leaf = next_leaf(g, leaf + 1))
		for (uint64_t i = 0; i < LEAF_BYTES / 8; i++) {
			uint64_t word = g->words[leaf * (LEAF_BYTES / 8) + i];

			s.packed_blks += packed_in(word);
			word = as_data(word);
			s.data_blks += (uint64_t)__builtin_popcountll(word & LOW_BITS);
			s.hole_blks += (uint64_t)__builtin_popcountll(word >> 1 & LOW_BITS);
		}
	return s;
}

bool generation_check(const struct generation *g)
{
	struct generation_stats s = count(g);
	struct stat st;

	return INVARIANT("M3 counts", s.data_blks == g->data_blks && s.hole_blks == g->hole_blks &&
					      s.packed_blks == g->packed_blks) &&
	       (fstat(g->store_fd, &st) < 0 ||
		INVARIANT("M4 store", (uint64_t)st.st_blocks * 512 >=
					      blk_to_bytes(s.data_blks - s.packed_blks)));
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
		unsigned state;
		uint64_t n = run(g, blk, end - blk, true, &state);

		if (state != BLK_DATA)
			free_pages(g, blk, n);
		blk += n;
	}
}

int generation_open(struct generation **ret, struct ram_store *s, uint64_t volume_blks, uint64_t id)
{
	struct generation_stats stats;
	struct generation *g;
	uint64_t group = 0;
	int r = -EPROTO;

	/* an empty one instead of one that was removed would be a loss that nobody notices */
	if (id && ram_store_has(s, id))
		r = open_generation(&g, s, volume_blks, id);
	if (r < 0)
		return r;
	stats = count(g);
	r = stats.packed_blks ? ram_store_compress(s) : 0;
	if (r < 0) {
		generation_free(g);
		return r;
	}
	g->data_blks = stats.data_blks;
	g->hole_blks = stats.hole_blks;
	g->packed_blks = stats.packed_blks;
	/* what a write left that was killed before its mark */
	generation_drop(g, 0, volume_blks);
	for (; generation_next_garbage(g, &group); group++)
		generation_drop_pack(g, group);
	for (group = 0; stats.packed_blks && group < groups_of(g); group++)
		if (generation_group_state(g, group) == GROUP_PACKED)
			g->heat[group] = HEAT_COOL | HEAT_PACKED;
	*ret = g;
	return 0;
}

/* ---- content ---- */

static bool bytes_in_volume(const struct generation *g, uint64_t off_bytes, size_t len_bytes)
{
	uint64_t size_bytes = blk_to_bytes(g->volume_blks);

	return off_bytes <= size_bytes && len_bytes <= size_bytes - off_bytes;
}

/* ---- packs ---- */

static uint64_t pack_off(const struct generation *g, uint64_t group)
{
	return half_bytes(g) + group * PACK_GROUP_BYTES;
}

struct pack_at {
	int fd;
	uint64_t off_bytes;
};

static int read_pack(const void *ctx, void *buf, size_t off_bytes, size_t len_bytes)
{
	const struct pack_at *at = ctx;

	return io_pread_full(at->fd, buf, len_bytes, at->off_bytes + off_bytes);
}

/* Bytes of compressed blocks of one group. */
static int read_packed(const struct generation *g, uint64_t off_bytes, void *buf, size_t len_bytes)
{
	struct pack_at at = { g->store_fd, pack_off(g, off_bytes / PACK_GROUP_BYTES) };

	return packer_read(ram_store_packer(g->store), read_pack, &at, off_bytes % PACK_GROUP_BYTES,
			   buf, len_bytes);
}

/* Bit i: block i of the group has this state, raw. */
static uint8_t blocks_of(const struct generation *g, uint64_t group, unsigned state)
{
	uint64_t word, hits;
	uint8_t mask = 0;

	if (!leaf_is_there(g, group * PACK_GROUP_BLKS / LEAF_BLKS))
		return 0;
	word = atomic_load_explicit(&g->words[group * PACK_GROUP_BLKS / WORD_BLKS],
				    memory_order_acquire) ^
	       state * LOW_BITS;
	hits = ~(word | word >> 1) & LOW_BITS;
	hits >>= 2 * (group * PACK_GROUP_BLKS % WORD_BLKS);
	for (unsigned i = 0; i < PACK_GROUP_BLKS; i++)
		mask |= (uint8_t)((hits >> 2 * i & 1) << i);
	return mask;
}

static void drop_pack(struct generation *g, uint64_t group)
{
	(void)fallocate_full(g->store_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			     pack_off(g, group), PACK_GROUP_BYTES);
}

static unsigned heat_of(const struct generation *g, uint64_t group)
{
	return atomic_load_explicit(&g->heat[group], memory_order_relaxed);
}

/* Unless it was written meanwhile. */
static void note(struct generation *g, uint64_t group, enum heat what)
{
	uint8_t heat = (uint8_t)heat_of(g, group);

	while (heat && !atomic_compare_exchange_weak_explicit(
			       &g->heat[group], &heat, (uint8_t)(heat | what), memory_order_relaxed,
			       memory_order_relaxed))
		;
}

bool generation_is_cold(struct generation *g, uint64_t group)
{
	if (heat_of(g, group))
		return true;
	atomic_store_explicit(&g->heat[group], HEAT_COOL, memory_order_relaxed);
	return false;
}

bool generation_was_packed(const struct generation *g, uint64_t group)
{
	return heat_of(g, group) & HEAT_PACKED;
}

bool generation_was_compared(const struct generation *g, uint64_t group)
{
	return heat_of(g, group) & HEAT_COMPARED;
}

bool generation_is_packed(const struct generation *g, uint64_t blk)
{
	return blocks_of(g, blk / PACK_GROUP_BLKS, BLK_PACKED) >> blk % PACK_GROUP_BLKS & 1;
}

enum group_state generation_group_state(const struct generation *g, uint64_t group)
{
	return !blocks_of(g, group, BLK_PACKED) ? GROUP_PLAIN
	       : blocks_of(g, group, BLK_DATA)	? GROUP_MIXED
						: GROUP_PACKED;
}

static int read_group(const struct generation *g, uint64_t group, uint8_t mask, uint8_t *buf)
{
	int r = 0;

	for (unsigned i = 0; i < PACK_GROUP_BLKS && r == 0; i++)
		if (mask >> i & 1) {
			r = io_pread_full(g->store_fd, buf, COW_BLK_BYTES,
					  blk_to_bytes(group * PACK_GROUP_BLKS + i));
			buf += COW_BLK_BYTES;
		}
	return r;
}

int generation_pack(struct generation *g, uint64_t group)
{
	struct packer *p = ram_store_packer(g->store);
	struct pack_work *work = packer_work(p);
	uint8_t mask = blocks_of(g, group, BLK_DATA);
	size_t n;
	int r;

	if (!INVARIANT("M5 packs", !blocks_of(g, group, BLK_PACKED)))
		return -EINVAL;
	r = read_group(g, group, mask, work->blocks);
	if (r < 0)
		return r;
	if (!packer_pack(p, work->blocks, mask, &work->pack, &n)) {
		note(g, group, HEAT_PACKED);
		return 0;
	}
	drop_pack(g, group);
	r = io_pwrite_full(g->store_fd, &work->pack, n, pack_off(g, group));
	if (r < 0) {
		drop_pack(g, group);
		return r;
	}
	return 1;
}

bool generation_pack_end(struct generation *g, uint64_t group)
{
	uint64_t first = group * PACK_GROUP_BLKS;
	uint8_t mask = blocks_of(g, group, BLK_DATA);
	unsigned shift = first % WORD_BLKS;
	uint64_t bits = 0, old;

	if (!heat_of(g, group)) {
		drop_pack(g, group);
		return false;
	}
	for (unsigned i = 0; i < PACK_GROUP_BLKS; i++)
		bits |= (uint64_t)(mask >> i & 1) * BLK_PACKED << 2 * (i + shift);
	old = exchange_word(&g->words[first / WORD_BLKS], bits, bits) & bits;
	(void)INVARIANT("M5 packs", old == (bits & LOW_BITS));
	atomic_fetch_add(&g->packed_blks, (uint64_t)__builtin_popcount(mask));
	note(g, group, HEAT_PACKED);
	return true;
}

/* Makes those of the group's blocks plain that are in mask. */
static int unpack(struct generation *g, uint64_t group, uint8_t mask)
{
	unsigned todo = mask & blocks_of(g, group, BLK_PACKED);
	int r = 0;

	while (todo && r == 0) {
		uint8_t *blocks = packer_work(ram_store_packer(g->store))->blocks;
		unsigned i = (unsigned)__builtin_ctz(todo),
			 n = (unsigned)__builtin_ctz(~(todo >> i));
		uint64_t blk = group * PACK_GROUP_BLKS + i;

		r = read_packed(g, blk_to_bytes(blk), blocks, blk_to_bytes(n));
		if (r == 0)
			r = io_pwrite_full(g->store_fd, blocks, blk_to_bytes(n), blk_to_bytes(blk));
		if (r == 0)
			r = generation_mark(g, blk, n, BLK_DATA);
		if (r < 0)
			generation_drop(g, blk, n);
		todo &= ~(((1u << n) - 1) << i);
	}
	return r;
}

int generation_unpack(struct generation *g, uint64_t group)
{
	int r = unpack(g, group, UINT8_MAX);

	if (r == 0) /* its content is as cold as before */
		atomic_store_explicit(&g->heat[group], HEAT_COOL, memory_order_relaxed);
	return r;
}

bool generation_forget(struct generation *g, uint64_t group, uint8_t mask)
{
	unsigned heat = heat_of(g, group);

	/* a reader that has found a block here, and reads only now, reads the page: no mark tells it that
	 * the bytes are in the pack */
	if (!heat || unpack(g, group, mask) < 0)
		return false;
	for (unsigned i = 0; i < PACK_GROUP_BLKS; i++)
		if (mask >> i & 1) /* needs no memory */
			(void)!generation_mark(g, group * PACK_GROUP_BLKS + i, 1, BLK_ABSENT);
	if (mask)
		heat &= ~(unsigned)HEAT_PACKED; /* what is left may need less */
	atomic_store_explicit(&g->heat[group], (uint8_t)(heat | HEAT_COMPARED),
			      memory_order_relaxed);
	return true;
}

void generation_drop_pack(struct generation *g, uint64_t group)
{
	if (!blocks_of(g, group, BLK_PACKED))
		drop_pack(g, group);
}

bool generation_next_garbage(const struct generation *g, uint64_t *group)
{
	uint64_t end = groups_of(g);

	while (*group < end) {
		off_t at = lseek(g->store_fd, (off_t)pack_off(g, *group), SEEK_DATA);

		if (at < 0)
			return false;
		*group = ((uint64_t)at - half_bytes(g)) / PACK_GROUP_BYTES;
		if (!blocks_of(g, *group, BLK_PACKED))
			return true;
		++*group;
	}
	return false;
}

/* ---- reading and writing ---- */

int generation_read(const struct generation *g, uint64_t off_bytes, void *buf, size_t len_bytes)
{
	uint8_t *to = buf;
	int r = 0;

	if (!bytes_in_volume(g, off_bytes, len_bytes))
		return -EINVAL;
	if (!atomic_load(&g->packed_blks))
		return io_pread_full(g->store_fd, buf, len_bytes, off_bytes);
	while (len_bytes && r == 0) {
		uint64_t blk = off_bytes >> COW_BLK_SHIFT;
		uint64_t max_blks = (off_bytes % COW_BLK_BYTES + len_bytes + COW_BLK_BYTES - 1) >>
				    COW_BLK_SHIFT;
		unsigned state;
		size_t n = blk_to_bytes(blk + run(g, blk, max_blks, true, &state)) - off_bytes;

		n = min_u64(n, len_bytes);
		if (state == BLK_PACKED) {
			n = min_u64(n, PACK_GROUP_BYTES - off_bytes % PACK_GROUP_BYTES);
			r = read_packed(g, off_bytes, to, n);
		} else {
			r = io_pread_full(g->store_fd, to, n, off_bytes);
		}
		off_bytes += n;
		to += n;
		len_bytes -= n;
	}
	return r;
}

int generation_write(struct generation *g, uint64_t off_bytes, const void *buf, size_t len_bytes)
{
	uint64_t blk = off_bytes >> COW_BLK_SHIFT;

	if (!bytes_in_volume(g, off_bytes, len_bytes))
		return -EINVAL;
	if (len_bytes)
		warm(g, blk, ((off_bytes + len_bytes - 1) >> COW_BLK_SHIFT) - blk + 1);
	return io_pwrite_full(g->store_fd, buf, len_bytes, off_bytes);
}
