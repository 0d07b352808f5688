/* SPDX-License-Identifier: MIT */
/* Does the log of an XFS image have anything to replay? */
#ifndef COWFS_FS_XFS_LOG_H
#define COWFS_FS_XFS_LOG_H

#include "fs/xfs_image.h"

/*
 * 0: a replay at mount changes nothing about which blocks are free. -EOPNOTSUPP: it may. -ENOMEM,
 * or the error of a read.
 */
int xfs_log_clean(struct xfs_image *x) MUST_CHECK;

#endif
