/* SPDX-License-Identifier: MIT */
/* File systems of mkfs (images.sh), changed in memory by the edits of an input. */
#ifndef COWFS_TESTS_FUZZ_DISK_H
#define COWFS_TESTS_FUZZ_DISK_H

#include "fs/fsinfo.h"
#include "fuzz.h"

struct disk {
	const uint8_t *was; /* as mkfs left it */
	uint8_t *now;	    /* the same, to be changed */
	size_t bytes;
};

/* Opens an image of the folder "images" beside the program. *ret_bytes: its size. */
int disk_open(const char *name, size_t *ret_bytes);
void disk_load(struct disk *d, const char *name);
void disk_restore(const struct disk *d, size_t off, size_t bytes);
/* For struct blk_reader; ctx is the disk. */
int disk_read(void *ctx, uint64_t blk, uint64_t blks, void *buf);
/* Asks for the use of all units. Those below first are never free, nor those that kept() names.
 * Returns the number of free ones. */
uint64_t disk_map(const struct disk *d, bool runs, uint64_t first,
		  bool (*kept)(const struct disk *d, uint64_t blk));

#endif
