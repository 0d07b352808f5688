/* SPDX-License-Identifier: MIT */
/*
 * Runs a function that parses the content of a foreign image in a child process without privileges
 * (docs/design/hardening.md, "Who reads metadata"). The child is a copy of this process, so the
 * function sees all data of its caller, but changes only its copy. Of all descriptors it has those
 * of the image, and can only read them, and a socket to this process. It opens nothing and sends
 * no signals. Its memory and its time are bounded.
 *
 * The caller checks every message: whoever made the image may have written it.
 *
 * A job may leave the child behind, to serve what it has read.
 */
#ifndef COWFS_BASE_BOXED_H
#define COWFS_BASE_BOXED_H

#include "base/util.h"

#define BOXED_FDS 4
#define BOXED_MESSAGE_BYTES 16384u /* at most */

struct boxed; /* the child's end of the socket */

struct boxed_job {
	/* in the child. 0 or -errno, which boxed_run returns */
	int (*work)(void *ctx, struct boxed *b);
	/* In this process: a message, aligned to 8 bytes. 0; -ENOMEM; -EPROTO: it makes no sense */
	int (*hear)(void *ctx, const void *message, size_t bytes);
	void *ctx;
	int fd[BOXED_FDS]; /* of the image */
	size_t fds;
	/*
	 * NULL, or what the child does after its work returned 0: boxed_run returns, and the child goes on
	 * in a session of its own, for any time. It ends when this function returns. It may also use
	 * writev(2) on stay_fd, which is one of fd[]; all others are open for reading only.
	 */
	void (*stay)(void *ctx);
	int stay_fd;
	uint64_t
		more_bytes; /* of messages than boxed_heard_bytes, because the caller expects them */
};

/*
 * Blocks. After an error, messages may have arrived before it. -EOWNERDEAD: the image made the child
 * crash, take too long, or send what makes no sense. -errno of the start.
 */
int boxed_run(const struct boxed_job *job) MUST_CHECK;
/* strerrordesc_np(3), and for -EOWNERDEAD what became of the last child. Not for concurrent use. */
const char *boxed_error(int error);

/* For the child. Messages are buffered; there is no error, because a child without parent ends. */
void boxed_say(struct boxed *b, const void *message, size_t bytes);
/* The message arrives at once, and all before it. */
void boxed_say_now(struct boxed *b, const void *message, size_t bytes);

/* A part of a message: how far a phase of the work is. */
typedef void boxed_show(void *ctx, const char *phase, uint64_t done_bytes, uint64_t total_bytes);
struct boxed_progress {
	char phase[16];
	uint64_t done_bytes, total_bytes;
};
struct boxed_progress boxed_progress(const char *phase, uint64_t done_bytes, uint64_t total_bytes);
/* For `hear`: checks it and passes it on. show may be NULL. */
int boxed_hear_progress(const struct boxed_progress *p, boxed_show *show, void *ctx) MUST_CHECK;

/* Wall-clock and CPU time of a child. 1 h; shorter in tests. */
extern unsigned boxed_patience_s;
/* Of all messages of a child. 1 GiB; less in tests. */
extern uint64_t boxed_heard_bytes;

#endif
