/* SPDX-License-Identifier: MIT */
/* The general command of SD cards, CMD56, as a read of 512 bytes. */
#ifndef COWFS_CARD_SDCMD_H
#define COWFS_CARD_SDCMD_H

#include "base/util.h"

/* disk: the whole card, /dev/mmcblkN. Blocks until the card or its controller gives up. -errno. */
int sdcmd_read56(const char *disk, uint32_t arg, uint8_t ret[512]) MUST_CHECK;

#endif
