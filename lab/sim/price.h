/* SPDX-License-Identifier: MIT */
/* Internals of the model: arithmetic that model.c and profile.c also need. */
#ifndef COWFS_SIM_PRICE_H
#define COWFS_SIM_PRICE_H

#include "sim/profile.h"

uint64_t flash_copy_ns(const struct flash_profile *p, uint64_t copy_bytes); /* copy / C + t_e */

#endif
