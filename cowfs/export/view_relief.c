/* SPDX-License-Identifier: MIT */
/*
 * Gives RAM back without a commit. Commit thread only, as all that changes layers: so the stack and
 * the card stay as they are meanwhile. Writers and readers go on; generation.h has the order of steps.
 *
 * Groups go in batches, because each batch waits for readers, and because a group that is made plain
 * takes RAM for the moment.
 */
#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "base/io.h"
#include "export/view_private.h"

#define BATCH_GROUPS 64u
#define GROUP_BYTES ((size_t)GENERATION_GROUP_BLKS * COW_BLK_BYTES)
_Static_assert(VIEW_STRIPE_BYTES % GROUP_BYTES == 0, "a group has one stripe");

struct batch {
	struct view *v;
	struct view_relief *rf;
	struct generation *g;
	uint8_t *here, *below; /* of a group */
	unsigned n;
	uint64_t group[BATCH_GROUPS];
	bool changed[BATCH_GROUPS]; /* pages have no block any more */
};

static pthread_mutex_t *stripe_of(struct view *v, uint64_t group)
{
	return &v->stripe[group * GROUP_BYTES / VIEW_STRIPE_BYTES % VIEW_STRIPES];
}

/* Of the blocks of the group. */
static void lock(struct batch *b, uint64_t group)
{
	pthread_mutex_lock(stripe_of(b->v, group));
}

static void unlock(struct batch *b, uint64_t group)
{
	pthread_mutex_unlock(stripe_of(b->v, group));
}

static bool compares(const struct batch *b)
{
	return b->rf->is_used && view_layers(b->v)->n == 1;
}

static bool has_work(const struct batch *b, uint64_t group)
{
	return (compares(b) && !generation_was_compared(b->g, group)) ||
	       (b->rf->compress && !generation_was_packed(b->g, group));
}

/* A batch takes its blocks once more, as plain pages, and their packs. Writers need room meanwhile. */
static unsigned most_groups(const struct batch *b)
{
	struct ram_usage ram;
	uint64_t room;

	ram_store_usage(b->v->store, &ram);
	room = (ram.limit_bytes - ram.used_bytes) / (4 * GROUP_BYTES);
	return (unsigned)max_u64(min_u64(room, BATCH_GROUPS), 1);
}

/* Cold groups from *blk on. */
static void collect(struct batch *b, uint64_t *blk)
{
	const unsigned most = most_groups(b);
	enum blk_state state;
	uint64_t blks;

	b->n = 0;
	memset(b->changed, 0, sizeof(b->changed));
	while (b->n < most && generation_next(b->g, blk, GENERATION_GROUP_BLKS, &blks, &state)) {
		uint64_t group = *blk / GENERATION_GROUP_BLKS;
		bool cold;

		if (state == BLK_HOLE) {
			*blk += generation_run(b->g, *blk, UINT64_MAX, &state);
			continue;
		}
		lock(b, group);
		cold = generation_is_cold(b->g, group);
		unlock(b, group);
		if (cold && has_work(b, group))
			b->group[b->n++] = group;
		*blk = (group + 1) * GENERATION_GROUP_BLKS;
	}
}

/* ---- what is the same below ---- */

static uint64_t first_of(uint64_t group)
{
	return group * GENERATION_GROUP_BLKS;
}

static uint64_t blks_of(const struct batch *b, uint64_t group)
{
	return min_u64(GENERATION_GROUP_BLKS, b->v->volume_blks - first_of(group));
}

/* Data, and used in the committed file system. */
static bool may_forget(const struct batch *b, uint64_t blk)
{
	enum blk_state state;

	generation_run(b->g, blk, 1, &state);
	return state == BLK_DATA && b->rf->is_used(b->rf->ctx, blk);
}

/* Bit i: block i of the group may be forgotten. None if that cannot be read. */
static uint8_t same_blocks(const struct batch *b, uint64_t group)
{
	uint64_t first = first_of(group), blks = blks_of(b, group);
	uint8_t mask = 0;

	for (unsigned i = 0; i < blks; i++)
		mask |= (uint8_t)(may_forget(b, first + i) << i);
	if (!mask || generation_read(b->g, blk_to_bytes(first), b->here, blk_to_bytes(blks)) < 0 ||
	    layers_read(view_layers(b->v), LAYER_SEALED, blk_to_bytes(first), b->below,
			blk_to_bytes(blks)) < 0)
		return 0;
	for (unsigned i = 0; i < blks; i++)
		if (memcmp(b->here + blk_to_bytes(i), b->below + blk_to_bytes(i), COW_BLK_BYTES) ||
		    (!b->rf->zeros && bytes_all_zero(b->here + blk_to_bytes(i), COW_BLK_BYTES)))
			mask &= (uint8_t) ~(1u << i);
	return mask;
}

static void forget_group(struct batch *b, unsigned i)
{
	uint8_t mask = same_blocks(b, b->group[i]);

	lock(b, b->group[i]);
	if (generation_forget(b->g, b->group[i], mask) && mask) {
		b->changed[i] = true;
		b->rf->forgotten_blks += (uint64_t)__builtin_popcount(mask);
	}
	unlock(b, b->group[i]);
}

static void forget(struct batch *b)
{
	/* a slow card takes seconds for a batch */
	for (unsigned i = 0; i < b->n && !b->rf->must_stop(b->rf->ctx); i++)
		if (!generation_was_compared(b->g, b->group[i]))
			forget_group(b, i);
}

/* ---- what can be compressed ---- */

/* Leaves only plain groups in the batch, whose packs no reader uses. */
static int make_plain(struct batch *b)
{
	unsigned n = 0;
	int r = 0;

	for (unsigned i = 0; i < b->n && r == 0; i++) {
		uint64_t group = b->group[i];

		lock(b, group);
		/* or a pack is as large as before, but some of its blocks are gone */
		if (!generation_was_packed(b->g, group) &&
		    generation_group_state(b->g, group) != GROUP_PLAIN)
			r = generation_unpack(b->g, group);
		if (generation_group_state(b->g, group) == GROUP_PLAIN)
			b->group[n++] = group;
		unlock(b, group);
	}
	b->n = n;
	memset(b->changed, 0, sizeof(b->changed));
	view_synchronize(b->v);
	return r;
}

static int compress(struct batch *b)
{
	int r = make_plain(b);

	for (unsigned i = 0; i < b->n && r >= 0; i++) {
		if (generation_was_packed(b->g, b->group[i]))
			continue;
		r = generation_pack(b->g, b->group[i]);
		if (r != 1)
			continue;
		lock(b, b->group[i]);
		b->changed[i] = generation_pack_end(b->g, b->group[i]);
		unlock(b, b->group[i]);
	}
	return r < 0 ? r : 0;
}

/* ---- pages and packs ---- */

static void drop_pages(struct batch *b)
{
	view_synchronize(b->v);
	for (unsigned i = 0; i < b->n; i++) {
		if (!b->changed[i])
			continue;
		lock(b, b->group[i]);
		generation_drop(b->g, first_of(b->group[i]), blks_of(b, b->group[i]));
		unlock(b, b->group[i]);
	}
}

static void drop_packs(struct batch *b)
{
	uint64_t group = 0;

	do {
		for (b->n = 0; b->n < BATCH_GROUPS && generation_next_garbage(b->g, &group);
		     group++)
			b->group[b->n++] = group;
		if (b->n)
			view_synchronize(b->v);
		for (unsigned i = 0; i < b->n; i++)
			generation_drop_pack(b->g, b->group[i]);
	} while (b->n == BATCH_GROUPS);
}

/* ---- */

/* The blocks of the group from *blk on, up to end, that are not to be kept. *blk becomes their end. */
static uint8_t unwanted(uint64_t *blk, uint64_t end, bool (*keep)(void *ctx, uint64_t blk),
			void *ctx)
{
	uint64_t group = *blk / GENERATION_GROUP_BLKS;
	uint8_t mask = 0;

	for (; *blk < end && *blk / GENERATION_GROUP_BLKS == group; ++*blk)
		if (!keep(ctx, *blk))
			mask |= (uint8_t)(1u << *blk % GENERATION_GROUP_BLKS);
	return mask;
}

void view_trim(struct view *v, struct generation *g, bool (*keep)(void *ctx, uint64_t blk),
	       void *ctx)
{
	struct batch b = { .v = v, .g = g };
	enum blk_state state;
	uint64_t blks;

	for (uint64_t blk = 0; generation_next(g, &blk, UINT64_MAX, &blks, &state);) {
		uint64_t end = blk + blks;

		while (blk < end) {
			uint64_t group = blk / GENERATION_GROUP_BLKS;
			uint8_t mask = unwanted(&blk, end, keep, ctx);

			(void)generation_is_cold(g, group); /* nobody writes to it */
			if (!mask || !generation_forget(g, group, mask))
				continue;
			b.changed[b.n] = true;
			b.group[b.n++] = group;
			if (b.n == BATCH_GROUPS) {
				drop_pages(&b);
				b.n = 0;
				memset(b.changed, 0, sizeof(b.changed));
			}
		}
	}
	drop_pages(&b);
	drop_packs(&b);
}

/* What a merge has copied to g from a lower layer, where no reader looks for it any more: else it would
 * take what compressing has saved, when RAM is short. What fails stays plain. */
void view_pack_merged(struct view *v, struct generation *g, struct generation *lower, uint64_t blk,
		      uint64_t end)
{
	struct batch b = { .v = v, .g = g };
	enum blk_state state;
	uint64_t blks;

	while (generation_next(g, &blk, GENERATION_GROUP_BLKS, &blks, &state) && blk < end) {
		uint64_t group = blk / GENERATION_GROUP_BLKS;

		if (state == BLK_HOLE) {
			blk += generation_run(g, blk, UINT64_MAX, &state);
			continue;
		}
		blk = (group + 1) * GENERATION_GROUP_BLKS;
		if (blk > end && end < v->volume_blks)
			break; /* the next range has the rest of the group */
		generation_drop_pack(lower, group);
		if (generation_group_state(g, group) == GROUP_PACKED)
			continue;
		(void)generation_is_cold(g, group); /* it is sealed */
		b.group[b.n++] = group;
		if (b.n == BATCH_GROUPS) {
			(void)!compress(&b);
			drop_pages(&b);
			b.n = 0;
		}
	}
	(void)!compress(&b);
	drop_pages(&b);
}

static int relieve(struct batch *b)
{
	uint64_t blk = 0;
	int r = 0;

	drop_packs(b);
	for (collect(b, &blk); b->n && r == 0; collect(b, &blk)) {
		if (b->rf->must_stop(b->rf->ctx))
			return -EINTR;
		if (compares(b)) {
			forget(b);
			drop_pages(b);
		}
		if (b->rf->compress) {
			r = compress(b);
			drop_pages(b);
		}
	}
	return r;
}

int view_relieve(struct view *v, struct view_relief *rf)
{
	_cleanup_free_ uint8_t *buf = io_alloc(2 * GROUP_BYTES); /* the stack may be small */
	struct batch b = { .v = v, .rf = rf };
	const struct layers *l = view_layers(v);
	int r = 0;

	rf->forgotten_blks = 0;
	if (!buf)
		return -ENOMEM;
	b.here = buf;
	b.below = buf + GROUP_BYTES;
	for (unsigned i = 0; i < l->n && r == 0; i++) {
		b.g = l->gen[i];
		if (!generation_is_shared(b.g))
			r = relieve(&b);
	}
	return r;
}
