/* SPDX-License-Identifier: MIT */
/*
 * Escapes payload that begins like a block of the log: private to log/.
 *
 * Such a block is stored in the ring with its first bytes zero. Descriptors carry the CRC of the
 * content, so the CRC of the stored block distinguishes the two forms (docs/FORMAT.md, "Why
 * content cannot be a record").
 */
#ifndef COWFS_LOG_ESCAPE_H
#define COWFS_LOG_ESCAPE_H

#include "base/util.h"

/* All magics begin with this. */
#define LOG_MAGIC_PREFIX "COWFS"

enum { LOG_MAGIC_PREFIX_BYTES = sizeof(LOG_MAGIC_PREFIX) - 1 };

/* Must this content be escaped? */
bool escape_needed(const uint8_t blk[COW_BLK_BYTES]) MUST_CHECK;
void escape_put(uint8_t blk[COW_BLK_BYTES]);
/* Turns a block read from the ring into its content, whose content CRC is `crc`. false: the
 * block is not that content and is unchanged. */
bool escape_get(uint8_t blk[COW_BLK_BYTES], uint32_t crc) MUST_CHECK;
/* The same for a block that is in the ring or, not escaped, outside of it. */
bool escape_content_ok(bool in_ring, uint8_t blk[COW_BLK_BYTES], uint32_t crc) MUST_CHECK;
/* The difference (xor) between the content CRC of an escaped block and that of its content. Not
 * zero. */
uint32_t escape_delta(void);

#endif
