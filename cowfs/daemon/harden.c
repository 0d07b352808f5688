/* SPDX-License-Identifier: MIT */
/* Hardening of the worker and of its parent. */
#include "daemon/harden.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <linux/magic.h>

#include "base/io.h"

#ifndef PR_SET_IO_FLUSHER
#define PR_SET_IO_FLUSHER 57
#endif

#define NOFILE_MIN 4096
#define NICE_MIN 25 /* 20 - nice: the control thread of server.c */
#define LARGE_BYTES (64 * KIB)

/*
 * malloc's memory is locked as well, and only the end of the heap can be given back. So all
 * threads share one heap (in the I/O path only libfuse allocates, from the thread's cache), and
 * large blocks are never in it. By default the threshold grows with the size of freed blocks.
 */
static void frugal_malloc(void)
{
	mallopt(M_ARENA_MAX, 1);
	mallopt(M_MMAP_THRESHOLD, LARGE_BYTES);
}

/*
 * Two calls. The first loads all text and data, so that no page of the program is ever read from a
 * disk that it serves. The second makes later mappings (sparse presence maps, stacks) locked on
 * first touch instead of allocated in full.
 */
static bool lock_memory(void)
{
	const struct rlimit all = { RLIM_INFINITY, RLIM_INFINITY };

	frugal_malloc();
	/* for a worker that gives up CAP_IPC_LOCK; confine.c looks at the result */
	(void)!setrlimit(RLIMIT_MEMLOCK, &all);
	return mlockall(MCL_CURRENT) == 0 && mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) == 0;
}

static bool set_io_flusher(void)
{
	return prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0) == 0;
}

static bool set_oom(void)
{
	return io_write_text(AT_FDCWD, "/proc/self/oom_score_adj", "-1000") == 0;
}

static bool ignore_signals(void)
{
	static const int ignored[] = { SIGTERM, SIGHUP, SIGINT, SIGPIPE };
	bool ok = true;

	for (size_t i = 0; i < ARRAY_SIZE(ignored); i++)
		ok &= signal(ignored[i], SIG_IGN) != SIG_ERR;
	return ok;
}

static bool leave_dir(void)
{
	umask(077);
	return chdir("/") == 0;
}

static bool raise_nofile(void)
{
	const struct rlimit all = { RLIM_INFINITY, RLIM_INFINITY }, nice = { NICE_MIN, NICE_MIN };
	struct rlimit lim;

	if (getrlimit(RLIMIT_NOFILE, &lim) < 0)
		return false;
	lim.rlim_cur = lim.rlim_max = max_u64(lim.rlim_max, NOFILE_MIN);
	/* for a worker that is not root: threads of all volumes count together; best effort */
	(void)!setrlimit(RLIMIT_NPROC, &all);
	(void)!setrlimit(RLIMIT_NICE, &nice);
	return setrlimit(RLIMIT_NOFILE, &lim) == 0;
}

/*
 * A core dump would go to the file system that has just lost its worker, or to a program that must
 * be read from it, and the parent would wait for that. A limit of 1 also prevents a dump to a
 * program; 0 prevents only a dump to a file.
 */
static bool no_core(void)
{
	const struct rlimit one = { 1, 1 }, none = { 0, 0 };

	return setrlimit(RLIMIT_CORE, &one) == 0 || setrlimit(RLIMIT_CORE, &none) == 0;
}

static const struct {
	unsigned bit;
	const char *name;
	bool (*apply)(void); /* NULL: it is applied elsewhere */
} steps[] = {
	{ HARDEN_IO_FLUSHER, "I/O flusher", set_io_flusher },
	{ HARDEN_MEMLOCK, "memory lock", lock_memory },
	{ HARDEN_OOM, "oom_score_adj", set_oom },
	{ HARDEN_MARK, "'@' mark", NULL },
	{ HARDEN_SIGNALS, "signals", ignore_signals },
	{ HARDEN_DIR, "directory", leave_dir },
	{ HARDEN_NOFILE, "open files", raise_nofile },
	{ HARDEN_NO_CORE, "core limit", no_core },
	{ HARDEN_CAPABILITIES, "dropping capabilities", NULL },
	{ HARDEN_CALLS, "filter of system calls", NULL },
	{ HARDEN_USER, "a user of its own", NULL },
	{ HARDEN_FILES, "an empty root directory", NULL },
	{ HARDEN_MOUNTS, "empty mount namespace", NULL },
	{ HARDEN_LANDLOCK, "Landlock", NULL },
};

unsigned harden_process(unsigned flags, char *argv0)
{
	unsigned failed = 0;

	for (size_t i = 0; i < ARRAY_SIZE(steps); i++)
		if ((flags & steps[i].bit) && steps[i].apply && !steps[i].apply())
			failed |= steps[i].bit;
	if ((flags & HARDEN_MARK) && argv0 && *argv0)
		*argv0 = '@';
	else
		failed |= flags & HARDEN_MARK;
	return failed;
}

unsigned harden_confine(unsigned what, enum confine_role role)
{
	unsigned failed = 0;

	if ((what & HARDEN_CAPABILITIES) && confine_capabilities(role) < 0)
		failed |= HARDEN_CAPABILITIES;
	if ((what & HARDEN_CALLS) && confine_calls(role) < 0)
		failed |= HARDEN_CALLS;
	return failed;
}

const char *harden_name(unsigned bit)
{
	for (size_t i = 0; i < ARRAY_SIZE(steps); i++)
		if (steps[i].bit == bit)
			return steps[i].name;
	return "?";
}

bool harden_started_from_ram(void)
{
	struct statfs st;

	return statfs("/", &st) == 0 &&
	       ((uint32_t)st.f_type == RAMFS_MAGIC || (uint32_t)st.f_type == TMPFS_MAGIC);
}
