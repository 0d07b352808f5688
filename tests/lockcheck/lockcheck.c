/* SPDX-License-Identifier: MIT */
/* See lockcheck.h. */
#include "lockcheck.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_HELD 128
#define LOG_BYTES (256 * 1024u)

/* docs/design/serving.md, "Lock order", outer first. Locks of one rank: by ascending address. A
 * lock that is not here is a leaf: nothing may be taken under it. */
enum rank { BROKER = 1, SEAL, STRIPES, VOLUME, MONITOR, GATE, SERVER, LEAF };

static const struct {
	enum rank rank;
	const char *file, *what;
} table[] = {
	{ BROKER, "broker.c", "&own.lock[lane]" },  { SEAL, "view.c", "&v->seal_lock" },
	{ SEAL, "view_commit.c", "&v->seal_lock" }, { STRIPES, "view.c", "&v->stripe[i]" },
	{ VOLUME, "account.c", "&v->lock" },	    { VOLUME, "changes.c", "&v->lock" },
	{ VOLUME, "idle.c", "&v->lock" },	    { VOLUME, "state.c", "&v->lock" },
	{ VOLUME, "trim.c", "&v->lock" },	    { VOLUME, "volume.c", "&v->lock" },
	{ VOLUME, "volume_status.c", "&v->lock" },  { MONITOR, "monitor.c", "&m->lock" },
	{ GATE, "throttle.c", "&g->lock" },	    { SERVER, "server.c", "&s->lock" },
	{ SERVER, "sessions.c", "&s->lock" },	    { SERVER, "queue.c", "&s->lock" },
};

static _Thread_local struct {
	const void *lock;
	enum rank rank;
	const char *what;
} held[MAX_HELD];
static _Thread_local unsigned n_held;

static enum rank rank_of(const char *file, const char *what)
{
	const char *slash = strrchr(file, '/');

	for (unsigned i = 0; i < sizeof(table) / sizeof(table[0]); i++)
		if (!strcmp(slash ? slash + 1 : file, table[i].file) &&
		    !strcmp(what, table[i].what))
			return table[i].rank;
	return LEAF;
}

/* ---- the log: mapped, because the daemon's worker can open no file. Behind the text, how long it is. ---- */

static char *text_log;

__attribute__((constructor)) static void open_log(void)
{
	const char *name = getenv("COWFS_LOCKCHECK_LOG");
	int fd = name ? open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
	struct stat st;

	if (!name)
		return;
	if (fd < 0 || fstat(fd, &st) < 0 ||
	    (st.st_size < LOG_BYTES && ftruncate(fd, LOG_BYTES) < 0))
		abort();
	text_log = mmap(NULL, LOG_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (text_log == MAP_FAILED)
		abort();
	close(fd);
}

static void say(const char *text, int n)
{
	_Atomic unsigned *used = text_log ? (void *)(text_log + LOG_BYTES - sizeof(*used)) : NULL;
	unsigned at = used ? atomic_fetch_add(used, (unsigned)n) : 0;

	if (used && at + (unsigned)n < LOG_BYTES - sizeof(*used))
		memcpy(text_log + at, text, (size_t)n);
	if (write(STDERR_FILENO, text, (size_t)n) < 0)
		abort();
}

static void complain(const char *file, int line, const char *what, const char *under)
{
	char text[300];

	say(text, snprintf(text, sizeof(text), "WARNING: lockcheck: %s:%d: %s under %s\n", file,
			   line, what, under));
}

/* ---- the same for ThreadSanitizer, whose own text goes to a standard error that the worker has not ---- */

int __tsan_get_report_data(void *report, const char **what, int *n, int *stacks, int *mops,
			   int *locs, int *mutexes, int *threads, int *tids, void **sleep,
			   unsigned long bytes);
int __tsan_get_report_mop(void *report, unsigned long i, int *tid, void **addr, int *size,
			  int *write, int *is_atomic, void **trace, unsigned long n);
void __tsan_on_report(void *report);

/* For addr2line. */
static void say_frames(void *const *trace, size_t n)
{
	char text[300];
	Dl_info d;

	for (size_t i = 0; i < n && trace[i]; i++)
		if (dladdr(trace[i], &d) && d.dli_fname)
			say(text,
			    snprintf(text, sizeof(text), "    %s 0x%lx\n", d.dli_fname,
				     (unsigned long)((char *)trace[i] - (char *)d.dli_fbase)));
}

void __tsan_on_report(void *report)
{
	int n, stacks, mops, locs, mutexes, threads, tids, tid, size, write, is_atomic;
	void *sleep[1], *trace[16], *addr;
	const char *what = "";
	char text[300];

	__tsan_get_report_data(report, &what, &n, &stacks, &mops, &locs, &mutexes, &threads, &tids,
			       sleep, 1);
	say(text, snprintf(text, sizeof(text), "WARNING: ThreadSanitizer: %s (pid %d)\n", what,
			   (int)getpid()));
	for (int i = 0; i < mops; i++) {
		memset(trace, 0, sizeof(trace));
		__tsan_get_report_mop(report, (unsigned long)i, &tid, &addr, &size, &write,
				      &is_atomic, trace, 16);
		say(text, snprintf(text, sizeof(text), "  %s of %d bytes:\n",
				   write ? "write" : "read", size));
		say_frames(trace, 16);
	}
}

/* ---- locks ---- */

void lockcheck_take(const char *file, int line, const char *what, const void *lock)
{
	enum rank rank = rank_of(file, what);

	for (unsigned i = 0; i < n_held; i++)
		if (held[i].rank > rank || (held[i].rank == rank && held[i].lock >= lock))
			complain(file, line, what, held[i].what);
	if (n_held == MAX_HELD)
		abort();
	held[n_held].lock = lock;
	held[n_held].rank = rank;
	held[n_held++].what = what;
}

void lockcheck_drop(const void *lock)
{
	for (unsigned i = n_held; i--;)
		if (held[i].lock == lock) {
			memmove(&held[i], &held[i + 1], (n_held - i - 1) * sizeof(held[0]));
			n_held--;
			return;
		}
	complain("?", 0, "a lock that is not held is dropped", "");
}

void lockcheck_wait(const char *file, int line, const void *lock)
{
	for (unsigned i = 0; i < n_held; i++)
		if (held[i].lock != lock)
			complain(file, line, "waits for a condition", held[i].what);
}
