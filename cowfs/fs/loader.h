/* SPDX-License-Identifier: MIT */
/* Blocks that a boot loader writes to the card, before cowfs runs (docs/design/loaders.md). */
#ifndef COWFS_FS_LOADER_H
#define COWFS_FS_LOADER_H

#include "base/util.h"

/* Does the block hold an environment block of GRUB: the file /boot/grub/grubenv? Any user can make a
 * file that does. */
bool loader_has_env(const uint8_t blk[COW_BLK_BYTES]);

#endif
