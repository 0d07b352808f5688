/* SPDX-License-Identifier: MIT */
/*
 * The broker: a small privileged process beside a worker that has no privileges. This is the worker's
 * side, and the messages. The modules that need a privilege ask here when there is a broker, and act
 * by themselves when there is none (tools, tests). daemon/broker_serve.c answers.
 *
 * There are five lanes, each a SOCK_SEQPACKET pair with a thread of the broker. A call on one lane
 * does not wait for a call on another one. A lane takes one call at a time; other threads wait.
 *
 * The broker trusts no message. A call names what is to be done, never to what: card, disk, folder
 * and store are those that the broker got from root before the worker read anything.
 */
#ifndef COWFS_BASE_BROKER_H
#define COWFS_BASE_BROKER_H

#include "base/util.h"

enum broker_lane {
	BROKER_MAIN,  /* may take as long as a card */
	BROKER_LOOK,  /* quick questions; the control thread waits for them */
	BROKER_SPACE, /* one question, which may hang in a file system */
	BROKER_READ,  /* processes that read metadata */
	BROKER_SYNC,  /* one sync, which may wait for the worker */
	BROKER_LANES
};

enum broker_op {
	BROKER_WRITABLE, /* n[0]: 0 base, 1 log; n[1]: writable? (card/blockdev.c) */
	BROKER_BDI_CAN,	 /* n[0]: bdi_can_limit; n[1]: global_dirty_bytes (export/bdi.c) */
	BROKER_LIMIT,	 /* of the disk's dirty pages. n[0]: bytes */
	BROKER_RESIZE,	 /* n[0]: limit of the store in bytes (ram/store.c) */
	BROKER_FILE,	 /* opens the file on the FUSE mount (export/transport.c) */
	/* a loop device on it. n: struct loop_limits. data: struct loop_kept, and a descriptor. */
	BROKER_ATTACH,
	BROKER_DETACH,	   /* A descriptor if it fails. */
	BROKER_IN_USE,	   /* result 1, 0 */
	BROKER_FLUSH,	   /* n[0]: enum disk_sync (fs/quiesce.h) */
	BROKER_CLAIMED,	   /* of the disk: result 1, 0; n[0]: is it mounted anywhere? */
	BROKER_FIND_MOUNT, /* n[0]: read-only; data: the mount point; result 1, 0 */
	BROKER_HOLDER,	   /* data: name; result 1, 0 */
	BROKER_FREE_BYTES, /* n[0]: free_space.h */
	/* a process that reads metadata (fs/fsproc.h). Of the answer: n[0]: its number; a socket */
	BROKER_SESSION,
	BROKER_END,	/* ends it. n[0]: its number */
	BROKER_PUBLISH, /* data: the status file. n[0] 1: the pid of this worker instead */
	BROKER_LISTEN,	/* clients find the control socket from now on */
	BROKER_RELEASE, /* removes the folder in /run and lets go of everything */
	/* Once, at the attach: where the log has its superblock. n: 0 base, 1 log; offsets of both copies */
	BROKER_KNOW,
	/* While the card is away, the i-th device that may be it (card/find.h), claimed. n: 0 base, 1 log; i. Answered with data
	 * struct find_result, and its descriptors. */
	BROKER_SEARCH,
	BROKER_FOUND, /* the end of that. n: 0 base, 1 log; enum broker_found; number of find_result */
	BROKER_OPS
};

enum broker_found {
	FOUND_CARD,	/* it is the card */
	FOUND_STRANGER, /* it is not, and need not be found again */
	FOUND_AGAIN	/* not known: it could not be read */
};

#define BROKER_N 8
#define BROKER_FDS 4
#define BROKER_DATA_BYTES 16384

struct broker_message {
	uint32_t op;
	int32_t result; /* of an answer: 0, positive or -errno */
	uint64_t n[BROKER_N];
	uint32_t bytes; /* of data */
	char data[BROKER_DATA_BYTES];
};

/* Both sides. fd: BROKER_FDS of them, or NULL; -1: none, in front of which there are no others. */
int broker_send(int sock_fd, const struct broker_message *m, const int *fd) MUST_CHECK;
/* 1 a message, 0 end of file, -errno. All of data behind `bytes` is zero for a text's sake: one byte. */
int broker_receive(int sock_fd, struct broker_message *ret, int ret_fd[BROKER_FDS]) MUST_CHECK;

/* From now on this process asks. lost: called once by the thread that finds the broker dead; may be
 * NULL. The descriptors are owned by this module. */
void broker_use(const int lane_fd[BROKER_LANES], void (*lost)(void));
bool broker_on(void);
/*
 * Asks and waits. *m becomes the answer; returns its result. -EPIPE: there is no broker any more.
 * ret_fd: for the descriptors of the answer, or NULL.
 */
int broker_ask(enum broker_lane lane, struct broker_message *m, int *ret_fd) MUST_CHECK;
/* For calls with numbers only. */
int broker_call(enum broker_lane lane, enum broker_op op, uint64_t n0, uint64_t n1) MUST_CHECK;

#endif
