/* SPDX-License-Identifier: MIT */
/* Attacks on checkpoints and recovery, and by cards that fail. */
#include <errno.h>
#include <string.h>

#include "attacks.h"
#include "fs/guard.h"

static enum sim_fate all_done(void *arg, size_t i)
{
	return SIM_DONE;
}

/* ---- checkpoints ---- */

void attack_half_checkpoint(void)
{
	struct world w;

	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		attack_start(&w, &PLAIN, seed);
		attack_write_run(&w, 2, 12);
		live_free(&w, 20);
		attack_commit_ok(&w);
		for (unsigned depth = 0; depth < 6; depth++) {
			at.step++;
			cards_close(&w.kept);
			w.kept_of = 0;
			attack_expect(world_checkpoint(&w, depth % 2 ? RECORD_TAIL : RECORD_RETIRED,
						       0) == 0,
				      "checkpoint");
			world_crash(&w);
			live_write(&w, 20, 1 + (unsigned)rnd_below(&w, 500));
			attack_write_run(&w, 4 + depth, 3);
			attack_commit_ok(&w);
			if (depth % 3 == 2)
				world_crash(&w);
			live_free(&w, 20);
			attack_commit_ok(&w);
		}
		world_free(&w);
	}
}

/* A hold fails in its superblock: nothing but that is left to write. */
static void fail_hold_and_end(struct world *w, uint64_t seed)
{
	world_fail_at(w, SIM_WRITE, 1 + seed % 2, false);
	attack_expect(world_hold(w) == -EIO, "hold");
	world_disarm(w);
	attack_expect(world_checkpoint(w, RECORD_TAIL, RECORD_CLEAN) == 0, "checkpoint");
}

/* The end of a session is cut; the next ones write nothing but that end. No write of the superblock is
 * forgotten, or counted twice (world_open). */
void attack_unguard(void)
{
	struct world w;

	for (uint64_t seed = 0; seed < 4 * SEEDS; seed++) {
		const struct shape s = {
			.blks = 24, .full = true, .external = seed / 2 % 2, .lag = seed / 4 % 2
		};

		attack_start(&w, &s, seed);
		w.mute = true;
		attack_write_run(&w, 0, 3);
		attack_commit_ok(&w);
		w.mute = seed % 3 == 0;
		for (unsigned i = 0; i < 6; i++) {
			at.step++;
			cards_close(&w.kept);
			w.kept_of = 0;
			attack_expect(world_checkpoint(&w, RECORD_TAIL, RECORD_CLEAN) == 0,
				      "checkpoint");
			if (seed % 3 == 1 && i % 2)
				fail_hold_and_end(&w, seed);
			if (seed & 8 || !world_crash(&w)) {
				world_close(&w);
				world_open(&w);
			}
			if (i % 3 == 1) {
				attack_write_run(&w, 2, 1);
				attack_commit_ok(&w);
				if (seed & 16)
					world_crash(&w);
			}
		}
		world_free(&w);
	}
}

/* A part of a checkpoint, or one that fails, writes home a first block without a file system; then it has one again. */
void attack_stopped_super(void)
{
	struct world w;

	for (uint64_t seed = 0; seed < 4 * SEEDS; seed++) {
		const struct shape s = { .blks = 48,
					 .full = true,
					 .external = seed / 2 % 2,
					 .lag = seed / 4 % 2,
					 .segs = 14 };
		int r;

		attack_start(&w, &s, seed);
		attack_write_run(&w, 0, 3);
		attack_commit_ok(&w);
		w.commits = 0;
		live_write(&w, BITMAP_BLK, 0);
		attack_write_run(&w, 40, 3);
		attack_commit_ok(&w);
		at.step++;
		if (seed & 8)
			world_fail_at(&w, SIM_FLUSH, 2, false);
		r = world_checkpoint_units(&w, RECORD_TAIL, 0, 1);
		attack_expect(r == (seed & 8 ? -EIO : -EINTR), "the checkpoint did not stop");
		attack_write_run(&w, 0, 1);
		attack_commit_ok(&w);
		attack_expect(world_checkpoint(&w, RECORD_TAIL, 0) == 0, "checkpoint");
		attack_write_run(&w, 2, 3);
		attack_commit_ok(&w);
		world_crash(&w);
		attack_expect(world_checkpoint(&w, RECORD_TAIL, RECORD_CLEAN) == 0, "checkpoint");
		world_free(&w);
	}
}

/* A checkpoint is stopped after each unit. In between commits log blocks again that are home, free
 * them, and write them in place. No block is written home twice for one commit. */
void attack_stopped_checkpoint(void)
{
	struct world w;

	for (uint64_t seed = 0; seed < 4 * SEEDS; seed++) {
		const struct shape s = {
			.blks = 64, .full = true, .segs = 24, .lag = seed % 2, .plan = seed / 2 % 4
		};
		uint64_t home, logged;

		attack_start(&w, &s, seed);
		attack_write_run(&w, 1, 14);
		attack_write_run(&w, 30, 6);
		attack_write_run(&w, 50, 6);
		attack_commit_ok(&w);
		at.step++;
		logged = log_index_data_blks(w.index);
		home = log_ledger(w.log)->checkpoint_blks;
		attack_expect(world_checkpoint_units(&w, RECORD_TAIL, 0, 1) == -EINTR,
			      "the checkpoint did not stop");
		if (seed & 4) {
			live_free(&w, 3);
			attack_write_run(&w, 5, 1 + seed / 8 % 2);
			attack_commit_ok(&w);
		}
		if (seed & 8) {
			live_write(&w, 3, 1 + (unsigned)rnd_below(&w, 500));
			attack_commit_ok(&w);
		}
		if (seed & 16) {
			attack_write_run(&w, 33, 2);
			attack_failing_commit(&w, 1 + seed / 2 % 2);
		}
		if (seed & 32)
			world_crash(&w);
		at.step++;
		(void)!world_checkpoint_units(&w, RECORD_TAIL, 0, 1);
		attack_expect(world_checkpoint(&w, RECORD_TAIL, 0) == 0, "checkpoint");
		home = log_ledger(w.log)->checkpoint_blks - home;
		attack_expect(seed & 60 || home == logged, "a block was written home twice");
		world_free(&w);
	}
}

/* Every commit is followed by a part of a checkpoint, whose first record takes a segment, until the
 * ring is full and a commit needs all of it. */
void attack_stopped_full(void)
{
	struct world w;

	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		const struct shape s = { .blks = 64, .full = true, .lag = seed % 2 };

		attack_start(&w, &s, seed);
		if (seed & 2)
			attack_fill(&w);
		for (unsigned i = 0; i < 24; i++) {
			attack_write_run(&w, 1 + i % 8, 1);
			attack_write_run(&w, 20 + i % 8, 1);
			attack_write_run(&w, 40 + i % 8, seed & 4 ? 6 : 1);
			attack_commit_ok(&w);
			at.step++;
			attack_expect(world_checkpoint_units(&w, RECORD_TAIL, 0, 1) == -EINTR,
				      "the checkpoint did not stop");
			if (seed & 8 && i % 8 == 7)
				world_crash(&w);
		}
		attack_expect(world_checkpoint(&w, RECORD_TAIL, 0) == 0, "checkpoint");
		world_free(&w);
	}
}

/* The copy of the record that begins a checkpoint lies in the next segment, the next commit in this
 * one. */
void attack_failed_checkpoint(void)
{
	struct world w;

	for (uint64_t seed = 0; seed < 4 * SEEDS; seed++) {
		attack_start(&w, &PLAIN, seed);
		attack_write_run(&w, 2, 3);
		attack_commit_ok(&w);
		at.step++;
		world_fail_at(&w, seed & 1 ? SIM_FLUSH : SIM_WRITE | SIM_FLUSH, 1 + seed / 2 % 5,
			      false);
		(void)!world_checkpoint(&w, seed & 4 ? RECORD_RETIRED : RECORD_TAIL, RECORD_CLEAN);
		attack_write_run(&w, 3, 1);
		attack_commit_ok(&w);
		world_cut(&w, NULL, NULL);
		world_free(&w);
	}
}

/* One power cut after the other in the checkpoint of a full ring: the log must not use up its own
 * room. */
void attack_cut_checkpoints(void)
{
	struct world w;

	for (unsigned per_eb = 1; per_eb <= 2; per_eb++) {
		struct shape s = PLAIN;

		s.segs_per_eb = per_eb;
		attack_start(&w, &s, per_eb);
		attack_fill(&w);
		w.mute = true;
		for (unsigned i = 0; i < 100; i++) {
			at.step++;
			world_fail_at(&w, 0, 0, false);
			/* in the home writes: after the open record if there is one, before the
			 * tail record */
			sim_cut_at(w.c.base, 4 + i % 3);
			attack_expect(world_checkpoint(&w, RECORD_TAIL, 0) < 0,
				      "the checkpoint was not cut");
			world_cut(&w, NULL, NULL);
			w.mute = i % 10;
		}
		w.mute = false;
		/* no open record follows, so the failure leaves a gap in the sequence numbers */
		for (unsigned n = 1;; n++) {
			world_fail_at(&w, SIM_WRITE | SIM_FLUSH, n, false);
			if (world_checkpoint(&w, RECORD_TAIL, 0) == 0)
				break;
			attack_expect(n < 100, "the last checkpoint failed");
		}
		world_fail_at(&w, 0, 0, false);
		attack_fill(&w);
		world_free(&w);
	}
}

static bool base_holds(struct world *w, const struct image *im)
{
	static uint8_t blk[COW_BLK_BYTES];

	for (unsigned b = 0; b < w->shape.blks; b++) {
		if (sim_peek(w->c.base, blk_to_bytes(b), blk, sizeof(blk)) < 0)
			return false;
		if (b == BITMAP_BLK)
			guard_take(blk);
		if (memcmp(blk, content_of(im->content[b]), sizeof(blk)))
			return false;
	}
	return true;
}

/*
 * A checkpoint is cut after n operations, and the newest record rots. After the first home write
 * the previous generation is gone, so a second copy of the record must exist.
 */
void attack_begin(void)
{
	unsigned tried = 0;
	struct world w;
	bool cut = true;

	for (uint64_t n = 1; cut; n++) {
		struct image old;
		uint64_t record;

		attack_start(&w, &PLAIN, n);
		old = w.n;
		attack_write_run(&w, 2, 5);
		attack_write_run(&w, 9, 5);
		attack_commit_ok(&w);
		record = log_super(w.log)->ring_off_bytes + blk_to_bytes(log_newest(w.log)->lblk);
		at.step++;
		world_fail_at(&w, 0, 0, false);
		sim_cut_at(w.c.base, n);
		cut = world_checkpoint(&w, RECORD_TAIL, 0) < 0;
		sim_power_cycle(w.c.base, all_done, NULL);
		if (!base_holds(&w, &old)) {
			attack_rot(&w, w.c.log, record);
			w.acked = (struct wear_ledger){ 0 }; /* the ledger was in that record */
			world_cut(&w, NULL, NULL);
			attack_write_run(&w, 4, 2);
			attack_commit_ok(&w);
			tried++;
		}
		world_free(&w);
	}
	attack_expect(tried > 2, "no home write was cut");
}

void attack_recover(void)
{
	struct world w;

	for (uint64_t seed = 0; seed < 2 * SEEDS; seed++) {
		uint64_t writes;
		unsigned runs = 0;

		attack_start(&w, &PLAIN, seed);
		attack_write_run(&w, 2, 9);
		attack_commit_ok(&w);
		attack_write_run(&w, 5, 9);
		attack_commit_ok(&w);
		do {
			at.step++;
			cards_close(&w.kept);
			w.kept_of = 0;
			attack_expect(world_checkpoint(&w, RECORD_RETIRED, RECORD_CLEAN) == 0,
				      "recovery failed");
		} while (++runs < 8 && world_crash(&w));
		attack_expect(world_checkpoint(&w, RECORD_RETIRED, RECORD_CLEAN) == 0,
			      "recovery failed");
		world_cut(&w, NULL, NULL);
		attack_expect(w.rep.state == LOG_RETIRED, "not retired after a recovery");
		world_check_base(&w, false);
		writes = world_writes(&w);
		attack_expect(world_checkpoint(&w, RECORD_RETIRED, RECORD_CLEAN) == 0 &&
				      world_writes(&w) == writes,
			      "a second recovery writes");
		world_free(&w);
	}
}

/* ---- measurements ---- */

/* As the measurement writes: any sizes and places of the room, some of it twice, a few flushes. */
static void overwrite(struct world *w, const struct log_scratch *room, unsigned writes)
{
	static _Alignas(4096) uint8_t junk[8 * COW_BLK_BYTES];
	uint64_t blks = room->bytes / COW_BLK_BYTES;

	while (writes--) {
		uint64_t n = 1 + rnd_below(w, 8), blk = rnd_below(w, blks), *p = (uint64_t *)junk;

		n = min_u64(n, blks - blk);
		for (size_t i = 0; i < sizeof(junk) / sizeof(*p); i++)
			p[i] = rnd_next(&w->rnd);
		attack_expect(card_write(w->c.log, room->off_bytes + blk_to_bytes(blk), junk,
					 blk_to_bytes(n)) == 0,
			      "a write to the room failed");
		if (rnd_below(w, 4) == 0)
			attack_expect(card_flush(w->c.log) == 0, "a flush failed");
	}
}

static void set_writable(struct world *w, bool on)
{
	attack_expect(card_set_writable(w->c.base, on) == 0 &&
			      (w->c.log == w->c.base || card_set_writable(w->c.log, on) == 0),
		      "the card cannot be switched");
}

/* 0, or the error of log_scratch_begin. The log is as offline: just opened. */
static int measure_once(struct world *w, bool is_cut)
{
	bool retired = w->rep.state == LOG_EMPTY || w->rep.state == LOG_RETIRED;
	struct log_scratch room;
	int r;

	at.step++;
	w->ended = false;
	set_writable(w, true);
	r = log_scratch_begin(w->log, rnd_below(w, 2) ? UINT64_MAX : 1, &room);
	if (r == 0) {
		uint64_t start = room.off_bytes, end = start + room.bytes;
		const struct log_super *s = log_super(w->log);

		attack_expect(room.bytes && start >= s->ring_off_bytes &&
				      end <= s->ring_off_bytes +
						      (uint64_t)s->seg_bytes * s->seg_count,
			      "the room is not in the ring");
		overwrite(w, &room, 10);
		if (!is_cut)
			r = log_scratch_end(w->log, &room, retired ? RECORD_RETIRED : RECORD_TAIL,
					    RECORD_CLEAN);
		attack_expect(r == 0, "the end of a measurement failed");
	}
	set_writable(w, false);
	cut_here(w);
	return r;
}

/* A card with any history is measured, and cut at every operation of that; twice; then it is used
 * further. */
void attack_measured(void)
{
	static const unsigned lies[] = { 0, 0, 1, LIE_RECORDS };
	unsigned measured = 0;
	struct world w;

	for (uint64_t seed = 0; seed < 2 * SEEDS; seed++) {
		struct shape s = { .blks = 40,
				   .segs_per_eb = 1 + seed / 2 % 2,
				   .external = seed / 4 % 3 == 1,
				   .lag = seed % 2,
				   .lie = seed % 2 ? lies[seed / 2 % 4] : 0 };
		unsigned commits = (unsigned)(seed / 3 % 5) * 4;

		s.segs = seed % 3 ? 24 : s.segs_per_eb * 7;
		attack_start(&w, &s, seed);
		w.mute = true;
		while (commits--) {
			attack_write_run(&w, 1 + (unsigned)rnd_below(&w, 20),
					 1 + (unsigned)rnd_below(&w, 8));
			attack_commit_ok(&w);
			if (rnd_below(&w, 4) == 0)
				attack_expect(world_checkpoint(&w, RECORD_TAIL, 0) == 0,
					      "checkpoint");
		}
		w.mute = false;
		attack_expect(world_checkpoint(&w, seed % 5 ? RECORD_TAIL : RECORD_RETIRED,
					       RECORD_CLEAN) == 0,
			      "checkpoint");
		if (seed % 7)
			world_crash(&w);
		for (unsigned i = 0; i < 3; i++) {
			w.mute = i == seed % 3;
			world_close(&w);
			world_open(&w);
			live_revert(&w);
			measured += measure_once(&w, (seed + i) % 3 == 0) == 0;
			world_close(&w);
			world_open(&w);
			live_revert(&w);
			if (seed % 4 == 0)
				world_crash(&w);
			attack_write_run(&w, 5, 1 + i * (unsigned)(seed % 6));
			attack_commit_ok(&w);
			if (log_index_data_blks(w.index) || i % 2)
				attack_expect(world_checkpoint(&w, RECORD_TAIL,
							       i % 2 ? RECORD_CLEAN : 0) == 0,
					      "checkpoint");
		}
		world_free(&w);
	}
	attack_expect(measured > SEEDS, "hardly any measurement");
}

/* ---- cards that fail, and other cards ---- */

/* The flush of the last session failed, and its record is only in the card's cache. The power stays
 * on, and cowfs starts again. */
void attack_restart(void)
{
	struct world w;

	for (uint64_t seed = 0; seed < 4 * SEEDS; seed++) {
		attack_start(&w, &PLAIN, seed);
		live_free(&w, 9);
		attack_write_run(&w, 2, 3);
		attack_commit_ok(&w);
		attack_write_run(&w, 3, 3);
		at.step++;
		if (seed & 1) {
			attack_failing_commit(&w, 2);
		} else {
			world_fail_at(&w, SIM_FLUSH, 3, false);
			(void)!world_checkpoint(&w, RECORD_TAIL, RECORD_CLEAN);
		}
		world_close(&w);
		world_open(&w);
		live_revert(&w);
		attack_write_run(&w, 9, 1);
		attack_write_run(&w, 4, 12 * (seed & 2) / 2 + 2);
		attack_commit_ok(&w);
		world_free(&w);
	}
}

void attack_swapped(void)
{
	static uint8_t blk[COW_BLK_BYTES];
	struct cards old;
	struct world w;
	uint64_t ops;

	attack_start(&w, &PLAIN, 1);
	attack_write_run(&w, 2, 3);
	attack_commit_ok(&w);
	cards_clone(&old, &w.c);
	attack_write_run(&w, 4, 3);
	attack_commit_ok(&w);
	for (uint64_t off = 0; off < w.c.base->geo.size_bytes; off += sizeof(blk))
		if (sim_peek(old.base, off, blk, sizeof(blk)) < 0 ||
		    sim_poke(w.c.base, off, blk, sizeof(blk)) < 0)
			fail("peek and poke");
	cards_close(&old);
	ops = world_ops(&w);
	attack_write_run(&w, 6, 3);
	w.mute = true;
	w.expect = -ESTALE;
	(void)!world_commit(&w);
	(void)!world_checkpoint(&w, RECORD_TAIL, 0);
	attack_expect(world_ops(&w) == ops, "another card was written to");
	world_free(&w);
}

enum sweep { SWEEP_VIRGIN, SWEEP_COMMIT, SWEEP_FULL, SWEEP_CHECKPOINT, N_SWEEPS };

/* The n-th operation of these kinds fails. false: there is no such operation. */
static bool sweep_one(enum sweep kind, unsigned ops, uint64_t n, bool forever)
{
	struct shape s = PLAIN;
	struct world w;
	int r;

	s.external = n % 2;
	attack_start(&w, &s, n);
	w.mute = true;
	if (kind != SWEEP_VIRGIN) {
		attack_write_run(&w, 2, 5);
		live_free(&w, 20);
		live_free(&w, 21);
		attack_commit_ok(&w);
	}
	if (kind == SWEEP_FULL)
		attack_fill(&w);
	w.mute = false;
	attack_write_run(&w, 4, 4);
	attack_write_run(&w, 20, 2);
	live_write(&w, 8, 0);
	at.step++;
	world_fail_at(&w, ops, n, forever);
	total.faults = 0;
	r = kind == SWEEP_CHECKPOINT ? world_checkpoint(&w, RECORD_TAIL, RECORD_CLEAN)
				     : world_commit(&w);
	if (r < 0 && r != -EIO)
		fail("the error is %s", strerror(-r));
	attack_write_run(&w, 3, 2);
	attack_commit_ok(&w);
	world_crash(&w);
	w.mute = true;
	attack_write_run(&w, 3, 2);
	attack_commit_ok(&w);
	world_cut(&w, NULL, NULL);
	world_free(&w);
	return total.faults;
}

void attack_eio(void)
{
	static const unsigned ops[] = { SIM_READ, SIM_WRITE, SIM_FLUSH,
					SIM_READ | SIM_WRITE | SIM_FLUSH };
	uint64_t faults = total.faults;

	for (unsigned kind = 0; kind < N_SWEEPS; kind++)
		for (unsigned k = 0; k < 2 * ARRAY_SIZE(ops); k++) {
			uint64_t n = 0, misses = 0;

			/* every second n has its log on another card, with fewer operations on
			 * each */
			while (misses < 2) {
				bool hit = sweep_one((enum sweep)kind, ops[k / 2], ++n, k % 2);

				misses = hit ? 0 : misses + 1;
				faults += hit;
			}
			attack_expect(n > 2, "no operation failed");
		}
	total.faults = faults;
}
