// SPDX-License-Identifier: MIT
/*
 * Notes on the design
 * - A session is forked from a process that reads no byte of an image: the broker, or a command. So
 *   each starts from a clean state, and an attacker who takes over one session gets nothing of
 *   another.
 * - A worker that was taken over may ask its broker without end. So a call costs time (allowance.h),
 *   and only a few sessions live at a time. A commit needs up to five, one after another.
 * - A session may need memory while writers are parked, so it must not wait for I/O on the volume.
 *   It inherits the I/O flusher flag, and shares the program's text, which the broker has locked.
 */
#include "fs/fsproc.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/broker.h"
#include "base/io.h"
#include "base/sandbox.h"
#include "fs/answer.h"

#define SOCKET_FD 3
#define SESSION_MEMORY_BYTES (1024 * MIB) /* address space, including the program's own */
#define SESSION_CPU_S 60
#define SESSIONS_MAX 16

static struct {
	bool on, command, keep_root;
	pid_t session[SESSIONS_MAX]; /* that were forked and not reaped; 0: none */
} own;

/* ---- the session ---- */

/* The socket. No flags except those of answer.c: urgent data of streams was a way into kernels. */
static int session_calls(scmp_filter_ctx filter, void *nothing)
{
	const struct scmp_arg_cmp out = SCMP_CMP64(2, SCMP_CMP_MASKED_EQ, ~0u, MSG_NOSIGNAL),
				  in = SCMP_CMP64(2, SCMP_CMP_MASKED_EQ, ~0u, 0);
	int r = seccomp_rule_add_array(filter, SCMP_ACT_ALLOW, SCMP_SYS(sendmsg), 1, &out);

	(void)nothing;
	return r ? r : seccomp_rule_add_array(filter, SCMP_ACT_ALLOW, SCMP_SYS(recvmsg), 1, &in);
}

/*
 * Reading a crafted card is not a reason to end other programs: the kernel can take the memory of
 * this process instead. Its memory must not wait for a swap file on the volume, whose writers may be
 * parked.
 */
static void set_memory(int proc_dirfd)
{
	const struct rlimit all = { RLIM_INFINITY, RLIM_INFINITY };

	if (proc_dirfd >= 0)
		(void)!io_write_text(proc_dirfd, "self/oom_score_adj", "0");
	if (setrlimit(RLIMIT_MEMLOCK, &all) ==
	    0) /* else mappings fail later, without capabilities */
		(void)!mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT);
}

static __attribute__((noreturn)) void session_main(int fd, int proc_dirfd, bool keep_root)
{
	sigset_t none;

	/* the broker's threads block all */
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	prctl(PR_SET_NAME, "cowfs-meta");
	set_memory(proc_dirfd);
	/* output of a library must not reach a socket */
	if (dup2(fd, SOCKET_FD) < 0 || close_range(0, SOCKET_FD - 1, 0) < 0 ||
	    close_range(SOCKET_FD + 1, ~0u, 0) < 0 ||
	    sandbox_enter(keep_root, SESSION_MEMORY_BYTES, SESSION_CPU_S, session_calls, NULL) < 0)
		_exit(1);
	answer_serve(SOCKET_FD);
	_exit(0);
}

/* ---- the process that forks it ---- */

int fsproc_fork(int proc_dirfd, bool keep_root, pid_t *ret_pid)
{
	pid_t *slot = NULL, pid;
	int pair[2];

	for (unsigned i = 0; i < SESSIONS_MAX; i++) {
		/* one that has ended by itself, and was not asked for again */
		if (own.session[i] && waitpid(own.session[i], NULL, WNOHANG))
			own.session[i] = 0;
		if (!own.session[i])
			slot = &own.session[i];
	}
	if (!slot || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return -EAGAIN;
	pid = fork();
	if (pid == 0)
		session_main(pair[1], proc_dirfd, keep_root);
	close(pair[1]);
	if (pid < 0) {
		close(pair[0]);
		return -EAGAIN;
	}
	*slot = *ret_pid = pid;
	return pair[0];
}

int fsproc_reap(pid_t pid)
{
	for (unsigned i = 0; i < SESSIONS_MAX; i++)
		if (pid > 0 && own.session[i] == pid) {
			kill(pid, SIGKILL);
			while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
				;
			own.session[i] = 0;
			return 0;
		}
	return -EPERM;
}

/* ---- this process ---- */

void fsproc_start(bool command, bool keep_root)
{
	/* sessions of a parent are not this process's */
	memset(&own, 0, sizeof(own));
	own.on = true;
	own.command = command;
	own.keep_root = keep_root;
}

bool fsproc_may_fork(void)
{
	return own.command;
}

bool fsproc_on(void)
{
	return own.on;
}

int fsproc_session(pid_t *ret_pid)
{
	struct broker_message m = { .op = BROKER_SESSION };
	int fd[BROKER_FDS] = { -1, -1, -1, -1 }, r;

	if (!broker_on())
		return fsproc_fork(-1, own.keep_root, ret_pid);
	r = broker_ask(BROKER_READ, &m, fd);
	*ret_pid = (pid_t)m.n[0];
	return r < 0 ? r : fd[0];
}

void fsproc_end(pid_t pid)
{
	if (broker_on())
		(void)!broker_call(BROKER_READ, BROKER_END, (uint64_t)pid, 0);
	else
		(void)!fsproc_reap(pid);
}

void fsproc_leave(void)
{
	own.on = own.command = false;
}
