/* SPDX-License-Identifier: MIT */
/*
 * Private to fs/: what cowfs asks about the metadata of an image. A process without privileges
 * answers if there is one (fsproc.h), else this one. In the first case -EOWNERDEAD means that the
 * process died of the image, or took too long. Its answers are checked, and calls of the blk_reader
 * are made here.
 */
#ifndef COWFS_FS_READER_H
#define COWFS_FS_READER_H

#include "fs/fsimage.h"

struct reader;

/* Errors as of the open of fsimage.h. r is copied. */
int reader_open(struct reader **ret, const struct blk_reader *r, enum fs_kind kind, unsigned ask,
		struct fsimage_facts *facts) MUST_CHECK;
void reader_close(struct reader *x); /* NULL allowed */
/* After a journal was found: its blocks but that of its superblock, ascending; NULL if it cannot be
 * told. The caller frees *ret. -EUCLEAN: it cannot be a journal. */
int reader_log(struct reader *x, struct fsimage_range **ret, size_t *ret_n) MUST_CHECK;
/* The block bitmap of group nr into a block's bytes. -EUCLEAN: not to be believed. */
int reader_group(struct reader *x, uint32_t nr, uint8_t *bits) MUST_CHECK;

#endif
