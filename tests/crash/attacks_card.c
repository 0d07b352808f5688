/* SPDX-License-Identifier: MIT */
/* Attacks by cards that lie about FLUSH, turn read-only or damage neighbours; and flips of every
 * byte that the log wrote. */
#include <errno.h>
#include <string.h>

#include "attacks.h"
#include "log/codec.h"

/* ---- a card that loses the last writes that it acknowledged ---- */

static void free_run(struct world *w, unsigned blk, unsigned n)
{
	while (n--)
		live_free(w, blk++);
}

static void lag_commit(struct world *w, unsigned direct)
{
	attack_commit_ok(w);
	if (w->bill.direct != direct)
		fail("%llu blocks are written in place, not %u", (unsigned long long)w->bill.direct,
		     direct);
}

/* All of it stays in use at home for a long time. The commit after the one that frees a block must
 * not write it in place. If the commit before the free wrote it in place, the second commit after
 * must not, either. */
static void lag_session(struct world *w, unsigned blk)
{
	attack_write_run(w, 2, 2);
	lag_commit(w, 0);
	attack_write_run(w, 3, 2);
	lag_commit(w, 0);
	free_run(w, blk, 4);
	lag_commit(w, 0);
	attack_write_run(w, blk, 2);
	lag_commit(w, 0);
	attack_write_run(w, blk + 2, 2);
	lag_commit(w, 2);
	free_run(w, blk + 2, 2);
	lag_commit(w, 0);
	attack_write_run(w, 5, 2);
	lag_commit(w, 0);
	attack_write_run(w, blk + 2, 1);
	lag_commit(w, 0);
	attack_write_run(w, blk + 3, 1);
	lag_commit(w, 1);
	at.step++;
	attack_expect(world_checkpoint(w, RECORD_TAIL, 0) == 0, "checkpoint");
	/* the freed ring is used again */
	for (unsigned i = 0; i < 4; i++) {
		attack_write_run(w, 2 + i, 9);
		lag_commit(w, 0);
	}
}

static void lag(void)
{
	static const unsigned lies[] = { 1, 2, LIE_RECORDS };

	for (uint64_t seed = 0; seed < 2 * ARRAY_SIZE(lies); seed++) {
		struct shape s = { .blks = 32,
				   .full = true,
				   .lag = 1,
				   .lie = lies[seed % 3],
				   .external = seed / 3,
				   .segs = 8 };
		struct world w;

		attack_start(&w, &s, seed);
		lag_session(&w, 16);
		world_close(&w); /* power stays on: the next session reads the cache, too */
		world_open(&w);
		live_revert(&w);
		attack_write_run(&w, 5, 3);
		attack_commit_ok(&w);
		world_crash(&w);
		lag_session(&w, 22);
		at.step++;
		attack_expect(world_checkpoint(&w, RECORD_RETIRED, RECORD_CLEAN) == 0, "recovery");
		world_free(&w);
	}
}

/* ---- read-only from some operation on ---- */

/* From the n-th write on all writes are refused; reads succeed. */
static bool readonly_one(uint64_t n, int error)
{
	struct shape s = PLAIN;
	struct image before;
	struct world w;
	bool hit;
	int r;

	attack_start(&w, &s, n);
	w.mute = true;
	attack_write_run(&w, 2, 5);
	attack_commit_ok(&w);
	attack_write_run(&w, 4, 4);
	before = w.n;
	w.armed = true;
	sim_fail_at(w.c.base, SIM_WRITE | SIM_FLUSH, n, error, true);
	r = world_commit(&w); /* disarms */
	hit = r < 0;
	if (hit && r != error)
		fail("%s instead of %s", strerror(-r), strerror(-error));
	if (hit) {
		sim_fail_at(w.c.base, SIM_WRITE | SIM_FLUSH, 1, error, true);
		w.armed = true;
		attack_expect(world_commit(&w) == error, "a commit on a read-only card");
		sim_fail_at(w.c.base, SIM_WRITE | SIM_FLUSH, 1, error, true);
		/* the next attach only reads */
		w.live = before;
		world_close(&w);
		world_open(&w);
		attack_expect(w.rep.state <= LOG_FELL_BACK,
			      "no generation on a card that turned read-only");
	}
	world_disarm(&w);
	world_free(&w);
	return hit;
}

static void readonly(void)
{
	for (uint64_t n = 1; readonly_one(n, -EIO); n++)
		;
	for (uint64_t n = 1; readonly_one(n, -EROFS); n++)
		attack_expect(n < 100, "it never ends");
}

/* ---- a card whose erase blocks close ---- */

/* Commits that are checkpointed at once begin erase blocks of the ring, until it has wrapped; some of the checkpoints
 * fail, and some sessions end by a cut. */
static void all_home(void)
{
	uint64_t before = total.fresh;
	struct world w;

	for (uint64_t seed = 0; seed < 4 * SEEDS; seed++) {
		const struct shape s = { .blks = 32,
					 .full = seed % 3,
					 .segs = 12,
					 .segs_per_eb = 1 + seed % 2,
					 .plan = 1 + seed / 2 % 2,
					 .lag = seed / 4 % 2 };

		attack_start(&w, &s, seed);
		for (unsigned i = 0; i < 8; i++) {
			at.step++;
			attack_write_run(&w, 1 + (unsigned)rnd_below(&w, 16), 2 + i);
			attack_expect(world_commit_as(&w,
						      &(struct commit_options){
							      .cause = CAUSE_DETACH,
							      .checkpoint_asked = true }) == 0,
				      "commit");
			if (seed & 8 && i % 3 == 1) {
				world_fail_at(&w, SIM_WRITE | SIM_FLUSH, 1 + (seed + i) % 7, false);
				(void)!world_checkpoint(&w, RECORD_TAIL, RECORD_CLEAN);
			}
			if (i % 4 != 2)
				attack_expect(world_checkpoint(&w, RECORD_TAIL, RECORD_CLEAN) == 0,
					      "checkpoint");
			if (seed & 16 && i % 2) {
				world_crash(&w);
			} else if (i % 4 != 2) {
				world_close(&w);
				world_open(&w);
			}
		}
		world_free(&w);
	}
	attack_expect(total.fresh >= before + 4 * SEEDS, "hardly any group begins an erase block");
}

/* ---- damage ---- */

enum spot { SPOT_HEAD, SPOT_PAYLOAD, SPOT_DESC, SPOT_RECORD, SPOT_DIRECT, SPOT_SUPER };

/* Is the flipped byte noticed? Restores it. */
static bool noticed(struct world *w, enum spot spot, struct card *c, uint64_t off_bytes)
{
	static _Alignas(4096) uint8_t blk[COW_BLK_BYTES];
	uint64_t blk_off = off_bytes / COW_BLK_BYTES * COW_BLK_BYTES;
	struct log_open_report rep = { 0 };
	struct log_super super;
	struct log_head head;
	unsigned trouble = 0;
	struct log *l;
	bool seen;
	uint8_t b;
	int r;

	if (sim_peek(c, off_bytes, &b, 1) < 0 ||
	    sim_poke(c, off_bytes, &(uint8_t){ b ^ (uint8_t)(1 << off_bytes % 8) }, 1) < 0)
		fail("peek and poke");
	r = super_read(c, blk_to_bytes(w->shape.blks), &super, &trouble);
	if (spot == SPOT_SUPER) {
		seen = r == 0 && trouble == SUPER_COPY_A_BAD;
	} else if (spot == SPOT_HEAD) {
		seen = sim_peek(c, blk_off, blk, sizeof(blk)) == 0 &&
		       codec_get_head(blk, super.ring_uuid, &head) < 0;
	} else {
		if (r < 0 || log_open(&l, c, c, &super, 0, NULL, &rep) < 0)
			fail("open");
		seen = rep.state == LOG_BROKEN || rep.passed_seq ||
		       rep.newest.seq < log_newest(w->log)->seq;
		log_close(l);
	}
	if (sim_poke(c, off_bytes, &b, 1) < 0)
		fail("poke");
	return seen;
}

/* One bit of every byte of one block of each kind. */
static void every_byte(void)
{
	struct cards c;
	struct world w;
	uint64_t off[SPOT_SUPER + 1], ring;
	const struct log_record *n;

	attack_start(&w, &PLAIN, 1);
	w.mute = true;
	live_free(&w, 18);
	attack_commit_ok(&w);
	attack_write_run(&w, 4, 1);
	attack_write_run(&w, 18, 1);
	attack_commit_ok(&w);
	attack_expect(w.bill.direct == 1, "direct block");
	n = log_newest(w.log);
	ring = log_super(w.log)->ring_off_bytes;
	off[SPOT_HEAD] = ring + blk_to_bytes(n->lblk / 16 * 16);
	off[SPOT_PAYLOAD] = ring + blk_to_bytes(n->start_lblk);
	off[SPOT_DESC] = ring + blk_to_bytes(n->desc_lblk);
	off[SPOT_RECORD] = ring + blk_to_bytes(n->lblk);
	off[SPOT_DIRECT] = blk_to_bytes(18);
	off[SPOT_SUPER] = blk_to_bytes(w.shape.blks);
	cards_clone(&c, &w.c);
	for (unsigned s = 0; s <= SPOT_SUPER; s++)
		for (uint64_t i = 0; i < COW_BLK_BYTES; i += thin) {
			at.variant = i;
			at.cut = s;
			total.images++;
			attack_expect(noticed(&w, (enum spot)s, c.base, off[s] + i),
				      "a flipped bit is not noticed");
		}
	cards_close(&c);
	world_free(&w);
}

const struct attack card_attacks[] = {
	{ "lag",
	  "lag 1, and the card loses its last FLUSHes, or all since the record before the last",
	  lag },
	{ "read-only", "the card refuses all writes from one operation on", readonly },
	{ "all-home",
	  "payload and tail record begin erase blocks; cuts, failures, and the next lap of the ring",
	  all_home },
	{ "every-byte",
	  "a bit of each byte of head, payload, descriptor, record, direct block, superblock of the log",
	  every_byte },
};
const unsigned n_card_attacks = ARRAY_SIZE(card_attacks);
