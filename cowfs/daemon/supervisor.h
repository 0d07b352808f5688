/* SPDX-License-Identifier: MIT */
/*
 * The parent process is small, locked in memory, and holds the FUSE descriptor. It does nothing
 * until the worker dies or leaves a file system frozen, except for calls that the worker asks for. It
 * keeps descriptors for the next worker. If
 * it has all that one needs, a dead worker is replaced: the next one takes the volume over, and I/O
 * waits meanwhile. Otherwise, or if workers die again and again, it writes to the kernel log and
 *	- reboots, if the volume is the running root (nothing else can help a root without a
 *	  disk; the card holds the last commit);
 *	- otherwise closes the FUSE descriptor, or ends the disk of ublk (I/O then fails instead of
 *	  hanging), thaws what the worker had frozen, and exits with the worker's status.
 */
#ifndef COWFS_DAEMON_SUPERVISOR_H
#define COWFS_DAEMON_SUPERVISOR_H

#include "base/passfd.h"
#include "base/util.h"
#include "daemon/harden.h"
#include "fs/quiesce.h"

struct supervisor_opts {
	/*
	 * From the command line: the volume will become the root of this system. Takes effect only
	 * if the process was started from an initramfs, and only after supervisor_serving.
	 */
	bool running_root;
	bool mark; /* set '@' even when not started from an initramfs */
	/* the parent leaves it; otherwise it would be killed with the worker's cgroup */
	bool leave_cgroup;
	/* after supervisor_serving, descriptors 0 to 2 of the parent are /dev/null */
	bool detach_stdio;
	bool replace;	/* a worker that dies is replaced, */
	bool halt;	/* and halted after deaths in a row; otherwise that is the end */
	bool ends;	/* with replace: the parent may have to call transport_end */
	int proc_dirfd; /* with replace: /proc; later workers have it, too */
	/* with replace: the command that makes a spare of another version (daemon/upgrade.h) */
	char *const *upgrade;
	char *argv0;	     /* main's argv[0], for the mark */
	int kmsg_fd;	     /* destination of alarms; -1: /dev/kmsg, or stderr if there is none */
	uint64_t deadman_ns; /* 0: 10 s */
};

#define SUPERVISOR_VERSION_BYTES 32

/* What the parent keeps for the next worker: SUPERVISOR_ABORT, SUPERVISOR_KERNEL, and what the caller
 * adds. -1: nothing. */
#define SUPERVISOR_KEPT_MAX PASSFD_MAX
enum {
	/* transport_abort_fd. A worker that is killed while it syncs or freezes its own volume cannot
	 * die without it. */
	SUPERVISOR_ABORT,
	SUPERVISOR_KERNEL, /* TRANSPORT_KERNEL; -1: a worker that dies is not replaced */
	SUPERVISOR_KEPT	   /* number of the first one that the caller adds */
};

/* Given to the worker, which owns all descriptors. */
struct supervisor_link {
	int sock_fd;   /* to the parent */
	int kernel_fd; /* of transport_open, or SUPERVISOR_KERNEL of a worker that died */
	int kmsg_fd;   /* for msg_to_kmsg; -1: none */
	bool from_ram; /* started from an initramfs */
	bool replaces; /* it takes over from a worker that died: supervisor_take */
	bool replace;  /* it will be replaced itself */
	/* of supervisor_take: it replaces a worker of another version, or one of another version could
	 * not */
	enum upgrade_end { UPGRADE_NONE, UPGRADE_DONE, UPGRADE_FAILED } upgrade;
	/* with replace: a worker that serves changes it at least each minute, or it is killed */
	_Atomic uint32_t *alive;
	_Atomic uint32_t *end; /* with replace: for transport_params */
	bool calls_apart;      /* supervisor_call: the parent makes the calls */
};

/* After this time without a sign of life a worker is killed, if it would be replaced. Tests change
 * it. */
uint64_t supervisor_stuck_ns(void);

/*
 * Calls transport_open and forks. Returns 0 in the child, which is the worker and hardens itself, and
 * again in each later worker. The parent does not return: it ends with the worker's exit status, or
 * 128 + the signal that killed the worker. Call it before there are threads. Errors are those of
 * transport_open, -EAGAIN, ...; they return in the only process that exists then.
 */
int supervisor_start(const struct supervisor_opts *o, struct supervisor_link *ret) MUST_CHECK;

/*
 * For a program that upgrade_exec has executed; o: replace, mark and what it needs of the rest. The
 * process becomes the spare of its parent, which is of another version. Returns as supervisor_start
 * does, in later workers only. -errno: the parent has gone, or there is no memory.
 */
int supervisor_spare(const struct supervisor_opts *o, struct supervisor_link *ret) MUST_CHECK;
/*
 * Executes the installed program as a new spare, and waits for it. -ENOTSUP: no other worker could
 * take over; -ENOEXEC it does not start; -ESTALE: it has another layout (base/layout.h); -ETIMEDOUT. ret: its
 * version, "" if not known.
 */
int supervisor_upgrade(struct supervisor_link *l, char ret[SUPERVISOR_VERSION_BYTES]) MUST_CHECK;
/* Then: the parent kills this worker, and the new spare becomes the next one. Returns on failure only. */
int supervisor_give_way(struct supervisor_link *l) MUST_CHECK;
/*
 * Marks the volume as in use, and gives the parent duplicates of the descriptors to keep, instead of
 * those that it had. A death before the first call is a failed start: no alarm, no reboot.
 */
int supervisor_serving(struct supervisor_link *l, const int kept[SUPERVISOR_KEPT_MAX]) MUST_CHECK;
/* The parent closes what it keeps, and replaces the worker no more, until supervisor_serving is called
 * again. */
void supervisor_ending(struct supervisor_link *l);
/* In a worker that replaces another one: what the parent keeps. *ret_halted: workers died again and
 * again. Sets l->kernel_fd. */
int supervisor_take(struct supervisor_link *l, int kept[SUPERVISOR_KEPT_MAX],
		    bool *ret_halted) MUST_CHECK;
/*
 * The callback `frozen` of quiesce.h; link is a struct supervisor_link. Returns when the parent
 * has acted, after a second at the latest. After mount_fd -1 the parent holds no descriptor of the
 * mount.
 */
void supervisor_frozen(void *link, int mount_fd);
/*
 * The callback `call` of quiesce.h. With calls_apart the parent makes the call: a thread of this
 * process that sleeps in it would keep the memory of the process, and so what is mapped there, also
 * after a kill. -EPIPE: the parent died meanwhile.
 */
int supervisor_call(void *link, enum quiesce_call call, int fd, int disk_fd) MUST_CHECK;

#endif
