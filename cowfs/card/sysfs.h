/* SPDX-License-Identifier: MIT */
/* Properties of a block device in sysfs. */
#ifndef COWFS_CARD_SYSFS_H
#define COWFS_CARD_SYSFS_H

#include "card/card.h"

/*
 * devdir is the open directory /sys/dev/block/M:m of a disk or of a partition. Fills
 * disk_off_bytes, erase_block_bytes with eb_source, and identity. Values that sysfs does not have
 * become 0, 4 MiB guessed and "". -EINVAL: a partition without a sane start.
 */
int sysfs_geometry(int devdir, struct card_geometry *geo) MUST_CHECK;

/* The name that the disk reports: mmc's name, or the model, without a serial number. "" if none.
 * devdir as above. */
void sysfs_model(int devdir, char *ret, size_t size_bytes);

/* diskdir: that of a disk. */
bool sysfs_is_mmc(int diskdir);

/* What the device is made by, in words, if that lies on other devices; NULL: on none. devdir as above. */
const char *sysfs_layer(int devdir);

/* A descriptor of the device's stat file for sysfs_counters. -ENOTSUP: the kernel keeps no counters
 * (queue/iostats off, where zeroes prove nothing). */
int sysfs_open_stat(int devdir) MUST_CHECK;
int sysfs_counters(int stat_fd, struct card_counters *ret) MUST_CHECK;

#endif
