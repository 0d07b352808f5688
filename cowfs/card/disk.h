/* SPDX-License-Identifier: MIT */
/* A disk and its partitions, as the kernel knows them (sysfs). Paths are looked up once; errors are -errno. */
#ifndef COWFS_CARD_DISK_H
#define COWFS_CARD_DISK_H

#include "base/util.h"

#define DISK_PARTS_MAX 128u

struct disk_part {
	unsigned number;
	uint64_t start_bytes, size_bytes;
	char node[64]; /* "/dev/sda2" */
};

/* The disk of a partition, or the disk itself, as "/dev/sda". -ENOTBLK: not a block device. */
int disk_of(const char *path, char *ret, size_t size_bytes) MUST_CHECK;
bool disk_is_partition(const char *path);
/* By their numbers. *ret_n: how many of them; -EOVERFLOW: more than DISK_PARTS_MAX. */
int disk_parts(const char *disk, struct disk_part ret[DISK_PARTS_MAX], size_t *ret_n) MUST_CHECK;
/* The name of a device that is made of this one (LVM, LUKS, RAID): "root--vg-root", "md0". False: there is none. */
bool disk_holder(const char *path, char *ret, size_t size_bytes);
/* Logical sectors; 512 if it is not a block device. */
uint64_t disk_sector_bytes(const char *path);

#endif
