/* SPDX-License-Identifier: MIT */
/*
 * What is known of a flash card, a disk or an array of them, as numbers: geometry, speed, wear. And
 * what follows from these numbers alone, without a state (a planner's prices): pure functions, no
 * allocation, no floating point, nanoseconds. What depends on what was written before is in
 * model.h.
 *
 * The published profiles are in the program (profiles.json; each number tells where it comes from:
 * printed in its source, derived by one of the equations below, or assumed). A file of the same
 * form may add others.
 *
 * Times of requests. With a table t(s) is exact at 4, 8, ... 1024 KiB, linear in t between two of
 * them, t(1 MiB) * s / 1 MiB above and t(4 KiB) below: a command overhead and a rate alone are off
 * by up to 66 % for writes of published cards. Where no more than these two numbers is published,
 * t(s) = overhead + s / rate.
 */
#ifndef COWFS_FLASH_PROFILE_H
#define COWFS_FLASH_PROFILE_H

#include "base/util.h"

#define FLASH_TABLE 9 /* 4 KiB << i */
#define FLASH_ID_BYTES 48
#define FLASH_NEVER UINT64_MAX

enum flash_class { FLASH_CARD, FLASH_DISK };

/* Who shares wear: nobody; a unit with the spare ones; the units of a zone; all, cold ones too. */
enum flash_wear { FLASH_WEAR_NONE, FLASH_WEAR_DYNAMIC, FLASH_WEAR_ZONE, FLASH_WEAR_GLOBAL };

struct flash_speed {
	bool affine;
	uint64_t overhead_ns, bytes_per_s; /* affine */
	uint64_t table_ns[FLASH_TABLE];
};

/* All sizes in bytes, rates in bytes per second. Plain data: copy it as you like. */
struct flash_profile {
	char id[FLASH_ID_BYTES], title[128], source[128];
	bool guessed; /* nothing is known of this very device: flash_profile_guess */
	enum flash_class class;
	/* false: its source has no figure for writing; what is here is assumed */
	bool has_write;
	uint64_t capacity_bytes; /* as sold; a model may be made of any size */
	struct flash_speed read, write;

	/* a random read of s bytes takes random_read_ns + t_R(s) - t_R(4 KiB), for s = 4 KiB
	 * random_read_ns */
	uint64_t random_read_ns;

	/* ---- cards: allocation units */
	uint32_t page_bytes;
	/* an erase block, or several that the card erases as one. A multiple of COW_BLK_BYTES */
	uint64_t unit_bytes;
	unsigned open_units; /* that may be appended to alternately */
	/* of these, how many may be written out of order; 0: each jump closes the unit */
	unsigned open_random;
	uint64_t copy_bytes_per_s; /* inside of the card, when it closes a unit */
	uint64_t merge_ns;	   /* what each close takes besides */
	/* scattered blocks, over 512 MiB, that one merge pays for; 1: a card without a shared
	 * log */
	unsigned absorb;

	/* ---- what a write that has to be on the card costs on top. Negative where the source's
	 * synchronous writes through a file system were faster than its plain ones to the raw
	 * device (another reader, say). */
	int64_t sync_ns;
	int64_t alloc_ns; /* and when the file grows by it: metadata; FLASH_ALLOC of model.h */

	/* ---- special areas and caches; 0: none */
	uint64_t cheat_bytes; /* a working set that is no larger sees no merges */
	uint64_t front_bytes; /* the first bytes, with a speed of their own and no merges */
	struct flash_speed front_read, front_write;

	/* ---- wear */
	enum flash_wear wear;
	uint64_t zone_bytes; /* FLASH_WEAR_ZONE */
	/* units that are no capacity, millionths of it; at least one in a zone */
	uint32_t spare_ppm;
	uint32_t erase_limit; /* nominal program/erase cycles; 0: endless */

	/* ---- disks: read and write above are those of the outer edge. A seek over the share x of
	 * the span takes track + p*sqrt(x) + q*x, with p and q such that x = 1 is full and the mean
	 * over random pairs is seek_ns. */
	uint64_t track_ns, seek_ns, full_ns, latency_ns;
	uint64_t inner_bytes_per_s;

	/* ---- arrays: members > 1; all above is one member */
	unsigned members, raid_level; /* 0, 5, 10 */
	uint64_t chunk_bytes;
	uint64_t bridge_ns;	  /* per request to a member: adapter and controller */
	uint64_t bus_bytes_per_s; /* what all members share; 0: no limit */

	/* ---- a translation layer of the host that makes all writes linear; 0: none */
	uint64_t append_bytes;	   /* what it gathers before it writes */
	unsigned append_map_every; /* blocks of data for one block of its map */
};

/* ---- profiles ---- */

struct flash_profiles;

/* path NULL: those inside of the program. Else those of a file of the same form, in front of them.
 * On failure why tells where. -EINVAL, -ENOMEM, what reading gives. May allocate and block. */
int flash_profiles_open(struct flash_profiles **ret, const char *path, char *why,
			size_t why_bytes) MUST_CHECK;
/* NULL allowed; profiles that were copied stay */
void flash_profiles_close(struct flash_profiles *ps);
size_t flash_profiles_count(const struct flash_profiles *ps);
const struct flash_profile *flash_profiles_at(const struct flash_profiles *ps, size_t i);
/* NULL: none */
const struct flash_profile *flash_profiles_find(const struct flash_profiles *ps, const char *id);
/* Those before this one are the program's, from it on those of the file. */
size_t flash_profiles_first_own(const struct flash_profiles *ps);
/* One whose "models" have a name that stands in text as a word of its own, upper or lower case.
 * NULL: none */
const struct flash_profile *flash_profiles_match(const struct flash_profiles *ps, const char *text);
/* One by its name, of those in the program. -ENOENT. */
int flash_profile_get(struct flash_profile *ret, const char *id) MUST_CHECK;
/* Called "guessed": a middling card with units of this size. */
void flash_profile_guess(struct flash_profile *ret, uint64_t unit_bytes, uint64_t capacity_bytes);

/* What the file says of it: key, value as written there, and where the value comes from ("printed",
 * "derived: ...", "assumed: ..."). Ends when each returns false. For `cowfs-cardsim show`. */
void flash_profiles_describe(const struct flash_profiles *ps, size_t i,
			     bool (*each)(void *ctx, const char *key, const char *value,
					  const char *from),
			     void *ctx);

/* ---- prices without a state ---- */

/* t_R(s) and t_W(s), linear. Of an array: that of one member. */
uint64_t flash_read_ns(const struct flash_profile *p, uint64_t len_bytes);
uint64_t flash_write_ns(const struct flash_profile *p, uint64_t len_bytes);
/* A read that does not follow the one before. Disks: with the mean seek and latency. */
uint64_t flash_random_read_ns(const struct flash_profile *p, uint64_t len_bytes);
/* t_merge = (unit - new) / C + t_e: closes a unit of which new_bytes were written since it was
 * opened. 0 for disks. */
uint64_t flash_merge_ns(const struct flash_profile *p, uint64_t new_bytes);
/* The steady state of scattered writes, without sync: t_W(s) + t_merge(s) if absorb is 1,
 * t_W(s) + t_merge(0) * min(blocks, absorb) / absorb otherwise, over 512 MiB. Disks: seek, latency
 * and transfer. */
uint64_t flash_random_write_ns(const struct flash_profile *p, uint64_t len_bytes);
/* What a flush costs if something was written since the last one: sync_ns, where it is positive. */
uint64_t flash_sync_ns(const struct flash_profile *p);

/*
 * Two runs with a gap between them, in the same unit: up to this gap one write, which writes the
 * gap's own content again, is cheaper than two. g* = a / (1/W + 1/R), a = t_W(4 KiB) - 4 KiB / W,
 * with W and R the rates at 1 MiB; 1/R is left out if the gap's content is at hand.
 */
uint64_t flash_bridge_gap_bytes(const struct flash_profile *p, bool gap_is_at_hand);
/*
 * From how many bytes in a unit on it is cheaper to read the rest and to write the whole unit than
 * to write the scattered blocks of 4 KiB in order, each by itself: unit * (1/R + 1/W - 1/C) /
 * (t_W(4 KiB) + 4 KiB/R - 4 KiB/C) blocks. FLASH_NEVER where the card copies faster than that (the
 * denominator or the price per block is not positive).
 */
uint64_t flash_pad_from_bytes(const struct flash_profile *p);
/* The same against writes in any order that pay a merge each: (unit/R + unit/W) / (t_W(4 KiB) + G)
 * blocks. */
uint64_t flash_rewrite_from_bytes(const struct flash_profile *p);

#endif
