/* SPDX-License-Identifier: MIT */
/*
 * Private to fs/: the side that answers questions about an image, in a process of its own.
 *
 * On the socket (a stream: where a buffer is small, messages of 64 KiB go in pieces) one question
 * is open at a time. The asking side sends a struct question; the other one sends struct answers,
 * each with its data: one that wants blocks is answered by an error number and these, until one is
 * the last. What a bitmap or a range says cannot be checked here, and need not be: whoever controls
 * the other side controls the image, which may say the same. That it stays inside of the volume and
 * of our memory is checked.
 */
#ifndef COWFS_FS_ANSWER_H
#define COWFS_FS_ANSWER_H

#include <sys/socket.h>

#include "fs/fsimage.h"

#define RANGES_PER_ANSWER 2048

enum { ASK_OPEN, ASK_LOG, ASK_GROUP };

struct question {
	uint32_t what, kind, ask, reserved;
	uint64_t number; /* volume_blks; the first range; the group */
};

struct answer {
	uint32_t more; /* 1: blocks are wanted first */
	int32_t err;
	uint64_t bytes;	    /* of data behind it */
	uint64_t blk, blks; /* or blks: how many ranges there are */
};

/* How long a session is waited for in all, with a 600th of it for each question. 60 s; tests are
 * less patient. */
extern uint64_t answer_patience_ns;

/* Answers on a socket until it is closed. */
void answer_serve(int fd);
/* Of what a call shall pass, the first bytes have been. */
void answer_skip(struct iovec **iov, size_t *n, size_t bytes);

#endif
