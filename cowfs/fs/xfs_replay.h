/* SPDX-License-Identifier: MIT */
/*
 * Private to fs/xfs_*.c: what the replay of a log would write to the blocks of free space. Pure
 * code in memory; its size is bounded whatever the log contains.
 */
#ifndef COWFS_FS_XFS_REPLAY_H
#define COWFS_FS_XFS_REPLAY_H

#include "fs/xfs_image.h"

struct xfs_replay;

/* NULL: no memory */
struct xfs_replay *xfs_replay_new(const struct xfs_image *x);
/*
 * Takes the next operation of the log: its header, and len_bytes of content. lsn: of its record.
 * -EOPNOTSUPP: it is not understood, or there are too many; -ENOMEM.
 */
int xfs_replay_op(struct xfs_replay *y, uint64_t lsn, const uint8_t *op,
		  uint32_t len_bytes) MUST_CHECK;
/* After the last operation, before the first apply. */
void xfs_replay_ready(struct xfs_replay *y);
/*
 * Makes the content that this buffer has at home into the one that it has after the replay. True:
 * it was changed, and its checksum is not valid, nor is its LSN.
 */
bool xfs_replay_apply(const struct xfs_replay *y, uint64_t daddr, uint32_t bbs, uint8_t *buf);
void xfs_replay_free(struct xfs_replay *y); /* NULL allowed */

/* an operation of a record: struct xlog_op_header */
enum { OH_TID = 0, OH_LEN = 4, OH_CLIENTID = 8, OH_FLAGS = 9, OH_BYTES = 12 };
#define XFS_TRANSACTION 0x69u
#define XFS_LOG 0xaau
#define XLOG_START_TRANS 0x01u
#define XLOG_COMMIT_TRANS 0x02u
#define XLOG_CONTINUE_TRANS 0x04u
#define XLOG_WAS_CONT_TRANS 0x08u
#define XLOG_END_TRANS 0x10u
#define XLOG_UNMOUNT_TRANS 0x20u

#endif
