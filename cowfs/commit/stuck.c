/* SPDX-License-Identifier: MIT */
/*
 * Notes on the design
 * - A task is looked at only if it sleeps (S or D) in a call that writes to a regular file of the
 *   file system, or that may hold the lock of a file or folder of it while it copies out to memory.
 *   What its data come from or go to decides: memory that maps a file elsewhere, or a descriptor of
 *   one. A task that waits for this very file system (for the journal, for dirty throttling) has no
 *   such source: it is never taken for one of these, however long it waits.
 * - Where the source is not in the arguments (writev, io_uring, AIO, a core dump, which holds the write
 *   count from its first page to its last), any mapping of a file on FUSE counts. Their memory is never
 *   read: to read it might wait as they do.
 * - System calls have other numbers for 32-bit programs, and a 64-bit one can use those as well. Which
 *   table it is cannot be seen, so both are tried: arguments that are a descriptor of our file and
 *   memory that maps a foreign one are no accident.
 * - A task that waits at the barrier of a freeze (percpu rwsem) holds nothing.
 * - A slow source is legitimate: a task counts only after it has been in one call, without a wake-up,
 *   for FUSE_NS, or OTHER_NS if the source is not FUSE. A read that is answered ends the sleep.
 * - The device number of a mapping is that of the FUSE connection in fusectl, whatever user
 *   namespace it belongs to. An overlay over FUSE hides it: then all connections count that the
 *   process has in its mount namespace and pid 1 has not.
 * - syscall and maps below /proc/PID are behind locks that the process can hold as long as it likes
 *   (an exec that waits for a page fault). So a thread looks that can be left behind.
 */
#include "commit/stuck.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

#include "base/io.h"
#include "base/mounts.h"
#include "base/msg.h"
#include "base/proclist.h"
#include "base/thread.h"
#include "commit/bounce.h"

#define FUSE_NS 400000000ull
#define OTHER_NS 3000000000ull
#define STACK_BYTES (256 * KIB)
#define FLAG_IO_WORKER 0x10u /* PF_IO_WORKER in the flags of stat: of io_uring */
#define X32_BIT 0x40000000l

enum source {
	SOURCE_MEMORY, /* argument `source`, its length in the one behind it */
	SOURCE_FD,     /* argument `source` */
	SOURCE_ANY,    /* not in the arguments */
};

static const struct call {
	long number;
	unsigned target; /* argument with the descriptor; NO_FD: not in the arguments */
	enum source kind;
	unsigned source;
	bool reads, folder; /* folder: of a folder, not of a regular file */
} calls[] = {
#define NO_FD 6
	{SYS_write, 0, SOURCE_MEMORY, 1, false, false},
	{SYS_pwrite64, 0, SOURCE_MEMORY, 1, false, false},
	{SYS_writev, 0, SOURCE_ANY, 0, false, false},
	{SYS_pwritev, 0, SOURCE_ANY, 0, false, false},
	{SYS_pwritev2, 0, SOURCE_ANY, 0, false, false},
	{SYS_sendfile, 0, SOURCE_FD, 1, false, false},
	{SYS_splice, 2, SOURCE_FD, 0, false, false},
	{SYS_copy_file_range, 2, SOURCE_FD, 0, false, false},
	{SYS_ioctl, 0, SOURCE_ANY, 0, false, false},
	{SYS_io_submit, NO_FD, SOURCE_ANY, 0, false, false},
	{SYS_io_uring_enter, NO_FD, SOURCE_ANY, 0, false, false},
	/* they write nothing, but hold a lock that writers wait for */
	{SYS_read, 0, SOURCE_MEMORY, 1, true, false},
	{SYS_pread64, 0, SOURCE_MEMORY, 1, true, false},
	{SYS_readv, 0, SOURCE_ANY, 0, true, false},
	{SYS_preadv, 0, SOURCE_ANY, 0, true, false},
	{SYS_preadv2, 0, SOURCE_ANY, 0, true, false},
	{SYS_getdents64, 0, SOURCE_MEMORY, 1, true, true},
#ifdef SYS_getdents
	{SYS_getdents, 0, SOURCE_MEMORY, 1, true, true},
#endif
#if defined(__x86_64__) || defined(__aarch64__) /* of 32-bit programs */
	{4, 0, SOURCE_MEMORY, 1, false, false},	  /* write */
	{181, 0, SOURCE_MEMORY, 1, false, false}, /* pwrite64 */
	{146, 0, SOURCE_ANY, 0, false, false},	  /* writev */
	{187, 0, SOURCE_FD, 1, false, false},	  /* sendfile */
	{239, 0, SOURCE_FD, 1, false, false},	  /* sendfile64 */
	{54, 0, SOURCE_ANY, 0, false, false},	  /* ioctl */
	{3, 0, SOURCE_MEMORY, 1, true, false},	  /* read */
	{180, 0, SOURCE_MEMORY, 1, true, false},  /* pread64 */
	{145, 0, SOURCE_ANY, 0, true, false},	  /* readv */
	{141, 0, SOURCE_MEMORY, 1, true, true},	  /* getdents */
#endif
#if defined(__x86_64__)
	{334, 0, SOURCE_ANY, 0, false, false}, /* pwritev */
	{379, 0, SOURCE_ANY, 0, false, false}, /* pwritev2 */
	{313, 2, SOURCE_FD, 0, false, false},  /* splice */
	{377, 2, SOURCE_FD, 0, false, false},  /* copy_file_range */
	{248, NO_FD, SOURCE_ANY, 0, false, false}, /* io_submit */
	{333, 0, SOURCE_ANY, 0, true, false},  /* preadv */
	{220, 0, SOURCE_MEMORY, 1, true, true}, /* getdents64 */
#elif defined(__aarch64__)
	{362, 0, SOURCE_ANY, 0, false, false}, /* pwritev */
	{393, 0, SOURCE_ANY, 0, false, false}, /* pwritev2 */
	{340, 2, SOURCE_FD, 0, false, false},  /* splice */
	{391, 2, SOURCE_FD, 0, false, false},  /* copy_file_range */
	{246, NO_FD, SOURCE_ANY, 0, false, false}, /* io_submit */
	{361, 0, SOURCE_ANY, 0, true, false},  /* preadv */
	{217, 0, SOURCE_MEMORY, 1, true, true}, /* getdents64 */
#endif
};

static const struct call core_dump = {-1, NO_FD, SOURCE_ANY, 0, false, false};
static const struct call io_worker = {-1, NO_FD, SOURCE_ANY, 0, false, false};

/* ---- one look ---- */

struct look {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool done, abandoned; /* under lock */
	struct stuck now, before;
};

/* one at a time */
static _Atomic int looks_at;	 /* pid; -1: bounces */
static atomic_bool left_behind; /* a look waits for that process, and nobody waits for the look */

static int open_dir_at(int dirfd, int nr)
{
	char name[16];

	snprintf(name, sizeof(name), "%d", nr);
	return openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* Asleep? Its flags. */
static bool sleeps(int task_dirfd, unsigned *ret_flags)
{
	char text[512], state;
	const char *p;

	if (io_read_text(task_dirfd, "stat", text, sizeof(text)) < 0)
		return false;
	p = strrchr(text, ')'); /* the name before it may hold anything */
	return p && sscanf(p, ") %c %*d %*d %*d %*d %*d %u", &state, ret_flags) == 2 &&
	       (state == 'S' || state == 'D');
}

/* FNV-1a */
static uint64_t hash(uint64_t h, const char *text)
{
	for (; *text; text++)
		h = (h ^ (unsigned char)*text) * 0x100000001b3u;
	return h;
}

/* What changes whenever the task is woken up. */
static uint64_t progress_mark(int task_dirfd, const char *syscall_text)
{
	char text[8192];
	const char *p;

	if (io_read_text(task_dirfd, "status", text, sizeof(text)) < 0)
		return 0;
	p = strstr(text, "\nvoluntary_ctxt_switches:");
	return hash(hash(0xcbf29ce484222325u, syscall_text), p ? p : "");
}

static bool is_fuse(const struct look *l, dev_t dev)
{
	char name[16];

	snprintf(name, sizeof(name), "%u", minor(dev));
	return l->now.fuse_dirfd >= 0 && major(dev) == 0 && faccessat(l->now.fuse_dirfd, name, F_OK, 0) == 0;
}

static void add_conn(struct stuck_task *t, unsigned conn)
{
	for (unsigned i = 0; i < t->conns; i++)
		if (t->conn[i] == conn)
			return;
	if (t->conns < STUCK_CONNS)
		t->conn[t->conns++] = conn;
}

/* Device of an open file; asks no file system. */
static bool fd_device(int task_dirfd, int fd, unsigned *ret_type, dev_t *ret)
{
	struct statx st;
	char path[32];

	snprintf(path, sizeof(path), "fd/%d", fd);
	if (statx(task_dirfd, path, AT_STATX_DONT_SYNC, STATX_TYPE, &st) < 0)
		return false;
	*ret = makedev(st.stx_dev_major, st.stx_dev_minor);
	*ret_type = st.stx_mode & S_IFMT;
	return true;
}

/* Does [begin, end) hold memory that maps a file of another device? fuse_only: of a FUSE mount. */
static bool maps_foreign(const struct look *l, int task_dirfd, uint64_t begin, uint64_t end, bool fuse_only,
			 struct stuck_task *t)
{
	int fd = openat(task_dirfd, "maps", O_RDONLY | O_CLOEXEC);
	FILE *f = fd < 0 ? NULL : fdopen(fd, "re");
	char *line = NULL;
	size_t size = 0;
	bool found = false;

	while (f && getline(&line, &size, f) > 0) {
		unsigned long long from, to, inode;
		unsigned maj, min;

		if (sscanf(line, "%llx-%llx %*s %*x %x:%x %llu", &from, &to, &maj, &min, &inode) != 5 || !inode ||
		    from >= end || to <= begin || makedev(maj, min) == l->now.st_dev)
			continue;
		if (is_fuse(l, makedev(maj, min)))
			add_conn(t, min);
		else if (fuse_only)
			continue;
		found = true;
	}
	free(line);
	if (f)
		fclose(f);
	else if (fd >= 0)
		close(fd);
	return found;
}

static bool source_is_foreign(const struct look *l, int task_dirfd, const struct call *c,
			      const unsigned long long arg[6], struct stuck_task *t)
{
	unsigned type;
	dev_t dev;

	switch (c->kind) {
	case SOURCE_MEMORY:
		return maps_foreign(l, task_dirfd, arg[c->source], arg[c->source] + arg[c->source + 1], false, t);
	case SOURCE_FD: /* of pipes and sockets bounce.c takes care */
		if (!fd_device(task_dirfd, (int)arg[c->source], &type, &dev) || type != S_IFREG || !is_fuse(l, dev))
			return false;
		add_conn(t, minor(dev));
		return true;
	case SOURCE_ANY:
		return maps_foreign(l, task_dirfd, 0, UINT64_MAX, true, t);
	}
	return false;
}

struct by_id {
	uint64_t id;
	dev_t dev;
};

static int match_id(void *ctx, int root_dirfd, struct mount_entry *m)
{
	struct by_id *by = ctx;

	(void)root_dirfd;
	by->dev = m->dev;
	return m->id == by->id;
}

/* A subvolume of btrfs has a st_dev of its own; the mount that the file was opened through tells. */
static bool is_other_subvolume(const struct look *l, int pid, const struct statx *st)
{
	struct by_id by = {.id = st->stx_mnt_id};
	char who[16];

	snprintf(who, sizeof(who), "%d", pid);
	/* its mount may be of the namespace that the process has left */
	return l->now.sb_dev && !st->stx_dev_major && (st->stx_mask & STATX_MNT_ID) &&
	       (mounts_each(l->now.proc_dirfd, "self", match_id, &by) == 1 ||
		mounts_each(l->now.proc_dirfd, "1", match_id, &by) == 1 ||
		mounts_each(l->now.proc_dirfd, who, match_id, &by) == 1) &&
	       by.dev == l->now.sb_dev;
}

static bool target_is_ours(const struct look *l, int pid, int task_dirfd, const struct call *c,
			   const unsigned long long arg[6])
{
	struct statx st;
	char path[32];

	if (c->target == NO_FD)
		return true;
	snprintf(path, sizeof(path), "fd/%d", (int)arg[c->target]);
	if (statx(task_dirfd, path, AT_STATX_DONT_SYNC, STATX_TYPE | STATX_MNT_ID, &st) < 0)
		return false;
	return (st.stx_mode & S_IFMT) == (c->folder ? S_IFDIR : S_IFREG) &&
	       (makedev(st.stx_dev_major, st.stx_dev_minor) == l->now.st_dev || is_other_subvolume(l, pid, &st));
}

static bool dumps_core(int task_dirfd)
{
	char text[8192];

	return io_read_text(task_dirfd, "status", text, sizeof(text)) > 0 && strstr(text, "\nCoreDumping:\t1");
}

/* Does it wait without holding anything: for completions of io_uring, as its idle worker, or at the barrier of a freeze? */
static bool holds_nothing(const char *wchan, const struct call *c)
{
	return strstr(wchan, "percpu_rwsem") || strstr(wchan, "percpu_down_read") ||
	       !strncmp(wchan, "io_cqring", 9) ||
	       (c == &io_worker && (!strncmp(wchan, "io_wq", 5) || !strncmp(wchan, "io_sq", 5)));
}

static bool call_holds(const struct look *l, int task_dirfd, const struct call *c, const unsigned long long arg[6],
		       struct stuck_task *t)
{
	char wchan[64] = "";

	if ((c->reads && !l->now.readers) || !target_is_ours(l, t->pid, task_dirfd, c, arg))
		return false;
	(void)!io_read_text(task_dirfd, "wchan", wchan, sizeof(wchan));
	if (holds_nothing(wchan, c))
		return false;
	t->reads = c->reads;
	return source_is_foreign(l, task_dirfd, c, arg, t) ||
	       (c->target != NO_FD && !strcmp(wchan, "handle_userfault"));
}

static bool holds_freeze(const struct look *l, int task_dirfd, struct stuck_task *t)
{
	unsigned long long arg[6] = {0};
	bool holds = false;
	char text[256] = "";
	unsigned flags;
	long number;
	int n;

	if (!sleeps(task_dirfd, &flags) || io_read_text(task_dirfd, "syscall", text, sizeof(text)) < 0)
		return false;
	n = sscanf(text, "%ld %llx %llx %llx %llx %llx %llx", &number, &arg[0], &arg[1], &arg[2], &arg[3], &arg[4],
		   &arg[5]);
	if (flags & FLAG_IO_WORKER)
		holds = call_holds(l, task_dirfd, &io_worker, arg, t);
	for (size_t i = 0; n == 7 && i < ARRAY_SIZE(calls) && !holds; i++)
		holds = (number & ~X32_BIT) == calls[i].number && call_holds(l, task_dirfd, &calls[i], arg, t);
	if (!holds && dumps_core(task_dirfd))
		holds = call_holds(l, task_dirfd, &core_dump, arg, t);
	if (holds)
		t->mark = progress_mark(task_dirfd, text);
	return holds;
}

static uint64_t seen_since(const struct stuck *before, const struct stuck_task *t)
{
	for (unsigned i = 0; i < before->n; i++) {
		const struct stuck_task *b = &before->task[i];

		if (b->pid == t->pid && b->tid == t->tid && b->mark == t->mark && b->since_ns)
			return b->since_ns;
	}
	return now_ns();
}

static void look_at_process(struct look *l, int pid)
{
	_cleanup_close_ int pid_dirfd = open_dir_at(l->now.proc_dirfd, pid);
	DIR *tasks = pid_dirfd < 0 ? NULL : proclist_open(pid_dirfd, "task");
	int tid;

	if (!tasks)
		return;
	while (l->now.n < STUCK_TASKS && (tid = proclist_next(tasks)) >= 0) {
		_cleanup_close_ int task_dirfd = open_dir_at(dirfd(tasks), tid);
		struct stuck_task t = {.pid = pid, .tid = tid};
		char comm[32] = "?";

		if (task_dirfd < 0 || !holds_freeze(l, task_dirfd, &t))
			continue;
		(void)!io_read_text(task_dirfd, "comm", comm, sizeof(comm));
		snprintf(t.name, sizeof(t.name), "%s[%d]", comm, pid);
		t.since_ns = seen_since(&l->before, &t);
		l->now.task[l->now.n++] = t;
	}
	closedir(tasks);
}

static void look_at_all(struct look *l)
{
	DIR *list = proclist_open(l->now.proc_dirfd, ".");
	int pid;

	if (!list)
		return;
	l->now.n = 0;
	while (l->now.n < STUCK_TASKS && (pid = proclist_next(list)) >= 0) {
		if (pid == getpid() || pid == getppid())
			continue;
		looks_at = pid;
		look_at_process(l, pid);
	}
	closedir(list);
	looks_at = -1;
	if (l->now.bounce)
		l->now.bounced += bounce_writers(l->now.proc_dirfd, l->now.st_dev, l->now.culprit,
						 sizeof(l->now.culprit));
}

/* ---- the thread ---- */

static void look_free(struct look *l)
{
	pthread_cond_destroy(&l->changed);
	pthread_mutex_destroy(&l->lock);
	free(l);
}

static void *look_main(void *arg)
{
	struct look *l = arg;
	bool abandoned;

	look_at_all(l);
	pthread_mutex_lock(&l->lock);
	l->done = true;
	abandoned = l->abandoned;
	pthread_cond_signal(&l->changed);
	pthread_mutex_unlock(&l->lock);
	if (abandoned) {
		look_free(l);
		left_behind = false;
	}
	return NULL;
}

static struct look *look_new(const struct stuck *s)
{
	struct look *l = calloc(1, sizeof(*l));
	pthread_condattr_t attr;

	if (!l)
		return NULL;
	l->now = l->before = *s;
	pthread_mutex_init(&l->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&l->changed, &attr);
	pthread_condattr_destroy(&attr);
	return l;
}

static int name_hung(struct stuck *s)
{
	int pid = looks_at;

	s->n = 1;
	s->task[0] = (struct stuck_task){.pid = pid, .tid = pid};
	if (pid > 0)
		snprintf(s->task[0].name, sizeof(s->task[0].name), "process %d", pid);
	else
		snprintf(s->task[0].name, sizeof(s->task[0].name), "a process");
	return -ETIMEDOUT;
}

int stuck_look(struct stuck *s, uint64_t timeout_ns)
{
	uint64_t until_ns = now_ns() + timeout_ns;
	const struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000u),
				       .tv_nsec = (long)(until_ns % 1000000000u)};
	struct look *l;
	pthread_t thread;
	int r;

	if (left_behind)
		return name_hung(s);
	l = look_new(s);
	if (!l)
		return -ENOMEM;
	r = thread_start(&thread, "cowfs-look", STACK_BYTES, look_main, l);
	if (r < 0) {
		look_free(l);
		return r;
	}
	pthread_mutex_lock(&l->lock);
	while (!l->done && now_ns() < until_ns)
		pthread_cond_timedwait(&l->changed, &l->lock, &until);
	if (!l->done) {
		left_behind = true;
		l->abandoned = true;
		pthread_detach(thread);
		pthread_mutex_unlock(&l->lock);
		return name_hung(s);
	}
	pthread_mutex_unlock(&l->lock);
	pthread_join(thread, NULL);
	*s = l->now;
	look_free(l);
	return 0;
}

static bool is_long(const struct stuck_task *t)
{
	return !t->since_ns || now_ns() >= t->since_ns + (t->conns ? FUSE_NS : OTHER_NS);
}

const struct stuck_task *stuck_for_long(const struct stuck *s)
{
	const struct stuck_task *found = NULL;

	for (unsigned i = 0; i < s->n && (!found || found->reads); i++)
		if (is_long(&s->task[i]))
			found = &s->task[i];
	return found;
}

/* ---- cures ---- */

static bool abort_conn(int fuse_dirfd, unsigned conn)
{
	_cleanup_close_ int fd = -1;
	char name[32];

	snprintf(name, sizeof(name), "%u/abort", conn);
	fd = openat(fuse_dirfd, name, O_WRONLY | O_CLOEXEC);
	return fd >= 0 && write(fd, "1", 1) == 1;
}

unsigned stuck_abort(const struct stuck *s)
{
	const struct stuck_task *first = stuck_for_long(s);
	unsigned aborted = 0;

	for (unsigned i = 0; first && s->fuse_dirfd >= 0 && i < s->n; i++) {
		const struct stuck_task *t = &s->task[i];

		for (unsigned k = 0; t->reads == first->reads && is_long(t) && k < t->conns; k++) {
			if (!abort_conn(s->fuse_dirfd, t->conn[k]))
				continue;
			msg(MSG_ERR, "FUSE connection %u aborted: %s waits for it, and a freeze for that", t->conn[k], t->name);
			aborted++;
		}
	}
	return aborted;
}

struct conns {
	unsigned conn[64], n;
};

static int note_fuse(void *ctx, int root_dirfd, struct mount_entry *m)
{
	struct conns *c = ctx;

	(void)root_dirfd;
	if (major(m->dev) == 0 && !strncmp(m->type, "fuse", 4) && c->n < ARRAY_SIZE(c->conn))
		c->conn[c->n++] = minor(m->dev);
	return c->n == ARRAY_SIZE(c->conn);
}

static bool has_conn(const struct conns *c, unsigned conn)
{
	for (unsigned i = 0; i < c->n; i++)
		if (c->conn[i] == conn)
			return true;
	return false;
}

void stuck_kill(const struct stuck *s, const struct stuck_task *t)
{
	_cleanup_close_ int pidfd = pidfd_open(t->pid, 0);
	struct conns own = {0}, known = {0};
	char who[16];

	snprintf(who, sizeof(who), "%d", t->pid);
	if (t->since_ns && mounts_each(s->proc_dirfd, "1", note_fuse, &known) >= 0 &&
	    mounts_each(s->proc_dirfd, who, note_fuse, &own) >= 0)
		for (unsigned i = 0; i < own.n && s->fuse_dirfd >= 0; i++)
			if (!has_conn(&known, own.conn[i]) && abort_conn(s->fuse_dirfd, own.conn[i]))
				msg(MSG_ERR, "FUSE connection %u of %s aborted", own.conn[i], t->name);
	if (pidfd >= 0 && pidfd_send_signal(pidfd, SIGKILL, NULL, 0) == 0)
		msg(MSG_ERR, "%s killed: it holds the freeze", t->name);
}
