/* SPDX-License-Identifier: MIT */
#include "fs/xfs_image.h"

#include <errno.h>
#include <string.h>

#include "base/crc32c.h"

int xfs_read(struct xfs_image *x, uint64_t off_bytes, size_t len_bytes, uint8_t *buf)
{
	while (len_bytes) {
		uint64_t blk = off_bytes >> COW_BLK_SHIFT, skip = off_bytes % COW_BLK_BYTES;
		uint64_t blks = min_u64(XFS_READ_UNITS,
					(skip + len_bytes + COW_BLK_BYTES - 1) >> COW_BLK_SHIFT);
		size_t part = (size_t)min_u64(len_bytes, blk_to_bytes(blks) - skip);
		int err;

		if (blk >= x->r.volume_blks || blks > x->r.volume_blks - blk ||
		    blks > x->reads_blks)
			return -EUCLEAN;
		x->reads_blks -= blks;
		err = x->r.read(x->r.ctx, blk, blks, x->buf);
		if (err)
			return err;
		memcpy(buf, x->buf + skip, part);
		buf += part;
		off_bytes += part;
		len_bytes -= part;
	}
	return 0;
}

bool xfs_crc_ok(const uint8_t *p, size_t len_bytes, size_t crc_off)
{
	static const uint8_t zero[4];
	uint32_t crc = crc32c(crc32c(0, p, crc_off), zero, sizeof(zero));

	return crc32c(crc, p + crc_off + 4, len_bytes - crc_off - 4) == le_at(p, crc_off, 4);
}
