/* SPDX-License-Identifier: MIT */
/* What sysfs knows of a block device. Private to card/. */
#ifndef COWFS_CARD_SYSFS_H
#define COWFS_CARD_SYSFS_H

#include "card/card.h"

/*
 * devdir is the open directory /sys/dev/block/M:m of a disk or of a partition. Fills
 * disk_off_bytes, erase_block_bytes with eb_source, and identity; what sysfs does not tell
 * becomes 0, 4 MiB guessed and "". -EINVAL: a partition without a sane start.
 */
int sysfs_geometry(int devdir, struct card_geometry *geo) MUST_CHECK;

/* What the disk calls itself, as words: mmc's name, the model, the identification of an ATA disk
 * (whose model is cut). "" if nothing. devdir as above. */
void sysfs_model(int devdir, char *ret, size_t size_bytes);

/* A descriptor of the device's stat file for sysfs_counters; -ENOTSUP if the kernel keeps none
 * (queue/iostats off: zeroes that prove nothing). */
int sysfs_open_stat(int devdir) MUST_CHECK;
int sysfs_counters(int stat_fd, struct card_counters *ret) MUST_CHECK;

#endif
