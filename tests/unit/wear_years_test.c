// SPDX-License-Identifier: MIT
/* The wear table of a large card over years. */
#include "test.h"
#include "log/codec.h"
#include "logcard.h"
#include "toy.h"
#include "wear_seen.h"

/* ---- a large card over years ---- */

/* An hour of a machine's life. Once a day a large commit, once a week more than twice the ring. */
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

TEST(test_years)
{
	uint64_t hours = max_u64(1, env_number("COWFS_WEAR_YEARS", 1)) * 8766, start_ns = now_ns(),
		 days = 0;
	const struct wear_table *w;
	struct big b;

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
TEST(test_large_units)
{
	struct big b;

	rnd_state = 8;
	big_make(&b, 1024 * GIB, 4 * MIB, 128 * MIB, 0);
	assert_int_equal(wear_units(&log_wear(b.log)->geo), 8192);
	for (uint64_t h = 1; h < 200; h++)
		big_hour(&b, h);
	big_free(&b);
}

static void fill_table(struct big *b)
{
	/* as if it were written, without the content */
	for (int round = 0; round < 300; round++)
		for (uint64_t i = 0; i < 8192; i++) {
			b->c->wrote(b->c->wrote_ctx, b->c, i * 4 * MIB, 4 * MIB);
			seen.blks[i] += 1024;
			seen.unit_visits[i] += 1;
		}
	seen_eb = UINT64_MAX - 1; /* no such block */
}

static void reopen_exactly(struct big *b)
{
	const struct wear_table *w;

	log_close(b->log);
	sim_power_cycle(b->c, NULL, NULL);
	b->c->writable = false;
	seen_eb = UINT64_MAX;
	big_open(b);
	w = log_wear(b->log);
	assert_int_equal(b->rep.ledger.table_losses, 0);
	for (uint32_t k = 0; k < 8192; k++)
		assert_int_equal(w->unit[k].blks, seen_now().blks[k]);
}

/* Every unit has many writes, so that the table has its maximum length. Commits are so large that
 * each overwrites the blocks of the last but one in the ring. */
TEST(test_ring_laps)
{
	struct big b;

	rnd_state = 14;
	big_make(&b, 32 * GIB, 4 * MIB, 4 * MIB, 0);
	big_commit(&b, 1, 1, 1, 0);
	fill_table(&b);
	for (int i = 0; i < 60; i++) {
		big_commit(&b, 1, 3500, 1, rnd(7000));
		if (i % 3 == 0)
			reopen_exactly(&b);
	}
	assert_true(b.most <= 1 + 3500 / 128 + 1);
	big_free(&b);
}

/* The same table, and small commits that go home at once: each takes three erase blocks of a ring of six. */
TEST(test_erase_block_laps)
{
	struct big b;

	rnd_state = 16;
	big_make(&b, 32 * GIB, 4 * MIB, 4 * MIB, 0);
	log_close(b.log);
	b.super.seg_count = 6;
	assert_int_equal(card_set_writable(b.c, true), 0);
	assert_int_equal(super_write(b.c, &b.super), 0);
	assert_int_equal(card_set_writable(b.c, false), 0);
	see(b.c, b.c, 4 * MIB);
	big_open(&b);
	b.open_units = 1;
	big_commit(&b, 1, 1, 1, 0);
	fill_table(&b);
	for (int i = 0; i < 60; i++) {
		big_commit(&b, 1, 5, 1, rnd(7000));
		big_checkpoint(&b, RECORD_CLEAN);
		if (i % 3 == 2)
			reopen_exactly(&b);
	}
	big_free(&b);
}

/* Failed attempts lose their copies, and their writes belong to the next commit that succeeds. */
TEST(test_failed_attempts)
{
	struct log_index *ix;
	struct big b;

	rnd_state = 15;
	big_make(&b, 32 * GIB, 4 * MIB, 4 * MIB, 0);
	for (int i = 0; i < 30; i++) {
		uint64_t written = 0;
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
		}
		sim_fail_at(b.c, i % 2 ? SIM_WRITE : SIM_FLUSH, 2, -EIO, false);
		assert_int_equal(log_end(b.log, CAUSE_TIMER, 0, &ix), -EIO);
		log_abort(b.log);
		/* nor may a record behind whose blocks of copies the base cannot be read */
		bad_off = 1024;
		bad_times = 1;
		assert_int_equal(log_prepare(b.log), -EIO);
		assert_int_equal(bad_times, 0);
		bad_off = UINT64_MAX;
		bad_times = UINT32_MAX;
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

/* The table on the card without one block: every record of the ring, in any order. */
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
		assert_true(wear_merge(w, blk + RECORD_WEAR_OFF, r.wear.bytes, 0));
		for (uint32_t i = 0, lblk = (uint32_t)r.wear.lblk; i < r.wear.blks; i++, lblk++) {
			uint64_t at;
			size_t len;

			lblk += lblk % (b->super.seg_bytes / COW_BLK_BYTES) == 0; /* a head */
			at = b->super.ring_off_bytes + blk_to_bytes(lblk);
			assert_int_equal(sim_peek(b->c, at, copy, sizeof(copy)), 0);
			if (at != without_off &&
			    codec_get_wear(copy, b->super.ring_uuid, r.epoch, r.seq, i, &len) == 0)
				assert_true(wear_merge(w, copy + WEAR_BLK_OFF, len, 0));
		}
	}
	return w;
}

/* Opens the log, and then cannot read the block at off, this number of times. Returns the reported
 * losses. */
static uint64_t load_without(struct big *b, uint64_t off, unsigned times)
{
	struct wear_ledger before, after;
	unsigned trouble;

	log_close(b->log);
	reset_account(b->c);
	assert_int_equal(super_read(b->c, b->super.fs_bytes, &b->super, &trouble), 0);
	assert_int_equal(log_open(&b->log, b->c, b->c, &b->super, 0, NULL, &b->rep), 0);
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

/*
 * Each block of the ring that is read during the search for the table cannot be read, twice or
 * permanently. Twice has no effect. Otherwise a loss is reported. The table then contains
 * everything on the rest of the card, never more than was counted, and is copied again.
 */
TEST(test_unreadable)
{
	unsigned tried = 0, less = 0;
	struct big b;

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
			/* each piece has an older copy */
			assert_false(wear_missing(want));
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
		/* another place of the cycle, commits of all sizes */
		assert_int_equal(load_without(&b, UINT64_MAX, 0), 0);
		for (int i = 0; i < 25; i++)
			big_commit(&b, 40, i % 9 ? 4 : 900, 20, rnd(7000));
	}
	print_message("%u blocks could not be read; %u times units lack what only that one had\n",
		      tried, less);
	assert_true(tried > 20 && less > 0);
	/* reported once: from the next record on, the whole table is on the card again */
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

/* The partition has grown: units are twice as large, and contain the earlier counts. */
TEST(test_grown)
{
	uint64_t blks[2] = { 0 }, visits[2] = { 0 }, missing;
	struct big b;

	rnd_state = 9;
	big_make(&b, 64 * GIB, 4 * MIB, 8 * MIB, 0);
	log_close(b.log);
	for (int i = 0; i < 2; i++) /* it is created again for half of the card */
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
