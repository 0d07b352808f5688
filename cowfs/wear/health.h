/* SPDX-License-Identifier: MIT */
/*
 * The health that a device reports, with its source: eMMC through sysfs, ATA and NVMe through
 * smartctl, SD cards through a vendor command, which is only sent on request. The fields:
 * docs/WEAR.md.
 *
 * For tests: COWFS_SYSFS replaces /sys, COWFS_SMARTCTL replaces smartctl.
 */
#ifndef COWFS_WEAR_HEALTH_H
#define COWFS_WEAR_HEALTH_H

#include <json-c/json.h>

#include "base/util.h"

/*
 * The object "health" of the disk that holds device. NULL only without memory; a value that cannot
 * be read has its reason instead. Blocks as long as smartctl runs, half a minute at most. cmd56:
 * send the vendor command to an SD card.
 */
struct json_object *health_read(const char *device, bool cmd56);

/* Size of the disk that holds device, 0 if it is unknown. */
uint64_t health_disk_bytes(const char *device);

/*
 * Translates smartctl's JSON into the fields of health; public for tests. false: no usable
 * content.
 */
bool health_from_smart(struct json_object *health, struct json_object *smart);
/*
 * Translates the 512 bytes that a card answered to CMD56 with this argument. false: not
 * understood.
 */
bool health_from_cmd56(struct json_object *health, uint32_t arg, const uint8_t data[512]);

#endif
