/* SPDX-License-Identifier: MIT */
/*
 * Readers against the ring: blocks are read from log segments while commits, checkpoints and new
 * tails give those segments to other commits, on a ring so small that it wraps all the time.
 *
 * Every second read of the card sleeps between look-up and payload, longer than a commit takes. A
 * segment that is reused too early shows as a wrong CRC (-EBADMSG), an index that is freed too
 * early as a crash (SAN=address), an old one that is used too long as a version older than an
 * earlier result. COWFS_STRESS_MS: run time.
 *
 * Snapshots in the same race: taken, read by the slow readers and dropped while commits, failed
 * commits and checkpoints overwrite what they read. Each must show what it showed at first.
 */
#include "test.h"
#include "base/crc32c.h"
#include "sim/sim.h"
#include "commit/commit.h"
#include "export/layers.h"
#include "export/snapshot.h"
#include "export/view.h"
#include "log/index_build.h"
#include "race.h"

enum {
	BLKS = 192,
	READERS = 4,
	READ_BLKS = 12,
	WORDS = COW_BLK_BYTES / 8,
	SEG_BYTES = 64 * 1024,
	SEGS = 13,
	SNAPSHOTS = 5
};

/* Two commits of this size do not fit into the ring together: the second one, directly after the
 * checkpoint that it needs, overwrites the first. */
enum { MAX_DIRTY = 110 };

struct lapped {
	struct card card; /* in front of the simulated one */
	struct card *sim;
	struct log *log;
	struct ram_store *store;
	struct view *v;
	struct race race;
	_Atomic uint64_t reads, from_log, writes;
	uint64_t commits, checkpoints, laps;
	/* snapshots; the lock protects the places and counts */
	bool snaps;
	pthread_mutex_t lock;
	struct snap {
		struct snapshot *s; /* NULL: free */
		unsigned users;
		uint8_t *model;
	} snap[SNAPSHOTS];
	uint64_t rnd, saved_blks, taken[2], ended, fails;
	_Atomic uint64_t snap_reads, refused;
};

struct reader {
	struct lapped *r;
	pthread_t thread;
	uint64_t rnd;
	uint32_t seen[BLKS];
	uint64_t *buf;
};

static void complain(struct lapped *r, const char *what, uint64_t blk, uint64_t got)
{
	race_fail(&r->race, "%s: block %llu, %#llx", what, (unsigned long long)blk,
		  (unsigned long long)got);
}

/* ---- the card: only the readers' threads are slow ---- */

static _Thread_local uint64_t slow;

static int slow_read(struct card *c, uint64_t off_bytes, void *buf, size_t len_bytes)
{
	struct lapped *r = (struct lapped *)c;

	if (slow && off_bytes >= blk_to_bytes(BLKS))
		r->from_log++;
	if (slow && rnd_of(&slow, 2))
		usleep((useconds_t)rnd_of(&slow, 4000));
	return card_read(r->sim, off_bytes, buf, len_bytes);
}

static int pass_write(struct card *c, uint64_t off_bytes, const void *buf, size_t len_bytes)
{
	return card_write(((struct lapped *)c)->sim, off_bytes, buf, len_bytes);
}

static int pass_flush(struct card *c)
{
	return card_flush(((struct lapped *)c)->sim);
}

static int pass_writable(struct card *c, bool writable)
{
	return card_set_writable(((struct lapped *)c)->sim, writable);
}

static const struct card_ops slow_ops = {
	.read = slow_read, .write = pass_write, .flush = pass_flush, .set_writable = pass_writable
};

/* ---- readers, writer ---- */

static void check_block(struct reader *rd, uint64_t blk, const uint64_t *words)
{
	uint32_t oldest = UINT32_MAX;

	for (unsigned i = 0; i < WORDS; i++) {
		if (words[i] && words[i] >> 32 != blk + 1)
			complain(rd->r, "another block's content", blk, words[i]);
		if ((uint32_t)words[i] < oldest)
			oldest = (uint32_t)words[i];
	}
	if (oldest < rd->seen[blk])
		complain(rd->r, "older than before", blk, oldest);
	rd->seen[blk] = oldest;
}

static void read_snapshot(struct reader *rd, uint64_t blk, uint64_t blks)
{
	struct lapped *r = rd->r;
	struct snap *p = &r->snap[rnd_of(&rd->rnd, SNAPSHOTS)];
	uint64_t skip = rnd_of(&rd->rnd, COW_BLK_BYTES), off = blk_to_bytes(blk) + skip,
		 len = blk_to_bytes(blks) - skip;
	bool there;
	int e;

	pthread_mutex_lock(&r->lock);
	there = p->s;
	p->users += there;
	pthread_mutex_unlock(&r->lock);
	if (!there)
		return;
	e = snapshot_read(p->s, off, rd->buf, len);
	if (e < 0 && !(e == -EIO && snapshot_ended(p->s)))
		complain(r, "snapshot", blk, (uint64_t)-e);
	else if (e == 0 && memcmp(rd->buf, p->model + off, len))
		complain(r, "a snapshot has changed", blk, blks);
	r->snap_reads += e == 0;
	r->refused += e < 0;
	pthread_mutex_lock(&r->lock);
	p->users--;
	pthread_mutex_unlock(&r->lock);
}

static void *reader(void *arg)
{
	struct reader *rd = arg;

	slow = rd->rnd;
	while (!rd->r->race.stop) {
		uint64_t blks = 1 + rnd_of(&rd->rnd, READ_BLKS),
			 blk = rnd_of(&rd->rnd, BLKS - blks + 1);
		int r = view_read(rd->r->v, blk_to_bytes(blk), rd->buf, blk_to_bytes(blks));

		if (r < 0)
			complain(rd->r, "read", blk, (uint64_t)-r);
		for (uint64_t i = 0; i < blks && !rd->r->race.failed; i++)
			check_block(rd, blk + i, rd->buf + i * WORDS);
		rd->r->reads++;
		if (rd->r->snaps)
			read_snapshot(rd, blk, blks);
	}
	return NULL;
}

static void *writer(void *arg)
{
	struct lapped *r = arg;
	uint64_t *block = io_alloc(COW_BLK_BYTES), x = 88172645463325252u;

	/* one writer: versions only grow */
	for (uint32_t version = 1; !r->race.stop; version++) {
		struct generation_stats active, below;
		uint64_t blk = rnd_of(&x, BLKS);
		int e;

		/* no more than the ring can hold */
		for (view_dirty(r->v, &active, &below);
		     active.data_blks + (r->snaps ? below.data_blks : 0) >= MAX_DIRTY &&
		     !r->race.stop;
		     view_dirty(r->v, &active, &below))
			usleep(100);
		for (unsigned i = 0; i < WORDS; i++)
			block[i] = (blk + 1) << 32 | version;
		e = view_write(r->v, blk_to_bytes(blk), block, COW_BLK_BYTES);
		if (e < 0)
			complain(r, "write", blk, (uint64_t)-e);
		r->writes++;
		usleep(5);
	}
	free(block);
	return NULL;
}

/* ---- the commit thread, as volume/commit_thread.c ---- */

static bool src_next(void *ctx, uint64_t *blk, uint64_t max_blks, uint64_t *ret_blks,
		     enum blk_state *ret_state)
{
	return view_next_sealed(((struct lapped *)ctx)->v, blk, max_blks, ret_blks, ret_state);
}

static int src_sealed(void *ctx, uint64_t blk, uint64_t blks, void *buf)
{
	return view_read_sealed(((struct lapped *)ctx)->v, blk, blks, buf);
}

static int src_committed(void *ctx, uint64_t blk, uint64_t blks, void *buf)
{
	return view_read_committed(((struct lapped *)ctx)->v, blk, blks, buf);
}

static void publish(void *ctx, struct log_index *ix)
{
	view_set_index(((struct lapped *)ctx)->v, ix);
}

static void commit_once(struct lapped *r)
{
	const struct commit_source src = { .ctx = r,
					   .volume_blks = BLKS,
					   .next = src_next,
					   .read_sealed = src_sealed,
					   .read_committed = src_committed };
	const struct commit_options opt = { .cause = CAUSE_TIMER };
	uint64_t at = log_newest(r->log)->lblk;
	struct commit_report rep;
	struct log_index *ix;
	int e = view_seal(r->v);

	if (e == 0)
		e = view_check_sealed(r->v);
	if (e == 0)
		e = commit_run(r->log, &r->card, &src, &opt, publish, r, &rep, &ix);
	if (e < 0) {
		complain(r, "commit", 0, (uint64_t)-e);
		return;
	}
	view_release(r->v, ix);
	r->commits++;
	r->checkpoints += rep.checkpoint > 0;
	r->laps += log_newest(r->log)->lblk < at;
}

/* ---- snapshots, as volume/snapshots.c and view_job.c ---- */

static void save(void *ctx, struct card *c, uint64_t off_bytes, size_t len_bytes)
{
	struct lapped *r = ctx;

	for (struct snap *p = r->snap; p < r->snap + SNAPSHOTS; p++) {
		/* now and then RAM is full */
		uint64_t blks, room = rnd_of(&r->rnd, 400) ? UINT64_MAX : 0;

		if (!p->s)
			continue;
		if (snapshot_save(p->s, c, off_bytes, len_bytes, room, &blks) < 0) {
			snapshot_end(p->s);
			r->ended++;
		}
		r->saved_blks += blks;
	}
}

static void compare_new(struct lapped *r, const struct snap *p, struct snapshot *s)
{
	uint8_t *seen = io_alloc(blk_to_bytes(BLKS));
	int e = snapshot_read(s, 0, seen, blk_to_bytes(BLKS));

	if (e < 0 || memcmp(seen, p->model, blk_to_bytes(BLKS)))
		complain(r, "a new snapshot differs", 0, (uint64_t)-e);
	free(seen);
}

/* Takes a snapshot into this place. One of now leaves a layer that the volume shares. */
static void take(struct lapped *r, struct snap *p)
{
	bool committed = rnd_of(&r->rnd, 2);
	struct snapshot *s = NULL;
	struct layers *l;
	int e = committed ? view_read_committed(r->v, 0, BLKS, p->model) : view_seal(r->v);

	if (e == 0 && !committed)
		e = view_read_sealed(r->v, 0, BLKS, p->model);
	if (e == 0 && !committed)
		e = view_fail(r->v);
	if (e == 0)
		e = view_copy_layers(r->v, committed, SNAPSHOT_ROOM, &l);
	if (e == 0)
		e = snapshot_new(&s, r->store, l, BLKS, UINT64_MAX);
	if (e < 0) {
		complain(r, "take", 0, (uint64_t)-e);
		return;
	}
	compare_new(r, p, s);
	r->taken[committed]++;
	pthread_mutex_lock(&r->lock);
	p->s = s;
	pthread_mutex_unlock(&r->lock);
}

static void change_snapshots(struct lapped *r)
{
	struct snap *p = &r->snap[rnd_of(&r->rnd, SNAPSHOTS)];
	struct snapshot *s = NULL;

	pthread_mutex_lock(&r->lock);
	if (p->s && !p->users) {
		s = p->s;
		p->s = NULL;
	}
	pthread_mutex_unlock(&r->lock);
	snapshot_unref(s);
	if (!p->s)
		take(r, p);
	if (rnd_of(&r->rnd, 4) == 0 && view_seal(r->v) == 0) {
		if (view_fail(r->v) < 0)
			complain(r, "view_fail", 0, 0);
		r->fails++;
	}
}

/* ---- all together ---- */

static void make_card(struct lapped *r)
{
	const struct sim_params params = { .size_bytes = blk_to_bytes(BLKS) +
							 (SEGS + 4) * SEG_BYTES,
					   .erase_block_bytes = SEG_BYTES };
	struct log_open_report opened;
	struct log_super super;
	uint64_t missing;

	assert_int_equal(sim_new(&r->sim, &params), 0);
	r->card.ops = &slow_ops;
	r->card.geo = r->sim->geo;
	assert_int_equal(super_plan(&r->card, &r->card, blk_to_bytes(BLKS), SEGS * SEG_BYTES,
				    &super, &missing),
			 0);
	assert_int_equal(card_set_writable(&r->card, true), 0);
	assert_int_equal(super_write(&r->card, &super), 0);
	assert_int_equal(card_set_writable(&r->card, false), 0);
	assert_int_equal(log_open(&r->log, &r->card, &r->card, &super, 0, NULL, &opened), 0);
}

static void race(bool snaps)
{
	const char *ms = getenv("COWFS_STRESS_MS");
	struct lapped *r = calloc(1, sizeof(*r));
	struct reader rd[READERS] = { 0 };
	pthread_t w;
	struct log_index *ix;
	uint64_t end_ns;

	make_card(r);
	r->snaps = snaps;
	r->rnd = 0x9e3779b97f4a7c15;
	pthread_mutex_init(&r->lock, NULL);
	for (unsigned i = 0; i < SNAPSHOTS; i++)
		r->snap[i].model = io_alloc(blk_to_bytes(BLKS));
	r->card.before_write = snaps ? save : NULL;
	r->card.before_write_ctx = r;
	ix = log_index_of(r->log);
	assert_int_equal(ram_store_open(&r->store, 64 * MIB), 0);
	assert_int_equal(view_new(&r->v, r->store, &r->card, BLKS, ix), 0);
	log_index_unref(ix);
	for (unsigned i = 0; i < READERS; i++) {
		rd[i] = (struct reader){ .r = r,
					 .rnd = 0x2545f4914f6cdd1d + i,
					 .buf = io_alloc(blk_to_bytes(READ_BLKS)) };
		assert_int_equal(pthread_create(&rd[i].thread, NULL, reader, &rd[i]), 0);
	}
	assert_int_equal(pthread_create(&w, NULL, writer, r), 0);
	end_ns = now_ns() + (ms ? strtoull(ms, NULL, 0) : 3000) * 1000000;
	while ((now_ns() < end_ns || r->checkpoints < 3 || r->laps < 1 || r->from_log < 100 ||
		(snaps && (r->taken[0] < 5 || r->taken[1] < 5 || r->saved_blks < 100 ||
			   r->snap_reads < 100))) &&
	       !r->race.stop) {
		if (snaps)
			change_snapshots(r);
		commit_once(r);
	}
	r->race.stop = true;
	pthread_join(w, NULL);
	for (unsigned i = 0; i < READERS; i++) {
		pthread_join(rd[i].thread, NULL);
		free(rd[i].buf);
	}
	print_message(
		"%llu writes, %llu reads (%llu pieces from the ring), %llu commits, %llu checkpoints, %llu laps\n",
		(unsigned long long)r->writes, (unsigned long long)r->reads,
		(unsigned long long)r->from_log, (unsigned long long)r->commits,
		(unsigned long long)r->checkpoints, (unsigned long long)r->laps);
	assert_false(r->race.failed);
	if (snaps)
		print_message(
			"%llu snapshots of now, %llu committed, %llu ended, %llu reads of them, "
			"%llu refused, %llu blocks saved\n",
			(unsigned long long)r->taken[0], (unsigned long long)r->taken[1],
			(unsigned long long)r->ended, (unsigned long long)r->snap_reads,
			(unsigned long long)r->refused, (unsigned long long)r->saved_blks);
	for (unsigned i = 0; i < SNAPSHOTS; i++) {
		snapshot_unref(r->snap[i].s);
		free(r->snap[i].model);
	}
	pthread_mutex_destroy(&r->lock);
	view_free(r->v);
	log_close(r->log);
	ram_store_close(r->store);
	card_close(r->sim);
	free(r);
}

TEST(delayed_readers)
{
	race(false);
}

TEST(delayed_readers_of_snapshots)
{
	race(true);
}

/* ---- spilled blocks are overwritten while a snapshot reads them; RAM that does not suffice ---- */

enum { SPILL_BLK = 3, SPILL_BLKS = 2, SPILL_AT = 30 };

static struct card *new_card(uint64_t blks)
{
	const struct sim_params params = { .size_bytes = blk_to_bytes(blks),
					   .erase_block_bytes = SEG_BYTES };
	struct card *c;

	assert_int_equal(sim_new(&c, &params), 0);
	assert_int_equal(card_set_writable(c, true), 0);
	return c;
}

static struct log_index *index_with_spill(struct card *base, const uint8_t *data)
{
	struct log_index *empty = log_index_empty(), *ix;
	uint32_t crc[SPILL_BLKS];
	struct index_entry e = { .kind = INDEX_SPILL,
				 .blk = SPILL_BLK,
				 .blks = SPILL_BLKS,
				 .lblk = SPILL_AT,
				 .crc = crc };

	for (unsigned i = 0; i < SPILL_BLKS; i++)
		crc[i] = crc32c_back(data + blk_to_bytes(i), COW_BLK_BYTES);
	assert_int_equal(log_index_overlay(&ix, empty, &e, 1, base, base, 0), 0);
	log_index_unref(empty);
	return ix;
}

static struct snapshot *committed(struct view *v, struct ram_store *store)
{
	struct snapshot *s;
	struct layers *l;

	assert_int_equal(view_copy_layers(v, true, SNAPSHOT_ROOM, &l), 0);
	assert_int_equal(snapshot_new(&s, store, l, BLKS, UINT64_MAX), 0);
	return s;
}

TEST(spill_and_lack_of_ram)
{
	const uint64_t len = blk_to_bytes(SPILL_BLKS), off = blk_to_bytes(SPILL_BLK),
		       at = blk_to_bytes(SPILL_AT);
	struct card *base = new_card(BLKS);
	uint8_t *data = io_alloc(len), *buf = io_alloc(len);
	struct snapshot *kept, *poor;
	struct ram_store *store;
	struct log_index *ix;
	struct view *v;
	uint64_t blks;

	memset(data, 0x5a, len);
	assert_int_equal(card_write(base, at, data, len), 0);
	ix = index_with_spill(base, data);
	assert_int_equal(ram_store_open(&store, 8 * MIB), 0);
	assert_int_equal(view_new(&v, store, base, BLKS, ix), 0);
	kept = committed(v, store);
	poor = committed(v, store);

	assert_int_equal(snapshot_save(kept, base, at, len, UINT64_MAX, &blks), 0);
	assert_int_equal(blks, 2 * SPILL_BLKS); /* and what the volume has there */
	assert_int_equal(snapshot_save(poor, base, at, len, 1, &blks), -ENOSPC);
	snapshot_end(poor);
	memset(buf, 0xff, len);
	assert_int_equal(card_write(base, at, buf, len), 0);
	assert_int_equal(snapshot_read(kept, off, buf, len), 0);
	assert_memory_equal(buf, data, len);
	assert_int_equal(snapshot_read(poor, off, buf, len), -EIO);
	assert_int_equal(snapshot_read(kept, blk_to_bytes(BLKS), buf, 1), -EINVAL);

	/* home: what is forgotten, and what is saved already, is not saved */
	assert_int_equal(snapshot_forget(kept, 10, 5), 0);
	assert_int_equal(snapshot_save(kept, base, 0, blk_to_bytes(20), UINT64_MAX, &blks), 0);
	assert_int_equal(blks, 20 - 5 - SPILL_BLKS);
	assert_int_equal(snapshot_save(kept, base, 0, blk_to_bytes(20), UINT64_MAX, &blks), 0);
	assert_int_equal(blks, 0);
	assert_int_equal(ram_store_used_bytes(store), 2 * len); /* zeroes are holes */
	snapshot_end(kept);
	assert_int_equal(ram_store_used_bytes(store), 0);
	snapshot_unref(kept);
	snapshot_unref(poor);
	view_free(v);
	log_index_unref(ix);
	ram_store_close(store);
	card_close(base);
	free(data);
	free(buf);
}
