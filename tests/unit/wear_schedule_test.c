// SPDX-License-Identifier: MIT
/* The wear table over random schedules on the toy card: commits, failures, power cuts. */
#include "test.h"
#include "log/codec.h"
#include "logcard.h"
#include "toy.h"
#include "wear_seen.h"

/* ---- random schedules on the toy card ---- */

enum { TRIED = 24 };

struct life {
	struct toy t;
	struct toy_image tried[TRIED];
	unsigned n_tried;
	struct seen at_open, offset; /* offset: permanent losses, and earlier counts */
	struct wear_ledger ledger;   /* at attach */
	struct wear_unit unit[64];   /* the same */
	struct wear_ledger acked;    /* of the newest record whose flush returned */
	struct wear_unit acked_unit[64];
	bool rest; /* nothing was written since */
};

static uint64_t schedules, cuts, exact, in_flight, failures, records;

/* From attach to now the ledger has grown by the device's count: every byte, call, flush, every
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

	/* before the first superblock no code searches for records */
	if (!log_newest(l->t.log)->seq || log_super(l->t.log)->state != SUPER_LIVE ||
	    l->acked.written_bytes == log_newest(l->t.log)->ledger.written_bytes)
		return;
	l->acked = log_newest(l->t.log)->ledger;
	memcpy(l->acked_unit, w->unit, wear_units(&w->geo) * sizeof(w->unit[0]));
	l->rest = true;
	records++;
}

/*
 * The found ledger is at least the acknowledged one, and at most what the device saw (less earlier
 * losses). It is exactly the acknowledged one if nothing was written since.
 */
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
	/* a record counts its flush in advance; the cut may have come before it */
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
	/* without a power cut the found ledger may be only in the card's cache */
	if (durable)
		l->n_tried = 0;
	else if (i)
		l->tried[i - 1] = old;
}

/* A session ends: with a power cut, or only the process. */
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
	at_seed = seed;
	rnd_begin(seed);
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

TEST(test_schedules)
{
	uint64_t n = env_number("COWFS_WEAR_SCHEDULES", 2000);
	uint64_t start_ns = now_ns();

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
