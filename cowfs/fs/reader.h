/* SPDX-License-Identifier: MIT */
/*
 * Private to fs/: the questions of cowfs about the metadata of an image. A process without
 * privileges answers if there is one (fsproc.h), else this process. In the first case -EOWNERDEAD
 * means that the image made that process die, or that it took too long. This process checks the
 * answers, and makes the calls of the blk_reader itself.
 */
#ifndef COWFS_FS_READER_H
#define COWFS_FS_READER_H

#include "fs/fsimage.h"

struct reader;

/* Errors as for the open of fsimage.h. r is copied. */
int reader_open(struct reader **ret, const struct blk_reader *r, enum fs_kind kind, unsigned ask,
		struct fsimage_facts *facts) MUST_CHECK;
void reader_close(struct reader *x); /* NULL allowed */
/*
 * Call this after a journal was found. Gets its blocks except the block of its superblock,
 * ascending; NULL if they cannot be determined. The caller frees *ret. -EUCLEAN: it cannot be a
 * journal.
 */
int reader_log(struct reader *x, struct fsimage_range **ret, size_t *ret_n) MUST_CHECK;
/* After FSIMAGE_ASK_REPLAY without an error: what the replay writes, ascending. As reader_log. */
int reader_replay(struct reader *x, struct fsimage_move **ret, size_t *ret_n) MUST_CHECK;
/* Reads the block bitmap of group nr into a buffer of one block. -EUCLEAN: not to be trusted. */
int reader_group(struct reader *x, uint32_t nr, uint8_t *bits) MUST_CHECK;

#endif
