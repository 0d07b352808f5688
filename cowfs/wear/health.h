/* SPDX-License-Identifier: MIT */
/*
 * What a device tells of its own health, and who says so: eMMC by sysfs, ATA and NVMe by smartctl,
 * SD cards by a vendor's command, which is only sent on request. The fields: docs/WEAR.md.
 *
 * For tests: COWFS_SYSFS is looked at instead of /sys, COWFS_SMARTCTL is started instead of
 * smartctl.
 */
#ifndef COWFS_WEAR_HEALTH_H
#define COWFS_WEAR_HEALTH_H

#include <json-c/json.h>

#include "base/util.h"

/* The object "health" of the disk that device lies on. Never NULL but without memory; what cannot
 * be known says why. Blocks for as long as smartctl takes, half a minute at most. cmd56: ask an SD
 * card by its vendor's command. */
struct json_object *health_read(const char *device, bool cmd56);

/* Size of the disk that device lies on, 0 if it is not known. */
uint64_t health_disk_bytes(const char *device);

/* smartctl's JSON into the fields of health; for tests. false: it tells nothing. */
bool health_from_smart(struct json_object *health, struct json_object *smart);
/* 512 bytes that a card answered to CMD56 with this argument. false: not understood. */
bool health_from_cmd56(struct json_object *health, uint32_t arg, const uint8_t data[512]);

#endif
