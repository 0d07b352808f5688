/* SPDX-License-Identifier: MIT */
/*
 * Named attacks: each aims at one rule of the log (docs/FORMAT.md), and fails when that rule is
 * switched off. This file has those on records, the ring and spilled payload. Cuts and oracle are
 * those of the workloads.
 */
#include <errno.h>
#include <string.h>

#include "attacks.h"
#include "log/codec.h"

const struct shape PLAIN = { .blks = 24, .full = true };
static const struct shape LONG = { .blks = 24, .full = true, .segs = 24 };

void attack_expect(bool ok, const char *what)
{
	if (!ok)
		fail("%s", what);
}

void attack_start(struct world *w, const struct shape *s, uint64_t seed)
{
	at.seed = seed;
	at.cut = at.variant = 0;
	at.step++;
	world_new(w, s, seed * 7919);
}

void attack_commit_ok(struct world *w)
{
	at.step++;
	attack_expect(world_commit(w) == 0, "a commit failed");
}

/* Writes blocks [blk, blk + n), which are used: they are logged. */
void attack_write_run(struct world *w, unsigned blk, unsigned n)
{
	while (n--)
		live_write(w, blk++, 1 + (unsigned)rnd_below(w, CONTENTS - 1));
}

/* Fills the ring until the next commit of one block would need a checkpoint. */
void attack_fill(struct world *w)
{
	for (int i = 0; log_room_blks(w->log) >= 4 && i < 100; i++) {
		attack_write_run(w, 1 + (unsigned)rnd_below(w, 20), 1);
		attack_commit_ok(w);
	}
}

/* ---- the promises of records ---- */

static void revoked(void)
{
	struct world w;

	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		attack_start(&w, &PLAIN, seed);
		attack_write_run(&w, 4, 4);
		attack_commit_ok(&w);
		live_free(&w, 5);
		live_free(&w, 6);
		attack_commit_ok(&w);
		attack_write_run(&w, 5, 2);
		attack_commit_ok(&w);
		attack_expect(w.bill.direct == 2,
			      "blocks that were freed are not written in place");
		if (seed % 2)
			world_cut(&w, NULL, NULL);
		attack_expect(world_checkpoint(&w, RECORD_TAIL, 0) == 0, "the checkpoint failed");
		world_free(&w);
	}
}

static uint64_t ring_records(struct world *w, uint64_t *ret_same_seq)
{
	static uint64_t seqs[4096];
	static uint8_t blk[COW_BLK_BYTES];
	const struct log_super *s = log_super(w->log);
	uint64_t n = 0;

	*ret_same_seq = 0;
	for (uint64_t i = 0; i < (uint64_t)s->seg_count * s->seg_bytes / COW_BLK_BYTES; i++) {
		struct log_record rec;

		if (sim_peek(w->c.log, s->ring_off_bytes + blk_to_bytes(i), blk, sizeof(blk)) < 0)
			fail("peek");
		if (codec_get_record(blk, s->ring_uuid, &rec) < 0)
			continue;
		for (uint64_t k = 0; k < n; k++)
			if (seqs[k] == rec.seq)
				*ret_same_seq = rec.seq;
		seqs[n++] = rec.seq;
	}
	return n;
}

void attack_rot(struct world *w, struct card *c, uint64_t off_bytes)
{
	uint8_t b;

	off_bytes += rnd_below(w, 64);
	if (sim_peek(c, off_bytes, &b, 1) < 0)
		fail("peek");
	b ^= (uint8_t)(1 + rnd_below(w, 255));
	if (sim_poke(c, off_bytes, &b, 1) < 0)
		fail("poke");
}

/* A commit whose n-th flush fails. */
void attack_failing_commit(struct world *w, unsigned flush)
{
	at.step++;
	world_fail_at(w, SIM_FLUSH, flush, false);
	attack_expect(world_commit(w) < 0, "a commit whose flush failed returned 0");
}

static void chain(void)
{
	struct world w;

	for (uint64_t seed = 0; seed < 4 * SEEDS; seed++) {
		uint64_t epoch;

		attack_start(&w, &PLAIN, seed);
		live_free(&w, 9);
		live_free(&w, 10);
		attack_write_run(&w, 3, 3);
		attack_commit_ok(&w);
		epoch = log_newest(w.log)->epoch;
		attack_write_run(&w, 4, 1 + seed % 4);
		if (seed & 1)
			attack_write_run(&w, 9, 2);
		attack_failing_commit(&w, 2 - (seed & 2) / 2);
		attack_write_run(&w, 4, 1 + seed / 4 % 4);
		if (seed & 2)
			attack_write_run(&w, 10, 1);
		attack_commit_ok(&w);
		attack_expect(log_newest(w.log)->epoch >> 32 > epoch >> 32,
			      "no open record after a failed attempt");
		world_crash(&w);
		attack_write_run(&w, 2, 5);
		attack_commit_ok(&w);
		world_free(&w);
	}
}

static void sequence(void)
{
	struct world w;
	uint64_t same;

	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		attack_start(&w, &PLAIN, seed);
		attack_write_run(&w, 3, 3);
		attack_commit_ok(&w);
		attack_write_run(&w, 3, 6);
		attack_failing_commit(&w, 2);
		attack_write_run(&w, 3, 2);
		attack_commit_ok(&w);
		if (world_crash(&w)) {
			attack_write_run(&w, 8, 2);
			attack_commit_ok(&w);
		}
		ring_records(&w, &same);
		attack_expect(!same, "two records have one sequence number");
		world_free(&w);
	}
}

/* The newest record is whole, but its payload is not: recovery skips it, and its number is not used
 * again. */
static void rejected(void)
{
	struct world w;
	uint64_t same;

	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		struct image old;

		attack_start(&w, &PLAIN, seed);
		attack_write_run(&w, 3, 3);
		attack_commit_ok(&w);
		old = w.n;
		attack_write_run(&w, 3, 6);
		attack_commit_ok(&w);
		attack_rot(&w, w.c.log,
			   log_super(w.log)->ring_off_bytes +
				   blk_to_bytes(log_newest(w.log)->start_lblk));
		w.tried[w.n_tried++] = old;
		world_cut(&w, NULL, NULL);
		attack_expect(w.rep.state == LOG_FELL_BACK, "damaged payload is not noticed");
		attack_write_run(&w, 3, 1 + seed % 4);
		attack_commit_ok(&w);
		ring_records(&w, &same);
		attack_expect(!same, "two records have one sequence number");
		attack_write_run(&w, 2, 2);
		attack_commit_ok(&w);
		world_free(&w);
	}
}

/*
 * One block of a resting card rots. An attach reads back the payload of the newest generation. The
 * result is the previous generation, or a broken log, or an error; never wrong content.
 */
static void rotten(void)
{
	struct world w;

	for (uint64_t seed = 0; seed < 4; seed++) {
		struct image before;
		struct cards good;
		uint64_t ring, blks;

		attack_start(&w, &PLAIN, seed);
		w.mute = true;
		for (unsigned b = 16; b < 22; b++)
			live_free(&w, b);
		attack_commit_ok(&w);
		attack_expect(seed % 2 || world_checkpoint(&w, RECORD_TAIL, 0) == 0, "checkpoint");
		attack_write_run(&w, 3, 3);
		attack_commit_ok(&w);
		before = w.n;
		attack_write_run(&w, 4, 3);
		live_write(&w, 9, 0);
		attack_write_run(&w, 16, 6);
		attack_commit_ok(&w);
		attack_expect(w.bill.direct == 6, "direct blocks");
		ring = log_super(w.log)->ring_off_bytes;
		blks = (uint64_t)log_super(w.log)->seg_count * log_super(w.log)->seg_bytes /
		       COW_BLK_BYTES;
		w.tried[w.n_tried++] = before;
		w.rotten = true;
		cards_clone(&good, &w.c);
		for (uint64_t i = 0; i < blks + 6; i++) {
			struct cards c;

			at.variant++;
			cards_clone(&c, &good);
			attack_rot(&w, c.log,
				   i < blks ? ring + blk_to_bytes(i) : blk_to_bytes(16 + i - blks));
			judge(&w, &c);
		}
		w.rotten = false;
		cards_close(&good);
		world_free(&w);
	}
}

static void same_after_doubt(void)
{
	struct world w;

	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		attack_start(&w, &PLAIN, seed);
		attack_write_run(&w, 3, 3);
		attack_commit_ok(&w);
		attack_write_run(&w, 2, 4);
		attack_failing_commit(&w, 1 + seed % 2);
		/* back to the content of the last good commit */
		for (unsigned b = 2; b < 6; b++)
			live_write(&w, b, w.n.content[b]);
		attack_write_run(&w, 8, 1);
		attack_commit_ok(&w);
		attack_expect(w.bill.skipped_same == 0,
			      "a block is taken for the same after a failed attempt");
		live_write(&w, 3, w.n.content[3]);
		attack_commit_ok(&w);
		attack_expect(w.bill.skipped_same == 1, "an unchanged block is written");
		world_free(&w);
	}
}

/* A checkpoint must not take what they read for the zeros that are to be there. */
static void trimmed(void)
{
	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		struct world w;

		attack_start(&w, &PLAIN, seed);
		for (unsigned round = 0; round < 3; round++) {
			for (unsigned b = 3; b < 9; b++)
				live_free(&w, b);
			attack_commit_ok(&w);
			world_trim(&w);
			for (unsigned b = 3; b < 6; b++)
				live_punch(&w, b);
			live_write(&w, 6, 0);
			attack_write_run(&w, 7, 2);
			attack_commit_ok(&w);
			attack_expect(world_checkpoint(&w, RECORD_TAIL, 0) == 0, "checkpoint");
		}
		attack_expect(log_ledger(w.log)->trims == 3, "nothing was trimmed");
		world_free(&w);
	}
}

/* Zeros that are already home are not written, except after a failure: they may be only in the
 * card's cache. */
static void zeros_home(void)
{
	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		bool fails = seed % 2;
		struct world w;
		uint64_t before;

		attack_start(&w, &PLAIN, seed);
		for (unsigned round = 0; round < 3; round++) {
			for (unsigned b = 3; b < 9; b++)
				live_punch(&w, b);
			if (round == 0)
				attack_write_run(&w, 5, 1);
			attack_commit_ok(&w);
			attack_expect(w.bill.zero == (round ? 6 : 5) && !w.bill.skipped_same,
				      "holes are not zero records");
			before = log_ledger(w.log)->checkpoint_blks;
			if (round == 2 && fails)
				world_fail_at(&w, SIM_FLUSH, 2, false);
			attack_expect((world_checkpoint(&w, RECORD_TAIL, 0) < 0) ==
					      (round == 2 && fails),
				      "checkpoint");
			before = log_ledger(w.log)->checkpoint_blks - before;
			/* the superblock is the last block, where the checkpoint comes to its end */
			attack_expect(round == 0 ? before >= 6
						 : before == 3 - round - (round == 2 && fails),
				      "zeros that are home are written, or others are not");
		}
		if (fails) {
			before = log_ledger(w.log)->checkpoint_blks;
			attack_expect(world_checkpoint(&w, RECORD_TAIL, 0) == 0,
				      "the second checkpoint failed");
			attack_expect(log_ledger(w.log)->checkpoint_blks - before == 7,
				      "zeros are trusted after a failure");
		}
		world_free(&w);
	}
}

/* ---- the ring ---- */

/* Everything is checkpointed, but no durable record says so: the ring of the old generations must
 * stay. The ring is longer than the buffer for one write, so that something is written. */
static void reuse_early(void)
{
	static _Alignas(4096) uint8_t data[COW_BLK_BYTES];
	struct world w;

	for (uint64_t seed = 0; seed < 4; seed++) {
		struct log_index *ix;
		unsigned n = 0;
		int r;

		attack_start(&w, &LONG, seed);
		w.mute = true;
		attack_fill(&w);
		w.mute = false;
		attack_expect(card_set_writable(w.c.log, true) == 0 && log_prepare(w.log) == 0,
			      "prepare");
		attack_expect(log_checkpoint(w.log, NULL, NULL, NULL, &ix) == 0, "checkpoint");
		log_index_unref(w.index);
		w.index = ix;
		attack_expect(log_begin(w.log) == 0, "begin");
		do {
			memcpy(data, content_of(1 + n % 100), sizeof(data));
			r = log_add_logged(w.log, n % w.shape.blks, 1, data);
		} while (r == 0 && n++ < 400);
		attack_expect(r == -ENOSPC, "the ring has no end");
		cut_here(&w);
		log_abort(w.log);
		attack_expect(card_set_writable(w.c.log, false) == 0, "read-only");
		attack_write_run(&w, 1, 4);
		attack_commit_ok(&w);
		world_free(&w);
	}
}

static void wrap(void)
{
	struct world w;

	for (uint64_t seed = 0; seed < 2; seed++) {
		uint64_t before = total.wraps;
		struct shape s = PLAIN;

		s.segs_per_eb = 1 + seed % 2;
		attack_start(&w, &s, seed);
		for (unsigned i = 0; i < 400 && total.wraps < before + 4; i++) {
			attack_write_run(&w, 1 + (unsigned)rnd_below(&w, 16),
					 1 + (unsigned)rnd_below(&w, 1 + i % 7));
			attack_commit_ok(&w);
			if (i % 50 == 49)
				world_crash(&w);
		}
		attack_expect(total.wraps >= before + 3, "the ring does not wrap");
		world_free(&w);
	}
}

static void too_big(void)
{
	struct shape s = { .blks = 64, .no_classifier = true };
	struct world w;
	uint64_t ops;

	attack_start(&w, &s, 1);
	attack_write_run(&w, 0, 20);
	attack_commit_ok(&w);
	ops = world_ops(&w);
	attack_write_run(&w, 0, 64);
	w.expect = -EFBIG;
	(void)!world_commit(&w);
	attack_expect(w.bill.need_blks > 64 && w.bill.room_blks &&
			      w.bill.room_blks < w.bill.need_blks,
		      "no numbers");
	attack_expect(world_ops(&w) == ops, "a commit that is too big writes");
	w.expect = 0;
	world_cut(&w, NULL, NULL);
	/* as large as possible, twice: a checkpoint comes in between */
	for (unsigned i = 0; i < 3; i++) {
		attack_write_run(&w, 2 * i, (unsigned)log_capacity_blks(w.log) - 2);
		attack_commit_ok(&w);
		attack_expect(i == 0 || w.bill.checkpoint, "no checkpoint made room");
	}
	world_free(&w);
}

/*
 * Payload in free blocks belongs to a durable generation until a durable tail record releases it,
 * although the file system calls these blocks free. Before that, no commit may write them in place,
 * whatever fails.
 */
static void spill(void)
{
	static const unsigned kinds[] = { 0, SIM_READ, SIM_WRITE, SIM_FLUSH };
	struct shape s = { .blks = 64, .full = true };
	struct world w;

	for (uint64_t seed = 0; seed < 2 * 12 * ARRAY_SIZE(kinds); seed++) {
		unsigned kind = kinds[seed % 4];

		s.external = seed / 4 % 2;
		s.marked = seed / 8 % 2;
		attack_start(&w, &s, seed);
		w.mute = true;
		for (unsigned b = 44; b < 64; b++)
			live_free(&w, b);
		attack_commit_ok(&w);
		w.mute = seed >= 2;
		attack_write_run(&w, 1, 43);
		attack_commit_ok(&w);
		attack_expect(w.bill.spilled > 0, "nothing is spilled");
		w.mute = false;
		if (kind) {
			/* everything is home, then the record that says so fails: or an earlier or
			 * later operation */
			at.step++;
			world_fail_at(&w, kind, 1 + seed / 8, false);
			(void)!world_checkpoint(&w, RECORD_TAIL, 0);
		} else if (seed % 3) {
			world_crash(&w);
		}
		/* the free blocks become used, and are written in place */
		attack_write_run(&w, 44, 64 - 44);
		attack_commit_ok(&w);
		world_crash(&w);
		w.mute = true;
		attack_write_run(&w, 3, 4);
		attack_commit_ok(&w);
		world_free(&w);
	}
}

const struct attack attacks[] = {
	{ "revoke", "block logged in N, free in N+1, written in place in N+2", revoked },
	{ "chain", "record reached the card although its flush failed; then other content", chain },
	{ "sequence", "a sequence number used again after a failed record", sequence },
	{ "rejected", "newest record whole, its payload damaged", rejected },
	{ "rotten", "one block of a resting card rots", rotten },
	{ "same-after-doubt", "content compared after a failed attempt", same_after_doubt },
	{ "trimmed", "blocks that were trimmed become holes, zeros and content", trimmed },
	{ "zeros-home", "zeros already home are not written, but after a failure", zeros_home },
	{ "reuse-early", "ring reused before the record with the new tail is durable",
	  reuse_early },
	{ "wrap", "ring wraps over a live generation and over records of the last lap", wrap },
	{ "too-big", "a commit that the ring cannot hold", too_big },
	{ "spill", "payload in free blocks, which the next commit wants for its own", spill },
	{ "paths", "commits of paths take blocks that the live image still has", attack_paths },
	{ "undone", "a commit of paths fails, and the next one has nothing to write",
	  attack_undone },
	{ "loader", "a boot loader changes its environment block on the card after each cut",
	  attack_loader },
	{ "unguard", "the last write of a session, that of the superblock, is cut or not",
	  attack_unguard },
	{ "hold",
	  "a generation is held while its blocks are freed and written; ended, or gone back to",
	  attack_hold },
	{ "hold-full", "a generation is held until the log is full", attack_hold_full },
	{ "half-checkpoint", "checkpoint cut half way, then more commits", attack_half_checkpoint },
	{ "stopped-checkpoint", "checkpoint stopped between units, then more commits",
	  attack_stopped_checkpoint },
	{ "stopped-super", "a part of a checkpoint writes home a superblock that takes no guard",
	  attack_stopped_super },
	{ "stopped-full", "parts of checkpoints until the ring is full", attack_stopped_full },
	{ "begin", "checkpoint cut half way, and the newest record rots", attack_begin },
	{ "failed-checkpoint", "checkpoint fails, the next commit lies before its remains",
	  attack_failed_checkpoint },
	{ "cut-checkpoints", "a hundred cuts in a row in the checkpoint of a full ring",
	  attack_cut_checkpoints },
	{ "recover", "offline recovery cut anywhere, again and again", attack_recover },
	{ "measured", "free room of the ring is overwritten by a measurement", attack_measured },
	{ "restart", "record in the card's cache only, cowfs starts anew, then a cut",
	  attack_restart },
	{ "ends",
	  "a session ends by an error in each request of each job, and so does the next one",
	  attack_ends },
	{ "swapped", "another card in the slot", attack_swapped },
	{ "away", "cards go away at every request of every job, and come back", attack_away },
	{ "eio",
	  "every read, write and flush of a commit and a checkpoint fails, once and for ever",
	  attack_eio },
};
const unsigned n_attacks = ARRAY_SIZE(attacks);
