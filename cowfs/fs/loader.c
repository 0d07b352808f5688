/* SPDX-License-Identifier: MIT */
#include "fs/loader.h"

#include <string.h>

#define ENV_HEAD "# GRUB Environment Block\n"

enum { ENV_BYTES = 1024, SECTOR_BYTES = 512 };

/* Lines of text, filled up with '#'. Neither a block that a cut has torn nor what a card loses looks
 * like that. */
static bool is_env(const uint8_t *p)
{
	if (memcmp(p, ENV_HEAD, sizeof(ENV_HEAD) - 1) != 0)
		return false;
	for (size_t i = 0; i < ENV_BYTES; i++)
		if (p[i] < ' ' && p[i] != '\n' && p[i] != '\t')
			return false;
	return true;
}

/* A file system with small blocks may have it at any sector. */
bool loader_has_env(const uint8_t blk[COW_BLK_BYTES])
{
	for (size_t off = 0; off + ENV_BYTES <= COW_BLK_BYTES; off += SECTOR_BYTES)
		if (blk[off] == ENV_HEAD[0] && is_env(blk + off))
			return true;
	return false;
}
