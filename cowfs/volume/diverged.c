/* SPDX-License-Identifier: MIT */
#include "volume/diverged.h"

#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "base/io.h"

#define CHUNK_BLKS 64u

#define FILE_NAME "diverged"

/* In memory that a process which takes over finds again. The two maps have a bit for each block. */
struct shared {
	bool complete; /* used is read */
	bool has_uuid; /* must_write is used */
	uint8_t uuid[16];
	uint32_t log_sequence;
	uint8_t maps[];
};

struct diverged {
	const struct ram_store *store;
	struct shared *shared;
	uint64_t volume_blks;
	uint8_t *used, *must_write; /* must_write NULL: none */
};

static bool get(const uint8_t *bits, uint64_t i)
{
	return bits[i / 8] >> i % 8 & 1;
}

static void set(uint8_t *bits, uint64_t i)
{
	bits[i / 8] |= (uint8_t)(1u << i % 8);
}

/* Number of bits from i on, below end, that are as bit i. */
static uint64_t alike(const uint8_t *bits, uint64_t i, uint64_t end)
{
	uint64_t n = i + 1;

	while (n < end && get(bits, n) == get(bits, i))
		n++;
	return n - i;
}

static size_t map_bytes(uint64_t volume_blks)
{
	return volume_blks / 8 + 1;
}

static size_t shared_bytes(uint64_t volume_blks)
{
	return sizeof(struct shared) + 2 * map_bytes(volume_blks);
}

static int share(struct diverged **ret, struct ram_store *store, uint64_t volume_blks)
{
	struct diverged *d = calloc(1, sizeof(*d));
	int r = d ? ram_store_share(store, FILE_NAME, shared_bytes(volume_blks),
				    (void **)&d->shared)
		  : -ENOMEM;

	if (r < 0) {
		free(d);
		return r;
	}
	d->store = store;
	d->volume_blks = volume_blks;
	d->used = d->shared->maps;
	*ret = d;
	return r;
}

static void use_must_write(struct diverged *d)
{
	d->must_write = d->shared->has_uuid ? d->used + map_bytes(d->volume_blks) : NULL;
}

void diverged_free(struct diverged *d)
{
	if (!d)
		return;
	ram_store_unshare(d->store, FILE_NAME, d->shared, shared_bytes(d->volume_blks));
	free(d);
}

static int read_map(struct diverged *d, struct fsmap *base)
{
	enum blk_use use;
	uint64_t n;
	int r = 0;

	for (uint64_t blk = 0; r == 0 && blk < d->volume_blks; blk += n) {
		r = fsmap_run(base, blk, d->volume_blks - blk, &use, &n);
		for (uint64_t i = 0; r == 0 && use != USE_FREE && i < n; i++)
			set(d->used, blk + i);
	}
	return r;
}

int diverged_new(struct diverged **ret, struct ram_store *store, uint64_t volume_blks,
		 struct fsmap *base, const uint8_t *uuid)
{
	struct diverged *d;
	int r = share(&d, store, volume_blks);

	if (r < 0)
		return r;
	if (r == 0) /* left by a process that died in diverged_free */
		memset(d->shared, 0, shared_bytes(volume_blks));
	d->shared->log_sequence = fsmap_log_sequence(base);
	d->shared->has_uuid = uuid;
	if (uuid)
		memcpy(d->shared->uuid, uuid, sizeof(d->shared->uuid));
	use_must_write(d);
	r = read_map(d, base);
	if (r < 0) {
		diverged_free(d);
		return r;
	}
	d->shared->complete = true;
	*ret = d;
	return 0;
}

int diverged_take_over(struct diverged **ret, struct ram_store *store, uint64_t volume_blks)
{
	struct diverged *d;
	int r = share(&d, store, volume_blks);

	if (r < 0)
		return r;
	if (!d->shared->complete) {
		diverged_free(d);
		return -ENOENT;
	}
	use_must_write(d);
	*ret = d;
	return 0;
}

int diverged_count_free(const struct diverged *d, struct fsmap *m, uint64_t *ret_blks)
{
	enum blk_use use;
	uint64_t n;
	int r = 0;

	*ret_blks = 0;
	for (uint64_t blk = 0; r == 0 && blk < d->volume_blks; blk += n) {
		r = fsmap_run(m, blk, d->volume_blks - blk, &use, &n);
		for (uint64_t i = 0; r == 0 && use == USE_FREE && i < n; i++)
			*ret_blks += !get(d->used, blk + i);
	}
	return r;
}

struct keep {
	struct diverged *d;
	struct view *live, *scratch;
	struct ram_store *store;
	uint64_t max_bytes, max_dirty_blks;
	struct generation *kept;
	uint8_t *buf;
};

static int put(struct keep *k, uint64_t blk, uint64_t blks)
{
	enum blk_state state = BLK_HOLE;
	int r = view_read_committed(k->live, blk, blks, k->buf);

	if (r == 0 && !bytes_all_zero(k->buf, blk_to_bytes(blks))) {
		if (ram_store_room(k->store, k->max_bytes) < blk_to_bytes(blks))
			return -ENOSPC;
		r = generation_write(k->kept, blk_to_bytes(blk), k->buf, blk_to_bytes(blks));
		state = BLK_DATA;
	}
	return r < 0 ? r : generation_mark(k->kept, blk, blks, state);
}

/* No layer of the live volume has these blocks. */
static int keep_absent(struct keep *k, uint64_t blk, uint64_t end)
{
	int r = 0;

	for (uint64_t n; blk < end && r == 0; blk += n) {
		n = alike(k->d->used, blk, min_u64(end, blk + CHUNK_BLKS));
		if (get(k->d->used, blk))
			r = put(k, blk, n);
	}
	return r;
}

/* Blocks that the commit changes. */
static int keep_run(struct keep *k, uint64_t blk, uint64_t end)
{
	int r = 0;

	while (blk < end && r == 0) {
		uint64_t at = blk, n = 0;
		enum blk_state state;

		if (!view_next_live(k->live, &at, end - blk, &n, &state) || at >= end) {
			at = end;
			n = 0;
		}
		r = keep_absent(k, blk, at);
		blk = at + n;
	}
	return r;
}

/* Metadata of xfs that the commit may write: the next full commit replaces it. In a block that the
 * live volume does not have, by zeros. */
static int note_metadata(struct keep *k, uint64_t blk, uint64_t blks)
{
	int r = 0;

	for (uint64_t n; blks && r == 0; blk += n, blks -= n) {
		n = min_u64(blks, CHUNK_BLKS);
		r = view_read_sealed(k->scratch, blk, n, k->buf);
		for (uint64_t i = 0; i < n && r == 0; i++) {
			uint64_t at = blk + i, m;
			enum blk_state state;

			if (!memmem(k->buf + blk_to_bytes(i), COW_BLK_BYTES, k->d->shared->uuid,
				    sizeof(k->d->shared->uuid)))
				continue;
			set(k->d->must_write, blk + i);
			if (!get(k->d->used, blk + i) &&
			    (!view_next_live(k->live, &at, 1, &m, &state) || at > blk + i))
				r = generation_mark(k->kept, blk + i, 1, BLK_HOLE);
		}
	}
	return r;
}

static bool fits_later(struct keep *k)
{
	struct generation_stats active, below, kept;

	view_dirty(k->live, &active, &below);
	generation_stats(k->kept, &kept);
	return !k->max_dirty_blks ||
	       active.data_blks + below.data_blks + kept.data_blks <= k->max_dirty_blks;
}

static int keep_all(struct keep *k)
{
	uint64_t blks;
	enum blk_state state;
	int r = 0;

	for (uint64_t blk = 0;
	     r == 0 && view_next_sealed(k->scratch, &blk, k->d->volume_blks, &blks, &state);
	     blk += blks) {
		r = keep_run(k, blk, blk + blks);
		if (r == 0 && k->d->must_write && state == BLK_DATA)
			r = note_metadata(k, blk, blks);
	}
	if (r == 0 && !fits_later(k))
		r = -EFBIG;
	return r < 0 ? r : view_add_below(k->live, k->kept);
}

int diverged_keep(struct diverged *d, struct view *live, struct view *scratch,
		  struct ram_store *store, uint64_t max_bytes, uint64_t max_dirty_blks)
{
	struct keep k = { .d = d,
			  .live = live,
			  .scratch = scratch,
			  .store = store,
			  .max_bytes = max_bytes,
			  .max_dirty_blks = max_dirty_blks,
			  .buf = io_alloc(blk_to_bytes(CHUNK_BLKS)) };
	int r = k.buf ? generation_new(&k.kept, store, d->volume_blks) : -ENOMEM;

	if (r == 0) {
		r = keep_all(&k);
		if (r < 0)
			generation_free(k.kept);
	}
	free(k.buf);
	return r;
}

bool diverged_must_write(const struct diverged *d, uint64_t blk, uint64_t max_blks,
			 uint64_t *ret_blks)
{
	*ret_blks = max_blks;
	if (!d->must_write)
		return false;
	*ret_blks = alike(d->must_write, blk, blk + max_blks);
	return get(d->must_write, blk);
}

uint32_t diverged_log_sequence(const struct diverged *d)
{
	return d->shared->log_sequence;
}
