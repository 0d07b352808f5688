/* SPDX-License-Identifier: MIT */
/* See lockcheck.h. */
#include "lockcheck.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_HELD 128

/* docs/design/serving.md, "Lock order", outer first. Locks of one rank: by ascending address. A
 * lock that is not here is a leaf: only what stands behind LEAF may be taken under it. */
enum rank { WATCH = 1, SEAL, STRIPES, VOLUME, MONITOR, GATE, SERVER, LEAF, ALARM };

static const struct {
	enum rank rank;
	const char *file, *what;
} table[] = {
	{ WATCH, "view.c", "&v->watch_lock" },
	{ SEAL, "view.c", "&v->seal_lock" },
	{ SEAL, "view_commit.c", "&v->seal_lock" },
	{ STRIPES, "view.c", "&v->stripe[i]" },
	{ STRIPES, "view_relief.c", "stripe_of(b->v, group)" },
	{ VOLUME, "account.c", "&v->lock" },
	{ VOLUME, "changes.c", "&v->lock" },
	{ VOLUME, "idle.c", "&v->lock" },
	{ VOLUME, "state.c", "&v->lock" },
	{ VOLUME, "trim.c", "&v->lock" },
	{ VOLUME, "volume.c", "&v->lock" },
	{ VOLUME, "volume_status.c", "&v->lock" },
	{ MONITOR, "monitor.c", "&m->lock" },
	{ GATE, "throttle.c", "&g->lock" },
	{ SERVER, "server.c", "&s->lock" },
	{ SERVER, "sessions.c", "&s->lock" },
	{ SERVER, "queue.c", "&s->lock" },
	{ ALARM, "msg.c", "&alarm_lock" },
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

static void complain(const char *file, int line, const char *what, const char *under)
{
	const char *log = getenv("COWFS_LOCKCHECK_LOG");
	int fd = log ? open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644) : -1;
	char text[300];
	int n = snprintf(text, sizeof(text), "WARNING: lockcheck: %s:%d: %s under %s\n", file, line,
			 what, under);

	if (write(STDERR_FILENO, text, (size_t)n) < 0 ||
	    (fd >= 0 && write(fd, text, (size_t)n) < 0))
		abort();
	if (fd >= 0)
		close(fd);
}

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
