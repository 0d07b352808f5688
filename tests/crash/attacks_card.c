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
		if (r < 0 || log_open(&l, c, c, &super, 0, &rep) < 0)
			fail("open");
		seen = rep.state == LOG_BROKEN || rep.newest.seq < log_newest(w->log)->seq;
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

/* ---- a card of the old form ---- */

static uint64_t table_blks(struct world *w)
{
	const struct wear_table *t;
	uint64_t n = 0;

	log_wear_load(w->log);
	t = log_wear(w->log);
	for (uint32_t i = 0; t && i < wear_units(&t->geo); i++)
		n += t->unit[i].blks;
	return n;
}

/* A card with a history; the next commit upgrades it. */
static void old_card(struct world *w, const struct shape *s, uint64_t seed)
{
	attack_start(w, s, seed);
	w->mute = true;
	for (unsigned i = 0; i < 3 + seed % 9; i++) {
		attack_write_run(w, 2 + i, 4);
		attack_commit_ok(w);
	}
	if (seed % 3)
		attack_expect(world_checkpoint(w, seed % 3 == 1 ? RECORD_TAIL : RECORD_RETIRED,
					       RECORD_CLEAN) == 0,
			      "checkpoint");
	world_cut(w, NULL, NULL);
	attack_expect(log_super(w->log)->incompat == 0, "the card is of the new form");
}

/* The n-th write or flush of the upgrade fails, once or from then on; the session continues, and is
 * cut. */
static bool upgrade_one(const struct shape *s, uint64_t seed, uint64_t n, bool forever)
{
	uint64_t blks, losses;
	struct world w;
	bool hit;

	old_card(&w, s, seed);
	w.mute = forever || n % 4; /* in some runs, cuts at all of it */
	blks = table_blks(&w);
	losses = log_ledger(w.log)->table_losses;
	attack_write_run(&w, 5, 2);
	w.armed = true;
	sim_fail_at(w.c.base, SIM_WRITE | SIM_FLUSH, n, -EIO, forever);
	if (w.c.log != w.c.base)
		sim_fail_at(w.c.log, SIM_WRITE | SIM_FLUSH, n, -EIO, forever);
	hit = world_commit(&w) < 0; /* disarms */
	at.step++;
	if (hit)
		attack_commit_ok(&w);
	attack_expect(!log_wants_upgrade(w.log), "the first commit did not upgrade the card");
	for (unsigned i = 0; i < 4; i++) {
		attack_write_run(&w, 2 + i, 5);
		attack_commit_ok(&w);
	}
	w.shape.old_form = false;
	world_cut(&w, NULL, NULL);
	attack_expect(log_super(w.log)->incompat == LOG_INCOMPAT_ESCAPED,
		      "the card is of the old form again");
	attack_expect(log_ledger(w.log)->table_losses == losses && table_blks(&w) >= blks,
		      "a part of the wear table is lost");
	world_free(&w);
	return hit;
}

static void upgrade(void)
{
	static const struct shape shapes[] = {
		{ .blks = 24, .full = true, .old_form = true },
		{ .blks = 24, .full = true, .old_form = true, .lag = 1, .segs = 8 },
		{ .blks = 24, .full = true, .old_form = true, .external = true },
		{ .blks = 24, .full = true, .old_form = true, .segs_per_eb = 2 }
	};

	for (uint64_t seed = 0; seed < 3 * ARRAY_SIZE(shapes); seed++)
		for (unsigned forever = 0; forever < 2; forever++)
			for (uint64_t n = 1;
			     upgrade_one(&shapes[seed % ARRAY_SIZE(shapes)], seed, n, forever); n++)
				attack_expect(n < 200, "it never ends");
}

const struct attack card_attacks[] = {
	{ "lag",
	  "lag 1, and the card loses its last FLUSHes, or all since the record before the last",
	  lag },
	{ "read-only", "the card refuses all writes from one operation on", readonly },
	{ "every-byte",
	  "a bit of each byte of head, payload, descriptor, record, direct block, superblock of the log",
	  every_byte },
	{ "upgrade",
	  "a card of the old form is upgraded, and each write and flush of it fails or is cut",
	  upgrade },
};
const unsigned n_card_attacks = ARRAY_SIZE(card_attacks);
