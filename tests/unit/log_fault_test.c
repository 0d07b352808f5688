/* SPDX-License-Identifier: MIT */
/*
 * The log on a card that fails: a block that cannot be read, the n-th write or flush that fails,
 * and calls in the wrong state. After any failure the log shows a real generation, committed
 * content stays, and a call in the wrong state writes nothing.
 */
#include "test.h"
#include "log/codec.h"
#include "log/index_build.h"
#include "breaks.h"
#include "gens.h"
#include "log_toy.h"

/* ---- a card with one bad block ---- */

static const struct card_ops *real;
static struct card_ops bad_ops;
static struct {
	const struct card *card; /* NULL: none */
	uint64_t off_bytes;
	int err, alone_err; /* result of reads of it, and of reads of it alone */
	int eio;	    /* the device's error code for -EIO */
	bool heals;	    /* a write replaces it, as a card does */
} bad = { .eio = -EIO };

static int bad_read(struct card *c, uint64_t off_bytes, void *buf, size_t len_bytes)
{
	if (c == bad.card && bad.off_bytes >= off_bytes && bad.off_bytes < off_bytes + len_bytes) {
		int err = len_bytes == COW_BLK_BYTES ? bad.alone_err : bad.err;

		return err == -EIO ? bad.eio : err;
	}
	return real->read(c, off_bytes, buf, len_bytes);
}

static int bad_write(struct card *c, uint64_t off_bytes, const void *buf, size_t len_bytes)
{
	if (bad.heals && c == bad.card && bad.off_bytes >= off_bytes &&
	    bad.off_bytes < off_bytes + len_bytes)
		bad.card = NULL;
	return real->write(c, off_bytes, buf, len_bytes);
}

static void bad_block(struct toy *t, const struct card *c, uint64_t blk, int err, int alone_err)
{
	if (!real) {
		real = t->card->ops;
		bad_ops = *real;
		bad_ops.read = bad_read;
		bad_ops.write = bad_write;
	}
	t->card->ops = t->base->ops = &bad_ops;
	bad.card = c;
	bad.off_bytes = blk_to_bytes(blk);
	bad.err = err;
	bad.alone_err = alone_err;
}

/* ---- generations of a story ---- */

/* The log shows the generation that the report names, if all of it can be read. */
static void assert_generation(struct toy *t)
{
	unsigned i = n_gens;
	int r = toy_view(t, view);

	while (i && gens[i - 1].seq > t->rep.newest.seq)
		i--;
	if (r < 0)
		assert_true(r == bad.err || r == bad.alone_err);
	else if (i)
		assert_int_equal(toy_differs(&gens[i - 1].image, view), -1);
}

static void count_line(void *ctx, uint64_t blk, const char *line)
{
	assert_non_null(strstr(line, "cannot be read"));
	++*(unsigned *)ctx;
}

struct seen {
	unsigned opened, refused, broken, unreadable, lost, told, anyway, anyway_broken;
	unsigned passed, holds_lost;
};

/* What is refused has a way on that somebody has to ask for. */
static void open_anyway(struct toy *t, struct seen *n)
{
	toy_close(t);
	assert_int_equal(toy_open(t, LOG_UNREADABLE), 0);
	n->anyway++;
	n->anyway_broken += t->rep.state >= LOG_BROKEN;
	if (t->rep.state < LOG_BROKEN)
		assert_generation(t);
}

static void open_with_bad_block(struct toy *t, struct seen *n)
{
	uint64_t before = sim_ops(t->card), found;
	unsigned told = 0;
	int r = toy_open(t, 0);

	if (r < 0) {
		assert_true(r == bad.err || r == bad.alone_err);
		n->refused++;
		if (r == -EIO && bad.alone_err == -EIO)
			open_anyway(t, n);
	} else {
		n->opened++;
		n->unreadable += t->rep.unreadable_blks > 0;
		n->broken += t->rep.state == LOG_BROKEN;
		if (t->rep.lost_home_blks + t->rep.lost_log_blks) {
			n->lost++;
			assert_int_equal(t->rep.rejected, 0); /* no older generation for it */
		}
		assert_true(t->rep.unreadable_blks <= 1);
		/* no other program changed anything */
		assert_true(t->rep.state != LOG_FOREIGN && !t->rep.base_changed);
		if (t->rep.state != LOG_BROKEN)
			assert_generation(t);
		r = log_verify(t->log, count_line, &told, &found);
		assert_true(r == 0 ? found == told + (t->rep.state == LOG_BROKEN)
				   : r == bad.alone_err);
		n->told += told;
	}
	assert_int_equal(sim_ops(t->card), before);
	toy_close(t);
}

/* Each block of the cards in turn cannot be read. */
static struct seen each_block(enum toy_story story, int err, int alone_err)
{
	struct seen n = { 0 };
	struct toy origin, t;

	n_gens = 0;
	toy_tell(&origin, story, note, NULL);
	toy_close(&origin);
	toy_clone(&t, &origin);
	for (int base = 0; base <= (t.base != t.card); base++) {
		struct card *c = base ? t.base : t.card;

		for (uint64_t b = 0; b < c->geo.size_bytes / COW_BLK_BYTES; b++) {
			bad_block(&t, c, b, err, alone_err);
			open_with_bad_block(&t, &n);
		}
	}
	bad.card = NULL;
	toy_free(&t);
	toy_free(&origin);
	return n;
}

/* In the ring it counts as a page whose programming was cut, unless a durable record says that it
 * was written. */
TEST(test_bad_sector)
{
	struct seen n;

	for (int i = 0; i < 2 * TOY_STORIES; i++) {
		int story = i / 2;

		bad.eio = i % 2 ? -ENODATA : -EIO; /* USB sticks return the former */
		n = each_block((enum toy_story)story, -EIO, -EIO);
		assert_true(n.opened > n.refused);
		assert_true(story == TOY_VIRGIN || n.unreadable > 0);
		if (story == TOY_LIVE) /* the content of the newest record was durable before it */
			assert_true(n.lost > 0);
		/* blocks of the base: each record has others in its place */
		assert_int_equal(n.anyway, n.anyway_broken);
		assert_true(n.anyway <= 6);
		if (story == TOY_CHAIN) /* older payload is not read at an attach */
			assert_true(n.told > 0);
	}
	bad.eio = -EIO;
}

static void tell(void *ctx, uint64_t blk, const char *line)
{
	++*(unsigned *)ctx;
}

/* One byte of a block of the ring is damaged: at most what that block alone describes is lost, or it is named. */
static void open_rotten(struct toy *t, uint64_t off_bytes, struct seen *n)
{
	uint64_t found, lost_seq = n_gens > 1 ? gens[n_gens - 2].seq : 0;
	uint8_t byte;
	unsigned i = n_gens, told = 0;
	int r;

	assert_int_equal(sim_peek(t->card, off_bytes, &byte, 1), 0);
	byte ^= 4;
	assert_int_equal(sim_poke(t->card, off_bytes, &byte, 1), 0);
	assert_int_equal(toy_open(t, 0), 0);
	assert_true(t->rep.state < LOG_BROKEN && !t->rep.base_changed);
	assert_true(t->rep.newest.seq >= lost_seq);
	while (i && gens[i - 1].seq > t->rep.newest.seq)
		i--;
	if (t->rep.back_seq)
		i = 2; /* the held one, of TOY_BACK */
	n->holds_lost += t->rep.hold_lost;
	r = toy_view(t, view);
	if (r == 0 && i)
		assert_int_equal(toy_differs(&gens[i - 1].image, view), -1);
	if (r < 0) {
		assert_int_equal(r, -EBADMSG);
		assert_int_equal(log_verify(t->log, tell, &told, &found), 0);
		assert_int_equal(told, 1);
	}
	n->passed += t->rep.passed_seq > 0;
	toy_close(t);
	byte ^= 4;
	assert_int_equal(sim_poke(t->card, off_bytes, &byte, 1), 0);
}

TEST(test_rot)
{
	static const unsigned at[] = { 1, 50, 100, 2000 };

	static const enum toy_story stories[] = { TOY_LIVE,  TOY_RETIRED, TOY_CUT_CHECKPOINT,
						  TOY_CHAIN, TOY_HELD,	  TOY_BACK };

	for (size_t s = 0; s < ARRAY_SIZE(stories); s++) {
		struct seen n = { 0 };
		uint64_t ring;
		struct toy t;

		n_gens = 0;
		toy_tell(&t, stories[s], note, NULL);
		ring = log_super(t.log)->ring_off_bytes;
		toy_close(&t);
		for (uint64_t b = 0; b < TOY_SEGS * TOY_SEG_BLKS; b++)
			for (size_t i = 0; i < ARRAY_SIZE(at); i++)
				open_rotten(&t, ring + blk_to_bytes(b) + at[i], &n);
		assert_true(stories[s] != TOY_CHAIN || n.passed > 0);
		/* the record of the held one */
		assert_int_equal(n.holds_lost, stories[s] >= TOY_HELD ? ARRAY_SIZE(at) : 0);
		toy_free(&t);
	}
}

static void write_again(void *ctx, uint64_t blk, const char *line)
{
	toy_write(ctx, (unsigned)blk, (uint16_t)(blk ? 7000 + blk : TOY_SUPER + 1));
}

static bool give_all_up(void *ctx, uint64_t blk)
{
	++*(unsigned *)ctx;
	return true;
}

/* As release --accept lost: spilled payload has to go home before a commit, and one block of it is lost. */
static void accept_lost(struct toy *t)
{
	unsigned lost = 0;
	const struct log_content content = { .give_up = give_all_up, .give_up_ctx = &lost };
	const struct commit_options opt = { .cause = CAUSE_RECOVER, .content = &content };
	uint64_t blk, blks;

	assert_true(log_lost(t->log, &blk));
	assert_int_equal(
		commit_checkpoint(t->log, t->base, &opt, toy_publish, t, RECORD_TAIL, &blks), 0);
	assert_true(lost > 0);
}

/* No block of the card stops anything for ever: commits go on, and once lost content is written again the log is emptied. */
static void life_goes_on(struct toy *t)
{
	bool dropped;
	uint64_t found;
	int r = toy_open(t, 0);

	if (r == -EIO) {
		toy_close(t);
		r = toy_open(t, LOG_UNREADABLE);
	}
	assert_int_equal(r, 0);
	if (t->rep.state >= LOG_BROKEN)
		return;
	dropped = t->rep.rejected ||
		  t->rep.unreadable_blks; /* the live image is that of a later generation */
	assert_int_equal(log_verify(t->log, write_again, t, &found), 0);
	for (unsigned b = 4; b < TOY_BLKS; b++) {
		toy_write(t, b, (uint16_t)(7000 + b));
		if (b % 8)
			continue;
		r = toy_commit(t);
		if (r == -EIO) {
			accept_lost(t);
			r = toy_commit(t);
		}
		assert_int_equal(r, 0);
	}
	assert_int_equal(toy_commit(t), 0);
	assert_int_equal(toy_checkpoint(t, RECORD_TAIL, 0), 0);
	toy_close(t);
	assert_int_equal(toy_open(t, 0), 0);
	assert_int_equal(toy_view(t, view), 0);
	assert_true(dropped || toy_differs(&t->live, view) == -1);
}

TEST(test_life_goes_on)
{
	struct toy origin, t;

	bad.heals = true;
	for (int story = 0; story < TOY_STORIES; story++) {
		toy_tell(&origin, (enum toy_story)story, note, NULL);
		toy_close(&origin);
		for (uint64_t b = 4; b < origin.card->geo.size_bytes / COW_BLK_BYTES; b++) {
			toy_clone(&t, &origin);
			bad_block(&t, t.card, b, -EIO, -EIO);
			life_goes_on(&t);
			bad.card = NULL;
			toy_free(&t);
		}
		toy_free(&origin);
	}
	bad.heals = false;
}

/* A device that disappears returns an error; nothing is concluded from it. */
TEST(test_device_gone)
{
	struct seen n;

	for (int story = 0; story < TOY_STORIES; story++) {
		n = each_block((enum toy_story)story, -EIO, -ENXIO);
		assert_int_equal(n.unreadable + n.broken + n.told, 0);
		n = each_block((enum toy_story)story, -ENXIO, -ENXIO);
		assert_int_equal(n.unreadable + n.broken + n.told, 0);
		assert_true(story == TOY_VIRGIN || n.refused > 0);
	}
}

/* ---- the n-th write or flush fails ---- */

static unsigned failed;

/* It must fail as a whole and keep the old state, and succeed when it is repeated. */
static void again(struct toy *t, int r, int (*op)(struct toy *t))
{
	if (r == 0)
		return;
	failed++;
	assert_int_equal(r, -EIO);
	assert_false(t->card->writable || t->base->writable);
	assert_int_equal(toy_view(t, view), 0);
	assert_int_equal(toy_differs(&t->n, view), -1);
	assert_int_equal(op(t), 0);
}

static int checkpoint(struct toy *t)
{
	return toy_checkpoint(t, RECORD_TAIL, 0);
}

/* Commits of every kind on a ring that wraps: in place, logged, zero, spilled; checkpoints in
 * between. */
static void life(struct toy *t, bool lag)
{
	/* blocks that the older candidate uses are not free yet: less fits */
	unsigned some = lag ? 2 : 4, many = lag ? 12 : 60;

	for (unsigned i = 0; i < 10; i++) {
		for (unsigned k = 0; k < some + i % 3 * some; k++)
			toy_write(t, 4 + (i * 7 + k) % (TOY_BLKS - 4),
				  (uint16_t)(200 + 16 * i + k));
		toy_write(t, 6 + i * 3, (uint16_t)(205 + 16 * i));
		toy_write(t, 5, 0);
		again(t, toy_commit(t), toy_commit);
	}
	for (unsigned b = 60; b < TOY_BLKS; b++)
		toy_drop(t, b);
	toy_write(t, 4, 2999);
	again(t, toy_commit(t), toy_commit);
	for (unsigned b = 4; b < many; b++)
		if (t->n.use[b] == USE_USED)
			toy_write(t, b, (uint16_t)(3000 + b));
	again(t, toy_commit(t), toy_commit);
	again(t, checkpoint(t), checkpoint);
}

static enum sim_fate dropped(void *arg, size_t i)
{
	return SIM_DROPPED;
}

static void lag_1(struct log_super *s)
{
	s->lag = 1;
}

/* Before its first commit. */
static void set_lag(struct toy *t)
{
	assert_int_equal(toy_open(t, 0), 0);
	poke_super(t, 2, lag_1);
	toy_close(t);
}

static void each_fault(bool external, bool of_base, bool lag)
{
	unsigned before = failed + 1;
	struct toy t;

	for (uint64_t n = 1; failed != before; n++) {
		before = failed;
		toy_format(&t, external);
		if (lag)
			set_lag(&t);
		assert_int_equal(toy_open(&t, 0), 0);
		assert_int_equal(log_super(t.log)->lag, lag);
		sim_seed(t.card, n);
		sim_fail_at(of_base ? t.base : t.card, SIM_WRITE | SIM_FLUSH, n, -EIO, false);
		life(&t, lag);
		assert_true(failed <= before + 1);
		toy_close(&t);
		sim_power_cycle(t.card, dropped, NULL);
		if (external)
			sim_power_cycle(t.base, dropped, NULL);
		assert_int_equal(toy_open(&t, 0), 0);
		assert_int_equal(toy_view(&t, view), 0);
		assert_int_equal(toy_differs(&t.n, view), -1);
		toy_free(&t);
	}
}

TEST(test_each_write_fails)
{
	failed = 0;
	each_fault(false, false, false);
	assert_true(failed > 50);
	each_fault(true, false, false);
	each_fault(true, true, false);
	assert_true(failed > 150);
}

/* The same with lag 1, which writes additional empty records. */
TEST(test_each_write_fails_lag)
{
	failed = 0;
	each_fault(false, false, true);
	assert_true(failed > 80);
	each_fault(true, false, true);
	each_fault(true, true, true);
	assert_true(failed > 200);
}

/* ---- a process that dies in a commit ---- */

/* The n-th write or flush of the first attempt fails, once. The second attempt has other content and
 * ends at its m-th one: there the process dies. True: it did not get that far. */
static bool dies(uint64_t n, uint64_t m, uint64_t seed, unsigned *failed_found, unsigned *reached)
{
	struct log_mark mark = { 0 };
	struct toy_image first;
	struct toy t;
	bool done;
	int r;

	toy_begin(&t);
	log_set_mark(t.log, &mark);
	sim_seed(t.card, seed); /* decides what a failed flush loses */
	toy_commit_one(&t, 4, 100);
	assert_true(log_reached(t.log, &mark));
	assert_int_equal(mark.newest, log_newest(t.log)->seq);
	toy_write(&t, 5, 101);
	first = t.live;
	sim_fail_at(t.card, SIM_WRITE | SIM_FLUSH, n, -EIO, false);
	r = n ? toy_commit(&t) : 0;
	done = n && r == 0;
	toy_write(&t, 5, 102);
	toy_write(&t, 7, 103);
	mark.seq = 0; /* as each seal does */
	sim_fail_at(t.card, SIM_WRITE | SIM_FLUSH, m, -EIO, true);
	r = toy_commit(&t);
	done |= r == 0;
	/* the card keeps what it got */
	sim_fail_at(t.card, 0, 0, 0, false);
	toy_close(&t);
	t.mark = &mark;
	assert_int_equal(toy_open(&t, 0), 0);
	assert_int_equal(toy_view(&t, view), 0);
	assert_true(log_newest(t.log)->seq >= mark.newest);
	if (log_reached(t.log, &mark)) {
		/* only now may RAM be dropped */
		assert_int_equal(toy_differs(&t.live, view), -1);
		++*reached;
	} else {
		assert_true(r < 0);
		*failed_found += n && !done && toy_differs(&first, view) == -1;
	}
	toy_free(&t);
	return done;
}

/* The record of the attempt that failed may be on the card. It belongs to other content than what is
 * sealed when the process dies in the next attempt. */
TEST(test_mark)
{
	unsigned failed_found = 0, reached = 0;
	uint64_t m = 1;

	while (!dies(0, m, 1, &failed_found, &reached))
		m++;
	assert_true(m > 4 && reached);
	reached = 0;
	for (uint64_t n = 1; n < m; n++)
		for (uint64_t k = 1; k < 16 * m; k++)
			(void)dies(n, k % (2 * m) + 1, k, &failed_found, &reached);
	assert_true(failed_found && reached);
}

/* The payload of the newest of two commits rots in the ring after its FLUSH. */
static void rot(struct toy *t, struct log_mark *mark)
{
	struct index_entry e;
	uint64_t off;

	toy_begin(t);
	log_set_mark(t->log, mark);
	assert_int_equal(mark->sound_seq, log_newest(t->log)->seq);
	toy_commit_one(t, 4, 99);
	toy_commit_one(t, 5, 100);
	assert_int_equal(mark->sound_seq, log_newest(t->log)->seq);
	assert_int_equal(mark->sound_epoch, log_newest(t->log)->epoch);
	assert_true(log_index_extent(t->index, 1, &e));
	assert_int_equal(e.blk, 5);
	off = log_super(t->log)->ring_off_bytes + blk_to_bytes(e.lblk);
	toy_close(t);
	assert_int_equal(sim_poke(t->card, off + 100, "rot", 3), 0);
}

/* The next process reads back what the one before did not know to be durable, and nothing else. */
TEST(test_sound)
{
	struct log_mark mark = { 0 };
	struct toy t;

	rot(&t, &mark);
	t.mark = &mark;
	assert_int_equal(toy_open(&t, 0), 0);
	assert_int_equal(t.rep.rejected, 0);
	assert_int_equal(log_newest(t.log)->seq, mark.sound_seq);
	toy_close(&t);
	/* of another epoch; an older one; none, as after a power cut */
	for (unsigned i = 0; i < 3; i++) {
		mark.sound_epoch += i == 0;
		mark.sound_epoch -= i == 1;
		mark.sound_seq -= i == 1;
		t.mark = i < 2 ? &mark : NULL;
		assert_int_equal(toy_open(&t, 0), 0);
		assert_int_equal(t.rep.rejected, 1);
		assert_non_null(strstr(t.rep.why, "payload of block 5"));
		toy_close(&t);
	}
	toy_free(&t);
}

/* ---- calls in the wrong state ---- */

static void assert_no_attempt(struct toy *t, void *data)
{
	struct log_index *ix;

	assert_breaks("attempt", log_add_logged(t->log, 4, 1, data));
	assert_breaks("attempt", log_add_zero(t->log, 4, 1));
	assert_breaks("attempt", log_add_direct(t->log, 6, 1, data));
	assert_breaks("attempt", log_add_spilled(t->log, 4, 1, 6, data));
	assert_breaks("attempt", log_end(t->log, CAUSE_MANUAL, 0, &ix));
}

static void assert_too_much(struct toy *t, void *data)
{
	assert_breaks("attempt", log_add_logged(t->log, 4, 257, data));
	assert_breaks("attempt", log_add_direct(t->log, 6, 257, data));
	assert_breaks("attempt", log_add_spilled(t->log, 4, 257, 6, data));
}

TEST(test_out_of_order)
{
	_cleanup_free_ void *data = io_alloc(257 * COW_BLK_BYTES);
	struct log_index *ix;
	uint64_t before;
	struct toy t;

	toy_begin(&t);
	assert_int_equal(card_set_writable(t.card, true), 0);
	before = sim_ops(t.card);
	/* no epoch is open */
	assert_breaks("attempt begin", log_begin(t.log));
	assert_breaks("checkpoint begin", log_checkpoint(t.log, NULL, NULL, NULL, &ix));
	assert_breaks("tail begin", log_put_tail(t.log, RECORD_TAIL, 0, CAUSE_MANUAL));
	assert_no_attempt(&t, data);
	assert_int_equal(sim_ops(t.card), before);
	/* an epoch is open, and a commit is under way */
	assert_int_equal(log_prepare(t.log), 0);
	assert_no_attempt(&t, data);
	before = sim_ops(t.card);
	assert_int_equal(log_begin(t.log), 0);
	assert_breaks("attempt begin", log_begin(t.log));
	assert_breaks("checkpoint begin", log_checkpoint(t.log, NULL, NULL, NULL, &ix));
	assert_breaks("tail begin", log_put_tail(t.log, RECORD_TAIL, 0, CAUSE_MANUAL));
	assert_too_much(&t, data);
	assert_int_equal(sim_ops(t.card), before);
	log_abort(t.log);
	assert_int_equal(card_set_writable(t.card, false), 0);
	/* blocks wait: no tail may pass them */
	toy_commit_one(&t, 4, 1234);
	before = sim_ops(t.card);
	assert_breaks("tail begin", log_put_tail(t.log, RECORD_TAIL, 0, CAUSE_MANUAL));
	assert_int_equal(sim_ops(t.card), before);
	toy_free(&t);
}

/* A program that survives a broken rule: its process is a child of this one. */
static int after_broken_rule(struct toy *t)
{
	_cleanup_free_ void *buf = io_alloc(COW_BLK_BYTES);
	struct toy_image before = t->n;
	uint64_t ops;

	invariant_survive();
	if (card_set_writable(t->card, true) < 0 || log_prepare(t->log) < 0)
		return 1;
	ops = sim_ops(t->card);
	if (log_put_tail(t->log, RECORD_TAIL, 0, CAUSE_MANUAL) != -ENOTRECOVERABLE)
		return 2;
	if (card_write(t->card, 0, buf, COW_BLK_BYTES) != -ENOTRECOVERABLE ||
	    log_begin(t->log) < 0 || log_add_zero(t->log, 4, 1) < 0)
		return 3;
	log_abort(t->log);
	if (card_set_writable(t->card, false) < 0)
		return 4;
	toy_write(t, 5, 4321);
	if (toy_commit(t) != -ENOTRECOVERABLE || t->card->writable)
		return 5;
	/* committed content reads as before */
	return sim_ops(t->card) == ops && !memcmp(&before, &t->n, sizeof(before)) ? 0 : 6;
}

TEST(test_broken_rule_stops_writes)
{
	struct toy t;
	int status;
	pid_t pid;

	toy_begin(&t);
	toy_commit_one(&t, 4, 1234);
	pid = fork();
	if (!pid)
		_exit(after_broken_rule(&t));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	toy_free(&t);
}

/* A log that is set aside: nothing is written until a user decides. */
TEST(test_set_aside)
{
	struct log_index *ix;
	uint64_t before, blks;
	uint8_t blk[COW_BLK_BYTES];
	struct toy t;

	toy_tell(&t, TOY_LIVE, NULL, NULL);
	toy_close(&t);
	toy_content(TOY_SUPER + 99, blk); /* a foreign mount */
	assert_int_equal(sim_poke(t.base, 0, blk, sizeof(blk)), 0);
	toy_open_is(&t, LOG_FOREIGN);
	assert_true(t.rep.base_changed);
	assert_non_null(strstr(t.rep.why, "changed without cowfs"));
	before = sim_ops(t.card);
	assert_int_equal(card_set_writable(t.card, true), 0);
	assert_int_equal(log_prepare(t.log), -EUCLEAN);
	assert_int_equal(log_begin(t.log), -EUCLEAN);
	assert_int_equal(log_checkpoint(t.log, NULL, NULL, NULL, &ix), -EUCLEAN);
	assert_int_equal(log_put_tail(t.log, RECORD_TAIL, 0, CAUSE_MANUAL), -EUCLEAN);
	assert_int_equal(card_set_writable(t.card, false), 0);
	toy_write(&t, 4, 1234);
	assert_true(toy_commit(&t) < 0);
	assert_true(commit_checkpoint(t.log, t.base,
				      &(struct commit_options){ .cause = CAUSE_MANUAL }, NULL, NULL,
				      RECORD_TAIL, &blks) < 0);
	assert_int_equal(sim_ops(t.card), before);
	/* a completely different file system */
	toy_close(&t);
	memset(blk, 0, sizeof(blk));
	assert_int_equal(sim_poke(t.base, 0, blk, sizeof(blk)), 0);
	toy_open_is(&t, LOG_FOREIGN);
	assert_non_null(strstr(t.rep.why, "no known file system"));
	toy_free(&t);
}

/* ---- a checkpoint that is cut while it writes the marks of the base ---- */

/* The index answers only for its own blocks, and for one extent at a time. */
TEST(test_index_bounds)
{
	_cleanup_free_ uint8_t *buf = io_alloc(8 * COW_BLK_BYTES);
	struct toy t;

	toy_begin(&t);
	toy_write(&t, 4, 0);
	toy_write(&t, 10, 1000);
	toy_write(&t, 11, 1001);
	assert_int_equal(toy_commit(&t), 0);
	assert_int_equal(log_index_read(t.index, 10, 2, buf), 0);
	assert_int_equal(log_index_read(t.index, 4, 1, buf), -EINVAL);	/* zeroes have no payload */
	assert_int_equal(log_index_read(t.index, 9, 1, buf), -EINVAL);	/* before an extent */
	assert_int_equal(log_index_read(t.index, 11, 2, buf), -EINVAL); /* beyond its end */
	assert_int_equal(log_index_read(t.index, 12, 1, buf), -EINVAL); /* after the last */
	toy_free(&t);
}
