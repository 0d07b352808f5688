/* SPDX-License-Identifier: MIT */
/*
 * Known properties of a flash card, a disk or an array of them, as numbers: geometry, speed, wear.
 * Also the estimates of a planner that follow from these numbers alone, without a state: pure
 * functions, no allocation, no floating point, nanoseconds. Values that depend on earlier writes
 * are in model.h.
 *
 * The published profiles are part of the program (profiles.json). Each number names its origin:
 * printed in its source, derived by one of the equations below, or assumed. A file of the same form
 * may add others.
 */
#ifndef COWFS_SIM_PROFILE_H
#define COWFS_SIM_PROFILE_H

#include <stdio.h>

#include "flash/costs.h"

enum flash_class { FLASH_CARD, FLASH_DISK };

/* Units that share wear: none; a unit and the spare ones; the units of a zone; all, including cold
 * ones. */
enum flash_wear { FLASH_WEAR_NONE, FLASH_WEAR_DYNAMIC, FLASH_WEAR_ZONE, FLASH_WEAR_GLOBAL };

/* All sizes in bytes, rates in bytes per second. Plain data that may be copied. */
struct flash_profile {
	char id[FLASH_ID_BYTES], title[128], source[128];
	char identity[64]; /* of the measured card, card_geometry; "": not stated */
	/* "plan": false: a measurement that the model does not reproduce. Good for estimates only */
	bool unconfirmed;
	enum flash_class class;
	/* false: its source has no figure for writing, and the values here are assumed */
	bool has_write;
	uint64_t capacity_bytes; /* as sold; a model may have any size */
	struct flash_speed read, write;

	/* a random read of s bytes takes random_read_ns + t_R(s) - t_R(4 KiB), for s = 4 KiB
	 * random_read_ns */
	uint64_t random_read_ns;

	/* ---- cards: allocation units */
	uint32_t page_bytes;
	/* an erase block, or several that the card erases together. A multiple of COW_BLK_BYTES */
	uint64_t unit_bytes;
	unsigned open_units; /* units that may be appended to alternately */
	/* part of open_units that may be written out of order; 0: each jump closes the unit */
	unsigned open_random;
	uint64_t copy_bytes_per_s; /* inside the card, when it closes a unit */
	uint64_t merge_ns;	   /* additional time of each close */
	/* number of scattered blocks, over 512 MiB, that share one merge; 1: a card without a
	 * shared log */
	unsigned absorb;
	uint32_t discard_us; /* of a discard, for each unit that it touches */

	/* ---- extra cost of a write that must be durable. Negative where the source's synchronous
	 * writes through a file system were faster than its plain ones to the raw device (another
	 * reader, for example). */
	int64_t sync_ns;
	/* extra cost when the write grows the file: metadata; FLASH_ALLOC of model.h */
	int64_t alloc_ns;

	/* ---- special areas and caches; 0: none */
	uint64_t cheat_bytes; /* a working set up to this size sees no merges */
	uint64_t front_bytes; /* first bytes of the card, with their own speed and no merges */
	struct flash_speed front_read, front_write;

	/* ---- wear */
	enum flash_wear wear;
	uint64_t zone_bytes; /* FLASH_WEAR_ZONE */
	/* units outside the capacity, in millionths of it; at least one in a zone */
	uint32_t spare_ppm;
	uint32_t erase_limit; /* nominal program/erase cycles; 0: unlimited */

	/* ---- disks: read and write above are those of the outer edge. A seek over the share x of
	 * the span takes track + p*sqrt(x) + q*x. p and q are such that x = 1 takes full, and the
	 * mean over random pairs is seek_ns. */
	uint64_t track_ns, seek_ns, full_ns, latency_ns;
	uint64_t inner_bytes_per_s;

	/* ---- arrays: members > 1; all fields above describe one member */
	unsigned members, raid_level; /* 0, 5, 10 */
	uint64_t chunk_bytes;
	uint64_t bridge_ns;	  /* per request to a member: adapter and controller */
	uint64_t bus_bytes_per_s; /* shared by all members; 0: no limit */

	/* ---- a translation layer of the host that makes all writes linear; 0: none */
	uint64_t append_bytes;	   /* amount gathered before a write */
	unsigned append_map_every; /* blocks of data per block of its map */
};

/* ---- profiles ---- */

struct flash_profiles;
struct json_object;

/* path NULL: only the profiles in the program. Otherwise also those of a file of the same form,
 * placed after the program's. On failure why gets the place and the reason. -EINVAL, -ENOMEM,
 * errors of reading. May allocate and block. */
int flash_profiles_open(struct flash_profiles **ret, const char *path, char *why,
			size_t why_bytes) MUST_CHECK;
/* The same with the text of such a file; NULL: none. */
int flash_profiles_parse(struct flash_profiles **ret, const char *text, size_t len, char *why,
			 size_t why_bytes) MUST_CHECK;
/* NULL allowed; copied profiles stay valid */
void flash_profiles_close(struct flash_profiles *ps);
size_t flash_profiles_count(const struct flash_profiles *ps);
const struct flash_profile *flash_profiles_at(const struct flash_profiles *ps, size_t i);
/* NULL: none */
const struct flash_profile *flash_profiles_find(const struct flash_profiles *ps, const char *id);
/* Profiles before this index are the program's. From it on they are the file's. */
size_t flash_profiles_first_own(const struct flash_profiles *ps);
/* A profile by its id, from those in the program. -ENOENT. */
int flash_profile_get(struct flash_profile *ret, const char *id) MUST_CHECK;
/* What a planner of commits knows of the card. -EINVAL: an array, or one with a layer that makes all
 * writes linear: the figures would be those of one member, and of writes that the layer never makes. */
int flash_profile_costs(const struct flash_profile *p, struct card_costs *ret) MUST_CHECK;
/* All that costs_read finds, a section each: of the profiles of the program (lab/sim/cards.conf), or
 * of the others. */
void flash_profiles_write(FILE *f, const struct flash_profiles *ps, bool own);

/* As it stands in its file; of ps. NULL: there are fewer. */
struct json_object *flash_profiles_raw(const struct flash_profiles *ps, size_t i);

/* ---- estimates without a state ---- */

/* t_R(s) and t_W(s), linear. For an array: those of one member. */
uint64_t flash_read_ns(const struct flash_profile *p, uint64_t len_bytes);
uint64_t flash_write_ns(const struct flash_profile *p, uint64_t len_bytes);
/* A read that does not follow the previous one. Disks: with the mean seek and latency. */
uint64_t flash_random_read_ns(const struct flash_profile *p, uint64_t len_bytes);
/* t_merge = (unit - new) / C + t_e: closes a unit after new_bytes were written since it was opened.
 * 0 for disks. */
uint64_t flash_merge_ns(const struct flash_profile *p, uint64_t new_bytes);
/* The steady state of scattered writes, without sync: t_W(s) + t_merge(s) if absorb is 1,
 * t_W(s) + t_merge(0) * min(blocks, absorb) / absorb otherwise, over 512 MiB. Disks: seek, latency
 * and transfer. */
uint64_t flash_random_write_ns(const struct flash_profile *p, uint64_t len_bytes);
/* Cost of a flush if something was written since the last one: sync_ns, where it is positive. */
uint64_t flash_sync_ns(const struct flash_profile *p);

#endif
