/* SPDX-License-Identifier: MIT */
/*
 * Estimates how long a card may last: always an interval, and each factor with its source. Pure
 * arithmetic on the data of `cowctl wear`; the fields: docs/WEAR.md.
 *
 *	life = erase cycles * capacity * life left / (bytes a day * the device's amplification)
 */
#ifndef COWFS_WEAR_PROJECTION_H
#define COWFS_WEAR_PROJECTION_H

#include <json-c/json.h>

#include "base/util.h"

enum { PROJECTION_MIN_DAYS = 7 };

/* Nominal erase cycles of a kind of flash; assumed unless the device reports its own. */
struct flash_kind {
	const char *name;
	double cycles_low, cycles_high;
};

/* "slc", "mlc", "tlc", "qlc", "unknown"; NULL: no such kind */
const struct flash_kind *projection_class(const char *name);

/*
 * Makes the object "projection", and wear's "ratios.device_amplification", which it uses. wear has
 * totals, erase_blocks, history and health.
 */
struct json_object *projection_make(struct json_object *wear, const struct flash_kind *flash,
				    uint64_t now_s);

/*
 * The share of a card's life that writing `bytes` in `erase_blocks` erase blocks takes, as an
 * interval.
 */
void projection_share(const struct flash_kind *flash, double capacity_bytes,
		      double erase_block_bytes, double bytes, double erase_blocks, double *ret_low,
		      double *ret_high);

#endif
