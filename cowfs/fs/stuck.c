/* SPDX-License-Identifier: MIT */
/*
 * Notes on the design
 * - The code examines a task only if it sleeps (S or D) in one of two kinds of call: a call that
 *   writes to a regular file of the file system, or a call that may hold the lock of a file or
 *   folder of it while it copies out to memory. The task is stuck if it sleeps in a page fault
 *   there (its kernel stack shows this), or if its data come from a descriptor of a file on FUSE. A
 *   task that waits for this very file system (for the journal, for dirty throttling) or for a lock
 *   does neither: it is never mistaken for a stuck one, however long it waits.
 * - The stack also helps if the arguments do not (writev, io_uring, AIO, a core dump, which holds
 *   the write count from its first page to its last), and if another thread has replaced the
 *   mapping of the source. On a kernel without stacks the mappings of the source decide. If the
 *   arguments do not show the source, any mapping of a file on FUSE decides. This code never reads
 *   the memory of a task: such a read might wait as the task does.
 * - Mappings show which FUSE connections to abort. There can be 65,000 of them: they are read once
 *   per process, and only for a task that is stuck.
 * - System calls have other numbers for 32-bit programs, and a 64-bit program can use those as
 *   well. The table in use is not visible, so both are tried.
 * - A task that waits at the barrier of a freeze (percpu rwsem) holds nothing.
 * - A slow source is legitimate: a task counts only after it has been in one call, without a
 *   wake-up, for FUSE_NS, or OTHER_NS if the source is not known to be FUSE. An answered read ends
 *   the sleep.
 * - The device number of a mapping is that of the FUSE connection in fusectl, whatever user
 *   namespace it belongs to. The owner of its folder there is the user who mounted it; the mount's
 *   own statement of its user is only a claim. A task may also map the connection of another user.
 *   So such a connection is aborted only if the task sleeps in a request to FUSE, was killed
 *   without effect, and maps no other connection.
 * - syscall, stack and maps below /proc/PID are behind locks that the process can hold without
 *   limit. So a thread makes each look and can be left behind; the next thread skips that process.
 *   The time is measured within one process: a busy machine, or many processes, make no process
 *   suspect.
 */
#include "fs/stuck.h"

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

#include "base/clean.h"
#include "base/io.h"
#include "base/kernel.h"
#include "base/mounts.h"
#include "base/msg.h"
#include "base/proclist.h"
#include "base/thread.h"
#include "fs/bounce.h"

#define FUSE_NS 400000000ull
#define OTHER_NS 3000000000ull
#define SUSPECT_NS 1000000000ull
#define WORK_NS 1000000000ull /* CPU time for one process; an honest one needs less than a tenth */
#define ALL_WORK_NS 5000000000ull
/* CPU time after which no mappings are read if the stack is sufficient */
#define MAPS_WORK_NS 1000000000ull
#define LEFT_BEHIND 8
#define STACK_BYTES (256 * KIB)
#define FLAG_IO_WORKER 0x10u /* PF_IO_WORKER in the flags of stat: a worker of io_uring */
#define X32_BIT 0x40000000l

enum source {
	SOURCE_MEMORY, /* argument `source`; its length is in the next argument */
	SOURCE_FD,     /* argument `source` */
	SOURCE_ANY,    /* not in the arguments */
};

static const struct call {
	long number;
	unsigned target; /* argument with the descriptor; NO_FD: not in the arguments */
	enum source kind;
	unsigned source;
	bool reads, folder; /* folder: the target is a folder, not a regular file */
} calls[] = {
#define NO_FD 6
	{ SYS_write, 0, SOURCE_MEMORY, 1, false, false },
	{ SYS_pwrite64, 0, SOURCE_MEMORY, 1, false, false },
	{ SYS_writev, 0, SOURCE_ANY, 0, false, false },
	{ SYS_pwritev, 0, SOURCE_ANY, 0, false, false },
	{ SYS_pwritev2, 0, SOURCE_ANY, 0, false, false },
	{ SYS_sendfile, 0, SOURCE_FD, 1, false, false },
	{ SYS_splice, 2, SOURCE_FD, 0, false, false },
	{ SYS_copy_file_range, 2, SOURCE_FD, 0, false, false },
	{ SYS_ioctl, 0, SOURCE_ANY, 0, false, false },
	{ SYS_io_submit, NO_FD, SOURCE_ANY, 0, false, false },
	{ SYS_io_uring_enter, NO_FD, SOURCE_ANY, 0, false, false },
	{ SYS_ioctl, 0, SOURCE_ANY, 0, false, true }, /* EXT4_IOC_SETVERSION */
	/* these write nothing, but hold a lock that writers wait for */
	{ SYS_read, 0, SOURCE_MEMORY, 1, true, false },
	{ SYS_pread64, 0, SOURCE_MEMORY, 1, true, false },
	{ SYS_readv, 0, SOURCE_ANY, 0, true, false },
	{ SYS_preadv, 0, SOURCE_ANY, 0, true, false },
	{ SYS_preadv2, 0, SOURCE_ANY, 0, true, false },
	{ SYS_getdents64, 0, SOURCE_MEMORY, 1, true, true },
#ifdef SYS_getdents
	{ SYS_getdents, 0, SOURCE_MEMORY, 1, true, true },
#endif
#if defined(__x86_64__) || defined(__aarch64__)	    /* of 32-bit programs */
	{ 4, 0, SOURCE_MEMORY, 1, false, false },   /* write */
	{ 181, 0, SOURCE_MEMORY, 1, false, false }, /* pwrite64 */
	{ 146, 0, SOURCE_ANY, 0, false, false },    /* writev */
	{ 187, 0, SOURCE_FD, 1, false, false },	    /* sendfile */
	{ 239, 0, SOURCE_FD, 1, false, false },	    /* sendfile64 */
	{ 54, 0, SOURCE_ANY, 0, false, false },	    /* ioctl */
	{ 3, 0, SOURCE_MEMORY, 1, true, false },    /* read */
	{ 180, 0, SOURCE_MEMORY, 1, true, false },  /* pread64 */
	{ 145, 0, SOURCE_ANY, 0, true, false },	    /* readv */
	{ 141, 0, SOURCE_MEMORY, 1, true, true },   /* getdents */
#endif
#if defined(__x86_64__)
	{ 334, 0, SOURCE_ANY, 0, false, false },     /* pwritev */
	{ 379, 0, SOURCE_ANY, 0, false, false },     /* pwritev2 */
	{ 313, 2, SOURCE_FD, 0, false, false },	     /* splice */
	{ 377, 2, SOURCE_FD, 0, false, false },	     /* copy_file_range */
	{ 248, NO_FD, SOURCE_ANY, 0, false, false }, /* io_submit */
	{ 333, 0, SOURCE_ANY, 0, true, false },	     /* preadv */
	{ 220, 0, SOURCE_MEMORY, 1, true, true },    /* getdents64 */
#elif defined(__aarch64__)
	{ 362, 0, SOURCE_ANY, 0, false, false },     /* pwritev */
	{ 393, 0, SOURCE_ANY, 0, false, false },     /* pwritev2 */
	{ 340, 2, SOURCE_FD, 0, false, false },	     /* splice */
	{ 391, 2, SOURCE_FD, 0, false, false },	     /* copy_file_range */
	{ 246, NO_FD, SOURCE_ANY, 0, false, false }, /* io_submit */
	{ 361, 0, SOURCE_ANY, 0, true, false },	     /* preadv */
	{ 217, 0, SOURCE_MEMORY, 1, true, true },    /* getdents64 */
#endif
};

/* Calls that read names and values of attributes with the write count held, before Linux 6.12. */
static const long xattr_calls[] = {
	SYS_setxattr,
	SYS_lsetxattr,
	SYS_fsetxattr,
	SYS_removexattr,
	SYS_lremovexattr,
	SYS_fremovexattr,
#if defined(__x86_64__) || defined(__aarch64__) /* of 32-bit programs */
	226,
	227,
	228,
	235,
	236,
	237,
#endif
};

static const struct call xattr = { -1, NO_FD, SOURCE_ANY, 0, false, false };
static const struct call core_dump = { -1, NO_FD, SOURCE_ANY, 0, false, false };
static const struct call io_worker = { -1, NO_FD, SOURCE_ANY, 0, false, false };

/* The steps of a cure that a task has been through. */
enum step {
	STEP_NONE,
	STEP_ABORTED, /* the connections of its user that it waits for */
	STEP_KILLED,
	STEP_ALL_ABORTED, /* all connections of its user */
	STEP_END,
};

/* ---- looks that were left behind ---- */

struct look {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool done;		       /* under lock */
	_Atomic int slot;	       /* of left[]; -1: the caller still waits for this look */
	_Atomic int pid;	       /* the process under examination */
	_Atomic uint64_t start, at_ns; /* of that process; when the look came to it */
	uint64_t work_ns;	       /* CPU time when the look came to it */
	uint64_t most_ns;	       /* the most that one process took */
	int most_pid;
	struct stuck now, before;
	size_t at; /* in before */
};

/*
 * A process at which a look hangs. Written by the thread that waits for looks, of which there is
 * one; cleared by the look.
 */
static struct {
	_Atomic int pid; /* 0: none */
	uint64_t start;
} left[LEFT_BEHIND];

static bool is_left_behind(int pid)
{
	for (size_t i = 0; i < LEFT_BEHIND; i++)
		if (left[i].pid == pid)
			return true;
	return false;
}

/* The caller ensures that there is room. */
static void leave_behind(struct look *l)
{
	int i = 0;

	while (left[i].pid)
		i++;
	left[i].start = l->start;
	left[i].pid = l->pid;
	l->slot = i;
}

static uint64_t cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* Has this process taken more time than an honest one does, or was this look left behind? */
static bool takes_long(const struct look *l)
{
	return l->slot >= 0 || cpu_ns() - l->work_ns > WORK_NS;
}

/* ---- a process ---- */

struct mapping {
	uint64_t begin, end;
	int conn; /* of FUSE; -1: another file */
};

struct process {
	int pid;
	uint64_t start;
	bool dumps_core;
	bool has_map;
	struct mapping *map; /* files on other file systems, once read */
	size_t n_map;
};

static int open_dir_at(int dirfd, int nr)
{
	char name[16];

	snprintf(name, sizeof(name), "%d", nr);
	return openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* The text after the name in stat, which may contain any character; NULL: the process is gone. */
static const char *read_stat(int dirfd, char *text, size_t size_bytes)
{
	const char *p = io_read_text(dirfd, "stat", text, size_bytes) < 0 ? NULL
									  : strrchr(text, ')');

	return p && p[1] == ' ' ? p + 2 : NULL;
}

/* The start time of the process, in ticks; 0: the process is gone. */
static uint64_t start_of(int pid_dirfd)
{
	unsigned long long start = 0;
	char text[1024];
	const char *p = pid_dirfd < 0 ? NULL : read_stat(pid_dirfd, text, sizeof(text));

	for (int field = 3; p && field < 22; field++) {
		p = strchr(p, ' ');
		p = p ? p + 1 : NULL;
	}
	return p && sscanf(p, "%llu", &start) == 1 ? start : 0;
}

/* Is the task asleep? Also gets its flags. */
static bool sleeps(int task_dirfd, unsigned *ret_flags)
{
	char text[1024], state;
	const char *p = read_stat(task_dirfd, text, sizeof(text));

	return p && sscanf(p, "%c %*d %*d %*d %*d %*d %u", &state, ret_flags) == 2 &&
	       (state == 'S' || state == 'D');
}

static bool dumps_core(int pid_dirfd)
{
	char text[8192];

	return io_read_text(pid_dirfd, "status", text, sizeof(text)) > 0 &&
	       strstr(text, "\nCoreDumping:\t1");
}

static void name_task(int dirfd, struct stuck_task *t)
{
	char comm[32];

	if (io_read_text(dirfd, "comm", comm, sizeof(comm)) >= 0)
		snprintf(t->name, sizeof(t->name), "%s[%d]", clean_text(comm), t->pid);
	else
		snprintf(t->name, sizeof(t->name), "process %d", t->pid);
}

/* FNV-1a */
static uint64_t hash(uint64_t h, const char *text)
{
	for (; *text; text++)
		h = (h ^ (unsigned char)*text) * 0x100000001b3u;
	return h;
}

/* Reads the owner of the task, and a value that changes whenever the task wakes up. */
static void read_status(int task_dirfd, const char *syscall_text, struct stuck_task *t)
{
	char text[8192];
	const char *uid, *switches;

	if (io_read_text(task_dirfd, "status", text, sizeof(text)) < 0)
		return;
	uid = strstr(text, "\nUid:\t");
	t->uid = uid ? (uid_t)strtoul(uid + 6, NULL, 10) : 0;
	switches = strstr(text, "\nvoluntary_ctxt_switches:");
	t->mark = hash(hash(0xcbf29ce484222325u, syscall_text), switches ? switches : "");
}

/* ---- where the data come from ---- */

static bool is_fuse(const struct look *l, dev_t dev)
{
	char name[16];

	snprintf(name, sizeof(name), "%u", minor(dev));
	return l->now.fuse_dirfd >= 0 && major(dev) == 0 &&
	       faccessat(l->now.fuse_dirfd, name, F_OK, 0) == 0;
}

static void add_conn(struct stuck_task *t, unsigned conn)
{
	t->fuse = true;
	for (unsigned i = 0; i < t->conns; i++)
		if (t->conn[i] == conn)
			return;
	if (t->conns < STUCK_CONNS)
		t->conn[t->conns++] = conn;
	else
		t->more_conns = true;
}

/* Device of an open file; sends no request to a file system. */
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

/*
 * Merges neighbours of one device. If memory is short some mappings are missing, and the others are
 * cured.
 */
static void add_mapping(struct process *pr, uint64_t begin, uint64_t end, int conn)
{
	struct mapping *last = pr->n_map ? &pr->map[pr->n_map - 1] : NULL, *map;

	if (last && last->end == begin && last->conn == conn) {
		last->end = end;
		return;
	}
	if (!(pr->n_map & (pr->n_map - 1))) {
		map = realloc(pr->map, (pr->n_map ? pr->n_map * 2 : 1) * sizeof(*map));
		if (!map)
			return;
		pr->map = map;
	}
	pr->map[pr->n_map++] = (struct mapping){ begin, end, conn };
}

/* Reads the mappings of files on other file systems. */
static void read_maps(const struct look *l, int task_dirfd, struct process *pr)
{
	int fd = openat(task_dirfd, "maps", O_RDONLY | O_CLOEXEC), conn = -1;
	FILE *f = fd < 0 ? NULL : fdopen(fd, "re");
	dev_t known = 0; /* the device that conn belongs to */
	char *line = NULL;
	size_t size = 0;

	for (unsigned i = 1; f && getline(&line, &size, f) > 0 && (i % 512 || !takes_long(l));
	     i++) {
		unsigned long long from, to;
		unsigned maj, min;
		char *p;
		dev_t dev;

		from = strtoull(line, &p, 16);
		to = strtoull(p + (*p == '-'), &p, 16);
		if (sscanf(p, " %*s %*x %x:%x", &maj, &min) != 2)
			continue;
		dev = makedev(maj, min);
		if (!dev || dev == l->now.st_dev || dev == l->now.sb_dev)
			continue;
		if (dev != known)
			conn = is_fuse(l, dev) ? (int)min : -1;
		known = dev;
		add_mapping(pr, from, to, conn);
	}
	free(line);
	if (f)
		fclose(f);
	else if (fd >= 0)
		close(fd);
}

/*
 * Notes the FUSE connections behind [begin, end). Is a file of another device there? If that is not
 * needed and there is too much to read, the function skips it: the later steps of a cure work
 * without it.
 */
static bool note_source(const struct look *l, int task_dirfd, struct process *pr, uint64_t begin,
			uint64_t end, bool needed, struct stuck_task *t)
{
	size_t low = 0, high;
	bool found = false;

	if (!pr->has_map && cpu_ns() >= MAPS_WORK_NS && !needed)
		return false;
	if (!pr->has_map)
		read_maps(l, task_dirfd, pr);
	pr->has_map = true;
	for (high = pr->n_map; low < high;) {
		size_t mid = (low + high) / 2;

		if (pr->map[mid].end <= begin)
			low = mid + 1;
		else
			high = mid;
	}
	for (; low < pr->n_map && pr->map[low].begin < end && !t->more_conns; low++) {
		if (pr->map[low].conn >= 0)
			add_conn(t, (unsigned)pr->map[low].conn);
		found = true;
	}
	return found;
}

/* Does the task sleep in a page fault? 1, 0 or -1: this kernel does not show it. */
static int faults(int task_dirfd, struct stuck_task *t)
{
	char text[8192];

	if (io_read_text(task_dirfd, "stack", text, sizeof(text)) <= 0 || !strstr(text, "+0x"))
		return -1;
	t->fuse = t->in_request = strstr(text, "request_wait_answer");
	return strstr(text, "handle_mm_fault") != NULL;
}

static bool source_is_foreign(const struct look *l, int task_dirfd, struct process *pr,
			      const struct call *c, const unsigned long long arg[6],
			      struct stuck_task *t)
{
	uint64_t begin = 0, end = UINT64_MAX;
	bool foreign;
	unsigned type;
	dev_t dev;
	int fault;

	if (c->kind == SOURCE_FD) { /* bounce.c handles pipes and sockets */
		if (!fd_device(task_dirfd, (int)arg[c->source], &type, &dev) || type != S_IFREG ||
		    !is_fuse(l, dev))
			return false;
		add_conn(t, minor(dev));
		return true;
	}
	fault = faults(task_dirfd, t);
	if (!fault)
		return false;
	if (c->kind == SOURCE_MEMORY) {
		begin = arg[c->source];
		end = begin + arg[c->source + 1] < begin ? UINT64_MAX : begin + arg[c->source + 1];
	}
	foreign = note_source(l, task_dirfd, pr, begin, end, fault < 0, t);
	return fault > 0 || (foreign && (c->kind == SOURCE_MEMORY || t->conns));
}

/*
 * A subvolume of btrfs has a st_dev of its own; the mount through which the file was opened
 * identifies the file system.
 */
static bool is_other_subvolume(const struct look *l, int pid, const struct statx *st)
{
	char who[16];
	dev_t dev;

	snprintf(who, sizeof(who), "%d", pid);
	/* its mount may belong to a namespace that the process has left */
	return l->now.sb_dev && !st->stx_dev_major && (st->stx_mask & STATX_MNT_ID) &&
	       (mounts_find(l->now.proc_dirfd, "self", st->stx_mnt_id, &dev) ||
		mounts_find(l->now.proc_dirfd, "1", st->stx_mnt_id, &dev) ||
		mounts_find(l->now.proc_dirfd, who, st->stx_mnt_id, &dev)) &&
	       dev == l->now.sb_dev;
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
	       (makedev(st.stx_dev_major, st.stx_dev_minor) == l->now.st_dev ||
		is_other_subvolume(l, pid, &st));
}

/*
 * Does it wait without holding anything: for completions of io_uring, as an idle worker of it, or
 * at the barrier of a freeze?
 */
static bool holds_nothing(const char *wchan, const struct call *c)
{
	return strstr(wchan, "percpu_rwsem") || strstr(wchan, "percpu_down_read") ||
	       !strncmp(wchan, "io_cqring", 9) ||
	       (c == &io_worker && (!strncmp(wchan, "io_wq", 5) || !strncmp(wchan, "io_sq", 5)));
}

static bool call_holds(const struct look *l, int task_dirfd, struct process *pr,
		       const struct call *c, const unsigned long long arg[6], struct stuck_task *t)
{
	char wchan[64] = "";

	if ((c->reads && !l->now.readers) || !target_is_ours(l, t->pid, task_dirfd, c, arg))
		return false;
	(void)!io_read_text(task_dirfd, "wchan", wchan, sizeof(wchan));
	if (holds_nothing(wchan, c))
		return false;
	t->reads = c->reads;
	return source_is_foreign(l, task_dirfd, pr, c, arg, t) ||
	       (c->target != NO_FD && !strcmp(wchan, "handle_userfault"));
}

/*
 * Before Linux 6.12 an overlay holds the write count of its upper file system while it copies a
 * file up, in whatever call. An overlay of a user may read from FUSE there.
 */
static bool copies_up(int task_dirfd, struct stuck_task *t)
{
	char text[8192] = "";

	if (io_read_text(task_dirfd, "wchan", text, sizeof(text)) <= 0 ||
	    (!strstr(text, "request_wait_answer") && !strstr(text, "folio") &&
	     !strstr(text, "page")))
		return false;
	if (io_read_text(task_dirfd, "stack", text, sizeof(text)) <= 0 ||
	    !strstr(text, "ovl_copy_up"))
		return false;
	t->fuse = t->in_request = strstr(text, "request_wait_answer");
	return true;
}

/* What only older kernels do with the write count held. */
static bool holds_by_old_kernel(const struct look *l, int task_dirfd, struct process *pr,
				long number, const unsigned long long arg[6], struct stuck_task *t)
{
	for (size_t i = 0; i < ARRAY_SIZE(xattr_calls); i++)
		if ((number & ~X32_BIT) == xattr_calls[i] &&
		    call_holds(l, task_dirfd, pr, &xattr, arg, t))
			return true;
	return copies_up(task_dirfd, t);
}

static bool holds_freeze(const struct look *l, int task_dirfd, struct process *pr,
			 struct stuck_task *t)
{
	unsigned long long arg[6] = { 0 };
	bool holds = false;
	char text[256] = "";
	unsigned flags;
	long number;
	int n;

	if (!sleeps(task_dirfd, &flags) ||
	    io_read_text(task_dirfd, "syscall", text, sizeof(text)) < 0)
		return false;
	n = sscanf(text, "%ld %llx %llx %llx %llx %llx %llx", &number, &arg[0], &arg[1], &arg[2],
		   &arg[3], &arg[4], &arg[5]);
	if (flags & FLAG_IO_WORKER)
		holds = call_holds(l, task_dirfd, pr, &io_worker, arg, t);
	for (size_t i = 0; n == 7 && i < ARRAY_SIZE(calls) && !holds; i++)
		holds = (number & ~X32_BIT) == calls[i].number &&
			call_holds(l, task_dirfd, pr, &calls[i], arg, t);
	if (n == 7 && !holds && !kernel_is(6, 12))
		holds = holds_by_old_kernel(l, task_dirfd, pr, number, arg, t);
	if (!holds && pr->dumps_core)
		holds = call_holds(l, task_dirfd, pr, &core_dump, arg, t);
	if (holds)
		read_status(task_dirfd, text, t);
	return holds;
}

/* ---- one look ---- */

/* Takes over the results of the previous look. Both lists are in the order of /proc, or nearly. */
static void recall(struct look *l, struct stuck_task *t)
{
	const struct stuck *before = &l->before;

	t->since_ns = now_ns();
	for (size_t i = 0; i < before->n; i++) {
		const struct stuck_task *b = &before->task[(l->at + i) % before->n];

		if (b->pid != t->pid || b->tid != t->tid || b->start != t->start ||
		    b->suspect != t->suspect)
			continue;
		l->at = (l->at + i + 1) % before->n;
		if (b->mark == t->mark) {
			t->since_ns = b->since_ns;
			t->step = b->step;
		} else if (b->step >= STEP_KILLED) { /* the signal has woken it */
			t->step = STEP_KILLED;
		}
		return;
	}
}

static void add_task(struct look *l, struct stuck_task *t)
{
	struct stuck *s = &l->now;

	if (!(s->n & (s->n - 1))) {
		struct stuck_task *task = realloc(s->task, (s->n ? s->n * 2 : 1) * sizeof(*task));

		if (!task)
			return;
		s->task = task;
	}
	recall(l, t);
	s->task[s->n++] = *t;
	s->suspects += t->suspect;
}

static void add_suspect(struct look *l, int pid, uint64_t start)
{
	_cleanup_close_ int pid_dirfd = open_dir_at(l->now.proc_dirfd, pid);
	struct stuck_task t = { .pid = pid, .tid = pid, .start = start, .suspect = true };

	if (pid_dirfd < 0 || start_of(pid_dirfd) != start)
		return; /* gone */
	read_status(pid_dirfd, "", &t);
	t.mark = 0;
	name_task(pid_dirfd, &t);
	add_task(l, &t);
}

static void add_suspects(struct look *l)
{
	for (size_t i = 0; i < LEFT_BEHIND; i++)
		if (left[i].pid > 0)
			add_suspect(l, left[i].pid, left[i].start);
}

static void look_at_process(struct look *l, int pid)
{
	_cleanup_close_ int pid_dirfd = open_dir_at(l->now.proc_dirfd, pid);
	DIR *tasks = pid_dirfd < 0 ? NULL : proclist_open(pid_dirfd, "task");
	struct process pr = { .pid = pid };
	bool slow = false;
	int tid;

	if (!tasks)
		return;
	l->start = pr.start = start_of(pid_dirfd);
	pr.dumps_core = dumps_core(pid_dirfd);
	while (!(slow = takes_long(l)) && (tid = proclist_next(tasks)) >= 0) {
		_cleanup_close_ int task_dirfd = open_dir_at(dirfd(tasks), tid);
		struct stuck_task t = { .pid = pid, .tid = tid, .start = pr.start };

		if (task_dirfd < 0 || !holds_freeze(l, task_dirfd, &pr, &t))
			continue;
		name_task(task_dirfd, &t);
		add_task(l, &t);
	}
	closedir(tasks);
	free(pr.map);
	if (slow && l->slot < 0)
		add_suspect(l, pid, pr.start);
}

/* Starts with a process, unless it is to be skipped. */
static bool come_to(void *ctx, int pid)
{
	struct look *l = ctx;

	if (l->slot >= 0 || pid == getpid() || pid == getppid() || is_left_behind(pid))
		return false;
	l->start = 0;
	l->pid = pid;
	l->at_ns = now_ns();
	l->work_ns = cpu_ns();
	return true;
}

static void look_at_all(struct look *l)
{
	DIR *list = proclist_open(l->now.proc_dirfd, ".");
	int pid;

	while (list && l->slot < 0 && (pid = proclist_next(list)) >= 0) {
		if (!come_to(l, pid))
			continue;
		look_at_process(l, pid);
		if (cpu_ns() - l->work_ns > l->most_ns) {
			l->most_ns = cpu_ns() - l->work_ns;
			l->most_pid = pid;
		}
		/* many processes that are slow but within the limit: the slowest stands for all */
		if (cpu_ns() > ALL_WORK_NS) {
			_cleanup_close_ int pid_dirfd = open_dir_at(l->now.proc_dirfd, l->most_pid);

			add_suspect(l, l->most_pid, start_of(pid_dirfd));
			break;
		}
	}
	if (list)
		closedir(list);
	add_suspects(l);
	if (l->now.bounce && l->slot < 0)
		l->now.bounced += bounce_writers(l->now.proc_dirfd, l->now.st_dev, come_to, l,
						 l->now.culprit, sizeof(l->now.culprit));
}

/* ---- the thread ---- */

static void look_free(struct look *l)
{
	pthread_cond_destroy(&l->changed);
	pthread_mutex_destroy(&l->lock);
	free(l->before.task);
	free(l->now.task);
	free(l);
}

static void *look_main(void *arg)
{
	struct look *l = arg;
	int slot;

	look_at_all(l);
	pthread_mutex_lock(&l->lock);
	l->done = true;
	slot = l->slot;
	pthread_cond_signal(&l->changed);
	pthread_mutex_unlock(&l->lock);
	if (slot >= 0) {
		look_free(l);
		left[slot].pid = 0;
	}
	return NULL;
}

/* Moves the results to s. */
static void look_take(struct look *l, struct stuck *s)
{
	free(s->task);
	*s = l->now;
	l->now.task = NULL;
	look_free(l);
}

static struct look *look_new(const struct stuck *s)
{
	struct look *l = calloc(1, sizeof(*l));

	if (!l)
		return NULL;
	l->now = l->before = *s;
	l->now.task = NULL;
	l->now.n = l->now.suspects = 0;
	l->before.task = malloc(s->n * sizeof(*s->task) + 1);
	if (!l->before.task) {
		free(l);
		return NULL;
	}
	if (s->n)
		memcpy(l->before.task, s->task, s->n * sizeof(*s->task));
	l->slot = l->pid = -1;
	l->at_ns = now_ns();
	pthread_mutex_init(&l->lock, NULL);
	thread_cond_init(&l->changed);
	return l;
}

/*
 * Waits until the look is done (1), or has hung at one process for hang_ns (0). The caller holds
 * its lock.
 */
static int look_wait(struct look *l, uint64_t hang_ns)
{
	for (;;) {
		uint64_t until_ns = l->at_ns + hang_ns;

		if (l->done)
			return 1;
		if (now_ns() >= until_ns)
			return 0;
		thread_cond_wait_until(&l->changed, &l->lock, until_ns);
	}
}

/* 0; 1: another process hangs. */
static int look_once(struct stuck *s, uint64_t hang_ns)
{
	struct look *l = look_new(s);
	pthread_t thread;
	int r;

	if (!l)
		return -ENOMEM;
	if (!is_left_behind(0)) { /* no room for another one */
		add_suspects(l);
		look_take(l, s);
		return -ETIMEDOUT;
	}
	r = thread_start(&thread, "cowfs-look", STACK_BYTES, look_main, l);
	if (r < 0) {
		look_free(l);
		return r;
	}
	pthread_mutex_lock(&l->lock);
	r = look_wait(l, hang_ns) ? 0 : 1;
	if (r)
		leave_behind(l);
	pthread_mutex_unlock(&l->lock);
	if (r) {
		pthread_detach(thread);
	} else {
		pthread_join(thread, NULL);
		look_take(l, s);
	}
	return r;
}

int stuck_look(struct stuck *s, uint64_t hang_ns)
{
	int r;

	do
		r = look_once(s, hang_ns);
	while (r == 1);
	return r;
}

void stuck_free(struct stuck *s)
{
	free(s->task);
	s->task = NULL;
	s->n = 0;
}

/* ---- cures ---- */

static bool is_long(const struct stuck_task *t)
{
	uint64_t after_ns = t->suspect ? SUSPECT_NS : t->fuse ? FUSE_NS : OTHER_NS;

	return now_ns() >= t->since_ns + after_ns;
}

/* A higher rank means more certainty that a freeze waits for the task. */
static int rank(const struct stuck_task *t)
{
	return t->suspect ? 0 : (t->reads ? 1 : 3) + t->fuse;
}

const struct stuck_task *stuck_for_long(const struct stuck *s)
{
	const struct stuck_task *found = NULL;

	for (size_t i = 0; i < s->n; i++)
		if (is_long(&s->task[i]) && (!found || rank(&s->task[i]) > rank(found)))
			found = &s->task[i];
	return found;
}

/*
 * Opens the connection's folder first: its number may belong to another connection later. any:
 * aborts also connections of another user, but not of root.
 */
static unsigned abort_conn(struct stuck *s, const struct stuck_task *t, unsigned conn, bool any)
{
	_cleanup_close_ int conn_dirfd = s->fuse_dirfd < 0 ? -1
							   : open_dir_at(s->fuse_dirfd, (int)conn),
			    fd = -1;
	struct stat st;

	if (conn_dirfd < 0 || conn == s->aborted || fstat(conn_dirfd, &st) < 0 ||
	    (st.st_uid != t->uid && (!any || !st.st_uid)))
		return 0;
	fd = openat(conn_dirfd, "abort", O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, "1", 1) != 1)
		return 0;
	s->aborted = conn;
	msg(MSG_ERR, "FUSE connection %u aborted: %s waited for it and blocked the freeze", conn,
	    t->name);
	return 1;
}

/*
 * An overlay over FUSE hides its connection. Never aborts connections of root: the daemon's own is
 * one of them.
 */
static unsigned abort_all_of_user(struct stuck *s, const struct stuck_task *t)
{
	DIR *list = s->fuse_dirfd < 0 || !t->uid ? NULL : proclist_open(s->fuse_dirfd, ".");
	unsigned aborted = 0;
	int conn;

	while (list && (conn = proclist_next(list)) >= 0)
		aborted += abort_conn(s, t, (unsigned)conn, false);
	if (list)
		closedir(list);
	return aborted;
}

static void kill_process(const struct stuck *s, const struct stuck_task *t)
{
	_cleanup_close_ int pidfd = pidfd_open(t->pid, 0),
			    pid_dirfd = open_dir_at(s->proc_dirfd, t->pid);

	/* the process that has the pid now also had it when the pidfd was opened */
	if (pidfd >= 0 && start_of(pid_dirfd) == t->start &&
	    pidfd_send_signal(pidfd, SIGKILL, NULL, 0) == 0)
		msg(MSG_ERR, "%s killed: it blocked the freeze", t->name);
}

static unsigned cure(struct stuck *s, struct stuck_task *t, bool kill)
{
	unsigned aborted = 0;

	if (t->step == STEP_NONE) {
		for (unsigned i = 0; i < t->conns; i++)
			aborted += abort_conn(s, t, t->conn[i], false);
		t->step = STEP_ABORTED;
		if (!kill)
			return aborted;
	}
	if (t->step == STEP_ABORTED)
		kill_process(s, t);
	else if (t->step == STEP_KILLED)
		aborted = abort_all_of_user(s, t);
	else if (t->in_request && t->conns == 1 && !t->more_conns)
		aborted = abort_conn(s, t, t->conn[0], true);
	t->step++;
	return aborted;
}

unsigned stuck_cure(struct stuck *s, bool kill)
{
	unsigned aborted = 0, end = kill ? STEP_END : STEP_ABORTED;
	int worst = -1;

	for (size_t i = 0; i < s->n; i++)
		if (is_long(&s->task[i]) && s->task[i].step < end && rank(&s->task[i]) > worst)
			worst = rank(&s->task[i]);
	for (size_t i = 0; worst >= 0 && i < s->n; i++)
		if (is_long(&s->task[i]) && s->task[i].step < end && rank(&s->task[i]) == worst)
			aborted += cure(s, &s->task[i], kill);
	return aborted;
}
