/* SPDX-License-Identifier: MIT */
/*
 * The commit side of the view: seal, release, fail, and the images that the commit reads. Runs in
 * one thread. Every change of the layers makes a new stack. It is built aside and published by one
 * store. The objects that it replaced are freed after view_synchronize.
 *
 * view_release and view_set_index cannot fail, so the stack that they publish is allocated in
 * advance. `spare` has room for all layers at any time, and the stack that a publication replaces
 * becomes the next spare. Only a seal makes the stack longer, and may return -ENOMEM.
 */
#include <errno.h>
#include <string.h>

#include "base/invariant.h"
#include "base/io.h"
#include "export/view_private.h"

#define MERGE_BATCH_BLKS 256

/* ---- construction and destruction ---- */

static void init_locks(struct view *v)
{
	pthread_rwlockattr_t attr;

	/* A stream of writers must not delay the seal. No thread takes this lock twice. */
	pthread_rwlockattr_init(&attr);
	pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	pthread_rwlock_init(&v->seal_lock, &attr);
	pthread_rwlockattr_destroy(&attr);
	for (unsigned i = 0; i < VIEW_STRIPES; i++)
		pthread_mutex_init(&v->stripe[i], NULL);
}

/* A stack with the newest n generations of a record; without one, with a new generation. */
static int open_layers(struct layers **ret, struct ram_store *store, uint64_t volume_blks,
		       const struct ram_stack *kept, unsigned n)
{
	struct layers *l = layers_alloc(n);
	int r = l ? 0 : -ENOMEM;

	while (r == 0 && l->n < n) {
		struct generation **g = &l->gen[l->n];

		r = kept ? generation_open(g, store, volume_blks, kept->id[l->n])
			 : generation_new(g, store, volume_blks);
		l->n += r == 0;
	}
	if (r < 0) {
		layers_free(l);
		return r;
	}
	*ret = l;
	return 0;
}

static int record(const struct view *v, const struct layers *l, bool sealed)
{
	return v->plain ? 0 : ram_store_record(v->store, l->gen, l->n, sealed);
}

/* kept NULL: a new stack. n: generations. */
static int make_view(struct view **ret, struct ram_store *store, struct card *base,
		     uint64_t volume_blks, struct log_index *index, bool plain,
		     const struct ram_stack *kept, unsigned n)
{
	_cleanup_free_ struct layers *spare = NULL;
	_cleanup_free_ struct view *v = NULL;
	struct readahead *readahead = NULL;
	struct layers *l = NULL;
	int r;

	if (!volume_blks || volume_blks > base->geo.size_bytes / COW_BLK_BYTES)
		return -EINVAL;
	v = aligned_alloc(alignof(struct view), sizeof(*v));
	spare = layers_alloc(n);
	if (!v || !spare)
		return -ENOMEM;
	memset(v, 0, sizeof(*v));
	v->store = store;
	v->plain = plain;
	v->volume_blks = volume_blks;
	r = plain ? 0 : readahead_new(&readahead, base, VIEW_READS);
	if (r == 0)
		r = open_layers(&l, store, volume_blks, kept, n);
	if (r == 0)
		r = record(v, l, false);
	if (r < 0) {
		layers_free(l);
		readahead_free(readahead);
		return r;
	}
	l->readahead = readahead;
	l->base = base;
	l->index = log_index_ref(index);
	v->readahead = readahead;
	v->spare = steal_ptr(spare);
	atomic_init(&v->layers, l);
	init_locks(v);
	*ret = steal_ptr(v);
	return 0;
}

int view_new(struct view **ret, struct ram_store *store, struct card *base, uint64_t volume_blks,
	     struct log_index *index)
{
	return make_view(ret, store, base, volume_blks, index, false, NULL, 1);
}

int view_new_plain(struct view **ret, struct ram_store *store, struct card *base,
		   uint64_t volume_blks, struct log_index *index)
{
	return make_view(ret, store, base, volume_blks, index, true, NULL, 1);
}

int view_adopt(struct view **ret, struct ram_store *store, struct card *base, uint64_t volume_blks,
	       struct log_index *index, bool committed)
{
	struct ram_stack kept;
	int r = ram_store_stack(store, &kept);

	if (r < 0)
		return r;
	r = make_view(ret, store, base, volume_blks, index, false, &kept,
		      kept.sealed && committed ? 1 : kept.n);
	/* the generations that were committed are in no stack any more */
	return r < 0 ? r : ram_store_stack(store, &kept);
}

unsigned view_layers_below(const struct view *v)
{
	return view_layers(v)->n - 1;
}

static void free_retired(struct view *v)
{
	while (v->retired) {
		struct layers *l = v->retired;

		v->retired = l->retired;
		free(l);
	}
}

void view_free(struct view *v)
{
	struct layers *l;

	if (!v)
		return;
	l = view_layers(v);
	(void)INVARIANT("pins at close", pins_none(&v->pins));
	for (unsigned i = 0; i < l->n; i++)
		generation_free(l->gen[i]);
	log_index_unref(l->index);
	readahead_free(v->readahead);
	free(l);
	free(v->spare);
	free_retired(v);
	for (unsigned i = 0; i < VIEW_STRIPES; i++)
		pthread_mutex_destroy(&v->stripe[i]);
	pthread_rwlock_destroy(&v->seal_lock);
	free(v);
}

/* ---- publishing ---- */

void view_synchronize(struct view *v)
{
	pins_synchronize(&v->pins);
	free_retired(v);
}

/* The spare, prepared as the next stack: same base and index, first n generations. */
static struct layers *next_layers(struct view *v, unsigned n)
{
	const struct layers *now = view_layers(v);
	struct layers *next = v->spare;

	next->base = now->base;
	next->readahead = now->readahead;
	next->epoch = now->epoch + 1;
	next->index = now->index;
	next->n = n;
	next->kept = min_u64(now->kept, n - LAYER_SEALED);
	(void)INVARIANT("layers", n <= next->room && n <= now->n);
	memcpy(next->gen, now->gen, n * sizeof(next->gen[0]));
	return next;
}

/* Publishes the spare. On return nothing uses the previous stack. It is the new spare and still
 * lists its layers. */
static struct layers *publish_spare(struct view *v)
{
	struct layers *old = view_layers(v);

	atomic_store_explicit(&v->layers, v->spare, memory_order_release);
	v->spare = old;
	view_synchronize(v);
	return old;
}

static void drop_stack(struct layers *next, struct layers *spare)
{
	free(next);
	free(spare);
}

/* A copy of the present stack with g as layer `at`, and room to make the next one. -ENOMEM. */
static int stack_with(const struct view *v, struct generation *g, unsigned at,
		      struct layers **ret_next, struct layers **ret_spare)
{
	const struct layers *now = view_layers(v);
	struct layers *next = layers_alloc(now->n + 1), *spare = layers_alloc(now->n + 1);

	if (!next || !spare) {
		drop_stack(next, spare);
		return -ENOMEM;
	}
	next->base = now->base;
	next->readahead = now->readahead;
	next->epoch = now->epoch + 1;
	next->index = now->index;
	next->n = now->n + 1;
	next->kept = at == LAYER_ACTIVE ? 0 : now->kept;
	memcpy(next->gen, now->gen, at * sizeof(now->gen[0]));
	next->gen[at] = g;
	memcpy(&next->gen[at + 1], &now->gen[at], (now->n - at) * sizeof(now->gen[0]));
	*ret_next = next;
	*ret_spare = spare;
	return 0;
}

/* Publishes what stack_with made. Readers may still use the present stack. */
static void publish_stack(struct view *v, struct layers *next, struct layers *spare)
{
	struct layers *now = view_layers(v);

	atomic_store_explicit(&v->layers, next, memory_order_release);
	now->retired = v->retired;
	v->retired = now;
	free(v->spare);
	v->spare = spare;
}

/* Seal lock held: g becomes the active generation. On an error nothing has changed. */
static int seal_with(struct view *v, struct generation *g)
{
	struct layers *next, *spare;
	int r = stack_with(v, g, LAYER_ACTIVE, &next, &spare);

	if (r < 0)
		return r;
	r = record(v, next, true);
	if (r < 0) {
		drop_stack(next, spare);
		return r;
	}
	publish_stack(v, next, spare);
	v->sealed = true;
	return 0;
}

int view_check_sealed(const struct view *v)
{
	const struct layers *l = view_layers(v);

	for (unsigned i = LAYER_SEALED; i < l->n; i++)
		if (!generation_check(l->gen[i]))
			return -ENOTRECOVERABLE;
	return INVARIANT("layers", v->sealed && l->n > LAYER_SEALED) ? 0 : -ENOTRECOVERABLE;
}

void view_set_index(struct view *v, struct log_index *index)
{
	struct layers *old;

	next_layers(v, view_layers(v)->n)->index = index;
	old = publish_spare(v);
	log_index_unref(old->index);
}

/* Takes away what `keep` does not want of a generation that nobody writes to. The layers below have the
 * same by now, but a reader that has found a block here still comes to its pages. */
static void trim_generation(struct view *v, struct generation *g, bool newest, view_keeps *keep,
			    void *ctx)
{
	enum blk_state state;
	uint64_t blk = 0, blks;

	for (; generation_next(g, &blk, UINT64_MAX, &blks, &state); blk += blks)
		/* without memory a hole stays, and is committed again */
		if (!keep(ctx, newest, blk, blks, &blks))
			(void)!generation_mark(g, blk, blks, BLK_ABSENT);
	view_synchronize(v);
	generation_drop(g, 0, v->volume_blks);
}

/* n: layers that stay. sealed: the newest of them below the active one; NULL: it is as it was. */
static void release_to(struct view *v, struct log_index *index, unsigned n,
		       struct generation *sealed)
{
	struct layers *next, *old;

	(void)INVARIANT("layers", view_layers(v)->n > LAYER_SEALED);
	next = next_layers(v, n);
	if (sealed)
		next->gen[LAYER_SEALED] = sealed;
	next->index = index;
	next->kept = n - LAYER_SEALED;
	old = publish_spare(v);
	v->sealed = false;
	(void)!record(v, view_layers(v), false); /* it did not get longer */
	for (unsigned i = sealed ? LAYER_SEALED : n; i < old->n; i++)
		generation_free(old->gen[i]);
	log_index_unref(old->index);
}

static void release(struct view *v, struct log_index *index, unsigned n)
{
	release_to(v, index, n, NULL);
}

void view_release(struct view *v, struct log_index *index)
{
	/* nothing was committed, so nothing in RAM may be freed */
	if (!v->sealed)
		view_set_index(v, index);
	else
		release(v, index, LAYER_SEALED);
}

/* ---- a commit that failed ---- */

/*
 * Merges the layers below the active one into one. First, blocks that an upper layer covers are
 * dropped from the lower ones. After that no block is in two layers. Then the blocks of a lower
 * layer are copied up and removed below. Readers always look at the upper layer first. Between copy
 * and removal they find the same bytes in both. The removal waits for readers that looked at the
 * upper layer before the copy was marked there.
 */
static int copy_run(struct generation *upper, const struct generation *lower, uint64_t blk,
		    uint64_t blks, enum blk_state state, void *buf)
{
	int r = 0;

	if (state == BLK_DATA) {
		r = generation_read(lower, blk_to_bytes(blk), buf, blk_to_bytes(blks));
		if (r == 0)
			r = generation_write(upper, blk_to_bytes(blk), buf, blk_to_bytes(blks));
	}
	if (r == 0)
		r = generation_mark(upper, blk, blks, state);
	if (r < 0)
		generation_drop(upper, blk, blks);
	return r;
}

/* -ENOMEM: of a run of holes that gets two. */
static int take_away(struct generation *lower, uint64_t blk, uint64_t blks)
{
	int r = generation_mark(lower, blk, blks, BLK_ABSENT);

	if (r == 0)
		generation_drop(lower, blk, blks);
	return r;
}

/* This also makes room that the copying may need. */
static int drop_covered(const struct generation *upper, struct generation *lower)
{
	uint64_t blk = 0, blks;
	enum blk_state state;
	int r = 0;

	while (r == 0 && generation_next(lower, &blk, UINT64_MAX, &blks, &state)) {
		uint64_t n = generation_run(upper, blk, blks, &state);

		if (state != BLK_ABSENT)
			r = take_away(lower, blk, n);
		blk += n;
	}
	return r;
}

/* Copies up from *blk on until a batch is full. On return *blk is the end of the copied range. */
static int copy_batch(struct generation *upper, struct generation *lower, uint64_t *blk, void *buf)
{
	uint64_t room_blks = MERGE_BATCH_BLKS, n;
	enum blk_state state;

	while (room_blks && generation_next(lower, blk, room_blks, &n, &state)) {
		int r = copy_run(upper, lower, *blk, n, state, buf);

		/* nearly full: copy the little that fits, so that its removal makes room for the
		 * next batch */
		while (r == -ENOSPC && n > 1) {
			n /= 2;
			r = copy_run(upper, lower, *blk, n, state, buf);
		}
		if (r < 0)
			return r;
		room_blks -= state == BLK_DATA ? n : 0;
		*blk += n;
	}
	if (room_blks)
		*blk = generation_volume_blks(lower);
	return 0;
}

static int merge(struct view *v, struct generation *upper, struct generation *lower, void *buf)
{
	const uint64_t volume_blks = generation_volume_blks(lower);
	uint64_t from = 0, to = 0;

	while (from < volume_blks) {
		int r = copy_batch(upper, lower, &to, buf);

		/* the blocks copied before the error are removed below all the same, which makes
		 * room */
		if (r < 0 && to == from)
			return r;
		view_synchronize(v);
		r = take_away(lower, from, to - from);
		if (r < 0)
			return r;
		from = to;
	}
	return 0;
}

static int drop_all_covered(struct view *v)
{
	const struct layers *l = view_layers(v);
	int r = 0;

	/* waits for readers that looked at the upper layer before a block was written there */
	view_synchronize(v);
	for (unsigned lower = LAYER_SEALED + 1; lower < l->n; lower++)
		for (unsigned upper = LAYER_SEALED; upper < lower && r == 0; upper++)
			if (!generation_is_shared(l->gen[lower]))
				r = drop_covered(l->gen[upper], l->gen[lower]);
	return r;
}

/* A pair that may be merged, from this layer on; l->n: none. Each holder of a copy sees the layers
 * from one of its own down, so neither of the two may change. Only this thread makes copies. */
static unsigned next_pair(const struct view *v, unsigned upper)
{
	const struct layers *l = view_layers(v);

	while (upper + 1 < l->n &&
	       (generation_is_shared(l->gen[upper]) || generation_is_shared(l->gen[upper + 1])))
		upper++;
	return upper + 1 < l->n ? upper : l->n;
}

static int merge_below(struct view *v)
{
	_cleanup_free_ void *buf = NULL;
	struct layers *l = view_layers(v);
	unsigned upper = LAYER_SEALED;
	int r;

	if (l->n <= LAYER_SEALED + 1)
		return 0;
	buf = io_alloc(blk_to_bytes(MERGE_BATCH_BLKS));
	if (!buf)
		return -ENOMEM;
	r = drop_all_covered(v);
	while (r == 0 && (upper = next_pair(v, upper)) < view_layers(v)->n) {
		const unsigned lower = upper + 1;
		struct generation *empty;
		struct layers *next;

		l = view_layers(v);
		empty = l->gen[lower];
		r = merge(v, l->gen[upper], empty, buf);
		if (r < 0)
			return r;
		next = next_layers(v, lower);
		next->n = l->n - 1;
		next->kept = l->kept ? l->kept - 1 : 0;
		memcpy(&next->gen[lower], &l->gen[lower + 1],
		       (l->n - lower - 1) * sizeof(l->gen[0]));
		publish_spare(v);
		(void)!record(v, view_layers(v), false);
		generation_free(empty);
	}
	return r;
}

int view_seal(struct view *v)
{
	struct generation *g;
	int r;

	if (v->sealed)
		return -EBUSY;
	(void)!merge_below(v); /* each death in a commit leaves a layer */
	r = generation_new(&g, v->store, v->volume_blks);
	if (r < 0)
		return r;
	pthread_rwlock_wrlock(&v->seal_lock);
	r = seal_with(v, g);
	pthread_rwlock_unlock(&v->seal_lock);
	if (r < 0)
		generation_free(g);
	return r;
}

void view_seal_again(struct view *v)
{
	v->sealed = true;
	(void)!record(v, view_layers(v), true); /* it did not get longer */
}

int view_fail(struct view *v)
{
	if (!v->sealed)
		return -EINVAL;
	v->sealed = false;
	(void)!record(v, view_layers(v), false);
	return merge_below(v);
}

/* ---- a commit that leaves blocks in RAM ---- */

/* From the lowest layer up: a block must not show an older version of itself. Where a layer is in a copy of
 * the stack, it and those above stay as they are: the next commit writes some of their blocks again. */
static void trim_kept(struct view *v, view_keeps *keep, void *ctx)
{
	const struct layers *l = view_layers(v);

	for (unsigned i = l->n; i-- > LAYER_SEALED && !generation_is_shared(l->gen[i]);)
		trim_generation(v, l->gen[i], i == LAYER_SEALED, keep, ctx);
}

static void drop_empty(struct view *v)
{
	struct generation *g = view_layers(v)->gen[view_layers(v)->n - 1];
	struct generation_stats left;

	generation_stats(g, &left);
	if (left.data_blks || left.hole_blks || view_layers(v)->n != LAYER_SEALED + 1)
		return;
	(void)next_layers(v, LAYER_SEALED);
	publish_spare(v);
	(void)!record(v, view_layers(v), false);
	generation_free(g);
}

/* What stays of a run of a layer: into g, over what a lower layer has put there. */
static int collect_run(struct generation *g, const struct generation *from, bool newest,
		       uint64_t blk, uint64_t blks, enum blk_state state, view_keeps *keep,
		       void *ctx, void *buf)
{
	int r = 0;

	for (uint64_t n; blks && r == 0; blk += n, blks -= n)
		if (keep(ctx, newest, blk, min_u64(blks, MERGE_BATCH_BLKS), &n))
			r = copy_run(g, from, blk, n, state, buf);
	return r;
}

/* A copy of what stays: a layer that is in a copy of the stack cannot be trimmed. NULL: no RAM for it. */
static struct generation *collect_kept(struct view *v, view_keeps *keep, void *ctx)
{
	_cleanup_free_ void *buf = io_alloc(blk_to_bytes(MERGE_BATCH_BLKS));
	const struct layers *l = view_layers(v);
	struct generation *g;
	enum blk_state state;
	uint64_t blks;
	int r = buf ? generation_new(&g, v->store, v->volume_blks) : -ENOMEM;

	if (r < 0)
		return NULL;
	for (unsigned i = l->n; i-- > LAYER_SEALED && r == 0;)
		for (uint64_t blk = 0;
		     r == 0 && generation_next(l->gen[i], &blk, UINT64_MAX, &blks, &state);
		     blk += blks)
			r = collect_run(g, l->gen[i], i == LAYER_SEALED, blk, blks, state, keep,
					ctx, buf);
	if (r < 0) {
		generation_free(g);
		return NULL;
	}
	generation_drop(g, 0, v->volume_blks);
	return g;
}

static bool any_shared(const struct view *v)
{
	const struct layers *l = view_layers(v);

	for (unsigned i = LAYER_SEALED; i < l->n; i++)
		if (generation_is_shared(l->gen[i]))
			return true;
	return false;
}

void view_release_keeping(struct view *v, struct log_index *index, bool all, view_keeps *keep,
			  void *ctx)
{
	struct generation *g = all && any_shared(v) ? collect_kept(v, keep, ctx) : NULL;

	if (g) {
		release_to(v, index, LAYER_SEALED + 1, g);
		drop_empty(v);
		return;
	}
	release(v, index, all ? view_layers(v)->n : LAYER_SEALED + 1);
	trim_kept(v, keep, ctx);
	(void)!merge_below(v); /* else they stay apart until the next one */
	drop_empty(v);
}

void view_keep_below(struct view *v)
{
	struct layers *l = view_layers(v);

	l->kept = l->n - LAYER_SEALED;
}

/* ---- copies for snapshots ---- */

int view_copy_layers(struct view *v, bool committed, unsigned room, struct layers **ret)
{
	const struct layers *l = view_layers(v);
	unsigned first = committed ? l->n : LAYER_SEALED;
	struct layers *copy = layers_alloc(l->n - first + room);

	if (!copy)
		return -ENOMEM;
	copy->base = l->base;
	copy->index = log_index_ref(l->index);
	for (unsigned i = first; i < l->n; i++)
		copy->gen[copy->n++] = generation_ref(l->gen[i]);
	*ret = copy;
	return 0;
}

int view_add_below(struct view *v, struct generation *g)
{
	struct layers *next, *spare;
	int r;

	if (v->sealed)
		return -EBUSY;
	r = stack_with(v, g, view_layers(v)->n, &next, &spare);
	if (r == 0 && (r = record(v, next, false)) < 0)
		drop_stack(next, spare);
	if (r < 0)
		return r;
	publish_stack(v, next, spare);
	view_synchronize(v);
	return 0;
}

bool view_has_generation(struct view *v, const struct generation *g)
{
	struct pin pin = pins_enter(&v->pins);
	const struct layers *l = view_layers(v);
	bool found = false;

	for (unsigned i = 0; i < l->n; i++)
		found |= l->gen[i] == g;
	pins_leave(pin);
	return found;
}

/* ---- images and figures: pinned, so that a dry run in another thread is safe, too ---- */

static void add_stats(const struct generation *g, struct generation_stats *sum)
{
	struct generation_stats s;

	generation_stats(g, &s);
	sum->data_blks += s.data_blks;
	sum->hole_blks += s.hole_blks;
}

void view_dirty(struct view *v, struct generation_stats *ret_active,
		struct generation_stats *ret_below)
{
	struct pin pin = pins_enter(&v->pins);
	const struct layers *l = view_layers(v);

	*ret_active = *ret_below = (struct generation_stats){ 0 };
	add_stats(l->gen[LAYER_ACTIVE], ret_active);
	for (unsigned i = LAYER_SEALED + l->kept; i < l->n; i++)
		add_stats(l->gen[i], ret_below);
	pins_leave(pin);
}

uint64_t view_changed_blks(struct view *v)
{
	struct generation_stats active, below;

	view_dirty(v, &active, &below);
	return active.data_blks + active.hole_blks + below.data_blks + below.hole_blks;
}

uint64_t view_kept_blks(struct view *v)
{
	struct pin pin = pins_enter(&v->pins);
	const struct layers *l = view_layers(v);
	struct generation_stats stats = { 0 };

	for (unsigned i = LAYER_SEALED; i < LAYER_SEALED + l->kept; i++)
		add_stats(l->gen[i], &stats);
	pins_leave(pin);
	return stats.data_blks;
}

enum image { IMAGE_LIVE = LAYER_ACTIVE, IMAGE_SEALED = LAYER_SEALED, IMAGE_COMMITTED };

static int read_image(struct view *v, enum image image, uint64_t blk, uint64_t blks, void *buf)
{
	struct pin pin;
	const struct layers *l;
	int r;

	if (!range_fits(blk, blks, v->volume_blks) || (image == IMAGE_SEALED && !v->sealed))
		return -EINVAL;
	pin = pins_enter(&v->pins);
	l = view_layers(v);
	r = layers_read(l, image == IMAGE_COMMITTED ? l->n : image, blk_to_bytes(blk), buf,
			blk_to_bytes(blks));
	pins_leave(pin);
	return r;
}

static bool next_run(struct view *v, enum image image, uint64_t *blk, uint64_t max_blks,
		     uint64_t *ret_blks, enum blk_state *ret_state)
{
	struct pin pin = pins_enter(&v->pins);
	const struct layers *l = view_layers(v);
	/* what is kept is all that is below the active one, but for view_add_below */
	bool found = l->kept && LAYER_SEALED + l->kept == l->n
			     ? generation_next(l->gen[LAYER_ACTIVE], blk, max_blks, ret_blks,
					       ret_state)
			     : layers_next(l, image, blk, max_blks, ret_blks, ret_state);

	pins_leave(pin);
	return found;
}

int view_read_committed(struct view *v, uint64_t blk, uint64_t blks, void *buf)
{
	return read_image(v, IMAGE_COMMITTED, blk, blks, buf);
}

int view_read_sealed(struct view *v, uint64_t blk, uint64_t blks, void *buf)
{
	return read_image(v, IMAGE_SEALED, blk, blks, buf);
}

static int peek_image(struct view *v, enum image image, uint64_t blk, uint64_t blks, void *buf)
{
	struct pin pin;
	int r;

	if (!range_fits(blk, blks, v->volume_blks))
		return -EINVAL;
	pin = pins_enter(&v->pins);
	r = layers_peek(view_layers(v), image, blk, blks, buf);
	pins_leave(pin);
	return r;
}

int view_peek_sealed(struct view *v, uint64_t blk, uint64_t blks, void *buf)
{
	return v->sealed ? peek_image(v, IMAGE_SEALED, blk, blks, buf) : -EINVAL;
}

int view_peek_live(struct view *v, uint64_t blk, uint64_t blks, void *buf)
{
	return peek_image(v, IMAGE_LIVE, blk, blks, buf);
}

bool view_next_sealed(struct view *v, uint64_t *blk, uint64_t max_blks, uint64_t *ret_blks,
		      enum blk_state *ret_state)
{
	return v->sealed && next_run(v, IMAGE_SEALED, blk, max_blks, ret_blks, ret_state);
}

int view_read_live(struct view *v, uint64_t blk, uint64_t blks, void *buf)
{
	return read_image(v, IMAGE_LIVE, blk, blks, buf);
}

bool view_next_live(struct view *v, uint64_t *blk, uint64_t max_blks, uint64_t *ret_blks,
		    enum blk_state *ret_state)
{
	return next_run(v, IMAGE_LIVE, blk, max_blks, ret_blks, ret_state);
}
