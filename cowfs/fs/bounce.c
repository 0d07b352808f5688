/* SPDX-License-Identifier: MIT */
/*
 * Searches /proc for the tasks that keep a freeze waiting.
 *
 * Notes on the design
 * - do_splice() and similar calls hold the file system's write count while they wait for pipe data.
 *   FIFREEZE waits for that count, uninterruptibly. Any stop signal makes the call unwind. After
 *   SIGCONT it restarts by itself and then waits at the freeze barrier, where it belongs.
 * - open() with O_TRUNC and truncate() hold the write count while they wait for a lease of any user
 *   (F_SETLEASE), up to 45 s. The same signal makes them unwind.
 * - Only tasks in an interruptible sleep are touched: a task in D does not see a signal, and a task
 *   that runs will end its call. A stopped task (T) was stopped on purpose.
 * - statx with AT_STATX_DONT_SYNC: the descriptor may belong to a dead network file system.
 * - Not found: a splice done by an io_uring worker, and tasks of a foreign (32-bit) system call
 *   table.
 */
#include "fs/bounce.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

#include "base/clean.h"
#include "base/io.h"
#include "base/proclist.h"

#define STOP_WAIT_NS 200000000ull
#define STOP_POLL_NS 1000000

static const struct {
	long number;
	unsigned fd_arg; /* the argument with the descriptor that is written to */
} writing_calls[] = {
	{ SYS_splice, 2 },     { SYS_sendfile, 0 }, { SYS_copy_file_range, 2 },
	{ SYS_write, 0 },      { SYS_writev, 0 },   { SYS_pwrite64, 0 },
	{ SYS_pwritev, 0 },    { SYS_pwritev2, 0 }, { SYS_fallocate, 0 },
#ifdef SYS_sendfile64
	{ SYS_sendfile64, 0 },
#endif
};

/* The descriptor that the task's system call writes to, or -1. */
static int written_fd(int task_dirfd)
{
	char text[256];
	long number;
	unsigned long long arg[3];

	if (io_read_text(task_dirfd, "syscall", text, sizeof(text)) < 0 ||
	    sscanf(text, "%ld %llx %llx %llx", &number, &arg[0], &arg[1], &arg[2]) != 4)
		return -1; /* the task is gone, or "running" */
	for (size_t i = 0; i < ARRAY_SIZE(writing_calls); i++)
		if (number == writing_calls[i].number)
			return (int)arg[writing_calls[i].fd_arg];
	return -1;
}

/*
 * The letter after the last ')' of stat: the name before it may contain any character. 0 if the
 * task is gone.
 */
static char task_state(int task_dirfd)
{
	char text[512];
	const char *p;

	if (io_read_text(task_dirfd, "stat", text, sizeof(text)) < 0)
		return 0;
	p = strrchr(text, ')');
	return p && p[1] == ' ' ? p[2] : 0;
}

static bool holds_freeze(int task_dirfd, dev_t st_dev)
{
	char path[32], wchan[64];
	struct statx st;
	int fd;

	if (task_state(task_dirfd) != 'S')
		return false;
	/* for a lease of whatever file system: the call only begins again */
	if (io_read_text(task_dirfd, "wchan", wchan, sizeof(wchan)) > 0 &&
	    strstr(wchan, "break_lease"))
		return true;
	fd = written_fd(task_dirfd);
	if (fd < 0)
		return false;
	snprintf(path, sizeof(path), "fd/%d", fd);
	if (statx(task_dirfd, path, AT_STATX_DONT_SYNC, STATX_TYPE, &st) < 0)
		return false;
	return makedev(st.stx_dev_major, st.stx_dev_minor) == st_dev;
}

/* Sends SIGCONT only after the sleep has ended: an earlier SIGCONT would cancel the stop. */
static void bounce(int pidfd, int task_dirfd)
{
	const struct timespec nap = { .tv_nsec = STOP_POLL_NS };
	uint64_t until_ns = now_ns() + STOP_WAIT_NS;

	if (pidfd_send_signal(pidfd, SIGSTOP, NULL, 0) < 0)
		return;
	while (task_state(task_dirfd) == 'S' && now_ns() < until_ns)
		nanosleep(&nap, NULL);
	(void)pidfd_send_signal(pidfd, SIGCONT, NULL, 0);
}

static int open_dir_at(int dirfd, const char *name)
{
	return openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static unsigned bounce_process(int proc_dirfd, int pid, dev_t st_dev, char *culprit,
			       size_t size_bytes)
{
	char name[16], comm[32] = "?";
	_cleanup_close_ int pid_dirfd = -1, pidfd = -1;
	unsigned bounced = 0;
	DIR *tasks;
	int tid;

	snprintf(name, sizeof(name), "%d", pid);
	pid_dirfd = open_dir_at(proc_dirfd, name);
	tasks = pid_dirfd < 0 ? NULL : proclist_open(pid_dirfd, "task");
	if (!tasks)
		return 0;
	while ((tid = proclist_next(tasks)) >= 0) {
		_cleanup_close_ int task_dirfd = -1;

		snprintf(name, sizeof(name), "%d", tid);
		task_dirfd = open_dir_at(dirfd(tasks), name);
		if (task_dirfd < 0 || !holds_freeze(task_dirfd, st_dev))
			continue;
		/*
		 * the directory belongs to this very process; the pidfd does too, if the directory
		 * still answers afterwards
		 */
		if (pidfd < 0)
			pidfd = pidfd_open(pid, 0);
		if (pidfd < 0 || !task_state(task_dirfd))
			continue;
		if (io_read_text(task_dirfd, "comm", comm, sizeof(comm)) >= 0 && !*culprit)
			snprintf(culprit, size_bytes, "%s[%d]", clean_text(comm), pid);
		bounce(pidfd, task_dirfd);
		bounced++;
	}
	closedir(tasks);
	return bounced;
}

unsigned bounce_writers(int proc_dirfd, dev_t st_dev, bool (*come_to)(void *ctx, int pid),
			void *ctx, char *culprit, size_t size_bytes)
{
	DIR *list = proclist_open(proc_dirfd, ".");
	unsigned bounced = 0;
	int pid;

	if (!list)
		return 0;
	while ((pid = proclist_next(list)) >= 0)
		if (pid != getpid() && pid != getppid() && (!come_to || come_to(ctx, pid)))
			bounced += bounce_process(proc_dirfd, pid, st_dev, culprit, size_bytes);
	closedir(list);
	return bounced;
}
