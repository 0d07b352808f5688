/* SPDX-License-Identifier: MIT */
/*
 * Private to fs/: what a mount of an ext3 or ext4 image would write from its journal. Reads the
 * journal only; may run in the process without privileges (fsproc.h).
 */
#ifndef COWFS_FS_EXT4_REPLAY_H
#define COWFS_FS_EXT4_REPLAY_H

#include "fs/ext4.h"

/*
 * Reads the internal journal from its tail to its last whole transaction. *ret_list: what the
 * replay writes, ascending, each block once; NULL if nothing; freed by the caller. *j: of
 * ext4_journal; its start and sequence become those of the emptied journal.
 *
 * verified: of FSIMAGE_ASK_VERIFIED; NULL: none.
 *
 * -ENOENT: the image needs no recovery, and its journal is empty. -EOPNOTSUPP: fast or asynchronous
 * commits, or a feature that is not known here. -EUCLEAN: damaged or crafted, or the journal has
 * content that a mount throws away because the superblock does not ask for recovery. -ENOMEM;
 * errors of the reader.
 */
int ext4_replay(struct ext4_image *e, struct fsimage_journal *j, const uint32_t *verified,
		struct fsimage_move **ret_list, size_t *ret_n) MUST_CHECK;

#endif
