/* SPDX-License-Identifier: MIT */
/*
 * What a planner of commits knows of a card: about ten numbers, read from a small file, and the price
 * of requests by these numbers alone, in nanoseconds. `cowctl measure` writes such a file. The
 * published ones come with cowfs (lab/sim/cards.conf; where the numbers are from: lab/sim/profiles.json).
 *
 * One section per card, headed by its name. Keys: unit_bytes (an erase block, or several that the card
 * erases together; 0: a disk), open_units (may be appended to alternately), open_random (part of them
 * that may be written out of order; 0: each jump closes the unit), absorb (scattered blocks that share
 * one merge; 1: no shared log), write_ns (times of linear writes: two, at 4 KiB and 1 MiB, with all
 * others on a line through them, or nine, at 4, 8, ... 1024 KiB), copy_bytes_per_s (inside the card,
 * when it closes a unit), merge_ns (more for each close), sync_ns (a flush after a write), seek_ns (of
 * a disk, with its latency), plan (no: a measurement that the model does not reproduce, for estimates
 * only), identity (of the measured card), models (what such devices call themselves, separated by
 * commas). title and source are for people.
 */
#ifndef COWFS_FLASH_COSTS_H
#define COWFS_FLASH_COSTS_H

#include <limits.h>
#include <stdio.h>

#include "base/util.h"

#define FLASH_TABLE 9 /* 4 KiB << i */
#define FLASH_TABLE_MIN 4096u
#define FLASH_TABLE_MAX (FLASH_TABLE_MIN << (FLASH_TABLE - 1))
#define FLASH_ID_BYTES 48

struct flash_speed {
	bool affine;
	uint64_t overhead_ns, bytes_per_s; /* affine */
	uint64_t table_ns[FLASH_TABLE];
};

struct card_costs {
	char id[FLASH_ID_BYTES], identity[64];
	bool guessed;	  /* nothing is known of this device: costs_guess */
	bool unconfirmed; /* plan = no */
	struct flash_speed write;
	uint64_t unit_bytes, open_units, open_random, absorb;
	uint64_t copy_bytes_per_s, merge_ns, sync_ns, seek_ns;
};

/*
 * Finds one card in the file at path: id, or the one whose models are a word of model, or if both are
 * NULL the only one that there is. -ENOENT: none; -EINVAL: the file is not valid, or has several;
 * errors of path_open_ours. why gets a clause without the path. May allocate and block.
 */
int costs_read(struct card_costs *ret, const char *path, const char *id, const char *model,
	       char *why, size_t why_bytes) MUST_CHECK;
/* The same in an open file. */
int costs_parse(struct card_costs *ret, FILE *f, const char *id, const char *model, char *why,
		size_t why_bytes) MUST_CHECK;
/* The file of published cards: beside the program, or as installed. COWFS_CARDS of the environment
 * names another one. -errno */
int costs_published(char path[static PATH_MAX]) MUST_CHECK;
/* A middling card with units of this size. */
void costs_guess(struct card_costs *ret, uint64_t unit_bytes);
/*
 * Where `cowctl measure --save` puts the file of the card with this identity (card_geometry):
 * below /etc/cowfs/profiles (COWFS_PROFILES of the environment in tests). -ENOENT: no identity.
 * -ENAMETOOLONG.
 */
int costs_saved(const char *identity, char *ret, size_t size_bytes) MUST_CHECK;

uint64_t flash_rate_ns(uint64_t bytes, uint64_t bytes_per_s); /* 0 if there is no rate */
/* A table: exact at its sizes, linear in time between two of them, t(1 MiB) * s / 1 MiB above and
 * t(4 KiB) below. An overhead and a rate alone are off by up to 66 % for published cards. */
uint64_t flash_speed_ns(const struct flash_speed *s, uint64_t len_bytes);
/* (unit - new) / copy rate + merge: closes a unit after new_bytes were written since it was opened.
 * 0 for disks. */
uint64_t costs_merge_ns(const struct card_costs *c, uint64_t new_bytes);

#endif
