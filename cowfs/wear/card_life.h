/* SPDX-License-Identifier: MIT */
/*
 * What cowfs itself knows of a card's life: facts of its disk in sysfs, and nominal erase cycles. Tools interpret them, and ask
 * the device for more (docs/WEAR.md).
 *
 * For tests: COWFS_SYSFS replaces /sys.
 */
#ifndef COWFS_WEAR_CARD_LIFE_H
#define COWFS_WEAR_CARD_LIFE_H

#include <json-c/json.h>

#include "base/util.h"

/* The object "disk" of the whole disk that holds device. NULL only without memory. */
struct json_object *card_life_disk(const char *device);
/* Its size, 0 if it is unknown. */
uint64_t card_life_bytes(const char *device);

/* Nominal erase cycles of a kind of flash. */
struct flash_kind {
	const char *name;
	double cycles_low, cycles_high;
};

/* "slc", "mlc", "tlc", "qlc", "unknown"; NULL: no such kind */
const struct flash_kind *flash_kind_of(const char *name);
/*
 * The share of a card's life that writing `bytes` in `erase_blocks` erase blocks takes, as an
 * interval.
 */
void card_life_share(const struct flash_kind *flash, double capacity_bytes,
		     double erase_block_bytes, double bytes, double erase_blocks, double *ret_low,
		     double *ret_high);

#endif
