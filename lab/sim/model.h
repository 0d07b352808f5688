/* SPDX-License-Identifier: MIT */
/*
 * A model of a flash card's translation layer, of a disk, or of an array. It computes the time of
 * requests by a virtual clock, without waiting, and their effect on the medium: bytes programmed,
 * units erased, wear of each unit. It has no contents (sim/sim.h has them). Deterministic: integer
 * arithmetic, no time, and randomness only in the erase limits.
 *
 * The equations. A card is cut into units (an erase block, or what the card erases as one).
 * - A linear write costs t_W(s), a read t_R(s), or the random-read time if it does not follow the
 *   previous one. Reads never close units.
 * - A write to a unit that is not open opens it. If open_units are open already, the least
 *   recently used one is closed first: t = (unit - new) / C + t_e. new: bytes of it that were
 *   written since it was opened, none counted twice.
 * - A block is valid from its write to its discard; one that is discarded in part stays valid. A
 *   block-mapped card copies the rest of a unit, or nothing if no block of that rest is valid. A
 *   page-mapped one (absorb > 1) copies the valid blocks. A discard takes discard_us for each unit
 *   that it touches.
 * - *Switch*: a unit that was written whole and in order costs nothing if the stream continues in
 *   the next unit or through the same unit again (the published linear rate includes this), and
 *   t_e if another unit evicts it. One erase.
 * - *Partial*: the beginning of the unit was written, and the rest is copied. One erase.
 * - *Full*: any other case. Two erases.
 * - A write inside an open unit that does not continue the previous one makes the unit a random
 *   one. open_random of these may be open; with open_random 0 the unit is closed and opened again.
 * - absorb > 1 (a log that units share): scattered writes open no unit; they take blocks of a log.
 *   When the log is full, the unit with the oldest block in it is merged for valid / C + t_e, which
 *   frees all blocks of that unit. Its copies fill units together: one erase for each unit of them.
 *   The log has absorb * (512 MiB / unit) / 2 blocks. Random writes
 *   over 512 MiB, the measured area, then cost one merge for every absorb-th block (units are
 *   merged in turn, so each is on average halfway to its next merge). Writes to fewer units cost
 *   fewer merges, writes to more units cost more. A run of writes, among the last 16, gets its own
 *   unit once it is 64 KiB long. A large write (a quarter of the log) is not scattered.
 * - cheat_bytes: blocks of a working set up to this size stay in a cache, where a write costs t_W
 *   alone. front_bytes: separate tables, no merges.
 * - FLUSH costs sync_ns if there was a write since the last one.
 * - Erases wear physical units, chosen by the profile's mode: the least worn of the free units,
 *   then the lowest. With erase_limit each unit has its own limit, 3/4 to 5/4 of the nominal one.
 *   Without spare units the card becomes read-only.
 * - A disk: seek (see profile.h), latency, transfer at the rate of the position, which falls
 *   linearly from the outer edge.
 * - An array: requests are cut into chunks, members work at the same time. RAID-5 writes less than
 *   a stripe by reading old data and parity first.
 * - append_bytes: a layer of the host above the device gathers writes and appends them with its
 *   map. Its cleaner is not modelled: figures hold for a device with much free space.
 *
 * docs/design/flash.md, "The flash model", and profiles.json give the sources of the equations and
 * their constants.
 *
 * Calls never block, and only new and clone allocate. A model belongs to one thread at a time.
 */
#ifndef COWFS_SIM_MODEL_H
#define COWFS_SIM_MODEL_H

#include "sim/profile.h"

struct flash_model;

enum flash_model_flags {
	/*
	 * nothing was written yet; otherwise all units hold data, as on a card in its steady state
	 */
	FLASH_FRESH = 1,
	/* for estimates: no counters of physical units, so a copy costs only the open units */
	FLASH_NO_WEAR = 2,
};

enum flash_write_flags {
	FLASH_SYNC = 1,	 /* the write is durable when it returns: + sync_ns */
	FLASH_ALLOC = 2, /* with SYNC: the write extended the file: + alloc_ns */
};

/*
 * Since new or reset. For an array: sums of its members, but requests and bytes as received from
 * the host.
 */
struct flash_stats {
	uint64_t clock_ns; /* virtual time: requests one after another, plus flash_model_wait */
	/*
	 * Time of the requests if every member of an array always had one; otherwise the clock
	 * without waits
	 */
	uint64_t busy_ns;
	uint64_t read_ns; /* part of the clock: reads */
	uint64_t reads, read_bytes, writes, written_bytes, flushes, discards, discarded_bytes;
	uint64_t programmed_bytes; /* to flash: data of the host, copies, maps and parity */
	uint64_t copied_bytes;	   /* part of programmed_bytes: by merges and wear levelling */
	uint64_t erases;
	uint64_t switch_merges, partial_merges, full_merges, absorbed_writes;
	uint64_t longest_ns; /* of one request */
	/* the logical unit that caused most erases; 0 with FLASH_NO_WEAR, as is hottest_erases */
	uint64_t hottest_unit;
	uint64_t hottest_erases; /* for an array: of its worst member */
	/* most erases of one physical unit, since new. 0 with FLASH_NO_WEAR */
	uint64_t worst_erases;
	/* since new; 0 with FLASH_NO_WEAR */
	uint64_t spares_left, bad_units;
	bool read_only;
};

/*
 * size_bytes 0: that of the profile. For an array: the usable size. -EINVAL: the profile is not
 * usable (a size without a whole block, members that do not fit the level).
 */
int flash_model_new(struct flash_model **ret, const struct flash_profile *p, uint64_t size_bytes,
		    unsigned flags) MUST_CHECK;
int flash_model_clone(struct flash_model **ret, const struct flash_model *from) MUST_CHECK;
/*
 * Copies `from` to `to` without allocating. Both are made from the same profile and size (clones).
 * `to` may have FLASH_NO_WEAR if `from` has not. -EINVAL otherwise. A planner tries its candidates
 * on one such copy.
 */
int flash_model_copy(struct flash_model *to, const struct flash_model *from) MUST_CHECK;
void flash_model_free(struct flash_model *m); /* NULL allowed */

const struct flash_profile *flash_model_profile(const struct flash_model *m);
uint64_t flash_model_size_bytes(const struct flash_model *m);

/*
 * Returns the time of the request, by which the clock has advanced. Any offset and length; the
 * part behind the end is ignored. A write to a worn-out card (read_only) takes an overhead and
 * changes nothing.
 */
uint64_t flash_model_read(struct flash_model *m, uint64_t off_bytes, uint64_t len_bytes);
uint64_t flash_model_write(struct flash_model *m, uint64_t off_bytes, uint64_t len_bytes,
			   unsigned flags);
uint64_t flash_model_flush(struct flash_model *m);
/* What lies in it is not valid any more (see above). */
uint64_t flash_model_discard(struct flash_model *m, uint64_t off_bytes, uint64_t len_bytes);
/* The host is idle for this time. */
void flash_model_wait(struct flash_model *m, uint64_t ns);
/*
 * Completes the pending work of the card: closes all units, merges the content of a shared log,
 * and writes the data of an appending layer. Takes its time.
 */
uint64_t flash_model_settle(struct flash_model *m);

void flash_model_stats(const struct flash_model *m, struct flash_stats *ret);
void flash_model_reset(struct flash_model *m); /* zeroes the stats; open units and wear remain */

/*
 * Erases that writes to this unit have caused since new or reset (single cards; 0 for a unit that
 * does not exist, and with FLASH_NO_WEAR).
 */
uint64_t flash_model_unit_erases(const struct flash_model *m, uint64_t unit);

#endif
