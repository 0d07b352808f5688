/* SPDX-License-Identifier: MIT */
/*
 * The ledger against the device: random schedules with failures and power cuts, cards of 32 GB and
 * years of commits, clocks that jump, counters at their maximum, copies that rot.
 *
 * The device's view is counted below the log, by the simulator and by separate hooks; the clock is
 * the test's (--wrap=time). COWFS_WEAR_SCHEDULES: number of random schedules (default 2000);
 * COWFS_WEAR_YEARS: years of hourly commits (default 1).
 */
#include "test.h"
#include "log/codec.h"
#include "logcard.h"
#include "toy.h"
#include "wear_seen.h"

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
TEST(test_clock)
{
	const time_t start = 1700000000;
	uint64_t lines, bytes;
	struct wear_ledger t;
	struct big b;

	rnd_begin(10);
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
	/* every commit on another day, for more days than there are lines, backwards */
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

/* ---- counters at their maximum ---- */

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

TEST(test_overflow)
{
	struct wear_geometry g;
	struct wear *w;
	/* 2^32-2, 2^32-1 */
	uint8_t run[] = { 3, 2 << 1, 0xfe, 0xff, 0xff, 0xff, 0x0f, 0xff, 0xff, 0xff, 0xff, 0x0f,
			  /* 2^64-1, 1 */
			  0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 1 };
	struct big b;

	rnd_begin(11);
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

	wear_plan(&g, 4 * MIB, WEAR_MAX_UNITS, 0, GIB + 1, 0, 0);
	assert_int_equal(g.units[0], 257);
	wear_plan(&g, 4 * MIB, WEAR_MAX_UNITS, 0, GIB, 0, 0);
	assert_int_equal(g.units[0], 256);
	assert_int_equal(wear_new(&w, &g), 0);
	assert_true(wear_merge(w, run, sizeof(run), 0));
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
	/* a line of today with all counters at their maximum does not wrap, either, and an invalid
	 * number is ignored */
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
		assert_true(wear_merge(w, line, (size_t)(p - line), 0));
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
	uint32_t *word[] = { &r->wear.blks,	 &r->wear.crc,	    &r->wear.eb_blks,
			     &r->wear.unit_blks, &r->wear.units[0], &r->wear.units[1],
			     &r->wear.bytes };

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

/* Checksums are right, their content is not: the log is unaffected, and continues. */
TEST(test_rot)
{
	uint64_t losses = 0;
	struct big b;

	for (unsigned seed = 1; seed <= 150; seed++) {
		uint64_t seq, lblk;

		rnd_begin(seed);
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
TEST(test_merge_noise)
{
	struct wear_geometry g;
	struct wear *w;
	uint8_t buf[300];

	rnd_begin(12);
	wear_plan(&g, 4 * MIB, WEAR_MAX_UNITS, 0, 100 * MIB, 0, 50 * MIB);
	assert_int_equal(wear_new(&w, &g), 0);
	for (int i = 0; i < 20000; i++) {
		size_t len = rnd(sizeof(buf));

		rnd_fill(buf, len);
		for (size_t k = 0; k < len && i % 2; k++)
			buf[k] &= 0x1f;
		(void)wear_merge(w, buf, len, 0);
	}
	wear_free(w);
}

/* The room that is left goes to the oldest copies, so a few records have all items; what is too old is due. */
TEST(test_oldest_first)
{
	struct wear_geometry g;
	struct wear *w, *v;
	uint8_t buf[RECORD_WEAR_ROOM];
	size_t all, records = 0;

	wear_plan(&g, 4 * MIB, WEAR_MAX_UNITS, 0, 8 * GIB, 0, 0);
	assert_int_equal(wear_new(&w, &g), 0);
	assert_int_equal(wear_new(&v, &g), 0);
	for (uint32_t i = 0; i < wear_units(&g); i++)
		wear_count(w, 0, i * 1024ull, 1000);
	for (all = wear_due_bytes(w); wear_missing(w); wear_grow_older(w, 1, 1000))
		(void)wear_encode(w, buf, sizeof(buf));
	for (; wear_missing(v); records++) {
		wear_count(w, 0, records % 2 * 1024 * 1024, 1);
		assert_true(wear_due_bytes(w) < 20);
		assert_true(wear_merge(v, buf, wear_encode(w, buf, sizeof(buf)), 0));
		wear_grow_older(w, 10, 1000);
	}
	assert_in_range(records, all / sizeof(buf), all / sizeof(buf) + 3);
	wear_grow_older(w, 999 - 10 * records, 1000);
	assert_int_equal(wear_due_bytes(w), 0);
	while (!wear_due_bytes(w))
		wear_grow_older(w, 10, 1000);
	assert_in_range(wear_due_bytes(w), 1, 2 * sizeof(buf));
	wear_grow_older(w, 1000, 1000);
	assert_in_range(wear_due_bytes(w), all, all + 20);
	wear_free(w);
	wear_free(v);
}

/* Encoded items, in pieces of any size, are the merged ones. */
TEST(test_encode)
{
	struct wear_geometry g;
	struct wear *w, *v;
	uint8_t buf[700];

	rnd_begin(13);
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
		while (wear_due_bytes(w) || wear_missing(v)) {
			size_t room = 40 + rnd(sizeof(buf) - 40), want = wear_due_bytes(w);
			size_t len = wear_encode(w, buf, room);

			assert_true(len <= room);
			assert_true(len <= want || !wear_due_bytes(w));
			assert_true(room < want + 16 || !wear_due_bytes(w));
			assert_true(wear_merge(v, buf, len, 0));
		}
		assert_memory_equal(wear_table_of(w), wear_table_of(v), wear_table_bytes(&g));
		assert_int_equal(wear_table_of(w)->commit_n, t.commits);
		wear_free(w);
		wear_free(v);
	}
}
