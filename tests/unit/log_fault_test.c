/* SPDX-License-Identifier: MIT */
/*
 * The log on a card that fails: a block that cannot be read, the n-th write or flush that does not
 * come off, and calls that are not due. Whatever fails, what is shown is a generation that was;
 * what was said to be committed stays; what is not due writes nothing.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/io.h"
#include "log/codec.h"
#include "gens.h"
#include "rnd.h"

static _Alignas(COW_BLK_BYTES) uint8_t view[TOY_BLKS * COW_BLK_BYTES];

/* ---- a card with one bad block ---- */

static const struct card_ops *real;
static struct card_ops bad_ops;
static struct {
	const struct card *card; /* NULL: none */
	uint64_t off_bytes;
	int err, alone_err; /* what reads of it answer, and those of it alone */
	int eio;	    /* how the device says -EIO */
} bad = { .eio = -EIO };

static int bad_read(struct card *c, uint64_t off_bytes, void *buf, size_t len_bytes)
{
	if (c == bad.card && bad.off_bytes >= off_bytes && bad.off_bytes < off_bytes + len_bytes) {
		int err = len_bytes == COW_BLK_BYTES ? bad.alone_err : bad.err;

		return err == -EIO ? bad.eio : err;
	}
	return real->read(c, off_bytes, buf, len_bytes);
}

static void bad_block(struct toy *t, const struct card *c, uint64_t blk, int err, int alone_err)
{
	if (!real) {
		real = t->card->ops;
		bad_ops = *real;
		bad_ops.read = bad_read;
	}
	t->card->ops = t->base->ops = &bad_ops;
	bad.card = c;
	bad.off_bytes = blk_to_bytes(blk);
	bad.err = err;
	bad.alone_err = alone_err;
}

/* ---- generations of a story ---- */

/* What is shown is the generation that the report names, if all of it can be read. */
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

static void count_line(void *ctx, const char *line)
{
	assert_non_null(strstr(line, "cannot be read"));
	++*(unsigned *)ctx;
}

struct seen {
	unsigned opened, refused, broken, unreadable, told;
};

static void open_with_bad_block(struct toy *t, struct seen *n)
{
	uint64_t before = sim_ops(t->card), found;
	unsigned told = 0;
	int r = toy_open(t, 0);

	if (r < 0) {
		assert_true(r == bad.err || r == bad.alone_err);
		n->refused++;
	} else {
		n->opened++;
		n->unreadable += t->rep.unreadable_blks > 0;
		n->broken += t->rep.state == LOG_BROKEN;
		assert_true(t->rep.unreadable_blks <= 1);
		/* nobody changed anything */
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

/* Every block of the cards, one after the other, is one that cannot be read. */
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
static void test_bad_sector(void **state)
{
	struct seen n;

	(void)state;
	for (int i = 0; i < 2 * TOY_STORIES; i++) {
		int story = i / 2;

		bad.eio = i % 2 ? -ENODATA : -EIO; /* USB sticks say the former */
		n = each_block((enum toy_story)story, -EIO, -EIO);
		assert_true(n.opened > n.refused);
		assert_true(story == TOY_VIRGIN || n.unreadable > 0);
		if (story == TOY_LIVE) /* what the newest record speaks of was durable before it */
			assert_true(n.refused > 0);
		if (story == TOY_CHAIN) /* older payload is not read at an attach */
			assert_true(n.told > 0);
	}
	bad.eio = -EIO;
}

/* A device that goes away says so; nothing is concluded from that. */
static void test_device_gone(void **state)
{
	struct seen n;

	(void)state;
	for (int story = 0; story < TOY_STORIES; story++) {
		n = each_block((enum toy_story)story, -EIO, -ENXIO);
		assert_int_equal(n.unreadable + n.broken + n.told, 0);
		n = each_block((enum toy_story)story, -ENXIO, -ENXIO);
		assert_int_equal(n.unreadable + n.broken + n.told, 0);
		assert_true(story == TOY_VIRGIN || n.refused > 0);
	}
}

/* The super record changed behind everybody's back, with a right checksum. */
static void poke_super(struct toy *t, int copies, void (*change)(struct log_super *s))
{
	uint8_t blk[COW_BLK_BYTES] = { 0 };
	struct log_super s = *log_super(t->log);

	change(&s);
	codec_put_super(blk, &s);
	for (int i = 0; i < copies; i++)
		assert_int_equal(sim_poke(t->card, s.copy_off_bytes[i], blk, sizeof(blk)), 0);
}

/* ---- the n-th write or flush fails ---- */

static unsigned failed;

/* It must fail as a whole and leave what was, and be good when it is done again. */
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

/* Commits of every kind on a ring that goes round: in place, logged, zero, spilled; checkpoints on
 * the way. */
static void life(struct toy *t, bool lag)
{
	/* what the older candidate uses is not free yet: less fits */
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
	(void)arg, (void)i;
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

static void test_each_write_fails(void **state)
{
	(void)state;
	failed = 0;
	each_fault(false, false, false);
	assert_true(failed > 50);
	each_fault(true, false, false);
	each_fault(true, true, false);
	assert_true(failed > 150);
}

/* The same with lag 1, which writes empty records around all this. */
static void test_each_write_fails_lag(void **state)
{
	(void)state;
	failed = 0;
	each_fault(false, false, true);
	assert_true(failed > 80);
	each_fault(true, false, true);
	each_fault(true, true, true);
	assert_true(failed > 200);
}

/* ---- calls that are not due ---- */

static void assert_no_attempt(struct toy *t, void *data)
{
	struct log_index *ix;

	assert_int_equal(log_add_logged(t->log, 4, 1, data), -EINVAL);
	assert_int_equal(log_add_zero(t->log, 4, 1), -EINVAL);
	assert_int_equal(log_add_direct(t->log, 6, 1, data), -EINVAL);
	assert_int_equal(log_add_spilled(t->log, 4, 1, 6, data), -EINVAL);
	assert_int_equal(log_end(t->log, CAUSE_MANUAL, 0, &ix), -EINVAL);
}

static void assert_too_much(struct toy *t, void *data)
{
	assert_int_equal(log_add_logged(t->log, 4, 257, data), -EINVAL);
	assert_int_equal(log_add_direct(t->log, 6, 257, data), -EINVAL);
	assert_int_equal(log_add_spilled(t->log, 4, 257, 6, data), -EINVAL);
}

static void test_out_of_order(void **state)
{
	_cleanup_free_ void *data = io_alloc(257 * COW_BLK_BYTES);
	struct log_index *ix;
	uint64_t before;
	struct toy t;

	(void)state;
	toy_format(&t, false);
	assert_int_equal(toy_open(&t, 0), 0);
	assert_int_equal(card_set_writable(t.card, true), 0);
	before = sim_ops(t.card);
	/* no epoch is open */
	assert_int_equal(log_begin(t.log), -EINVAL);
	assert_int_equal(log_checkpoint(t.log, NULL, NULL, NULL, &ix), -EINVAL);
	assert_int_equal(log_put_tail(t.log, RECORD_TAIL, 0, CAUSE_MANUAL), -EINVAL);
	assert_no_attempt(&t, data);
	assert_int_equal(sim_ops(t.card), before);
	/* one is, and a commit is under way */
	assert_int_equal(log_prepare(t.log), 0);
	assert_no_attempt(&t, data);
	before = sim_ops(t.card);
	assert_int_equal(log_begin(t.log), 0);
	assert_int_equal(log_begin(t.log), -EINVAL);
	assert_int_equal(log_checkpoint(t.log, NULL, NULL, NULL, &ix), -EINVAL);
	assert_int_equal(log_put_tail(t.log, RECORD_TAIL, 0, CAUSE_MANUAL), -EINVAL);
	assert_too_much(&t, data);
	assert_int_equal(sim_ops(t.card), before);
	log_abort(t.log);
	assert_int_equal(card_set_writable(t.card, false), 0);
	/* blocks wait: no tail may pass them */
	toy_write(&t, 4, 1234);
	assert_int_equal(toy_commit(&t), 0);
	before = sim_ops(t.card);
	assert_int_equal(log_put_tail(t.log, RECORD_TAIL, 0, CAUSE_MANUAL), -EINVAL);
	assert_int_equal(sim_ops(t.card), before);
	toy_free(&t);
}

/* A log that is set aside: nothing at all is written until somebody says whose word counts. */
static void test_set_aside(void **state)
{
	struct log_index *ix;
	uint64_t before, blks;
	uint8_t blk[COW_BLK_BYTES];
	struct toy t;

	(void)state;
	toy_tell(&t, TOY_LIVE, NULL, NULL);
	toy_close(&t);
	toy_content(TOY_SUPER + 99, blk); /* somebody else's mount */
	assert_int_equal(sim_poke(t.base, 0, blk, sizeof(blk)), 0);
	assert_int_equal(toy_open(&t, 0), 0);
	assert_int_equal(t.rep.state, LOG_FOREIGN);
	assert_true(t.rep.base_changed);
	assert_non_null(strstr(t.rep.why, "changed by somebody else"));
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
	/* another file system altogether */
	toy_close(&t);
	memset(blk, 0, sizeof(blk));
	assert_int_equal(sim_poke(t.base, 0, blk, sizeof(blk)), 0);
	assert_int_equal(toy_open(&t, 0), 0);
	assert_int_equal(t.rep.state, LOG_FOREIGN);
	assert_non_null(strstr(t.rep.why, "no file system that cowfs knows"));
	toy_free(&t);
}

/* Everything is home, and then the device became something that is no file system: it is not taken,
 * as another file system is. */
static void test_no_file_system_any_more(void **state)
{
	static const struct {
		enum toy_story story;
		enum record_type last;
	} all[] = { { TOY_LIVE, RECORD_TAIL },
		    { TOY_LIVE, RECORD_RETIRED },
		    { TOY_CHAIN, RECORD_TAIL },
		    { TOY_LAG, RECORD_TAIL },
		    { TOY_LAG, RECORD_RETIRED } };
	uint8_t blk[COW_BLK_BYTES];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		for (int luks = 0; luks < 2; luks++) {
			uint64_t before;
			struct toy t;

			toy_tell(&t, all[i].story, NULL, NULL);
			/* all marks came home last: to the record before it they would be a
			 * checkpoint's garbage */
			for (unsigned b = 0; b < 4; b++)
				toy_write(&t, b, (uint16_t)(b < 2 ? TOY_SUPER + 50 + b : 600 + b));
			assert_int_equal(toy_commit(&t), 0);
			assert_int_equal(toy_checkpoint(&t, all[i].last, RECORD_CLEAN), 0);
			toy_close(&t);
			toy_content(TOY_SUPER + 99, blk);
			blk[1024 + 108]++; /* uuid */
			if (luks) {
				rnd_fill(blk, COW_BLK_BYTES);
				memcpy(blk, "LUKS\xba\xbe", 6);
			}
			assert_int_equal(sim_poke(t.base, 0, blk, sizeof(blk)), 0);
			rnd_fill(blk, COW_BLK_BYTES);
			for (unsigned b = 1; luks && b < 20; b++)
				assert_int_equal(
					sim_poke(t.base, blk_to_bytes(b), blk, sizeof(blk)), 0);
			before = sim_ops(t.card);
			assert_int_equal(toy_open(&t, 0), 0);
			if (!luks) {
				assert_true(t.rep.state != LOG_FOREIGN);
				toy_free(&t);
				continue;
			}
			assert_int_equal(t.rep.state, LOG_FOREIGN);
			assert_non_null(strstr(t.rep.why, "no file system that cowfs knows"));
			assert_int_equal(card_set_writable(t.card, true), 0);
			assert_int_equal(log_prepare(t.log), -EUCLEAN);
			assert_int_equal(card_set_writable(t.card, false), 0);
			assert_int_equal(sim_ops(t.card), before);
			toy_free(&t);
		}
}

/* A volume without a file system: its records know no marks. */
static void unmarked(struct toy *t, bool made_here)
{
	uint8_t blk[COW_BLK_BYTES] = { 0 };

	toy_format(t, false);
	for (unsigned b = 0; b < 4; b++)
		assert_int_equal(sim_poke(t->base, blk_to_bytes(b), blk, sizeof(blk)), 0);
	t->n.content[0] = t->n.content[1] = t->n.content[2] = t->n.content[3] = 0;
	t->live = t->n;
	assert_int_equal(toy_open(t, 0), 0);
	toy_write(t, 10, 1234);
	assert_int_equal(toy_commit(t), 0);
	assert_int_equal(log_newest(t->log)->fingerprint.n_marks, 0);
	if (!made_here)
		return;
	for (unsigned b = 0; b < 4; b++)
		toy_write(t, b, (uint16_t)(b < 1 ? TOY_SUPER : 500 + b));
	assert_int_equal(toy_commit(t), 0);
	assert_int_equal(log_newest(t->log)->fingerprint.n_marks, 0);
}

/* A record without marks knows no file system. One that is there nevertheless came through this
 * log, or from elsewhere. */
static void test_no_marks(void **state)
{
	uint8_t blk[COW_BLK_BYTES];
	struct toy t;

	(void)state;
	unmarked(&t, false);
	toy_content(TOY_SUPER, blk);
	assert_int_equal(sim_poke(t.base, 0, blk, sizeof(blk)), 0);
	assert_int_equal(log_recheck(t.log), -ESTALE);
	toy_close(&t);
	assert_int_equal(toy_open(&t, 0), 0);
	assert_int_equal(t.rep.state, LOG_FOREIGN);
	toy_free(&t);
	for (unsigned done = 0; done <= 4; done++) {
		unmarked(&t, true);
		for (unsigned b = 0; b < done; b++) {
			toy_content(t.n.content[b], blk);
			assert_int_equal(sim_poke(t.base, blk_to_bytes(b), blk, sizeof(blk)), 0);
		}
		toy_close(&t);
		assert_int_equal(toy_open(&t, 0), 0);
		/* a commit record: no checkpoint had begun, so that all of it has to be as the log
		 * has it */
		assert_int_equal(t.rep.state, done == 0 || done == 4 ? LOG_LIVE : LOG_FOREIGN);
		toy_free(&t);
	}
}

/* ---- a checkpoint that is cut while it writes the marks of the base ---- */

enum { TOY_MARKS = 4 }; /* both superblocks and both checkpoint packs */

struct cut {
	const struct card *card;
	unsigned fates; /* two bits for each mark; other blocks come home */
};

static enum sim_fate fate_of_mark(void *arg, size_t i)
{
	const struct cut *cut = arg;
	uint64_t blk = sim_pending_blk(cut->card, i);

	return blk < TOY_MARKS ? (enum sim_fate)(cut->fates >> 2 * blk & 3) : SIM_DONE;
}

static int stop_before_flush(void *ctx, uint64_t done, uint64_t total)
{
	(void)ctx;
	return done == total;
}

static void commit_marks(struct toy *t, unsigned which, uint16_t i)
{
	for (unsigned b = 0; b < TOY_MARKS; b++)
		if (which & 1u << b)
			toy_write(t, b, (uint16_t)((b < 2 ? TOY_SUPER : 0) + 5000 + 8 * i + b));
	toy_write(t, 10, (uint16_t)(5000 + 8 * i + 4));
	assert_int_equal(toy_commit(t), 0);
}

/* All home writes are in flight. */
static void begin_checkpoint(struct toy *t)
{
	struct log_index *ix;

	assert_int_equal(card_set_writable(t->card, true), 0);
	assert_int_equal(card_set_writable(t->base, true), 0);
	assert_int_equal(log_prepare(t->log), 0);
	assert_int_equal(log_checkpoint(t->log, NULL, stop_before_flush, NULL, &ix), -ECANCELED);
	assert_true(sim_pending(t->base) > 0);
}

static void cut_checkpoint(struct toy *t, unsigned fates)
{
	toy_close(t);
	sim_seed(t->base, fates);
	sim_power_cycle(t->base, fate_of_mark, &(struct cut){ .card = t->base, .fates = fates });
	if (t->card != t->base)
		sim_power_cycle(t->card, NULL, NULL);
}

static void assert_ours(struct toy *t)
{
	assert_int_equal(toy_open(t, 0), 0);
	assert_false(t->rep.base_changed);
	assert_true(t->rep.state == LOG_LIVE || t->rep.state == LOG_FELL_BACK);
	assert_int_equal(toy_view(t, view), 0);
	assert_int_equal(toy_differs(&t->n, view), -1);
}

/* Whatever a cut leaves of them, old, new, torn or garbage, in any combination: the base is known
 * as ours, nothing that was committed is lost; and so again when what was left is cut over. */
static void test_torn_marks(void **state)
{
	static const enum toy_story stories[] = { TOY_LIVE, TOY_CHAIN, TOY_LAG };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(stories); i++) {
		struct toy origin;

		toy_tell(&origin, stories[i], NULL, NULL);
		commit_marks(&origin, 0xf, 1);
		assert_int_equal(toy_checkpoint(&origin, RECORD_TAIL, 0), 0);
		commit_marks(&origin, 0xf, 2);
		begin_checkpoint(&origin);
		for (unsigned fates = 0; fates < 1u << 2 * TOY_MARKS; fates++) {
			struct toy t;

			toy_clone(&t, &origin);
			cut_checkpoint(&t, fates);
			assert_ours(&t);
			begin_checkpoint(&t);
			cut_checkpoint(&t, fates * 37 % 256);
			assert_ours(&t);
			commit_marks(&t, 1 + fates % 15, 3);
			toy_close(&t);
			assert_ours(&t);
			begin_checkpoint(&t);
			cut_checkpoint(&t, fates * 101 % 256);
			assert_ours(&t);
			assert_int_equal(toy_checkpoint(&t, RECORD_RETIRED, RECORD_CLEAN), 0);
			assert_int_equal(card_read(t.base, 0, view, sizeof(view)), 0);
			assert_int_equal(toy_differs(&t.n, view), -1);
			toy_free(&t);
		}
		toy_free(&origin);
	}
}

/* The same where no file system was before: the one that was made on the volume was on its way
 * home. */
static void test_torn_first_marks(void **state)
{
	struct toy origin;

	(void)state;
	unmarked(&origin, true);
	begin_checkpoint(&origin);
	for (unsigned fates = 0; fates < 1u << 2 * TOY_MARKS; fates++) {
		struct toy t;

		toy_clone(&t, &origin);
		cut_checkpoint(&t, fates);
		assert_ours(&t);
		toy_free(&t);
	}
	toy_free(&origin);
}

/* Garbage where the log has nothing, or a superblock of somebody else where it has: no cut of
 * ours. */
static void test_torn_marks_foreign(void **state)
{
	uint8_t blk[COW_BLK_BYTES];
	struct toy origin, t;

	(void)state;
	toy_tell(&origin, TOY_LIVE, NULL, NULL);
	commit_marks(&origin, 0xf, 1);
	assert_int_equal(toy_checkpoint(&origin, RECORD_TAIL, 0), 0);
	commit_marks(&origin, 0x7, 2);
	begin_checkpoint(&origin);
	for (unsigned b = 0; b < TOY_MARKS; b++) {
		toy_clone(&t, &origin);
		cut_checkpoint(&t, 0xff); /* all is garbage */
		toy_content((uint16_t)(b < 2 ? TOY_SUPER : 4711), blk);
		if (b < 2)
			blk[1024 + 108]++; /* uuid */
		if (b == 2)
			/* checksum_offset of a checkpoint pack */
			memcpy(blk + 164, "\xfc\x0f\0\0", 4);
		assert_int_equal(sim_poke(t.base, blk_to_bytes(b), blk, sizeof(blk)), 0);
		assert_int_equal(toy_open(&t, 0), 0);
		assert_int_equal(t.rep.state, LOG_FOREIGN);
		assert_true(t.rep.base_changed);
		toy_free(&t);
	}
	toy_free(&origin);
}

/* The index answers only for what it has, and for one extent at a time. */
static void test_index_bounds(void **state)
{
	_cleanup_free_ uint8_t *buf = io_alloc(8 * COW_BLK_BYTES);
	struct toy t;

	(void)state;
	toy_format(&t, false);
	assert_int_equal(toy_open(&t, 0), 0);
	toy_write(&t, 4, 0);
	toy_write(&t, 10, 1000);
	toy_write(&t, 11, 1001);
	assert_int_equal(toy_commit(&t), 0);
	assert_int_equal(log_index_read(t.index, 10, 2, buf), 0);
	assert_int_equal(log_index_read(t.index, 4, 1, buf), -EINVAL);	/* zeroes have no payload */
	assert_int_equal(log_index_read(t.index, 9, 1, buf), -EINVAL);	/* in front of an extent */
	assert_int_equal(log_index_read(t.index, 11, 2, buf), -EINVAL); /* over its end */
	assert_int_equal(log_index_read(t.index, 12, 1, buf), -EINVAL); /* behind the last */
	toy_free(&t);
}

/* ---- is it still our card? ---- */

static void other_time(struct log_super *s)
{
	s->created_s++;
}

static void other_fs(struct log_super *s)
{
	s->fs_uuid[3] ^= 1;
}

static void other_ring(struct log_super *s)
{
	s->state = SUPER_LIVE;
	s->ring_uuid[3] ^= 1;
}

static void nothing(struct log_super *s)
{
	(void)s;
}

static void damage(struct log_super *s)
{
	s->version = 0;
}

/* Before the first commit only the super record can tell. */
static void test_recheck_virgin(void **state)
{
	static void (*const changes[])(struct log_super *) = { other_time, other_fs, other_ring,
							       damage };
	struct toy t;

	(void)state;
	toy_format(&t, false);
	assert_int_equal(toy_open(&t, 0), 0);
	for (size_t i = 0; i < ARRAY_SIZE(changes); i++) {
		poke_super(&t, 2, changes[i]);
		assert_int_equal(log_recheck(t.log), -ESTALE);
		toy_write(&t, 4, 1234);
		assert_int_equal(toy_commit(&t), -ESTALE);
		poke_super(&t, 2, nothing);
		assert_int_equal(log_recheck(t.log), 0);
	}
	for (int i = 0; i < 3; i++) { /* nothing there; damaged; a smaller card */
		const uint8_t none[16] = { 0 },
			      rot[200] = { 'C', 'O', 'W', 'F', 'S', 'S', 'U', 'P' };
		const uint64_t size_bytes = t.card->geo.size_bytes;

		for (int k = 0; k < 2 && i < 2; k++)
			assert_int_equal(sim_poke(t.card, log_super(t.log)->copy_off_bytes[k],
						  i ? rot : none, i ? sizeof(rot) : sizeof(none)),
					 0);
		t.card->geo.size_bytes -= i == 2 ? COW_BLK_BYTES : 0;
		assert_int_equal(log_recheck(t.log), -ESTALE);
		t.card->geo.size_bytes = size_bytes;
		poke_super(&t, 2, nothing);
		assert_int_equal(log_recheck(t.log), 0);
	}
	sim_fail_at(t.card, SIM_READ, 1, -EIO, true);
	assert_int_equal(log_recheck(t.log), -EIO); /* that says nothing about the card */
	sim_fail_at(t.card, SIM_READ, 1, -ENXIO, true);
	assert_int_equal(log_recheck(t.log), -ENXIO);
	sim_fail_at(t.card, 0, 0, 0, false);
	assert_int_equal(toy_commit(&t), 0);
	toy_free(&t);
}

static void poke_record(struct toy *t, int64_t seq, uint64_t epoch)
{
	const struct log_super *s = log_super(t->log);
	struct log_record rec = *log_newest(t->log);
	uint8_t blk[COW_BLK_BYTES] = { 0 };

	memcpy(rec.ring_uuid, s->ring_uuid, 16);
	rec.seq += (uint64_t)seq;
	rec.epoch += epoch;
	codec_put_record(blk, &rec);
	assert_int_equal(
		sim_poke(t->card, s->ring_off_bytes + blk_to_bytes(rec.lblk), blk, sizeof(blk)), 0);
}

static void test_recheck(void **state)
{
	uint8_t blk[COW_BLK_BYTES];
	struct toy t;

	(void)state;
	toy_format(&t, false);
	assert_int_equal(toy_open(&t, 0), 0);
	toy_write(&t, 4, 1234);
	assert_int_equal(toy_commit(&t), 0);
	assert_int_equal(log_recheck(t.log), 0);
	poke_record(&t, 1, 0);
	assert_int_equal(log_recheck(t.log), -ESTALE);
	poke_record(&t, 0, 1);
	assert_int_equal(log_recheck(t.log), -ESTALE);
	poke_record(&t, 0, 0);
	assert_int_equal(log_recheck(t.log), 0);
	/* ours, but somebody mounted the file system meanwhile */
	toy_content(TOY_SUPER + 99, blk);
	assert_int_equal(sim_poke(t.base, 0, blk, sizeof(blk)), 0);
	assert_int_equal(log_recheck(t.log), -ESTALE);
	toy_write(&t, 4, 1235);
	assert_int_equal(toy_commit(&t), -ESTALE);
	/* nothing behind the open record and the commit */
	assert_int_equal(log_newest(t.log)->seq, t.rep.newest.seq + 2);
	toy_free(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bad_sector),
		cmocka_unit_test(test_device_gone),
		cmocka_unit_test(test_each_write_fails),
		cmocka_unit_test(test_each_write_fails_lag),
		cmocka_unit_test(test_out_of_order),
		cmocka_unit_test(test_set_aside),
		cmocka_unit_test(test_torn_marks),
		cmocka_unit_test(test_torn_marks_foreign),
		cmocka_unit_test(test_index_bounds),
		cmocka_unit_test(test_no_file_system_any_more),
		cmocka_unit_test(test_no_marks),
		cmocka_unit_test(test_torn_first_marks),
		cmocka_unit_test(test_recheck_virgin),
		cmocka_unit_test(test_recheck),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
