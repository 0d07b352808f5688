/* SPDX-License-Identifier: MIT */
/*
 * Escaped payload.
 *
 * A CRC is linear: the same change of the same bytes changes the CRC of any block by the same
 * constant. So a stored block is either content with the expected CRC, or escaped content whose
 * CRC differs by that constant, and never both. No flag on the card is needed.
 */
#include "log/escape.h"

#include <string.h>

#include "base/crc32c.h"

static const uint8_t NONE[LOG_MAGIC_PREFIX_BYTES];

bool escape_needed(const uint8_t blk[COW_BLK_BYTES])
{
	return !memcmp(blk, LOG_MAGIC_PREFIX, LOG_MAGIC_PREFIX_BYTES);
}

void escape_put(uint8_t blk[COW_BLK_BYTES])
{
	memset(blk, 0, LOG_MAGIC_PREFIX_BYTES);
}

/* The content CRC ends with the first byte of a block, so the prefix alone determines the
 * constant. */
uint32_t escape_delta(void)
{
	return crc32c_back(NONE, sizeof(NONE)) ^
	       crc32c_back(LOG_MAGIC_PREFIX, LOG_MAGIC_PREFIX_BYTES);
}

bool escape_get(uint8_t blk[COW_BLK_BYTES], uint32_t crc)
{
	uint32_t stored = crc32c_back(blk, COW_BLK_BYTES);

	if (stored == crc)
		return true;
	if (stored != (crc ^ escape_delta()) || memcmp(blk, NONE, sizeof(NONE)))
		return false;
	memcpy(blk, LOG_MAGIC_PREFIX, LOG_MAGIC_PREFIX_BYTES);
	return true;
}

bool escape_content_ok(bool in_ring, uint8_t blk[COW_BLK_BYTES], uint32_t crc)
{
	return in_ring ? escape_get(blk, crc) : crc32c_back(blk, COW_BLK_BYTES) == crc;
}
