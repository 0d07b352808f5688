/* SPDX-License-Identifier: MIT */
/*
 * commit_run when its callees fail: the sealed and the committed image, the classifiers, the switch
 * between read-only and writable. Also its promises about its own work: estimates, samples, spills.
 */
#include "test.h"
#include "log/index_build.h"
#include "toy.h"

static _Alignas(COW_BLK_BYTES) uint8_t view[TOY_BLKS * COW_BLK_BYTES];

/* ---- a source that fails at its n-th answer ---- */

static struct commit_source plain; /* the callbacks behind it */
static uint64_t asked, fail_at;
static bool by_runs;

static int tick(void)
{
	return ++asked == fail_at ? -EIO : 0;
}

static int tick_sealed(void *ctx, uint64_t blk, uint64_t blks, void *buf)
{
	return tick() < 0 ? -EIO : plain.read_sealed(ctx, blk, blks, buf);
}

static int tick_committed(void *ctx, uint64_t blk, uint64_t blks, void *buf)
{
	return tick() < 0 ? -ENXIO : plain.read_committed(ctx, blk, blks, buf);
}

typedef int run_fn(void *ctx, uint64_t blk, uint64_t max_blks, enum blk_use *ret,
		   uint64_t *ret_blks);

/* one_by_one answers for one block at a time */
static int run_of(run_fn *one_by_one, void *ctx, uint64_t blk, uint64_t max_blks, enum blk_use *ret,
		  uint64_t *ret_blks)
{
	enum blk_use next;
	uint64_t n = 1, one;
	int r = tick() < 0 ? -EIO : one_by_one(ctx, blk, 1, ret, &one);

	for (; by_runs && r == 0 && n < max_blks; n++) {
		r = one_by_one(ctx, blk + n, 1, &next, &one);
		if (next != *ret)
			break;
	}
	*ret_blks = n;
	return r;
}

static int tick_run_sealed(void *ctx, uint64_t blk, uint64_t max_blks, enum blk_use *ret,
			   uint64_t *ret_blks)
{
	return run_of(plain.run_sealed, ctx, blk, max_blks, ret, ret_blks);
}

static int tick_run_committed(void *ctx, uint64_t blk, uint64_t max_blks, enum blk_use *ret,
			      uint64_t *ret_blks)
{
	return run_of(plain.run_committed, ctx, blk, max_blks, ret, ret_blks);
}

static struct commit_source ticking(void)
{
	struct commit_source s = plain;

	s.read_sealed = tick_sealed;
	s.read_committed = tick_committed;
	s.run_sealed = tick_run_sealed;
	s.run_committed = tick_run_committed;
	asked = 0;
	return s;
}

/* As toy_commit, from this source. */
static int commit_from(struct toy *t, const struct commit_source *src, bool dry_run,
		       struct commit_report *bill)
{
	const struct commit_options opt = { .cause = CAUSE_MANUAL, .dry_run = dry_run };
	struct log_index *ix = NULL;
	int r = commit_run(t->log, t->base, src, &opt, toy_publish, t, bill, &ix);

	if (r < 0 || dry_run) {
		assert_null(ix);
		return r;
	}
	if (ix)
		toy_publish(t, ix);
	t->n = t->live;
	memset(t->dirty, 0, sizeof(t->dirty));
	return 0;
}

static void toy_new(struct toy *t, bool external)
{
	toy_format(t, external);
	assert_int_equal(toy_open(t, 0), 0);
}

static void assert_shows_n(struct toy *t)
{
	assert_int_equal(toy_view(t, view), 0);
	assert_int_equal(toy_differs(&t->n, view), -1);
}

static void assert_locked(const struct toy *t)
{
	assert_false(t->card->writable || t->base->writable);
}

/* ---- changes ---- */

/* One of each kind: in place, logged, zero, free again. */
static void some_changes(struct toy *t)
{
	for (unsigned b = 4; b < 12; b++)
		toy_write(t, b, (uint16_t)(500 + b));
	toy_write(t, 13, 0);
	toy_write(t, 40, t->n.content[40]); /* the same again */
	toy_drop(t, 44);
	toy_write(t, 46, 1);
	toy_drop(t, 46);
}

/* A part of the volume free, and then more than the ring can hold. */
static void many_changes(struct toy *t)
{
	for (unsigned b = 76; b < TOY_BLKS; b++)
		toy_drop(t, b);
	toy_write(t, 4, 499);
	assert_int_equal(toy_commit(t), 0);
	for (unsigned b = 4; b < 76; b++)
		if (t->n.use[b] == USE_USED)
			toy_write(t, b, (uint16_t)(600 + b));
}

/* Each answer fails once: nothing is committed, nothing stays writable, and the same commit
 * succeeds directly after. */
static void each_answer_fails(void (*changes)(struct toy *t))
{
	struct commit_report bill;
	struct commit_source src;
	struct toy t;
	int r = -EIO;

	for (fail_at = 1; r < 0; fail_at++) {
		uint64_t seq, n = fail_at;

		toy_new(&t, false);
		plain = toy_source(&t);
		changes(&t);
		seq = t.rep.newest.seq;
		src = ticking();
		r = commit_from(&t, &src, false, &bill);
		assert_true(r == 0 ? asked < fail_at : r == -EIO || r == -ENXIO);
		assert_locked(&t);
		assert_shows_n(&t);
		if (r < 0) {
			fail_at = 0;
			src = ticking();
			assert_int_equal(commit_from(&t, &src, false, &bill), 0);
			assert_shows_n(&t);
			fail_at = n;
		}
		toy_close(&t);
		assert_int_equal(toy_open(&t, 0), 0);
		assert_true(t.rep.newest.seq > seq);
		assert_shows_n(&t);
		toy_free(&t);
	}
	assert_true(fail_at > 4);
	fail_at = 0;
}

TEST(test_answers_fail)
{
	for (int runs = 0; runs < 2; runs++) {
		by_runs = runs;
		each_answer_fails(some_changes);
		each_answer_fails(many_changes);
	}
	by_runs = false;
}

/* ---- writable or not ---- */

static const struct card_ops *real;
static struct card_ops stuck_ops;
static const struct card *stuck_card;
static bool stuck_for; /* set_writable(stuck_for) fails */

static int stuck_set_writable(struct card *c, bool writable)
{
	return c == stuck_card && writable == stuck_for ? -EACCES : real->set_writable(c, writable);
}

static void stick(struct toy *t, const struct card *c, bool writable)
{
	if (!real) {
		real = t->card->ops;
		stuck_ops = *real;
		stuck_ops.set_writable = stuck_set_writable;
	}
	t->card->ops = t->base->ops = &stuck_ops;
	stuck_card = c;
	stuck_for = writable;
}

TEST(test_locks_stuck)
{
	const struct commit_options opt = { .cause = CAUSE_MANUAL };
	uint64_t before, blks;
	struct toy t;

	toy_new(&t, true);
	/* cannot be made writable: no attempt, and the other card is read-only again */
	for (int i = 0; i < 2; i++) {
		stick(&t, i ? t.card : t.base, true);
		before = sim_ops(t.card) + sim_ops(t.base);
		some_changes(&t);
		toy_write(&t, 4, (uint16_t)(700 + i));
		assert_int_equal(toy_commit(&t), -EACCES);
		assert_locked(&t);
		assert_false(log_doubt(t.log));
		assert_int_equal(sim_ops(t.card) + sim_ops(t.base), before);
		stick(&t, NULL, true);
		assert_int_equal(toy_commit(&t), 0);
		stick(&t, i ? t.card : t.base, true);
		before = sim_ops(t.card) + sim_ops(t.base);
		assert_int_equal(toy_checkpoint(&t, RECORD_RETIRED, RECORD_CLEAN), -EACCES);
		assert_locked(&t);
		assert_int_equal(sim_ops(t.card) + sim_ops(t.base), before);
	}
	/* cannot be made read-only again: the commit stands, and a checkpoint reports the error */
	stick(&t, t.card, false);
	toy_write(&t, 4, 777);
	assert_int_equal(toy_commit(&t), 0);
	assert_true(t.card->writable && !t.base->writable);
	assert_shows_n(&t);
	assert_int_equal(
		commit_checkpoint(t.log, t.base, &opt, toy_publish, &t, RECORD_TAIL, &blks),
		-EACCES);
	assert_shows_n(&t);
	/* the base stays writable: the log's card does not */
	assert_int_equal(real->set_writable(t.card, false), 0);
	t.card->writable = false;
	stick(&t, t.base, false);
	toy_write(&t, 4, 778);
	assert_int_equal(toy_commit(&t), 0);
	assert_true(t.base->writable && !t.card->writable);
	stick(&t, NULL, false);
	toy_free(&t);
}

/* ---- estimates ---- */

/* The commit does what the dry run estimates; the dry run writes nothing. */
static void assert_price(struct toy *t)
{
	uint64_t before = sim_ops(t->card);
	struct commit_report dry, bill;

	plain = toy_source(t);
	assert_int_equal(commit_from(t, &plain, true, &dry), 0);
	assert_int_equal(sim_ops(t->card), before);
	assert_int_equal(commit_from(t, &plain, false, &bill), 0);
	assert_int_equal(dry.dirty, bill.dirty);
	assert_int_equal(dry.direct, bill.direct);
	assert_int_equal(dry.logged, bill.logged);
	assert_int_equal(dry.zero, bill.zero);
	assert_int_equal(dry.skipped_same, bill.skipped_same);
	assert_int_equal(dry.skipped_free, bill.skipped_free);
	assert_int_equal(dry.erase_blocks, bill.erase_blocks);
	assert_int_equal(dry.estimate, bill.written_bytes > 0);
	/* an estimate; for large amounts it is close */
	assert_true(dry.written_bytes + 8 * COW_BLK_BYTES >= bill.written_bytes);
	assert_true(dry.written_bytes <= bill.written_bytes * 2 + 8 * COW_BLK_BYTES);
	assert_true(dry.checkpoint >= bill.checkpoint || bill.checkpoint < 8);
	assert_true(!dry.checkpoint || bill.checkpoint || commit_checkpoint_due(t->log, NULL));
	assert_true(dry.spilled >= bill.spilled && dry.spilled <= dry.logged);
	assert_true(dry.erase_blocks <= dry.direct + dry.logged + dry.meta);
	assert_true(dry.write_calls <= bill.write_calls + TOY_BLKS);
	assert_shows_n(t);
}

TEST(test_dry_run)
{
	struct toy t;

	toy_new(&t, false);
	assert_price(&t); /* nothing */
	toy_write(&t, 40, t.n.content[40]);
	assert_price(&t); /* nothing new */
	toy_write(&t, 5, 0);
	assert_price(&t); /* zeroes only */
	toy_write(&t, 6, 55);
	assert_price(&t);		    /* in place only */
	for (unsigned i = 0; i < 12; i++) { /* the ring fills up: checkpoints in between */
		some_changes(&t);
		for (unsigned b = 4; b < 12; b++)
			toy_write(&t, b, (uint16_t)(500 + 32 * i + b));
		assert_price(&t);
	}
	many_changes(&t);
	assert_price(&t);
	toy_close(&t);
	assert_int_equal(toy_open(&t, 0), 0);
	toy_write(&t, 4, 800);
	assert_price(&t); /* with an open record */
	toy_free(&t);
}

/*
 * A new process on a card just formatted: its speed is unknown. A log with content: the estimate
 * includes the checkpoint that was asked for. A log at rest: there is none to pay for.
 */
TEST(test_dry_run_checkpoint)
{
	const struct commit_options opt = { .dry_run = true,
					    .checkpoint_asked = true,
					    .cause = CAUSE_MANUAL };
	struct commit_report dry;
	struct commit_source src;
	struct log_index *ix = NULL;
	uint64_t blks;
	struct toy t;

	toy_new(&t, false);
	src = toy_source(&t);
	t.card->account.written_bytes = 0;
	toy_write(&t, 4, 33);
	assert_int_equal(commit_run(t.log, t.base, &src, &opt, toy_publish, &t, &dry, &ix), 0);
	assert_true(dry.written_bytes > 0 && !dry.writable_ns);
	assert_int_equal(dry.checkpoint, 1); /* from the commit itself */
	some_changes(&t);
	toy_write(&t, 5, 0);
	assert_int_equal(toy_commit(&t), 0);
	assert_int_equal(commit_run(t.log, t.base, &src, &opt, toy_publish, &t, &dry, &ix), 0);
	assert_true(dry.estimate && dry.checkpoint > 0);
	assert_in_range(dry.home_erase_blocks, 3, dry.checkpoint + 2);
	assert_int_equal(
		commit_checkpoint(t.log, t.base, &opt, toy_publish, &t, RECORD_TAIL, &blks), 0);
	assert_int_equal(dry.checkpoint, blks);
	assert_int_equal(commit_run(t.log, t.base, &src, &opt, toy_publish, &t, &dry, &ix), 0);
	assert_true(!dry.estimate && !dry.checkpoint && !dry.written_bytes);
	toy_write(&t, 5, t.n.content[5]); /* unchanged content: nothing to write home, either */
	assert_int_equal(commit_run(t.log, t.base, &src, &opt, toy_publish, &t, &dry, &ix), 0);
	assert_true(!dry.estimate && dry.skipped_same == 1);
	assert_null(ix);
	toy_free(&t);
}

/* ---- progress ---- */

struct heard {
	bool any[PHASE_CHECKPOINT + 1];
	enum commit_phase phase;
	uint64_t done, total; /* of the latest reported phase */
};

static void hear(void *ctx, enum commit_phase phase, uint64_t done_blks, uint64_t total_blks)
{
	struct heard *h = ctx;

	assert_true(phase >= h->phase && (phase > h->phase || done_blks >= h->done));
	assert_true(phase == PHASE_CLASSIFY || done_blks <= total_blks);
	*h = (struct heard){ .any = { h->any[0], h->any[1], h->any[2], h->any[3] },
			     .phase = phase,
			     .done = done_blks,
			     .total = total_blks };
	h->any[phase] = true;
}

/* Phases come in their order, each counts upwards, and the last report says that everything is
 * done. */
TEST(test_progress)
{
	struct heard h = { 0 };
	const struct commit_options opt = { .cause = CAUSE_MANUAL,
					    .progress = hear,
					    .progress_ctx = &h };
	struct commit_report bill;
	struct commit_source src;
	struct log_index *ix = NULL;
	uint64_t blks;
	struct toy t;

	toy_new(&t, false);
	src = toy_source(&t);
	some_changes(&t);
	toy_write(&t, 6, 66);
	assert_int_equal(commit_run(t.log, t.base, &src, &opt, toy_publish, &t, &bill, &ix), 0);
	toy_publish(&t, ix);
	assert_true(h.any[PHASE_CLASSIFY] && h.any[PHASE_DIRECT] && h.any[PHASE_LOG] &&
		    !h.any[PHASE_CHECKPOINT]);
	assert_int_equal(h.total, bill.direct + bill.logged);
	assert_int_equal(h.done, h.total);
	h = (struct heard){ 0 };
	assert_int_equal(
		commit_checkpoint(t.log, t.base, &opt, toy_publish, &t, RECORD_TAIL, &blks), 0);
	assert_true(h.any[PHASE_CHECKPOINT] && !h.any[PHASE_CLASSIFY] && blks > 0);
	assert_int_equal(h.done, h.total);
	toy_free(&t);
}

/* ---- rot below a running volume ---- */

static int unread(void *ctx, uint64_t blk, uint64_t blks, void *buf)
{
	memset(buf, 0, blk_to_bytes(blks));
	return -EIO;
}

/* A block that the card cannot read is written, also with zeroes: a commit must not wait for what it replaces. */
TEST(test_old_unreadable)
{
	struct commit_report bill;
	struct commit_source src;
	struct toy t;

	toy_new(&t, false);
	src = toy_source(&t);
	src.read_committed = unread;
	toy_write(&t, 4, 900);
	toy_write(&t, 5, 0);
	toy_write(&t, 40, t.n.content[40]);
	assert_int_equal(commit_from(&t, &src, false, &bill), 0);
	assert_int_equal(bill.logged, 3);
	assert_int_equal(bill.zero + bill.skipped_same, 0);
	assert_shows_n(&t);
	toy_free(&t);
}

static void rot(struct toy *t, uint64_t lblk)
{
	uint64_t at = log_super(t->log)->ring_off_bytes + blk_to_bytes(lblk) + 77;

	assert_int_equal(sim_poke(t->card, at, "rot", 3), 0);
}

static void note_blk(void *ctx, uint64_t blk, const char *line)
{
	*(uint64_t *)ctx = blk;
}

TEST(test_rot_is_named)
{
	uint64_t blk = 0, bad;
	struct index_entry e;
	struct toy t;

	toy_new(&t, false);
	toy_write(&t, 4, 900);
	toy_write(&t, 5, 901);
	assert_int_equal(toy_commit(&t), 0);
	assert_true(log_index_extent(t.index, 0, &e) && e.blk == 4 && e.blks == 2);
	rot(&t, e.lblk + 1);
	assert_int_equal(log_verify(t.log, note_blk, &blk, &bad), 0);
	assert_true(bad == 1 && blk == 5);
	toy_free(&t);
}

/* A generation that the card has lost a part of is none to go back to. */
TEST(test_rot_of_held)
{
	struct log_index *held;
	struct index_entry e;
	struct log_hold hold;
	struct toy t;
	size_t i = 0;

	toy_tell(&t, TOY_HELD, NULL, NULL);
	held = log_hold_index(t.log);
	while (log_index_extent(held, i, &e) && e.kind != INDEX_DATA)
		i++;
	assert_true(log_index_extent(held, i, &e));
	rot(&t, e.lblk);
	assert_int_equal(commit_go_back(t.log, t.base, true), -EBADMSG);
	assert_locked(&t);
	assert_true(log_holds(t.log, &hold) && !hold.back);
	log_index_unref(held);
	toy_free(&t);
}

/* The committed content of a block that is to be compared is damaged: it is written, if the card is still this one. */
TEST(test_rot_below)
{
	const struct log_super *s;
	struct index_entry e;
	uint64_t before;
	struct toy t;

	toy_new(&t, false);
	toy_write(&t, 4, 900);
	assert_int_equal(toy_commit(&t), 0);
	s = log_super(t.log);
	assert_true(log_index_extent(t.index, 0, &e) && e.kind == INDEX_DATA && e.blk == 4);
	rot(&t, e.lblk);
	toy_write(&t, 4, 901);
	assert_int_equal(toy_commit(&t), 0);
	assert_shows_n(&t);
	/* the card in the slot is a different one: that explains it */
	assert_true(log_index_extent(t.index, 0, &e) && e.blk == 4);
	rot(&t, e.lblk);
	toy_write(&t, 4, 902);
	before = sim_ops(t.card);
	assert_int_equal(sim_poke(t.card, s->ring_off_bytes + blk_to_bytes(log_newest(t.log)->lblk),
				  "not", 3),
			 0);
	assert_int_equal(toy_commit(&t), -ESTALE);
	assert_int_equal(sim_ops(t.card), before);
	toy_free(&t);
}

/* ---- without a classifier ---- */

static bool noted[TOY_BLKS];

static int note_loose(void *ctx, uint64_t blk, uint64_t blks)
{
	memset(noted + blk, true, blks);
	return 0;
}

static int run_loose(void *ctx, uint64_t blk, uint64_t max_blks, enum blk_use *ret,
		     uint64_t *ret_blks)
{
	*ret = noted[blk] ? USE_USED : USE_FREE;
	*ret_blks = 1;
	return 0;
}

static void assert_home(struct toy *t, unsigned blk, uint16_t content)
{
	static _Alignas(COW_BLK_BYTES) uint8_t want[COW_BLK_BYTES], got[COW_BLK_BYTES];

	toy_content(content, want);
	assert_int_equal(card_read(t->base, blk_to_bytes(blk), got, sizeof(got)), 0);
	assert_memory_equal(got, want, sizeof(want));
}

/* A missing one makes all blocks used: nothing in place, no room to spill to. Nor is there any where the live file system has
 * content of its own. */
TEST(test_classifier_missing)
{
	struct commit_report bill;
	struct commit_source src;
	unsigned at;
	uint64_t before;
	struct toy t;

	for (int i = 0; i < 4; i++) {
		toy_new(&t, false);
		plain = toy_source(&t);
		many_changes(&t);
		plain.loose = i == 3;
		src = plain;
		plain.run_loose = run_loose;
		for (at = 4; t.n.use[at] != USE_FREE || t.live.use[at] != USE_FREE;)
			at++;
		memset(noted, 0, sizeof(noted));
		noted[at] = true;
		if (i == 0 || i == 2)
			src.run_sealed = NULL;
		if (i == 1 || i == 2)
			src.run_committed = NULL;
		before = sim_ops(t.card);
		assert_int_equal(commit_from(&t, &src, false, &bill), -EFBIG);
		assert_int_equal(sim_ops(t.card), before);
		assert_true(bill.need_blks > bill.room_blks && bill.room_blks > 0 && !bill.spilled);
		assert_int_equal(commit_from(&t, &plain, false, &bill), 0);
		assert_true(bill.spilled > 0);
		if (i == 3)
			assert_home(&t, at, (uint16_t)(at + 1));
		toy_free(&t);
	}
}

/*
 * The committed image leaves a gap free, but no sync came before its seal: the live file system has content there
 * that is no longer in RAM. A checkpoint before a commit that has no freeze either does not write
 * over the gap.
 */
TEST(test_gap_of_unsynced)
{
	struct flash_profile known;
	struct card_costs profile;
	const struct commit_options opt = { .cause = CAUSE_PRESSURE, .profile = &profile };
	char at_home[8] = "live";
	struct log_index *ix = NULL;
	struct commit_report bill;
	struct commit_source src;
	struct toy t;

	assert_int_equal(flash_profile_get(&known, "x-slow-4g"), 0);
	assert_int_equal(flash_profile_costs(&known, &profile), 0);
	toy_new(&t, false);
	src = toy_source(&t);
	for (unsigned b = 10; b < 40; b += 2)
		toy_drop(&t, b);
	assert_int_equal(toy_commit(&t), 0);
	for (int round = 0; round < 3; round++) {
		for (unsigned b = 11; b < 40; b += 2)
			toy_write(&t, b, (uint16_t)(700 + round * 100 + b));
		if (round < 2)
			assert_int_equal(toy_commit(&t), 0);
	}
	for (unsigned b = 10; b < 40; b += 2)
		assert_int_equal(sim_poke(t.base, blk_to_bytes(b), at_home, sizeof(at_home)), 0);
	for (unsigned b = 41; b < 60; b++)
		if (t.n.use[b] == USE_USED)
			toy_write(&t, b, (uint16_t)(600 + b));
	src.run_sealed = NULL;
	assert_int_equal(commit_run(t.log, t.base, &src, &opt, toy_publish, &t, &bill, &ix), 0);
	assert_true(bill.checkpoint > 0);
	toy_publish(&t, ix);
	assert_int_equal(toy_view(&t, view), 0);
	for (unsigned b = 12; b < 40; b += 2)
		assert_memory_equal(view + blk_to_bytes(b), at_home, sizeof(at_home));
	toy_free(&t);
}

/* ---- free blocks that the live file system uses ---- */

static struct commit_source toy_src;
static bool wrote[TOY_BLKS];

static void wrote_loose(void *ctx, uint64_t blk, uint64_t blks)
{
	for (uint64_t b = blk; b < blk + blks; b++)
		wrote[b] = true;
}

/* Free in the sealed image, with content that only the live file system knows. */
static void write_free(struct toy *t, unsigned blk)
{
	toy_write(t, blk, (uint16_t)(2000 + blk));
	t->live.use[blk] = USE_FREE;
}

static enum sim_fate done(void *arg, size_t i)
{
	return SIM_DONE;
}

/* A commit without a freeze takes every block for used. What it writes in place where its own image
 * leaves a block free is read back by an attach: no cut of the next commit may find that overwritten. */
TEST(test_free_is_read_back)
{
	struct commit_report bill;
	struct toy t;
	int r = -EIO;

	for (uint64_t n = 1; r < 0; n++) {
		toy_new(&t, false);
		toy_src = toy_source(&t);
		toy_src.run_sealed = NULL;
		toy_write(&t, 9, 1900); /* the lowest is a sample, which stays in any case */
		write_free(&t, 12);
		assert_int_equal(commit_from(&t, &toy_src, false, &bill), 0);
		assert_int_equal(bill.direct, 2);
		toy_write(&t, 12, 1901);
		sim_cut_at(t.card, n);
		r = commit_from(&t, &toy_src, false, &bill);
		toy_close(&t);
		sim_power_cycle(t.card, done, NULL);
		assert_int_equal(toy_open(&t, 0), 0);
		assert_true(t.rep.state != LOG_BROKEN && !t.rep.rejected);
		if (log_newest(t.log)->ledger.commits == 2)
			t.n = t.live;
		assert_shows_n(&t);
		toy_free(&t);
	}
}

/* Writers wait for RAM: what no generation uses goes in place, and the log knows nothing of it. */
TEST(test_loose)
{
	const struct commit_options opt = { .cause = CAUSE_PRESSURE };
	struct commit_report bill;
	struct log_index *ix = NULL;
	enum log_where where;
	struct toy t, again;

	toy_new(&t, false);
	toy_write(&t, 7, 1900);
	toy_write(&t, 8, 1901);
	assert_int_equal(toy_commit(&t), 0);
	toy_drop(&t, 7); /* its content is in the log only */
	toy_write(&t, 10, 1902);
	assert_int_equal(toy_commit(&t), 0);
	assert_int_not_equal(log_index_run(t.index, 7, 1, &where), 0);
	assert_int_equal(where, LOG_DATA);
	for (int round = 0; round < 3; round++) {
		toy_src = toy_source(&t);
		toy_src.loose = true;
		toy_src.read_loose = round ? toy_src.read_sealed : NULL;
		toy_src.note_loose = note_loose;
		toy_src.wrote_loose = wrote_loose;
		memset(wrote, 0, sizeof(wrote));
		write_free(&t, 7);
		write_free(&t, 9);
		write_free(&t, 12);
		write_free(&t, 13); /* the newest generation uses it */
		if (round < 2)
			toy_write(&t, 8, (uint16_t)(1903 + round));
		assert_int_equal(
			commit_run(t.log, t.base, &toy_src, &opt, toy_publish, &t, &bill, &ix), 0);
		toy_publish(&t, ix);
		assert_int_equal(bill.loose, round ? round < 2 ? 2 : 3 : 0);
		assert_int_equal(bill.loose + bill.skipped_free, 4);
		assert_int_equal(bill.logged, round < 2);
		for (unsigned b = 0; b < TOY_BLKS; b++)
			assert_int_equal(wrote[b],
					 round && (b == 9 || b == 12 || (round == 2 && b == 13)));
		assert_home(&t, 9, round ? 2009 : 10);
		assert_home(&t, 13, round == 2 ? 2013 : 14);
		assert_int_equal(log_index_run(t.index, 9, 1, &where), 1);
		assert_int_equal(where, LOG_HOME);
		/* the third one has that block free: then the next may write it */
		t.n = t.live;
		t.n.content[13] = 14;
		t.n.use[13] = round ? USE_FREE : USE_USED;
		t.live.use[13] = t.n.use[13];
		memset(t.dirty, 0, sizeof(t.dirty));
		toy_clone(&again, &t);
		assert_int_equal(toy_open(&again, 0), 0);
		assert_int_equal(toy_view(&again, view), 0);
		assert_int_equal(toy_differs(&t.n, view), -1);
		toy_free(&again);
	}
	assert_int_equal(log_ledger(t.log)->padded_blks, 2 + 3);
	toy_free(&t);
}

/* With lag a card may lose a part of the newest commit, and keep the next one: that is rejected if a block is lost that
 * it uses and has not written itself. */
TEST(test_loose_lag)
{
	const struct commit_options opt = { .cause = CAUSE_PRESSURE };
	static _Alignas(COW_BLK_BYTES) uint8_t old[TOY_BLKS][COW_BLK_BYTES];
	struct toy_image n;
	struct commit_report bill;
	struct log_index *ix = NULL;
	unsigned lost = 0;
	uint64_t seq;
	struct toy t, again;

	toy_tell(&t, TOY_LAG, NULL, NULL);
	/* then no record of one comes between */
	assert_int_equal(toy_checkpoint(&t, RECORD_TAIL, 0), 0);
	toy_write(&t, 8, 1900);
	assert_int_equal(toy_commit(&t), 0);
	n = t.n;
	seq = log_newest(t.log)->seq;
	for (unsigned b = 4; b < TOY_BLKS; b++) {
		assert_int_equal(card_read(t.base, blk_to_bytes(b), old[b], COW_BLK_BYTES), 0);
		if (n.use[b] == USE_FREE)
			write_free(&t, b);
	}
	toy_src = toy_source(&t);
	toy_src.run_older = toy_src.run_committed;
	toy_src.loose = true;
	toy_src.read_loose = toy_src.read_sealed;
	toy_src.note_loose = note_loose;
	toy_src.wrote_loose = wrote_loose;
	memset(wrote, 0, sizeof(wrote));
	toy_write(&t, 8, 1910);
	assert_int_equal(commit_run(t.log, t.base, &toy_src, &opt, toy_publish, &t, &bill, &ix), 0);
	toy_publish(&t, ix);
	t.n = t.live;
	memset(t.dirty, 0, sizeof(t.dirty));
	for (unsigned b = 4; b < TOY_BLKS; b++)
		if (wrote[b])
			t.live.use[b] = USE_USED;
	toy_write(&t, 8, 1911);
	assert_int_equal(toy_commit(&t), 0);
	assert_shows_n(&t);
	for (unsigned b = 4; b < TOY_BLKS; b++) {
		if (!wrote[b])
			continue;
		toy_clone(&again, &t);
		assert_int_equal(sim_poke(again.base, blk_to_bytes(b), old[b], COW_BLK_BYTES), 0);
		assert_int_equal(toy_open(&again, 0), 0);
		again.n = n;
		assert_int_equal(log_newest(again.log)->seq, seq); /* both are rejected */
		assert_shows_n(&again);
		toy_free(&again);
		lost++;
	}
	assert_true(lost > 0);
	toy_free(&t);
}
