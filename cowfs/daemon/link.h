/* SPDX-License-Identifier: MIT */
/*
 * The link between a worker and its parent: the worker's side of it, and its messages.
 *
 * There are two SOCK_SEQPACKET pairs. One is the worker's: no descriptor passes through it. The other one is root's: the worker has it
 * until it drops its privileges, then its broker alone. What the parent keeps comes from there. The parent answers each message but
 * LINK_HELLO by one of the same kind.
 */
#ifndef COWFS_DAEMON_LINK_H
#define COWFS_DAEMON_LINK_H

#include "base/passfd.h"
#include "base/util.h"
#include "daemon/harden.h"

/* What the parent keeps for the next worker: these, and what the caller adds. -1: nothing. */
#define SUPERVISOR_KEPT_MAX PASSFD_MAX
#define SUPERVISOR_ROOT_BYTES 16384
enum {
	SUPERVISOR_KERNEL, /* the connection to the kernel; -1: a worker that dies is not replaced */
	/* of transport_prepare. A worker that is killed while it syncs its own volume cannot die without it. */
	SUPERVISOR_ABORT,
	SUPERVISOR_KEPT /* the first one of the caller */
};
#define SUPERVISOR_ALL (UINT32_MAX & ~(UINT32_C(1) << SUPERVISOR_ABORT))

/* In memory that the parent shares with all workers. No descriptor of it exists. */
struct signs {
	_Atomic uint32_t
		alive; /* a worker that serves changes it at least each minute, or it is killed */
	_Atomic bool no_spare; /* the process that would fork the next worker is dead */
};

/* Given to the worker, which owns all descriptors. */
struct supervisor_link {
	int sock_fd;	     /* to the parent */
	int root_fd;	     /* the same, of root: closed before anything is read of a card */
	int kernel_fd;	     /* of transport_open, or SUPERVISOR_KERNEL of a worker that died */
	int kmsg_fd;	     /* for msg_to_kmsg; -1: none */
	int mounts_fd;	     /* of sandbox_no_mounts, or its error */
	bool from_ram;	     /* started from an initramfs */
	bool replaces;	     /* it takes over from a worker that died: supervisor_take */
	bool replace;	     /* it will be replaced itself */
	struct signs *signs; /* with replace */
	void *root; /* SUPERVISOR_ROOT_BYTES, shared in the same way: for brokers. No worker that reads anything has it */
};

/* Marks the volume as in use. A death before the first call is a failed start: no alarm, no reboot. */
int supervisor_serving(struct supervisor_link *l) MUST_CHECK;
/* The parent replaces the worker no more, until supervisor_serving is called again. */
void supervisor_ending(struct supervisor_link *l);
/*
 * Root: the parent keeps duplicates of these, each in place of what it had there, and closes what it has in the slots of `gone`
 * before this returns. So the close of a disk that this process has open, too, is not the last one, and waits for nobody. fd: -1:
 * none; may be NULL. -EPIPE, -ECONNRESET: there is no parent.
 */
int supervisor_keep(int root_fd, const int fd[SUPERVISOR_KEPT_MAX], uint32_t gone) MUST_CHECK;
/* In a worker that replaces another one, once: what the parent keeps. *ret_halted: workers died again and
 * again. Sets l->kernel_fd. */
int supervisor_take(struct supervisor_link *l, int kept[SUPERVISOR_KEPT_MAX],
		    bool *ret_halted) MUST_CHECK;
/* ---- messages ---- */

enum link_message {
	LINK_SERVING,
	LINK_ENDING,
	/* of root */
	LINK_KEEP,
	LINK_TAKE, /* answered with what is kept */
	LINK_HELLO /* of a later worker: its pid, a pidfd, and its status in /proc */
};

/* Descriptor i of a message is for the i-th bit that is set in slots. */
struct message {
	uint32_t what; /* enum link_message, or what a worker that was taken over sends */
	uint32_t slots;
	uint32_t gone;	 /* LINK_KEEP: slots to close */
	uint32_t number; /* of the question */
	int pid;	 /* LINK_HELLO */
	/* answers */
	int error;
	bool halted;
};

/* Never waits: only a worker that an attacker has taken over lets messages pile up, and it may not
 * stop the parent. fd: SUPERVISOR_KEPT_MAX of them, -1: none; may be NULL. */
int link_send(int sock_fd, struct message m, const int *fd) MUST_CHECK;
/* Waits. 1 a message; 0 end of file; -errno. */
int link_receive(int sock_fd, struct message *ret, int ret_fd[SUPERVISOR_KEPT_MAX]) MUST_CHECK;
void link_close(int fd[SUPERVISOR_KEPT_MAX]);

#endif
