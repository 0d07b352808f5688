/* SPDX-License-Identifier: MIT */
/*
 * The ledger against the device: random schedules with failures and power cuts, cards of 32 GB and
 * years of commits, clocks that jump, counters at their end, copies that rot. What the device saw
 * is counted below the log, by the simulator and by hooks of its own; the clock is the test's
 * (--wrap=time).
 *
 * COWFS_WEAR_SCHEDULES: how many random schedules (default 2000); COWFS_WEAR_YEARS: of hourly
 * commits (default 1).
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "log/codec.h"
#include "logcard.h"
#include "toy.h"

static time_t fake_s = 1700000000;
time_t __wrap_time(time_t *t);

time_t __wrap_time(time_t *t)
{
	if (t)
		*t = fake_s;
	return fake_s;
}

static uint64_t env_number(const char *name, uint64_t otherwise)
{
	const char *s = getenv(name);

	return s ? strtoull(s, NULL, 10) : otherwise;
}

/* ---- what the device sees, counted apart from everything that is tested ---- */

enum { SEEN_UNITS = 8200 };

struct seen {
	uint64_t bytes, calls, flushes, visits;
	uint64_t blks[SEEN_UNITS], unit_visits[SEEN_UNITS];
};

static struct seen seen;
static struct card *seen_card[2]; /* base, log device or NULL */
static uint32_t seen_units[2];
/* seen_eb: of the last write, with its device; UINT64_MAX: none */
static uint64_t seen_eb, seen_unit_bytes;
static const struct card_ops *sim_real;
static struct card_ops seeing;

static int see_write(struct card *c, uint64_t off, const void *buf, size_t len)
{
	unsigned dev = c != seen_card[0];

	for (uint64_t at = off; !sim_is_dead(c) && at < off + len; at += COW_BLK_BYTES) {
		uint64_t disk = at + c->geo.disk_off_bytes,
			 eb = disk / c->geo.erase_block_bytes * 2 + dev;
		uint64_t unit = disk / seen_unit_bytes - c->geo.disk_off_bytes / seen_unit_bytes +
				(dev ? seen_units[0] : 0);

		seen.blks[unit]++;
		seen.unit_visits[unit] += eb != seen_eb;
		seen.visits += eb != seen_eb;
		seen_eb = eb;
	}
	return sim_real->write(c, off, buf, len);
}

/* Reads are noted, and one block may be unreadable: for ever, or so many times. */
enum { NOTED_READS = 4096 };
static uint64_t noted_off[NOTED_READS], bad_off = UINT64_MAX;
static unsigned noted_reads, bad_times = UINT32_MAX;

static int see_read(struct card *c, uint64_t off, void *buf, size_t len)
{
	if (noted_reads < NOTED_READS && len == COW_BLK_BYTES)
		noted_off[noted_reads++] = off;
	if (bad_off >= off && bad_off - off < len && bad_times) {
		bad_times--;
		return -EIO;
	}
	return sim_real->read(c, off, buf, len);
}

static int see_writable(struct card *c, bool on)
{
	int r = sim_real->set_writable(c, on);

	if (on && r == 0)
		seen_eb = UINT64_MAX;
	return r;
}

/* From now on; the card has one erase block a unit unless told otherwise. */
static void see(struct card *base, struct card *log, uint64_t unit_bytes)
{
	memset(&seen, 0, sizeof(seen));
	if (!sim_real) {
		sim_real = base->ops;
		seeing = *sim_real;
		seeing.write = see_write;
		seeing.read = see_read;
		seeing.set_writable = see_writable;
	}
	base->ops = log->ops = &seeing;
	seen_card[0] = base;
	seen_card[1] = log == base ? NULL : log;
	seen_unit_bytes = unit_bytes;
	seen_eb = UINT64_MAX;
	for (int i = 0; i < 2; i++)
		seen_units[i] =
			seen_card[i] ? (uint32_t)((seen_card[i]->geo.disk_off_bytes +
						   seen_card[i]->geo.size_bytes - 1) /
							  unit_bytes -
						  seen_card[i]->geo.disk_off_bytes / unit_bytes + 1)
				     : 0;
	assert_true(seen_units[0] + seen_units[1] <= SEEN_UNITS);
}

static struct seen seen_now(void)
{
	struct seen s = seen;

	for (int i = 0; i < 2; i++) {
		struct card_counters n;

		if (!seen_card[i] || card_counters(seen_card[i], &n) < 0)
			continue;
		s.bytes += n.written_bytes;
		s.calls += n.write_ios;
		s.flushes += n.flushes;
	}
	return s;
}

/* ---- random schedules on the toy card ---- */

enum { TRIED = 24 };

struct life {
	struct toy t;
	struct toy_image tried[TRIED];
	unsigned n_tried;
	struct seen at_open, offset; /* offset: what the ledger has lost for good, or saw before */
	struct wear_ledger ledger;   /* at attach */
	struct wear_unit unit[64];   /* the same */
	struct wear_ledger acked;    /* of the newest record whose flush returned */
	struct wear_unit acked_unit[64];
	bool rest; /* nothing was written since then */
};

static uint64_t schedules, cuts, exact, in_flight, failures, records;

/* From attach to now the ledger has grown as the device's count has: every byte, call, flush, every
 * erase block. */
static void check_session(struct life *l)
{
	struct seen now = seen_now();
	struct wear_ledger t;
	const struct wear_table *w = log_wear(l->t.log);

	log_totals(l->t.log, &t);
	assert_int_equal(t.written_bytes - l->ledger.written_bytes, now.bytes - l->at_open.bytes);
	assert_int_equal(t.write_calls - l->ledger.write_calls, now.calls - l->at_open.calls);
	assert_int_equal(t.flushes - l->ledger.flushes, now.flushes - l->at_open.flushes);
	assert_int_equal(t.visits - l->ledger.visits, now.visits - l->at_open.visits);
	for (uint32_t i = 0; i < wear_units(&w->geo); i++) {
		assert_int_equal(w->unit[i].blks - l->unit[i].blks,
				 now.blks[i] - l->at_open.blks[i]);
		assert_int_equal(w->unit[i].visits - l->unit[i].visits,
				 now.unit_visits[i] - l->at_open.unit_visits[i]);
	}
}

static void acknowledge(struct life *l)
{
	const struct wear_table *w = log_wear(l->t.log);

	/* before the first super record nobody looks for records */
	if (!log_newest(l->t.log)->seq || log_super(l->t.log)->state != SUPER_LIVE ||
	    l->acked.written_bytes == log_newest(l->t.log)->ledger.written_bytes)
		return;
	l->acked = log_newest(l->t.log)->ledger;
	memcpy(l->acked_unit, w->unit, wear_units(&w->geo) * sizeof(w->unit[0]));
	l->rest = true;
	records++;
}

static uint64_t at_seed; /* for who has to look at a failure */

static void between(const char *what, uint64_t low, uint64_t v, uint64_t high)
{
	if (v < low || v > high)
		fail_msg("schedule %llu: %s %llu is not in %llu..%llu", (unsigned long long)at_seed,
			 what, (unsigned long long)v, (unsigned long long)low,
			 (unsigned long long)high);
}

/* What was found is at least what was acknowledged, at most what the device saw (less what was lost
 * before); and exactly what was acknowledged if nothing was written since. */
static void check_found(struct life *l, bool first, bool durable)
{
	struct seen now = seen_now();
	const struct wear_ledger *f = &l->t.rep.ledger;
	const struct wear_table *w;

	log_wear_load(l->t.log);
	w = log_wear(l->t.log);
	assert_non_null(w);
	assert_int_equal(wear_units(&w->geo), seen_units[0] + seen_units[1]);
	assert_int_equal(f->table_losses, 0);
	if (first)
		l->offset = now; /* the formatting */
	between("written_bytes", l->acked.written_bytes, f->written_bytes,
		now.bytes - l->offset.bytes);
	between("write_calls", l->acked.write_calls, f->write_calls, now.calls - l->offset.calls);
	/* a record carries its flush in advance; the cut may have come before it */
	between("flushes", l->acked.flushes, f->flushes, now.flushes - l->offset.flushes + 2);
	between("visits", l->acked.visits, f->visits, now.visits - l->offset.visits);
	for (uint32_t i = 0; i < wear_units(&w->geo); i++) {
		between("blks", l->acked_unit[i].blks, w->unit[i].blks,
			now.blks[i] - l->offset.blks[i]);
		between("visits", l->acked_unit[i].visits, w->unit[i].visits,
			now.unit_visits[i] - l->offset.unit_visits[i]);
	}
	if (l->rest) {
		assert_int_equal(f->written_bytes, l->acked.written_bytes);
		assert_memory_equal(w->unit, l->acked_unit,
				    wear_units(&w->geo) * sizeof(w->unit[0]));
	}
	exact += l->rest;
	in_flight += !l->rest;
	l->ledger = *f;
	l->at_open = now;
	l->offset.bytes = now.bytes - f->written_bytes;
	l->offset.calls = now.calls - f->write_calls;
	l->offset.flushes = now.flushes - f->flushes;
	l->offset.visits = now.visits - f->visits;
	for (uint32_t i = 0; i < wear_units(&w->geo); i++) {
		l->unit[i] = w->unit[i];
		l->offset.blks[i] = now.blks[i] - w->unit[i].blks;
		l->offset.unit_visits[i] = now.unit_visits[i] - w->unit[i].visits;
	}
	if (durable) {
		l->acked = *f;
		memcpy(l->acked_unit, l->unit, sizeof(l->unit));
	}
	l->rest = l->acked.written_bytes == f->written_bytes;
}

/* As a daemon opens its devices anew. */
static void reset_account(struct card *c)
{
	struct card_account *a = &c->account;

	a->write_calls = a->written_bytes = a->read_calls = a->read_bytes = a->flushes =
		a->writable_ns = 0;
}

static void attach_life(struct life *l, bool first, bool durable)
{
	static _Alignas(COW_BLK_BYTES) uint8_t view[TOY_BLKS * COW_BLK_BYTES];
	struct toy_image old = l->t.n;
	int i;

	reset_account(l->t.base);
	reset_account(l->t.card);
	assert_int_equal(toy_open(&l->t, 0), 0);
	assert_int_not_equal(l->t.rep.state, LOG_BROKEN);
	check_found(l, first, durable);
	assert_int_equal(toy_view(&l->t, view), 0);
	for (i = (int)l->n_tried; i > 0 && toy_differs(&l->tried[i - 1], view) >= 0; i--)
		;
	if (i)
		l->t.n = l->tried[i - 1];
	assert_int_equal(toy_differs(&l->t.n, view), -1);
	l->t.live = l->t.n;
	memset(l->t.dirty, 0, sizeof(l->t.dirty));
	/* without a power cut what was found may be in the card's cache only */
	if (durable)
		l->n_tried = 0;
	else if (i)
		l->tried[i - 1] = old;
}

/* A session ends: with a power cut, or the process alone. */
static void end_session(struct life *l, bool cut)
{
	if (!sim_is_dead(l->t.base) && !sim_is_dead(l->t.card))
		check_session(l);
	else
		l->rest = false;
	toy_close(&l->t);
	if (cut) {
		sim_seed(l->t.card, rnd(UINT32_MAX));
		sim_power_cycle(l->t.card, NULL, NULL);
		if (l->t.base != l->t.card)
			sim_power_cycle(l->t.base, NULL, NULL);
		l->t.card->writable = l->t.base->writable = false;
		seen_eb = UINT64_MAX;
		cuts++;
	}
	attach_life(l, false, cut);
}

static void change_life(struct life *l)
{
	for (uint64_t n = 1 + rnd(12); n; n--) {
		unsigned b = 5 + (unsigned)rnd(TOY_BLKS - 5);

		if (rnd(4))
			toy_write(&l->t, b, rnd(8) ? (uint16_t)(1 + rnd(30000)) : 0);
		else
			toy_drop(&l->t, b);
	}
	/* as a bitmap would: the use of blocks has changed */
	toy_write(&l->t, 4, (uint16_t)(1 + rnd(30000)));
}

static bool commit_life(struct life *l)
{
	struct wear_ledger before, after;
	int r;

	if (l->n_tried == TRIED)
		return false;
	l->tried[l->n_tried++] = l->t.live;
	log_totals(l->t.log, &before);
	r = toy_commit(&l->t);
	log_totals(l->t.log, &after);
	l->rest &= before.written_bytes == after.written_bytes;
	if (r == 0) {
		acknowledge(l);
		l->tried[0] = l->t.n;
		l->n_tried = 1;
	}
	failures += r < 0;
	return r == 0;
}

static void make_lag(struct toy *t)
{
	struct log_super s;
	unsigned trouble;

	assert_int_equal(
		super_read(t->card, t->base == t->card ? blk_to_bytes(TOY_BLKS) : 0, &s, &trouble),
		0);
	s.lag = 1;
	assert_int_equal(card_set_writable(t->card, true), 0);
	assert_int_equal(super_write(t->card, &s), 0);
	assert_int_equal(card_set_writable(t->card, false), 0);
}

static void run_schedule(uint64_t seed)
{
	struct life *l = calloc(1, sizeof(*l));

	assert_non_null(l);
	rnd_state = at_seed = seed;
	toy_format(&l->t, rnd(4) == 0);
	if (rnd(4) == 0)
		make_lag(&l->t);
	see(l->t.base, l->t.card, TOY_SEG_BLKS * COW_BLK_BYTES);
	attach_life(l, true, true);
	for (uint64_t steps = 4 + rnd(10); steps; steps--) {
		struct card *target = rnd(2) ? l->t.base : l->t.card;
		uint64_t what = rnd(10);

		fake_s += (time_t)rnd(40000);
		if (what < 7)
			change_life(l);
		if (what == 0)
			sim_cut_at(target, 1 + rnd(20));
		if (what == 1)
			sim_fail_at(target, SIM_WRITE | SIM_FLUSH, 1 + rnd(16), -EIO, rnd(3) == 0);
		if (what < 7) {
			commit_life(l);
		} else if (what == 7 && !sim_is_dead(l->t.card)) {
			int r = toy_checkpoint(&l->t, RECORD_TAIL, rnd(2) ? RECORD_CLEAN : 0);

			l->rest = false;
			if (r == 0)
				acknowledge(l);
		} else {
			end_session(l, what == 8);
		}
		sim_fail_at(target, 0, 0, 0, false);
		sim_cut_at(target, 0);
		if (sim_is_dead(l->t.base) || sim_is_dead(l->t.card))
			end_session(l, true);
		check_session(l);
	}
	end_session(l, true);
	toy_free(&l->t);
	free(l);
	schedules++;
}

static void test_schedules(void **state)
{
	uint64_t n = env_number("COWFS_WEAR_SCHEDULES", 2000);
	uint64_t start_ns = now_ns();

	(void)state;
	for (uint64_t seed = 1; seed <= n; seed++)
		run_schedule(seed * 0x9e3779b97f4a7c15u);
	print_message(
		"%llu schedules, %llu records, %llu power cuts, %llu commits that failed; the ledger found was the "
		"acknowledged one to the byte %llu times, between that and the device's count %llu times; %.1f s\n",
		(unsigned long long)schedules, (unsigned long long)records,
		(unsigned long long)cuts, (unsigned long long)failures, (unsigned long long)exact,
		(unsigned long long)in_flight, (double)(now_ns() - start_ns) / 1e9);
	assert_true(cuts >= n && exact > n && in_flight > n / 10 && failures > n / 10);
}

/* ---- a large card over years ---- */

struct big {
	struct card *c;
	struct log_super super;
	struct log *log;
	struct log_open_report rep;
	uint8_t *data;
	uint64_t commits, wear_blks, small_commits, small_most, most, large_wear_blks, large_blks;
};

static void big_open(struct big *b)
{
	unsigned trouble;

	reset_account(b->c);
	assert_int_equal(super_read(b->c, b->super.fs_bytes, &b->super, &trouble), 0);
	assert_int_equal(log_open(&b->log, b->c, b->c, &b->super, 0, &b->rep), 0);
	assert_int_not_equal(b->rep.state, LOG_BROKEN);
	log_wear_load(b->log);
	assert_non_null(log_wear(b->log));
}

static void big_make(struct big *b, uint64_t size_bytes, uint32_t eb_bytes, uint64_t unit_bytes,
		     uint64_t off_bytes)
{
	struct sim_params p = { .size_bytes = size_bytes,
				.erase_block_bytes = eb_bytes,
				.disk_off_bytes = off_bytes };
	uint64_t missing;

	*b = (struct big){ .data = io_alloc(256 * COW_BLK_BYTES) };
	assert_int_equal(sim_new(&b->c, &p), 0);
	see(b->c, b->c, unit_bytes);
	assert_int_equal(card_set_writable(b->c, true), 0);
	assert_int_equal(super_plan(b->c, b->c,
				    round_down_u64(size_bytes - 128 * MIB, COW_BLK_BYTES), 0,
				    &b->super, &missing),
			 0);
	assert_int_equal(super_write(b->c, &b->super), 0);
	assert_int_equal(card_set_writable(b->c, false), 0);
	see(b->c, b->c, unit_bytes);
	big_open(b);
}

static void big_free(struct big *b)
{
	log_close(b->log);
	card_close(b->c);
	free(b->data);
}

static void big_checkpoint(struct big *b, uint32_t flags)
{
	struct log_index *ix;

	assert_int_equal(card_set_writable(b->c, true), 0);
	assert_int_equal(log_prepare(b->log), 0);
	assert_int_equal(log_checkpoint(b->log, NULL, NULL, NULL, &ix), 0);
	log_index_unref(ix);
	assert_int_equal(log_put_tail(b->log, RECORD_TAIL, flags, CAUSE_TIMER), 0);
	assert_int_equal(card_set_writable(b->c, false), 0);
}

/* direct and logged blocks, in so many erase blocks all over the card: few of each, so that memory
 * lasts */
static void big_commit(struct big *b, unsigned direct, unsigned logged, uint64_t ebs,
		       uint64_t first_eb)
{
	uint64_t eb_blks = b->super.erase_block_bytes / COW_BLK_BYTES,
		 all = b->super.fs_bytes / COW_BLK_BYTES / eb_blks - 4;
	uint64_t spread = all / max_u64(1, ebs), n;
	struct log_index *ix;

	if (log_room_blks(b->log) < logged + direct / 100 + 200)
		big_checkpoint(b, 0);
	assert_int_equal(card_set_writable(b->c, true), 0);
	assert_int_equal(log_prepare(b->log), 0);
	assert_int_equal(log_begin(b->log), 0);
	for (unsigned i = 0; i < direct; i++) {
		/* logged ones are in the first 4 */
		uint64_t blk = (4 + (first_eb + i % ebs * spread) % all) * eb_blks + i / ebs;

		assert_int_equal(card_write(b->c, blk_to_bytes(blk), b->data, COW_BLK_BYTES), 0);
		assert_int_equal(log_add_direct(b->log, blk, 1, b->data), 0);
	}
	for (unsigned i = 0; i < logged; i += (unsigned)n) {
		n = min_u64(256, logged - i);
		assert_int_equal(log_add_logged(b->log, i, n, b->data), 0);
	}
	log_ledger(b->log)->absorbed_bytes += 3 * blk_to_bytes(direct + logged);
	assert_int_equal(log_end(b->log, CAUSE_TIMER, 0, &ix), 0);
	log_index_unref(ix);
	assert_int_equal(card_set_writable(b->c, false), 0);
	n = log_newest(b->log)->wear.blks;
	b->commits++;
	b->wear_blks += n;
	b->most = max_u64(b->most, n);
	if (direct + logged <= 256) {
		b->small_commits++;
		b->small_most = max_u64(b->small_most, n);
	} else {
		b->large_wear_blks += n;
		b->large_blks += direct + logged;
	}
}

static void big_compare(struct big *b)
{
	const struct wear_table *w = log_wear(b->log);
	struct wear_ledger t;
	struct seen now = seen_now();
	uint64_t written = 0;

	log_totals(b->log, &t);
	assert_int_equal(t.table_losses, 0);
	assert_int_equal(t.visits, now.visits);
	for (uint32_t i = 0; i < wear_units(&w->geo); i++) {
		assert_int_equal(w->unit[i].blks, now.blks[i]);
		assert_int_equal(w->unit[i].visits, now.unit_visits[i]);
		written += w->unit[i].blks;
	}
	assert_int_equal(written * COW_BLK_BYTES, t.written_bytes);
}

static void big_reopen(struct big *b, bool cut)
{
	log_close(b->log);
	if (cut) {
		sim_power_cycle(b->c, NULL, NULL);
		b->c->writable = false;
		seen_eb = UINT64_MAX;
	}
	big_open(b);
	big_compare(b);
}

/* An hour of a machine's life. Once a day a large one, once a week more than the ring holds
 * twice. */
static void big_hour(struct big *b, uint64_t hour)
{
	fake_s += 3600;
	big_commit(b, 1 + (unsigned)rnd(24), (unsigned)rnd(24), 1 + rnd(12), rnd(7000));
	if (hour % 24 == 0)
		big_commit(b, 1200, 400, 600, rnd(7000));
	if (hour % 168 == 0)
		for (int i = 0; i < 3; i++)
			big_commit(b, 8, 3000, 4, rnd(7000));
	if (hour % 24 == 7) {
		big_checkpoint(b, hour % 48 == 7 ? RECORD_CLEAN : 0);
		big_reopen(b, hour % 96 < 48);
	}
	/* a night of power cuts: each session opens another segment */
	for (int i = 0; hour % 1000 == 500 && i < 20; i++) {
		big_reopen(b, true);
		if (i % 2)
			big_commit(b, 2, 2, 2, rnd(7000));
	}
}

static void test_years(void **state)
{
	uint64_t hours = max_u64(1, env_number("COWFS_WEAR_YEARS", 1)) * 8766, start_ns = now_ns(),
		 days = 0;
	const struct wear_table *w;
	struct big b;

	(void)state;
	rnd_state = 7;
	big_make(&b, 32 * GIB, 4 * MIB, 4 * MIB, 4 * MIB);
	assert_int_equal(wear_units(&log_wear(b.log)->geo), 8192);
	for (uint64_t h = 0; h < hours; h++)
		big_hour(&b, h);
	big_checkpoint(&b, RECORD_CLEAN);
	big_reopen(&b, true);
	w = log_wear(b.log);
	assert_int_equal(w->commit_n, b.commits);
	for (uint32_t i = 0; i < WEAR_DAYS; i++)
		days += w->day[i].n != 0;
	between("days", min_u64(WEAR_DAYS, hours / 24), days, min_u64(WEAR_DAYS, hours / 24 + 2));
	print_message(
		"%llu commits: %.2f wear blocks a commit, at most %llu, at most %llu of the %llu small ones; %llu blocks read "
		"at the last attach; %llu for the %llu blocks of the large ones; %.1f s\n",
		(unsigned long long)b.commits, (double)b.wear_blks / (double)b.commits,
		(unsigned long long)b.most, (unsigned long long)b.small_most,
		(unsigned long long)b.small_commits,
		(unsigned long long)(b.c->account.read_bytes / COW_BLK_BYTES),
		(unsigned long long)b.large_wear_blks, (unsigned long long)b.large_blks,
		(double)(now_ns() - start_ns) / 1e9);
	assert_true(b.small_most <= 1 && b.wear_blks <= b.commits);
	assert_in_range(b.large_wear_blks, 1, b.large_blks / 100);
	big_free(&b);
}

/* 1 TiB: a unit is 32 erase blocks of 4 MiB, and costs no more than 32 GiB. */
static void test_large_units(void **state)
{
	struct big b;

	(void)state;
	rnd_state = 8;
	big_make(&b, 1024 * GIB, 4 * MIB, 128 * MIB, 0);
	assert_int_equal(wear_units(&log_wear(b.log)->geo), 8192);
	for (uint64_t h = 1; h < 200; h++)
		big_hour(&b, h);
	big_free(&b);
}

/* Every unit has seen a lot, so that the table is as long as it gets, and commits are so large that
 * each overwrites what the one but last left in the ring. */
static void test_ring_laps(void **state)
{
	struct big b;

	(void)state;
	rnd_state = 14;
	big_make(&b, 32 * GIB, 4 * MIB, 4 * MIB, 0);
	big_commit(&b, 1, 1, 1, 0);
	/* as if it were written to, without the content */
	for (int round = 0; round < 300; round++)
		for (uint64_t i = 0; i < 8192; i++) {
			b.c->wrote(b.c->wrote_ctx, b.c, i * 4 * MIB, 4 * MIB);
			seen.blks[i] += 1024;
			seen.unit_visits[i] += 1;
		}
	seen_eb = UINT64_MAX - 1; /* none that comes */
	for (int i = 0; i < 60; i++) {
		const struct wear_table *w;

		big_commit(&b, 1, 3500, 1, rnd(7000));
		if (i % 3)
			continue;
		log_close(b.log);
		sim_power_cycle(b.c, NULL, NULL);
		b.c->writable = false;
		seen_eb = UINT64_MAX;
		big_open(&b);
		w = log_wear(b.log);
		assert_int_equal(b.rep.ledger.table_losses, 0);
		for (uint32_t k = 0; k < 8192; k++)
			assert_int_equal(w->unit[k].blks, seen_now().blks[k]);
	}
	assert_true(b.most <= 1 + 3500 / 128 + 1);
	big_free(&b);
}

/* Attempts that fail take copies with them, and their writes belong to the commit that succeeds
 * then. */
static void test_failed_attempts(void **state)
{
	struct log_index *ix;
	struct big b;

	(void)state;
	rnd_state = 15;
	big_make(&b, 32 * GIB, 4 * MIB, 4 * MIB, 0);
	for (int i = 0; i < 30; i++) {
		uint64_t written = 0, attempted = 0;
		struct wear_ledger t;

		big_commit(&b, 900, 50, 300, rnd(7000));
		assert_int_equal(card_set_writable(b.c, true), 0);
		assert_int_equal(log_prepare(b.log), 0);
		assert_int_equal(log_begin(b.log), 0);
		for (uint64_t k = 0; k < 700; k++) {
			uint64_t blk = (5 + (k * 11 + 13 * (unsigned)i) % 7000) * 1024;

			assert_int_equal(card_write(b.c, blk_to_bytes(blk), b.data, COW_BLK_BYTES),
					 0);
			assert_int_equal(log_add_direct(b.log, blk, 1, b.data), 0);
			attempted++;
		}
		sim_fail_at(b.c, i % 2 ? SIM_WRITE : SIM_FLUSH, 2, -EIO, false);
		assert_int_equal(log_end(b.log, CAUSE_TIMER, 0, &ix), -EIO);
		log_abort(b.log);
		assert_int_equal(card_set_writable(b.c, false), 0);
		big_commit(&b, 3, 3, 1, rnd(7000));
		assert_int_equal(b.most > 6, 0);
		big_reopen(&b, i % 3 == 0);
		for (uint32_t k = 0; k < WEAR_COMMITS; k++)
			written += log_wear(b.log)->commit[k].written_bytes;
		log_totals(b.log, &t);
		assert_int_equal(t.commits_failed, i + 1);
		assert_int_equal(written, t.written_bytes);
	}
	big_free(&b);
}

/* What the card has of the table but for one block: every record of the ring, in any order. */
static struct wear *gather_by_hand(const struct big *b, uint64_t without_off)
{
	uint8_t blk[COW_BLK_BYTES], copy[COW_BLK_BYTES];
	struct wear *w;

	assert_int_equal(wear_new(&w, &log_wear(b->log)->geo), 0);
	for (uint64_t off = b->super.ring_off_bytes;
	     off < b->super.ring_off_bytes + (uint64_t)b->super.seg_bytes * b->super.seg_count;
	     off += COW_BLK_BYTES) {
		struct log_record r;

		assert_int_equal(sim_peek(b->c, off, blk, sizeof(blk)), 0);
		if (off == without_off || codec_get_record(blk, b->super.ring_uuid, &r) < 0)
			continue;
		assert_true(wear_merge(w, blk + RECORD_WEAR_OFF, r.wear.bytes));
		for (uint32_t i = 0, lblk = (uint32_t)r.wear.lblk; i < r.wear.blks; i++, lblk++) {
			uint64_t at;
			size_t len;

			lblk += lblk % (b->super.seg_bytes / COW_BLK_BYTES) == 0; /* a head */
			at = b->super.ring_off_bytes + blk_to_bytes(lblk);
			assert_int_equal(sim_peek(b->c, at, copy, sizeof(copy)), 0);
			if (at != without_off &&
			    codec_get_wear(copy, b->super.ring_uuid, r.epoch, r.seq, i, &len) == 0)
				assert_true(wear_merge(w, copy + WEAR_BLK_OFF, len));
		}
	}
	return w;
}

/* Opens the log, and then cannot read the block at off, so many times. Returns the losses that are
 * told. */
static uint64_t load_without(struct big *b, uint64_t off, unsigned times)
{
	struct wear_ledger before, after;
	unsigned trouble;

	log_close(b->log);
	reset_account(b->c);
	assert_int_equal(super_read(b->c, b->super.fs_bytes, &b->super, &trouble), 0);
	assert_int_equal(log_open(&b->log, b->c, b->c, &b->super, 0, &b->rep), 0);
	log_totals(b->log, &before);
	noted_reads = 0;
	bad_off = off;
	bad_times = times;
	log_wear_load(b->log);
	bad_off = UINT64_MAX;
	bad_times = UINT32_MAX;
	assert_non_null(log_wear(b->log));
	log_totals(b->log, &after);
	assert_int_equal(after.written_bytes, before.written_bytes);
	return after.table_losses - before.table_losses;
}

/* Each block of the ring that is read while the table is looked for cannot be read, twice or ever.
 * Twice is nothing; else a loss is told, and the table is all that the rest of the card has, never
 * more than was counted, and copied anew. */
static void test_unreadable(void **state)
{
	unsigned tried = 0, less = 0;
	struct big b;

	(void)state;
	rnd_state = 21;
	big_make(&b, 32 * GIB, 4 * MIB, 4 * MIB, 0);
	for (int i = 0; i < 40; i++)
		big_commit(&b, 40, 4, 20, rnd(7000));
	for (int round = 0; round < 8; round++) {
		uint64_t off[NOTED_READS];
		unsigned n;

		assert_int_equal(load_without(&b, UINT64_MAX, 0), 0);
		big_compare(&b);
		n = noted_reads;
		memcpy(off, noted_off, n * sizeof(*off));
		assert_in_range(n, 3, NOTED_READS - 1);
		for (unsigned i = 0; i < n; i++, tried++) {
			struct wear *want = gather_by_hand(&b, off[i]);
			const struct wear_table *w;
			struct seen now = seen_now();

			assert_int_equal(load_without(&b, off[i], 2), 0);
			big_compare(&b);
			assert_int_equal(load_without(&b, off[i], UINT32_MAX), 1);
			w = log_wear(b.log);
			/* of each piece there is an older copy */
			assert_int_equal(wear_missing(want), 0);
			assert_memory_equal(w, wear_table_of(want), wear_table_bytes(&w->geo));
			for (uint32_t k = 0; k < 8192; k++)
				assert_true(w->unit[k].blks <= now.blks[k]);
			for (uint32_t k = 0; k < 8192; k++)
				if (w->unit[k].blks < now.blks[k]) {
					less++;
					break;
				}
			wear_free(want);
		}
		/* another place of the turn, commits of all sizes */
		assert_int_equal(load_without(&b, UINT64_MAX, 0), 0);
		for (int i = 0; i < 25; i++)
			big_commit(&b, 40, i % 9 ? 4 : 900, 20, rnd(7000));
	}
	print_message("%u blocks could not be read; %u times units lack what only that one had\n",
		      tried, less);
	assert_true(tried > 20 && less > 0);
	/* told once: from the next record on all of it is on the card again */
	assert_int_equal(
		load_without(&b, b.super.ring_off_bytes + blk_to_bytes(log_newest(b.log)->lblk),
			     UINT32_MAX),
		1);
	for (int i = 0; i < 3; i++)
		big_commit(&b, 40, 4, 20, rnd(7000));
	log_close(b.log);
	big_open(&b);
	assert_int_equal(b.rep.ledger.table_losses, 1);
	assert_int_equal(load_without(&b, UINT64_MAX, 0), 0);
	big_free(&b);
}

/* The partition has grown: units are twice as large, and what was counted is in them. */
static void test_grown(void **state)
{
	uint64_t blks[2] = { 0 }, visits[2] = { 0 }, missing;
	struct big b;

	(void)state;
	rnd_state = 9;
	big_make(&b, 64 * GIB, 4 * MIB, 8 * MIB, 0);
	log_close(b.log);
	for (int i = 0; i < 2; i++) /* it is made again for half of the card */
		assert_int_equal(sim_poke(b.c, b.super.copy_off_bytes[i],
					  (uint8_t[COW_BLK_BYTES]){ 0 }, COW_BLK_BYTES),
				 0);
	b.c->geo.size_bytes = 32 * GIB;
	assert_int_equal(super_plan(b.c, b.c, 30 * GIB, 0, &b.super, &missing), 0);
	assert_int_equal(card_set_writable(b.c, true), 0);
	assert_int_equal(super_write(b.c, &b.super), 0);
	assert_int_equal(card_set_writable(b.c, false), 0);
	see(b.c, b.c, 4 * MIB);
	big_open(&b);
	for (int i = 0; i < 30; i++)
		big_commit(&b, 300, 100, 150, rnd(7000));
	for (int k = 0; k < 2; k++) {
		const struct wear_table *w = log_wear(b.log);

		assert_int_equal(blk_to_bytes(w->geo.unit_blks), k ? 8 * MIB : 4 * MIB);
		assert_int_equal(wear_units(&w->geo), 8192);
		for (uint32_t i = 0; i < wear_units(&w->geo); i++) {
			blks[k] += w->unit[i].blks;
			visits[k] += w->unit[i].visits;
		}
		assert_int_equal(w->commit_n, 30);
		log_close(b.log);
		b.c->geo.size_bytes = 64 * GIB;
		big_open(&b);
	}
	assert_true(blks[0] > 30 * 400);
	assert_int_equal(blks[0], blks[1]);
	assert_int_equal(visits[0], visits[1]);
	big_commit(&b, 3, 3, 1, 0);
	assert_true(log_newest(b.log)->wear.blks <= 1);
	log_close(b.log);
	big_open(&b);
	assert_int_equal(b.rep.ledger.table_losses, 0);
	assert_int_equal(log_wear(b.log)->commit_n, 31);
	big_free(&b);
}

/* ---- clocks ---- */

static void day_lines(const struct wear_table *w, uint64_t *ret_lines, uint64_t *ret_bytes)
{
	*ret_lines = *ret_bytes = 0;
	for (uint32_t i = 0; i < WEAR_DAYS; i++) {
		*ret_lines += w->day[i].n != 0;
		*ret_bytes += w->day[i].written_bytes;
		for (uint32_t k = 0; k < i && w->day[i].n; k++)
			if (w->day[k].n)
				assert_int_not_equal(w->day[i].day, w->day[k].day);
	}
}

/* A clock that starts at 1970 at each boot, is set, jumps years ahead, and back. */
static void test_clock(void **state)
{
	const time_t start = 1700000000;
	uint64_t lines, bytes;
	struct wear_ledger t;
	struct big b;

	(void)state;
	rnd_state = 10;
	fake_s = 12;
	big_make(&b, GIB, 4 * MIB, 4 * MIB, 0);
	big_commit(&b, 4, 4, 2, 3);
	assert_int_equal(log_newest(b.log)->ledger.first_s, 0);
	for (int boot = 0; boot < 60; boot++) {
		fake_s = 7 + boot;
		big_commit(&b, 2, 2, 2, 3);
		fake_s = start + boot * 86400 / 2;
		big_commit(&b, 2, 2, 2, 3);
		if (boot % 20 == 10) {
			fake_s = start + 20 * 365 * 86400;
			big_commit(&b, 2, 2, 2, 3);
		}
		if (boot % 7 == 0)
			big_reopen(&b, boot % 2);
	}
	log_totals(b.log, &t);
	assert_int_equal(t.first_s, start);
	day_lines(log_wear(b.log), &lines, &bytes);
	/* not set; 60 half days, which begin at 22:13; the far one */
	assert_int_equal(lines, 1 + 31 + 1);
	assert_int_equal(bytes, t.written_bytes);
	/* every commit on another day, for longer than there are lines, backwards */
	for (int i = 0; i < WEAR_DAYS + 50; i++) {
		fake_s = start - (i + 1) * 86400;
		big_commit(&b, 1, 1, 1, 3);
	}
	big_reopen(&b, true);
	day_lines(log_wear(b.log), &lines, &bytes);
	assert_int_equal(lines, WEAR_DAYS);
	assert_true(bytes <= t.written_bytes + 450 * 64 * KIB);
	fake_s = start;
	big_free(&b);
}

/* ---- counters at their end ---- */

static void change_newest(struct big *b, void (*change)(struct log_record *r, uint8_t *blk))
{
	uint64_t off = b->super.ring_off_bytes + blk_to_bytes(log_newest(b->log)->lblk);
	uint8_t *blk = io_alloc(COW_BLK_BYTES);
	struct log_record r;

	b->super = *log_super(b->log); /* its uuid was drawn by the first commit */
	assert_int_equal(sim_peek(b->c, off, blk, COW_BLK_BYTES), 0);
	assert_int_equal(codec_get_record(blk, b->super.ring_uuid, &r), 0);
	change(&r, blk);
	codec_put_record(blk, &r);
	log_close(b->log);
	sim_power_cycle(b->c, NULL, NULL);
	assert_int_equal(sim_poke(b->c, off, blk, COW_BLK_BYTES), 0);
	b->c->writable = false;
	free(blk);
	big_open(b);
}

static void ledger_full(struct log_record *r, uint8_t *blk)
{
	uint64_t *counter = (uint64_t *)&r->ledger;

	(void)blk;
	for (size_t i = 0; i < sizeof(r->ledger) / sizeof(*counter); i++)
		counter[i] = i % 2 ? UINT64_MAX - 2 : WEAR_COUNTER_MAX - 2;
}

static void all_at_end(const struct wear_ledger *t)
{
	const uint64_t *counter = (const uint64_t *)t;
	uint64_t full = 0;

	for (size_t i = 0; i < sizeof(*t) / sizeof(*counter); i++) {
		assert_true(counter[i] >= WEAR_COUNTER_MAX - 2);
		full += counter[i] == WEAR_COUNTER_MAX;
	}
	assert_true(full >= sizeof(*t) / sizeof(*counter) / 2);
}

static size_t varint(uint8_t *p, uint64_t v)
{
	size_t n = 0;

	for (; v >= 0x80; v >>= 7)
		p[n++] = (uint8_t)(v | 0x80);
	p[n++] = (uint8_t)v;
	return n;
}

static void test_overflow(void **state)
{
	struct wear_geometry g;
	struct wear *w;
	/* 2^32-2, 2^32-1 */
	uint8_t run[] = { 3, 2 << 1, 0xfe, 0xff, 0xff, 0xff, 0x0f, 0xff, 0xff, 0xff, 0xff, 0x0f,
			  /* 2^64-1, 1 */
			  0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 1 };
	struct big b;

	(void)state;
	rnd_state = 11;
	big_make(&b, GIB, 4 * MIB, 4 * MIB, 0);
	big_commit(&b, 4, 4, 2, 3);
	change_newest(&b, ledger_full);
	for (int i = 0; i < 4; i++) {
		big_commit(&b, 9, 9, 3, 3);
		all_at_end(&log_newest(b.log)->ledger);
		log_close(b.log);
		big_open(&b);
		all_at_end(&b.rep.ledger);
	}
	big_free(&b);

	wear_plan(&g, 4 * MIB, WEAR_MAX_UNITS, 0, GIB, 0, 0);
	assert_int_equal(wear_new(&w, &g), 0);
	assert_true(wear_merge(w, run, sizeof(run)));
	assert_int_equal(wear_table_of(w)->unit[3].blks, UINT32_MAX - 1);
	assert_int_equal(wear_table_of(w)->unit[4].blks, UINT32_MAX);
	for (int i = 0; i < 3; i++) {
		wear_new_window(w);
		wear_count(w, 0, 3 * 1024 + 5, 1500);
	}
	assert_int_equal(wear_table_of(w)->unit[3].blks, UINT32_MAX);
	assert_int_equal(wear_table_of(w)->unit[3].visits, UINT32_MAX);
	assert_int_equal(wear_table_of(w)->unit[4].blks, UINT32_MAX);
	assert_int_equal(wear_table_of(w)->unit[4].visits, 1 + 3);
	wear_free(w);
	/* a line of today with all at the end does not go round either, and a number that is none
	 * is none */
	for (int i = 0; i < 2; i++) {
		const uint64_t n = i ? UINT64_MAX - UINT64_MAX % WEAR_DAYS : WEAR_DAYS,
			       day = 1700000000 / 86400;
		const struct wear_ledger more = { .written_bytes = 4096 };
		uint8_t line[128], *p = line;

		assert_int_equal(wear_new(&w, &g), 0);
		p += varint(p, wear_units(&g) + WEAR_COMMITS); /* the first day, one item */
		p += varint(p, 1 << 1);
		p += varint(p, n);
		p += varint(p, day);
		for (int k = 0; k < 5; k++)
			p += varint(p, UINT64_MAX);
		assert_true(wear_merge(w, line, (size_t)(p - line)));
		assert_int_equal(wear_table_of(w)->day_n, i ? 0 : n);
		wear_note(w, &more, 1700000000, RECORD_TAIL, CAUSE_TIMER);
		assert_int_equal(wear_table_of(w)->day_n, i ? 1 : n);
		assert_int_equal(wear_table_of(w)->day[i].written_bytes,
				 i ? 4096 : WEAR_COUNTER_MAX + 4096);
		wear_free(w);
	}
}

/* ---- rot ---- */

static void rot(struct log_record *r, uint8_t *blk)
{
	uint32_t *word[] = { &r->wear.blks,	 &r->wear.crc,	     &r->wear.eb_blks,
			     &r->wear.unit_blks, &r->wear.units[0],  &r->wear.units[1],
			     &r->wear.rotor,	 &r->wear.debt_blks, &r->wear.bytes };

	if (rnd(3) == 0)
		*word[rnd(ARRAY_SIZE(word))] = rnd(2) ? (uint32_t)rnd(UINT32_MAX)
						      : (uint32_t)rnd(4000);
	if (rnd(4) == 0)
		r->wear.lblk = rnd(2) ? rnd(UINT32_MAX) : rnd(9000);
	if (rnd(4) == 0)
		r->wear.prev = (struct record_ptr){ rnd(50), rnd(50), rnd(9000) };
	if (rnd(2))
		for (uint64_t n = 1 + rnd(2000); n; n--)
			blk[RECORD_WEAR_OFF + rnd(RECORD_WEAR_ROOM)] = (uint8_t)rnd(256);
}

/* Checksums are good, what they cover is not: the log is the same, and goes on. */
static void test_rot(void **state)
{
	uint64_t losses = 0;
	struct big b;

	(void)state;
	for (unsigned seed = 1; seed <= 150; seed++) {
		uint64_t seq, lblk;

		rnd_state = seed;
		big_make(&b, GIB, 256 * KIB, 256 * KIB, 0);
		for (int i = 0; i < 4; i++)
			big_commit(&b, 1 + (unsigned)rnd(1500), 1 + (unsigned)rnd(50), 1 + rnd(900),
				   3);
		seq = log_newest(b.log)->seq;
		if (log_newest(b.log)->wear.blks && rnd(2)) {
			lblk = log_newest(b.log)->wear.lblk;
			assert_int_equal(
				sim_poke(b.c,
					 b.super.ring_off_bytes + blk_to_bytes(lblk) + rnd(4000),
					 "rotten", 6),
				0);
		}
		change_newest(&b, rot);
		assert_int_equal(log_newest(b.log)->seq, seq);
		assert_int_equal(b.rep.ledger.commits, 4);
		for (int i = 0; i < 3; i++)
			big_commit(&b, 20, 20, 5, 3);
		log_close(b.log);
		big_open(&b);
		assert_int_equal(b.rep.ledger.commits, 7);
		losses += b.rep.ledger.table_losses;
		big_free(&b);
	}
	print_message("%llu of 150 tables had lost a part\n", (unsigned long long)losses);
	assert_true(losses > 5);
}

/* Any bytes. */
static void test_merge_noise(void **state)
{
	struct wear_geometry g;
	struct wear *w;
	uint8_t buf[300];

	(void)state;
	rnd_state = 12;
	wear_plan(&g, 4 * MIB, WEAR_MAX_UNITS, 0, 100 * MIB, 0, 50 * MIB);
	assert_int_equal(wear_new(&w, &g), 0);
	for (int i = 0; i < 20000; i++) {
		size_t len = rnd(sizeof(buf));

		rnd_fill(buf, len);
		for (size_t k = 0; k < len && i % 2; k++)
			buf[k] &= 0x1f;
		(void)wear_merge(w, buf, len);
	}
	wear_free(w);
}

/* What is encoded, in pieces of any size, is what is merged. */
static void test_encode(void **state)
{
	struct wear_geometry g;
	struct wear *w, *v;
	uint8_t buf[700];

	(void)state;
	rnd_state = 13;
	wear_plan(&g, 4 * MIB, WEAR_MAX_UNITS, 12 * MIB + 32 * KIB, 3 * GIB, 5 * MIB, GIB);
	for (int round = 0; round < 200; round++) {
		struct wear_ledger t = { 0 };

		assert_int_equal(wear_new(&w, &g), 0);
		assert_int_equal(wear_new(&v, &g), 0);
		for (uint64_t n = rnd(400); n; n--) {
			wear_count(w, 0, (12 * MIB + 32 * KIB) / 4096 + rnd(3 * GIB / 4096 - 3000),
				   1 + rnd(3000));
			wear_count(w, 1, 5 * MIB / 4096 + rnd(GIB / 4096 - 30), 1 + rnd(30));
			t.commits++;
			t.written_bytes += rnd(1u << 30);
			wear_note(w, &t, 1700000000 + rnd(400 * 86400), RECORD_COMMIT, CAUSE_TIMER);
		}
		for (uint32_t passed = 0; wear_changed(w) || wear_missing(v);) {
			size_t room = 40 + rnd(sizeof(buf) - 40), want = wear_encoded_bytes(w, 60);
			size_t len = wear_encode(w, buf, room, 60, &passed);

			assert_true(len <= room);
			assert_true(len <= want);
			assert_true(wear_merge(v, buf, len));
		}
		assert_memory_equal(wear_table_of(w), wear_table_of(v), wear_table_bytes(&g));
		assert_int_equal(wear_table_of(w)->commit_n, t.commits);
		wear_free(w);
		wear_free(v);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_encode),		cmocka_unit_test(test_merge_noise),
		cmocka_unit_test(test_schedules),	cmocka_unit_test(test_years),
		cmocka_unit_test(test_large_units),	cmocka_unit_test(test_ring_laps),
		cmocka_unit_test(test_failed_attempts), cmocka_unit_test(test_unreadable),
		cmocka_unit_test(test_grown),		cmocka_unit_test(test_clock),
		cmocka_unit_test(test_overflow),	cmocka_unit_test(test_rot),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
