/* SPDX-License-Identifier: MIT */
/*
 * Payload that begins as a block of the log does: private to log/.
 *
 * Such a block lies in the ring with its first bytes zero. Descriptors carry the CRC of the
 * content, so the CRC of what is stored tells the two forms apart (docs/FORMAT.md, "Why content
 * cannot be a record").
 */
#ifndef COWFS_LOG_ESCAPE_H
#define COWFS_LOG_ESCAPE_H

#include "base/util.h"

/* All magics begin with it. */
#define LOG_MAGIC_PREFIX "COWFS"

enum { LOG_MAGIC_PREFIX_BYTES = sizeof(LOG_MAGIC_PREFIX) - 1 };

/* Has this content to be escaped? */
bool escape_needed(const uint8_t blk[COW_BLK_BYTES]) MUST_CHECK;
void escape_put(uint8_t blk[COW_BLK_BYTES]);
/* A block as it was read from the ring becomes its content, whose content CRC is `crc`. false: it
 * is not that content; the block is unchanged. */
bool escape_get(uint8_t blk[COW_BLK_BYTES], uint32_t crc) MUST_CHECK;
/* By how much (xor) the content CRC of an escaped block differs from that of its content. Not
 * zero. */
uint32_t escape_delta(void);

#endif
