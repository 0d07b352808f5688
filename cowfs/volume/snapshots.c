/* SPDX-License-Identifier: MIT */
#include "volume/snapshots.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/msg.h"
#include "base/thread.h"

struct snapshots {
	const char *volume_name;
	struct ram_store *store;
	struct view *view;
	uint64_t max_bytes;
	_Atomic unsigned n; /* so that a write to the card costs nothing while there are none */

	pthread_mutex_t lock; /* everything below; held for moments */
	struct entry {
		struct snapshot *s; /* NULL: free */
		struct volume_view_status status;
	} entry[VOLUME_VIEWS];
	char last_end[sizeof(((struct volume_views *)0)->last_end)];
};

int snapshots_new(struct snapshots **ret, const char *volume_name, struct ram_store *store,
		  struct view *v, uint64_t max_bytes)
{
	struct snapshots *set = calloc(1, sizeof(*set));

	if (!set)
		return -ENOMEM;
	set->volume_name = volume_name;
	set->store = store;
	set->view = v;
	set->max_bytes = max_bytes;
	pthread_mutex_init(&set->lock, NULL);
	*ret = set;
	return 0;
}

void snapshots_free(struct snapshots *set)
{
	if (!set)
		return;
	for (struct entry *e = set->entry; e < set->entry + VOLUME_VIEWS; e++)
		snapshot_unref(e->s);
	pthread_mutex_destroy(&set->lock);
	free(set);
}

/* References to all of them, so that no lock is held during I/O. Drop each. */
static unsigned take_all(struct snapshots *set, struct snapshot *ret[VOLUME_VIEWS])
{
	unsigned n = 0;

	if (!set || !set->n)
		return 0;
	LOCKED(&set->lock);
	for (const struct entry *e = set->entry; e < set->entry + VOLUME_VIEWS; e++)
		if (e->s)
			ret[n++] = snapshot_ref(e->s);
	return n;
}

int snapshots_add(struct snapshots *set, struct snapshot *s, bool now, uint64_t generation,
		  uint64_t time_s)
{
	LOCKED(&set->lock);

	for (struct entry *e = set->entry; e < set->entry + VOLUME_VIEWS; e++) {
		if (e->s)
			continue;
		*e = (struct entry){
			.s = snapshot_ref(s),
			.status = { .now = now, .generation = generation, .time_s = time_s }
		};
		set->n++;
		return 0;
	}
	return -EMFILE;
}

void snapshots_remove(struct snapshots *set, struct snapshot *s)
{
	bool found = false;

	pthread_mutex_lock(&set->lock);
	for (struct entry *e = set->entry; e < set->entry + VOLUME_VIEWS; e++)
		if (e->s == s) {
			*e = (struct entry){ 0 };
			found = true;
		}
	set->n -= found;
	pthread_mutex_unlock(&set->lock);
	if (found)
		snapshot_unref(s);
}

bool snapshots_any(struct snapshots *set)
{
	return set && set->n;
}

bool snapshots_full(struct snapshots *set)
{
	return set->n == VOLUME_VIEWS;
}

static void end(struct snapshots *set, struct snapshot *s, const char *why)
{
	if (snapshot_ended(s))
		return;
	snapshot_end(s);
	msg(MSG_WARN, "%s: a view was ended: %s", set->volume_name, why);
	LOCKED(&set->lock);
	snprintf(set->last_end, sizeof(set->last_end), "%s", why);
}

/* ---- ahead of a write ---- */

static uint64_t room_blks(const struct snapshots *set)
{
	return ram_store_room(set->store, set->max_bytes) >> COW_BLK_SHIFT;
}

static const char *explain(int error, char *buf, size_t n)
{
	if (error == -ENOSPC || error == -ENOMEM)
		return "no RAM was left for blocks that a commit or a checkpoint overwrites (ram=)";
	snprintf(buf, n, "a block could not be read before it was overwritten: %s",
		 strerror(-error));
	return buf;
}

static void save(struct snapshots *set, struct snapshot *s, struct card *c, uint64_t off_bytes,
		 uint64_t len_bytes)
{
	uint64_t blks;
	char why[160];
	int r = snapshot_save(s, c, off_bytes, len_bytes, room_blks(set), &blks);

	if (r < 0)
		end(set, s, explain(r, why, sizeof(why)));
}

void snapshots_before_write(void *ctx, struct card *c, uint64_t off_bytes, size_t len_bytes)
{
	struct snapshot *s[VOLUME_VIEWS];
	unsigned n = take_all(ctx, s);

	for (unsigned i = 0; i < n; i++) {
		save(ctx, s[i], c, off_bytes, len_bytes);
		snapshot_unref(s[i]);
	}
}

/* ---- RAM ---- */

#define COUNTED 64u

struct count {
	struct snapshots *set;
	const struct generation *seen[COUNTED];
	unsigned n;
	uint64_t bytes;
};

static void count_generation(void *ctx, const struct generation *g)
{
	struct count *c = ctx;
	struct generation_stats s;

	for (unsigned i = 0; i < c->n; i++)
		if (c->seen[i] == g)
			return;
	if (view_has_generation(c->set->view, g))
		return;
	if (c->n < COUNTED)
		c->seen[c->n++] = g;
	generation_stats(g, &s);
	c->bytes += blk_to_bytes(s.data_blks);
}

uint64_t snapshots_held_bytes(struct snapshots *set)
{
	struct snapshot *s[VOLUME_VIEWS];
	unsigned n = take_all(set, s);
	struct count c = { .set = set };

	for (unsigned i = 0; i < n; i++) {
		snapshot_each(s[i], count_generation, &c);
		snapshot_unref(s[i]);
	}
	return c.bytes;
}

static uint64_t held_by(struct snapshots *set, struct snapshot *s)
{
	struct count c = { .set = set };

	snapshot_each(s, count_generation, &c);
	return c.bytes;
}

bool snapshots_end_largest(struct snapshots *set, const char *why)
{
	struct snapshot *s[VOLUME_VIEWS], *largest = NULL;
	unsigned n = take_all(set, s);
	uint64_t most = 0;

	for (unsigned i = 0; i < n; i++) {
		uint64_t bytes = held_by(set, s[i]);

		if (bytes > most) {
			most = bytes;
			largest = s[i];
		}
	}
	if (largest)
		end(set, largest, why);
	for (unsigned i = 0; i < n; i++)
		snapshot_unref(s[i]);
	return largest;
}

void snapshots_status(struct snapshots *set, struct volume_views *ret)
{
	struct snapshot *s[VOLUME_VIEWS];

	*ret = (struct volume_views){ .held_bytes = snapshots_held_bytes(set) };
	pthread_mutex_lock(&set->lock);
	for (const struct entry *e = set->entry; e < set->entry + VOLUME_VIEWS; e++)
		if (e->s) {
			s[ret->n] = snapshot_ref(e->s);
			ret->view[ret->n++] = e->status;
		}
	memcpy(ret->last_end, set->last_end, sizeof(ret->last_end));
	pthread_mutex_unlock(&set->lock);
	for (unsigned i = 0; i < ret->n; i++) {
		ret->view[i].ended = snapshot_ended(s[i]);
		ret->view[i].ram_bytes = held_by(set, s[i]);
		snapshot_unref(s[i]);
	}
}
