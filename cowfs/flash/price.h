/* SPDX-License-Identifier: MIT */
/* Internals of flash/: arithmetic that model.c and profile.c also need. */
#ifndef COWFS_FLASH_PRICE_H
#define COWFS_FLASH_PRICE_H

#include "flash/profile.h"

uint64_t flash_rate_ns(uint64_t bytes, uint64_t bytes_per_s); /* 0 if there is no rate */
uint64_t flash_speed_ns(const struct flash_speed *s, uint64_t len_bytes);
uint64_t flash_copy_ns(const struct flash_profile *p, uint64_t copy_bytes); /* copy / C + t_e */

#endif
