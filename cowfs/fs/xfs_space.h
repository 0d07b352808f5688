/* SPDX-License-Identifier: MIT */
/*
 * Private to fs/: which 4 KiB units of an XFS image are used. Pure code over a blk_reader, for a
 * process without privileges: reads, memory and time are bounded whatever the image contains.
 * Allocates; not for concurrent use.
 *
 * A unit that is reported free is written in place before the commit is durable, so doubt is "used"
 * or an error. Only XFS version 5 (with checksums) is supported. The answer is what a mount finds
 * after the replay of the log.
 */
#ifndef COWFS_FS_XFS_SPACE_H
#define COWFS_FS_XFS_SPACE_H

#include "fs/fsinfo.h"

struct xfs_space;

/*
 * r is copied; its ctx must outlive the space. *ret_units: whole units of the file system; all
 * units behind them are used. -EOPNOTSUPP: not supported, or its log is not understood; -ENOMEM; the
 * error of a read.
 */
int xfs_space_open(struct xfs_space **ret, const struct blk_reader *r,
		   uint64_t *ret_units) MUST_CHECK;
/*
 * Sets bit i % 8 of bits[i / 8] if unit first_unit + i is used, and clears it if not. -EUCLEAN: not
 * to be trusted, or more reads than an honest image needs; -ENOMEM; the error of a read. On an
 * error bits are undefined.
 */
int xfs_space_used(struct xfs_space *x, uint64_t first_unit, uint64_t units,
		   uint8_t *bits) MUST_CHECK;
void xfs_space_close(struct xfs_space *x); /* NULL allowed */

#endif
