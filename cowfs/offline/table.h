/* SPDX-License-Identifier: MIT */
/*
 * The partition table of a disk, and the same for a disk of another size. sfdisk(8) reads the one and makes the
 * other, in memory: nothing here writes to a disk. Functions return 0, or -errno with *fail filled.
 */
#ifndef COWFS_OFFLINE_TABLE_H
#define COWFS_OFFLINE_TABLE_H

#include "card/card.h"
#include "card/disk.h"
#include "wire/failure.h"

#define TABLE_SECTOR 512u

struct table_part {
	unsigned number;
	bool extended, logical;
	bool firmware; /* set it after table_read: a loader may read it by its place alone */
	uint64_t need; /* sectors of it, at least; table_read: all. May be set as well */
	/* table_plan: it is part of what lies in front of the first partition that may move */
	bool in_front;
	uint64_t start, size;	      /* sectors */
	uint64_t new_start, new_size; /* table_plan */
	char rest[512];		      /* ", type=..." as sfdisk writes it */
};

struct table {
	bool gpt;
	char head[512]; /* lines of sfdisk */
	uint64_t table_sectors;
	size_t n, last; /* last: the partition that ends at the end of the new disk */
	struct table_part p[DISK_PARTS_MAX]; /* by their start */
	uint64_t front;			     /* sectors that keep their place */
};

int table_read(const char *disk, struct table *ret, struct failure *fail) MUST_CHECK;
/*
 * Where the partitions go on a disk of so many bytes; target: its name. Starts are rounded up to erase blocks, or, if that does
 * not fit, kept.
 */
int table_plan(struct table *t, const char *target, uint64_t bytes, uint32_t erase_block_bytes,
	       struct failure *fail) MUST_CHECK;
/*
 * A file in memory, as large as the new disk, that has its table and what lies in front of its partitions, read
 * from the old disk, and else holes. *ret_crc: of the table's text.
 */
int table_image(const struct table *t, struct card *from, uint64_t bytes, int *ret_fd,
		uint32_t *ret_crc, struct failure *fail) MUST_CHECK;

#endif
