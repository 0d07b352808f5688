/* SPDX-License-Identifier: MIT */
/* The device's view, counted separately from all code under test, and a large card with a log.
 * Behind cmocka.h. */
#ifndef COWFS_TESTS_WEAR_SEEN_H
#define COWFS_TESTS_WEAR_SEEN_H

#include "test.h"
#include "log/codec.h"
#include "logcard.h"
#include "toy.h"

static time_t fake_s = 1700000000;
time_t __wrap_time(time_t *t);
/* the name of time() on 32-bit machines */
time_t __wrap___time64(time_t *t) __attribute__((alias("__wrap_time")));

time_t __wrap_time(time_t *t)
{
	if (t)
		*t = fake_s;
	return fake_s;
}

static inline uint64_t env_number(const char *name, uint64_t otherwise)
{
	const char *s = getenv(name);

	return s ? strtoull(s, NULL, 10) : otherwise;
}

/* ---- the device's view, counted separately from all code under test ---- */

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

static inline int see_write(struct card *c, uint64_t off, const void *buf, size_t len)
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

/* Reads are recorded, and one block may be unreadable: permanently, or a number of times. */
enum { NOTED_READS = 4096 };
static uint64_t noted_off[NOTED_READS], bad_off = UINT64_MAX;
static unsigned noted_reads, bad_times = UINT32_MAX;

static inline int see_read(struct card *c, uint64_t off, void *buf, size_t len)
{
	if (noted_reads < NOTED_READS && len == COW_BLK_BYTES)
		noted_off[noted_reads++] = off;
	if (bad_off >= off && bad_off - off < len && bad_times) {
		bad_times--;
		return -EIO;
	}
	return sim_real->read(c, off, buf, len);
}

static inline int see_writable(struct card *c, bool on)
{
	int r = sim_real->set_writable(c, on);

	if (on && r == 0)
		seen_eb = UINT64_MAX;
	return r;
}

/* From now on; the card has one erase block per unit by default. */
static inline void see(struct card *base, struct card *log, uint64_t unit_bytes)
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

static inline struct seen seen_now(void)
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

static uint64_t at_seed; /* for the analysis of a failure */

static inline void between(const char *what, uint64_t low, uint64_t v, uint64_t high)
{
	if (v < low || v > high)
		fail_msg("schedule %llu: %s %llu is not in %llu..%llu", (unsigned long long)at_seed,
			 what, (unsigned long long)v, (unsigned long long)low,
			 (unsigned long long)high);
}

/* As a daemon opens its devices again. */
static inline void reset_account(struct card *c)
{
	struct card_account *a = &c->account;

	a->write_calls = a->written_bytes = a->read_calls = a->read_bytes = a->flushes =
		a->writable_ns = 0;
}

/* ---- a large card over years ---- */

struct big {
	struct card *c;
	struct log_super super;
	struct log *log;
	struct log_open_report rep;
	uint8_t *data;
	uint64_t commits, wear_blks, small_commits, small_most, most, large_wear_blks, large_blks;
	unsigned open_units; /* what is known of the card; 0: nothing */
};

static inline void big_open(struct big *b)
{
	unsigned trouble;

	reset_account(b->c);
	assert_int_equal(super_read(b->c, b->super.fs_bytes, &b->super, &trouble), 0);
	assert_int_equal(log_open(&b->log, b->c, b->c, &b->super, 0, NULL, &b->rep), 0);
	assert_int_not_equal(b->rep.state, LOG_BROKEN);
	log_wear_load(b->log);
	assert_non_null(log_wear(b->log));
}

static inline void big_make(struct big *b, uint64_t size_bytes, uint32_t eb_bytes,
			    uint64_t unit_bytes, uint64_t off_bytes)
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

static inline void big_free(struct big *b)
{
	log_close(b->log);
	card_close(b->c);
	free(b->data);
}

static inline void big_checkpoint(struct big *b, uint32_t flags)
{
	const struct log_content content = { .unit_bytes = b->super.erase_block_bytes,
					     .open_units = b->open_units };
	struct log_index *ix;

	assert_int_equal(card_set_writable(b->c, true), 0);
	assert_int_equal(log_prepare(b->log), 0);
	assert_int_equal(log_checkpoint(b->log, &content, NULL, NULL, &ix), 0);
	log_index_unref(ix);
	assert_int_equal(log_put_tail(b->log, RECORD_TAIL, flags, CAUSE_TIMER), 0);
	assert_int_equal(card_set_writable(b->c, false), 0);
}

/* direct and logged blocks, in this number of erase blocks all over the card: few in each, to save
 * memory */
static inline void big_commit(struct big *b, unsigned direct, unsigned logged, uint64_t ebs,
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
	if (b->open_units)
		log_begin_fresh(b->log, 1, 1, logged + direct / 100 + 200);
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

static inline void big_compare(struct big *b)
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

static inline void big_reopen(struct big *b, bool cut)
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

#endif
