/* SPDX-License-Identifier: MIT */
/*
 * How long a card may last: always an interval, each factor with where it comes from. Pure
 * arithmetic on what `cowctl wear` has gathered; the fields: docs/WEAR.md.
 *
 * 	life = erase cycles * capacity * life left / (bytes a day * the device's amplification)
 */
#ifndef COWFS_WEAR_PROJECTION_H
#define COWFS_WEAR_PROJECTION_H

#include <json-c/json.h>

#include "base/util.h"

enum { PROJECTION_MIN_DAYS = 7 };

/* Erase cycles that a kind of flash is sold with: nominal figures, assumed unless the device
 * tells. */
struct flash_kind {
	const char *name;
	double cycles_low, cycles_high;
};

/* "slc", "mlc", "tlc", "qlc", "unknown"; NULL: no such kind */
const struct flash_kind *projection_class(const char *name);

/* The object "projection", and wear's "ratios.device_amplification", of which it makes use. wear
 * has totals, erase_blocks, history and health. */
struct json_object *projection_make(struct json_object *wear, const struct flash_kind *flash,
				    uint64_t now_s);

/* What so many bytes in so many erase blocks take of a card's life, as an interval of shares. */
void projection_share(const struct flash_kind *flash, double capacity_bytes,
		      double erase_block_bytes, double bytes, double erase_blocks, double *ret_low,
		      double *ret_high);

#endif
