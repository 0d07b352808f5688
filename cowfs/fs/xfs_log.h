/* SPDX-License-Identifier: MIT */
/* The log of an XFS image. */
#ifndef COWFS_FS_XFS_LOG_H
#define COWFS_FS_XFS_LOG_H

#include "fs/xfs_replay.h"

/*
 * What the replay at mount would change; x must outlive it. -EOPNOTSUPP: not known; -ENOMEM, or the
 * error of a read.
 */
int xfs_log_replay(struct xfs_replay **ret, struct xfs_image *x) MUST_CHECK;

#endif
