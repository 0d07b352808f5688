/* SPDX-License-Identifier: MIT */
/*
 * Prepares a process to serve the root file system: memory, signals, priority for the OOM killer.
 */
#ifndef COWFS_DAEMON_HARDEN_H
#define COWFS_DAEMON_HARDEN_H

#include "daemon/confine.h"

enum {
	HARDEN_IO_FLUSHER = 1 << 0, /* allocations never wait for I/O on our own volume */
	/* current mappings become resident; later ones are locked when touched */
	HARDEN_MEMLOCK = 1 << 1,
	HARDEN_OOM = 1 << 2, /* oom_score_adj -1000 */
	/* argv[0][0] = '@': systemd spares the process when it kills all others */
	HARDEN_MARK = 1 << 3,
	HARDEN_SIGNALS = 1 << 4, /* TERM, HUP, INT, PIPE ignored */
	HARDEN_DIR = 1 << 5,	 /* chdir("/"), umask 077 */
	HARDEN_NOFILE = 1 << 6,	 /* RLIMIT_NOFILE to its hard limit, at least 4096 */
	/* a crash writes no copy of the memory, and does not wait for one */
	HARDEN_NO_CORE = 1 << 7,
	HARDEN_ALL = (1 << 8) - 1,
	/* done by harden_confine; listed here for harden_name */
	HARDEN_CAPABILITIES = 1 << 8,
	HARDEN_CALLS = 1 << 9,
	/* done by drop of cowfs.c */
	HARDEN_USER = 1 << 10,
	HARDEN_FILES = 1 << 11,
	HARDEN_LANDLOCK = 1 << 12,
	HARDEN_MOUNTS = 1 << 13,
	HARDEN_BITS = (1 << 14) - 1,
};

/*
 * Tries everything in flags. Call it in each process, because memory locks do not survive a fork.
 * Returns the mask of what failed; 0: everything succeeded. argv0: main's argv[0] itself, not a
 * copy; for HARDEN_MARK only. Call it before large sparse mappings are made. Needs /proc.
 */
unsigned harden_process(unsigned flags, char *argv0) MUST_CHECK;
/*
 * Called afterwards, in this order: HARDEN_CAPABILITIES while the process has one thread,
 * HARDEN_CALLS before it meets untrusted input (daemon/confine.h). what: one or both. Returns what
 * failed.
 */
unsigned harden_confine(unsigned what, enum confine_role role) MUST_CHECK;
/* The name of one bit for the message, such as "memory lock". */
const char *harden_name(unsigned bit);

/* Is "/" a ramfs or tmpfs now? Before switch_root, true means: started from an initramfs. */
bool harden_started_from_ram(void);

#endif
