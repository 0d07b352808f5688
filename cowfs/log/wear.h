/* SPDX-License-Identifier: MIT */
/*
 * The wear table: the part of the ledger that is too large for one record. It has the bytes and
 * visits of every erase block, the last commits, and a line for each of the last days. This is
 * its form in memory. wearlog.c and docs/FORMAT.md have its form in the ring.
 *
 * Every number only grows (later items of the two rings replace earlier ones), so copies of any
 * age are merged by maximum, in any order. One thread; allocates only in wear_new.
 */
#ifndef COWFS_LOG_WEAR_H
#define COWFS_LOG_WEAR_H

#include "log/format.h"

enum { WEAR_MAX_UNITS = 8192, WEAR_COMMITS = 64, WEAR_DAYS = 400 };

/* Where the units lie. A unit is one erase block, or as many consecutive ones as needed to give
 * a device at most `max units` units. */
struct wear_geometry {
	uint32_t eb_blks;   /* erase block */
	uint32_t unit_blks; /* eb_blks times a power of two */
	uint32_t units[2];  /* of the base; of the log device, 0 if the ring is on the base */
	/* unit of the first byte of the device, counted from the start of its disk */
	uint64_t first_unit[2];
};

/* A unit. Both counters stop at UINT32_MAX. A write counts as a visit when it goes to another
 * erase block than the previous write, or is the first since the card was set writable. */
struct wear_unit {
	uint32_t blks, visits;
};

/* Everything since the previous entry. */
struct wear_commit {
	uint64_t n; /* number in the life of this card, from 1; 0: no entry */
	uint64_t time_s;
	uint64_t cause;
	uint64_t absorbed_bytes, written_bytes;
	uint64_t writable_ms;
	uint64_t visits;
};

struct wear_day {
	uint64_t n;   /* in the order of their start, from 1; 0: no entry */
	uint64_t day; /* since 1970-01-01 UTC; 0: the clock was not set */
	uint64_t absorbed_bytes, absorbed_writes, written_bytes;
	uint64_t commits;
	uint64_t visits;
};

struct wear_table {
	struct wear_geometry geo;
	struct wear_commit commit[WEAR_COMMITS]; /* entry n at n % WEAR_COMMITS */
	struct wear_day day[WEAR_DAYS];		 /* entry n at n % WEAR_DAYS */
	uint64_t commit_n, day_n;		 /* newest entries, 0: none */
	struct wear_unit unit[];		 /* base, then log device */
};

/* A part of a table that fits into a reply of a few KiB, of one kind only, from item `first` on;
 * next 0: the table ends here. */
enum { WEAR_PART_UNITS = 300, WEAR_PART_COMMITS = 24, WEAR_PART_DAYS = 30 };
struct wear_part {
	uint32_t next;
	uint32_t units, commits, days; /* number of each; empty entries are left out */
	struct wear_unit unit[WEAR_PART_UNITS];
	struct wear_commit commit[WEAR_PART_COMMITS];
	struct wear_day day[WEAR_PART_DAYS];
};
void wear_take_part(const struct wear_table *t, uint32_t first, struct wear_part *ret);

/* Never fails: a device of any size gets units large enough. eb_bytes 0: 4 MiB. */
void wear_plan(struct wear_geometry *ret, uint64_t eb_bytes, uint64_t max_units,
	       uint64_t base_off_bytes, uint64_t base_bytes, uint64_t log_off_bytes,
	       uint64_t log_bytes);
static inline uint32_t wear_units(const struct wear_geometry *g)
{
	return g->units[0] + g->units[1];
}
size_t wear_table_bytes(const struct wear_geometry *g);

/* Caps counters at WEAR_COUNTER_MAX: whatever a record says, adding to them does not wrap. */
void wear_stop(struct wear_ledger *t);

struct wear;

int wear_new(struct wear **ret, const struct wear_geometry *geo) MUST_CHECK;
void wear_free(struct wear *w); /* NULL allowed */
const struct wear_table *wear_table_of(const struct wear *w);

/* Counts a write of `blks` blocks, from block `disk_blk` of the disk of device dev on. */
void wear_count(struct wear *w, unsigned dev, uint64_t disk_blk, uint64_t blks);
/* The card has been set writable: the next write is a visit. */
void wear_new_window(struct wear *w);
/* Visits counted since wear_new. */
uint64_t wear_visits(const struct wear *w);

/* Takes totals as a record carries them. The increase since the last call goes to today's line
 * and to that of the newest commit; a commit record begins a new one. The increase of an open
 * record belongs to the next commit. */
void wear_note(struct wear *w, const struct wear_ledger *totals, uint64_t time_s,
	       enum record_type type, enum commit_cause cause);
/* What was written up to these totals belongs to no commit. */
void wear_skip_commit(struct wear *w, const struct wear_ledger *totals);
/* Sets the totals that the table has already, from records found at attach. */
void wear_since(struct wear *w, const struct wear_ledger *totals);

/* ---- copies in the ring. Items are numbered: units, commits, days. ---- */

/* The age of an item is the number of blocks that the ring has gone through since its newest copy. */
#define WEAR_DUE UINT32_MAX /* has no copy that counts */

/* Encodes into buf the items that are due, and then others, the oldest first, each at most once for one place of the
 * ring. Returns the bytes used. */
size_t wear_encode(struct wear *w, uint8_t *buf, size_t room_bytes);
/* Bytes needed for the items that are due; at least what wear_encode uses for them. */
size_t wear_due_bytes(const struct wear *w);
/* The ring has gone on. What is due_blks old then is due. */
void wear_grow_older(struct wear *w, uint64_t blks, uint64_t due_blks);
void wear_make_due(struct wear *w); /* all items; so they are in a new table */
/* Merges a copy of this age, which is that of the items that were due. Invalid bytes end the merge: false. */
bool wear_merge(struct wear *w, const uint8_t *buf, size_t len_bytes, uint32_t age_blks);
bool wear_missing(const struct wear *w); /* some item is due */
/* Takes over everything from a table with another geometry; all of it is due. */
void wear_take_over(struct wear *w, const struct wear *from);

#endif
