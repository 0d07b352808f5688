/* SPDX-License-Identifier: MIT */
/*
 * What of the ledger is too large for one record: the wear table. Bytes and visits of every erase
 * block, the last commits, and a line for each of the last days. In memory here; how it lies in the
 * ring: wearlog.c and docs/FORMAT.md.
 *
 * Every number only grows (items of the two rings are replaced by later ones), so copies of any age
 * are merged by maximum, in any order. One thread; allocates only in wear_new.
 */
#ifndef COWFS_LOG_WEAR_H
#define COWFS_LOG_WEAR_H

#include "log/format.h"

enum { WEAR_MAX_UNITS = 8192, WEAR_COMMITS = 64, WEAR_DAYS = 400 };

/* Where the units lie. A unit is an erase block, or so many in a row that a device has at most `max
 * units` of them. */
struct wear_geometry {
	uint32_t eb_blks;   /* erase block */
	uint32_t unit_blks; /* eb_blks times a power of two */
	uint32_t units[2];  /* of the base; of the log device, 0 if the ring is on the base */
	/* that of the device's first byte, counted from the start of its disk */
	uint64_t first_unit[2];
};

/* A unit. Both stop at UINT32_MAX. A visit is counted when a write goes to another erase block than
 * the write before it, or is the first since the card was set writable. */
struct wear_unit {
	uint32_t blks, visits;
};

/* Everything since the entry before. */
struct wear_commit {
	uint64_t n; /* of this card's life, from 1; 0: no entry */
	uint64_t time_s;
	uint64_t cause;
	uint64_t absorbed_bytes, written_bytes;
	uint64_t writable_ms;
	uint64_t visits;
};

struct wear_day {
	uint64_t n;   /* in which order they were begun, from 1; 0: no entry */
	uint64_t day; /* since 1970-01-01 UTC; 0: by a clock that was not set */
	uint64_t absorbed_bytes, absorbed_writes, written_bytes;
	uint64_t commits;
	uint64_t visits;
};

struct wear_table {
	struct wear_geometry geo;
	struct wear_commit commit[WEAR_COMMITS]; /* entry n at n % WEAR_COMMITS */
	struct wear_day day[WEAR_DAYS];		 /* the same */
	uint64_t commit_n, day_n;		 /* newest entries, 0: none */
	struct wear_unit unit[];		 /* base, then log device */
};

/* A part of a table that fits into an answer of some KiB, of one kind only: from item `first` on;
 * next 0: that was all. */
enum { WEAR_PART_UNITS = 300, WEAR_PART_COMMITS = 24, WEAR_PART_DAYS = 30 };
struct wear_part {
	uint32_t first, next;
	uint32_t units, commits, days; /* how many of each; entries that are empty are left out */
	struct wear_unit unit[WEAR_PART_UNITS];
	struct wear_commit commit[WEAR_PART_COMMITS];
	struct wear_day day[WEAR_PART_DAYS];
};
void wear_take_part(const struct wear_table *t, uint32_t first, struct wear_part *ret);

/* Never fails: a device without end has units of any size. eb_bytes 0: 4 MiB. */
void wear_plan(struct wear_geometry *ret, uint64_t eb_bytes, uint64_t max_units,
	       uint64_t base_off_bytes, uint64_t base_bytes, uint64_t log_off_bytes,
	       uint64_t log_bytes);
static inline uint32_t wear_units(const struct wear_geometry *g)
{
	return g->units[0] + g->units[1];
}
size_t wear_table_bytes(const struct wear_geometry *g);
/* Offset on its disk of the first byte of unit i, and whose it is (0: the base). */
uint64_t wear_unit_off_bytes(const struct wear_geometry *g, uint32_t i, unsigned *ret_dev);

/* Counters end at WEAR_COUNTER_MAX: whatever a record says, adding to it does not go round. */
void wear_stop(struct wear_ledger *t);

struct wear;

int wear_new(struct wear **ret, const struct wear_geometry *geo) MUST_CHECK;
void wear_free(struct wear *w); /* NULL allowed */
const struct wear_table *wear_table_of(const struct wear *w);

/* A write of `blks` blocks from block `disk_blk` of the disk of device dev on. */
void wear_count(struct wear *w, unsigned dev, uint64_t disk_blk, uint64_t blks);
/* The card has been set writable: the next write is a visit. */
void wear_new_window(struct wear *w);
/* Visits counted since wear_new. */
uint64_t wear_visits(const struct wear *w);
/* Would a write to this block of the disk be a visit? */
bool wear_is_visit(const struct wear *w, unsigned dev, uint64_t disk_blk);

/* Totals as a record carries them: what has come since the last call goes to today's line, and to
 * that of the newest commit; a commit record begins one. What an open record brings belongs to the
 * commit to come. */
void wear_note(struct wear *w, const struct wear_ledger *totals, uint64_t time_s,
	       enum record_type type, enum commit_cause cause);
/* The totals that the table knows already, of records found at attach. */
void wear_since(struct wear *w, const struct wear_ledger *totals);

/* ---- copies in the ring. Items are numbered: units, commits, days. ---- */

/* Encodes into buf what has changed and is in no copy yet, then others in turn from the rotor on.
 * rotor_items: how many of those at least, if there is room; UINT32_MAX: as many as fit, once
 * round. Returns the bytes used; *ret_rotor: items that the rotor has passed. */
size_t wear_encode(struct wear *w, uint8_t *buf, size_t room_bytes, uint32_t rotor_items,
		   uint32_t *ret_rotor);
/* How many bytes the changed items need, and rotor_items of the rotor behind them; no less than
 * wear_encode uses. */
size_t wear_encoded_bytes(const struct wear *w, uint32_t rotor_items);
bool wear_changed(const struct wear *w);
void wear_copies_durable(struct wear *w); /* all that was encoded so far need not be copied again */
/* what was encoded since the last wear_copies_durable may be lost */
void wear_copies_lost(struct wear *w);
void wear_change_all(struct wear *w);
uint32_t wear_items(const struct wear *w);
uint32_t wear_rotor(const struct wear *w);
void wear_set_rotor(struct wear *w, uint32_t rotor);
/* Merges a copy. Bytes that make no sense end it: false. What it covers is marked as found. */
bool wear_merge(struct wear *w, const uint8_t *buf, size_t len_bytes);
/* Items that no copy has had yet. */
uint32_t wear_missing(const struct wear *w);
/* Takes over everything of a table with another geometry; all of it counts as changed. */
void wear_take_over(struct wear *w, const struct wear *from);

#endif
