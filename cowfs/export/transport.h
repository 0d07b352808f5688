/* SPDX-License-Identifier: MIT */
/*
 * Transports: how a view becomes a disk of the kernel. There are two: a FUSE file under a loop
 * device (fuse_loop.c), and ublk (ublk.c). No caller depends on which one it is.
 */
#ifndef COWFS_EXPORT_TRANSPORT_H
#define COWFS_EXPORT_TRANSPORT_H

#include <sys/types.h>

#include "export/fuse.h"
#include "export/loop.h"
#include "export/throttle.h"
#include "export/view.h"

struct transport;

/* As the words of the option: config/volopt.h. */
enum transport_kind { TRANSPORT_AUTO, TRANSPORT_UBLK, TRANSPORT_FUSE };

/* The disk to mount. */
struct transport_disk {
	int fd; /* open; replaced after a failed transport_detach */
	dev_t rdev;
	char path[32]; /* "/dev/loop7" */
};

/* For a process that takes over, in memory that outlives this one. */
struct transport_kept {
	enum transport_kind kind;
	struct fuse_kept fuse;
	struct loop_kept loop;
	struct {
		unsigned depth;
		dev_t rdev;
		char path[32];
	} ublk;
	char reason[160];
};
/* Its descriptors: two, and what the transport adds. */
enum {
	TRANSPORT_ABORT,  /* transport_abort_fd */
	TRANSPORT_KERNEL, /* the connection to the kernel */
	TRANSPORT_OTHER,
	TRANSPORT_FDS = TRANSPORT_OTHER + LOOP_FDS
};

struct transport_params {
	enum transport_kind wanted;
	int kernel_fd; /* from transport_open; not closed */
	int abort_fd;  /* with a broker: of transport_prepare; the transport's then */
	struct view *view;
	struct throttle *throttle; /* NULL: no throttle. Started here, stopped by transport_stop. */
	const char *label; /* "cowfs:root": identifies the owner of the disk; cut at 63 bytes */
	unsigned read_ahead_kb;
	unsigned max_kb, tags; /* limits of its requests; 0: what the kernel allows */
	/* the disk disappears with its last user if this process is killed. FUSE only. */
	bool temporary;
	struct transport_kept *kept; /* NULL: it is not taken over later */
};

/* Can a volume with this transport be taken over on this kernel? False: with a clause in why. */
bool transport_replaces(enum transport_kind wanted, const char **why);
/* Does the kernel have what FUSE needs, which every volume may fall back to? 0, or -errno with a
 * sentence in why. Keeps nothing open. */
int transport_check(char *why, size_t n) MUST_CHECK;
/* Loads the kernel's module that the wanted transport needs, if it is not loaded. Call it while this
 * process may still start programs. Failures show at the start. */
void transport_load(enum transport_kind wanted);
/*
 * Opens the connection to the kernel. Call it before the process forks: while the parent also holds
 * it, I/O waits when the worker dies instead of failing. A descriptor, or -errno.
 */
int transport_open(void) MUST_CHECK;
/* Before there is a second thread: its descriptor will have a high number. */
void transport_make_room(int kernel_fd);
/* Before a worker gives up its privileges, for FUSE with a broker: what transport_start needs. The mount is
 * for the broker. */
int transport_prepare(int kernel_fd, int *ret_mount_fd, int *ret_abort_fd) MUST_CHECK;
/* On return the disk answers. On failure -errno, with a sentence in why. Call transport_stop in
 * both cases, unless *ret is NULL. */
int transport_start(struct transport **ret, const struct transport_params *p, char *why,
		    size_t n) MUST_CHECK;
/* For a process that takes over: fills in p->kept of the start and the descriptors, which stay the
 * transport's. */
void transport_keep(const struct transport *t, struct transport_kept *ret, int fd[TRANSPORT_FDS]);
/* Serves the disk of a process that has died; opens no block device. After a failure the process
 * ends. */
int transport_take_over(struct transport **ret, const struct transport_params *p,
			const int fd[TRANSPORT_FDS], char *why, size_t n) MUST_CHECK;
/*
 * For a process that outlives the server. With ublk nothing but such a process ends the I/O that waits
 * for another server, so it opens this before its system calls are restricted. -errno: it is not needed,
 * because there is no ublk. end: what broker_facts says; only a disk with this label is ended.
 * transport_end does not wait for it; transport_ended: is it done?
 */
struct ublk_control;
int transport_end_open(struct ublk_control **ret) MUST_CHECK;
void transport_end(struct ublk_control *c, uint32_t end, const char *label); /* not 0 */
bool transport_ended(struct ublk_control *c);
/* "ublk" or "fuse". */
const char *transport_name(const struct transport *t);
/* A clause that says why it is this one. */
const char *transport_reason(const struct transport *t);
const struct transport_disk *transport_disk(const struct transport *t);
/* A descriptor, owned by t, or -1 if the kernel has none. Writing "1" to it ends all I/O with
 * errors at once, even if another process holds the connection. For the parent process. */
int transport_abort_fd(const struct transport *t);
/* Has a thread spent cpu_ns of processor time in one request, since the first call that met it in
 * there? One thread calls it. False also if the transport cannot tell. */
bool transport_loops(struct transport *t, uint64_t cpu_ns);
/* Is the disk mounted, swapped on or otherwise claimed? 1, 0, -errno. */
int transport_in_use(const struct transport *t);
/* Removes the disk; returns 0 also if it is already gone. -EBUSY: the disk is in use and stays. A
 * plain open is reported after 5 s. */
int transport_detach(struct transport *t) MUST_CHECK;
/* Joins the serving threads and frees t. Blocks while anything holds the disk. NULL allowed. */
void transport_stop(struct transport *t);

/* ---- a disk whose processes were killed ---- */

/* The path of a disk with this label that nothing else names: its start was killed. Only ublk has such. */
bool transport_left_find(const char *label, char *path, size_t n);
/* If its I/O waits for another server, it fails from now on, and the block device disappears: then
 * returns its number, otherwise 0. First; opens no block device. */
dev_t transport_left_end(const char *path, const char *label);
/* Does a left-over disk exist at this path? */
bool transport_left(const char *path);
/* fd is open on the disk. 0: it has this label. -ESRCH: it belongs to something else. Reads
 * nothing. */
int transport_left_label(int fd, const char *label) MUST_CHECK;
/* Like transport_left_label, but 0 also requires that a read of the disk fails. -ESRCH also if it
 * answers. Waits for that read. */
int transport_left_check(int fd, const char *label) MUST_CHECK;
/* Removes the disk if transport_left_check returns 0. -EBUSY: in use; the disk stays. later: it
 * disappears with its last user. */
int transport_left_detach(const char *path, const char *label, bool later) MUST_CHECK;

#endif
