/* SPDX-License-Identifier: MIT */
/* Makes a process fit to serve the root file system: memory, signals, standing. */
#ifndef COWFS_DAEMON_HARDEN_H
#define COWFS_DAEMON_HARDEN_H

#include "daemon/confine.h"

enum {
	HARDEN_IO_FLUSHER = 1 << 0, /* allocations never wait for I/O on ourselves */
	HARDEN_MEMLOCK = 1 << 1,    /* what is mapped now is made resident; more when touched */
	HARDEN_OOM = 1 << 2,	    /* oom_score_adj -1000 */
	HARDEN_MARK = 1 << 3,	    /* argv[0][0] = '@': the killing sprees of systemd pass by */
	HARDEN_SIGNALS = 1 << 4,    /* TERM, HUP, INT, PIPE ignored */
	HARDEN_DIR = 1 << 5,	    /* chdir("/"), umask 077 */
	HARDEN_NOFILE = 1 << 6,	    /* RLIMIT_NOFILE to its hard limit, at least 4096 */
	/* a crash leaves no copy of the memory, and does not wait for one */
	HARDEN_NO_CORE = 1 << 7,
	HARDEN_ALL = (1 << 8) - 1,
	/* what harden_confine does; names for messages */
	HARDEN_CAPABILITIES = 1 << 8,
	HARDEN_CALLS = 1 << 9,
	HARDEN_BITS = (1 << 10) - 1,
};

/*
 * Tries everything in flags; for each process anew, memory locks do not survive a fork. Returns the
 * mask of what failed, 0: all well. argv0: main's argv[0] itself, not a copy; for HARDEN_MARK only.
 * Call it before large sparse mappings are made. Needs /proc.
 */
unsigned harden_process(unsigned flags, char *argv0) MUST_CHECK;
/*
 * Then, in this order: HARDEN_CAPABILITIES while the process has one thread, HARDEN_CALLS before it
 * meets what it must not trust (daemon/confine.h). what: one or both. Returns what failed.
 */
unsigned harden_confine(unsigned what, enum confine_role role) MUST_CHECK;
/* "memory lock" etc. of one bit, for the message */
const char *harden_name(unsigned bit);

/* Is "/" a ramfs or tmpfs now? Asked before switch_root, it means: started from an initramfs. */
bool harden_started_from_ram(void);

#endif
