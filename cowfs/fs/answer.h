/* SPDX-License-Identifier: MIT */
/*
 * Private to fs/: the side that answers questions about an image, in a process of its own.
 *
 * The socket is a stream: with a small buffer, messages of 64 KiB go in pieces. One question is
 * open at a time. The asking side sends a struct question. The other side sends struct answers,
 * each with its data. An answer that wants blocks gets an error number and the blocks; this repeats
 * until an answer is the last one. The content of a bitmap or a range cannot be checked here, and
 * needs no check: an attacker who controls the other side also controls the image, which may say
 * the same. The asking side does check that the content stays inside the volume and inside its own
 * memory.
 */
#ifndef COWFS_FS_ANSWER_H
#define COWFS_FS_ANSWER_H

#include <sys/socket.h>

#include "fs/fsimage.h"

/* ranges of a log, or blocks of a replay */
#define ITEMS_PER_ANSWER 2048
#define ITEM_BYTES 16u
#define GROUPS_PER_ANSWER 16u

enum { ASK_OPEN, ASK_LOG, ASK_REPLAY, ASK_GROUP };

struct question {
	uint32_t what, kind;
	uint32_t ask;	   /* FSIMAGE_ASK_...; the most groups that the answer may have */
	uint32_t verified; /* FSIMAGE_ASK_VERIFIED */
	uint64_t number;   /* volume_blks; the first item; the first group */
};

struct answer {
	uint32_t more; /* 1: this side first wants blocks */
	int32_t err;
	uint64_t bytes;	    /* of the data that follow */
	uint64_t blk, blks; /* or blks: the number of items */
};

/*
 * The time limit for a whole session, to which each question or group adds a 600th. 60 s; shorter in tests.
 */
extern uint64_t answer_patience_ns;

/* Answers questions on a socket until it is closed. */
void answer_serve(int fd);
/* Advances *iov and *n past the first bytes, which a call has already passed. */
void answer_skip(struct iovec **iov, size_t *n, size_t bytes);

#endif
