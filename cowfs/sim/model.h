/* SPDX-License-Identifier: MIT */
/*
 * A model of a flash card's translation layer, of a disk, or of an array: what requests take, by a
 * clock of its own that nobody waits for, and what they do to the medium: bytes programmed, units
 * erased, wear of each. It has no contents (sim/sim.h has). Deterministic: integer arithmetic, no
 * time, no randomness but what erase limits are drawn from.
 *
 * The equations. A card is cut into units (an erase block, or what the card erases as one).
 *  - A linear write costs t_W(s), a read t_R(s), or the random-read time if it does not follow the
 *  one before.
 *    Reads never close units.
 *  - A write to a unit that is not open opens it; if open_units are open already, the least
 *  recently used one is
 *    closed first: t = (unit - new) / C + t_e. new: bytes of it that were written since it was
 *    opened, none twice. Blocks that hold nothing (fresh, discarded) need no copy.
 *  - *Switch*: a unit that has been written whole and in order costs nothing when the stream goes
 *  on into the next
 *    or through the same unit again (that is inside the published linear rate); t_e when another
 *    unit pushes it out. One erase. - *Partial*: its beginning was written; the rest is copied. One
 *    erase. *Full*: anything else. Two erases. - A write inside an open unit that does not go on
 *    where the last one ended makes it a random one, of which there may be open_random; with
 *    open_random 0 the unit is closed and opened again. - absorb > 1 (a log that units share):
 *    scattered writes open nothing; they take blocks of a log. When it is full, the unit with the
 *    oldest block in it is merged, unit / C + t_e, which frees all blocks of that unit. The log has
 *    absorb * (512 MiB / unit) / 2 blocks: then random writes over 512 MiB, where that was
 *    measured, pay one merge for each absorb-th block (units are merged in turn, so on average each
 *    is half way to its next merge); fewer where writes keep to fewer units, more where they spread
 *    over more. A run of writes, of the last 16, gets a unit of its own when it is 64 KiB long. A
 *    large write (a quarter of the log) is not scattered. - cheat_bytes: blocks of a working set
 *    that is no larger stay in a cache, whose writes cost t_W alone. front_bytes: own tables, no
 *    merges. - FLUSH costs sync_ns if there was a write since the last one.
 *  - Erases wear physical units, chosen by the profile's mode: of those that are free the least
 *  worn, then the lowest.
 *    With erase_limit each has a limit of its own, 3/4 to 5/4 of the nominal one; when no spare
 *    unit is left the card is read-only.
 *  - A disk: seek (see profile.h), latency, transfer at the rate of its place, which falls linearly
 *  from the outer edge. - An array: requests are cut into chunks, members work at the same time.
 *  RAID-5 writes less than a stripe by
 *    reading old data and parity first.
 *  - append_bytes: a layer of the host, above all of this, gathers writes and appends them with its
 *  map. Its cleaner is
 *    not modelled: figures hold for a device with much free space.
 * Where the equations and their constants come from is told by docs/DESIGN.md, "The flash model",
 * and profiles.json.
 *
 * Calls never block, and only new and clone allocate. A model belongs to one thread at a time.
 */
#ifndef COWFS_SIM_MODEL_H
#define COWFS_SIM_MODEL_H

#include "flash/profile.h"

struct flash_model;

enum flash_model_flags {
	/* nothing was ever written: else all units hold data, a card in its steady state */
	FLASH_FRESH = 1,
	/* for prices: no counters of physical units, so a copy costs what is open */
	FLASH_NO_WEAR = 2,
};

enum flash_write_flags {
	FLASH_SYNC = 1,	 /* the write is on the card when it returns: + sync_ns */
	FLASH_ALLOC = 2, /* with SYNC: and the file has grown by it: + alloc_ns */
};

/* Since new or reset. An array: sums of its members, but requests and bytes of the host as they
 * came in. */
struct flash_stats {
	uint64_t clock_ns; /* virtual time: requests one after another, and flash_model_wait */
	/* what the requests would take if there were always one for every member of an array;
	 * else as the clock without waits */
	uint64_t busy_ns;
	uint64_t reads, read_bytes, writes, written_bytes, flushes, discards, discarded_bytes;
	uint64_t programmed_bytes; /* to flash: host's, copied, maps and parity */
	uint64_t copied_bytes;	   /* of these: by merges and wear levelling */
	uint64_t erases;
	uint64_t switch_merges, partial_merges, full_merges, absorbed_writes;
	uint64_t longest_ns; /* request */
	/* the one that most erases were for; 0 with FLASH_NO_WEAR, like the next. */
	uint64_t hottest_unit;
	uint64_t hottest_erases; /* An array: of its worst member */
	/* most erases of one physical unit, since new. 0 with FLASH_NO_WEAR */
	uint64_t worst_erases;
	uint64_t spares_left, bad_units; /* as above */
	bool read_only;
};

/* size_bytes 0: the profile's. Of an array: of what can be used. -EINVAL: the profile has no use (a
 * size without a whole block, members that do not fit the level). */
int flash_model_new(struct flash_model **ret, const struct flash_profile *p, uint64_t size_bytes,
		    unsigned flags) MUST_CHECK;
int flash_model_clone(struct flash_model **ret, const struct flash_model *from) MUST_CHECK;
/* to becomes what from is, without allocating. Both made from the same profile and size (clones);
 * to may have FLASH_NO_WEAR when from has not. -EINVAL otherwise. A planner tries its candidates on
 * one such copy. */
int flash_model_copy(struct flash_model *to, const struct flash_model *from) MUST_CHECK;
void flash_model_free(struct flash_model *m); /* NULL allowed */

const struct flash_profile *flash_model_profile(const struct flash_model *m);
uint64_t flash_model_size_bytes(const struct flash_model *m);

/* What the request takes, which the clock has moved by. Any offset and length; what lies behind the
 * end is cut off. A write to a card that is worn out (read_only) takes an overhead and changes
 * nothing. */
uint64_t flash_model_read(struct flash_model *m, uint64_t off_bytes, uint64_t len_bytes);
uint64_t flash_model_write(struct flash_model *m, uint64_t off_bytes, uint64_t len_bytes,
			   unsigned flags);
uint64_t flash_model_flush(struct flash_model *m);
/* Units that lie in it whole hold nothing from now on: no merge copies them. Takes no time. */
void flash_model_discard(struct flash_model *m, uint64_t off_bytes, uint64_t len_bytes);
/* The host does nothing for so long. */
void flash_model_wait(struct flash_model *m, uint64_t ns);
/* Closes all units, merges what is in a shared log, and an appending layer writes what it has: what
 * the card still owes. Takes its time. */
uint64_t flash_model_settle(struct flash_model *m);

void flash_model_stats(const struct flash_model *m, struct flash_stats *ret);
void flash_model_reset(struct flash_model *m); /* stats to zero; what is open, and wear, stays */

/* Erases that writes to this unit have caused since new or reset (single cards; 0 for what does not
 * exist, and with FLASH_NO_WEAR). */
uint64_t flash_model_units(const struct flash_model *m);
uint64_t flash_model_unit_erases(const struct flash_model *m, uint64_t unit);

#endif
