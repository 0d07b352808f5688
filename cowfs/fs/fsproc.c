// SPDX-License-Identifier: MIT
/*
 * Notes on the design
 * - There are three levels of processes. The first process waits for the second and forks it again
 *   if it was killed. The worker cannot do that: it no longer has the system calls and the
 *   capabilities. The second process forks the sessions. Neither of the two reads a byte of an
 *   image. So each session starts from a clean state, and an attacker who takes over one session
 *   gets nothing of another.
 * - The first process is forked before the worker has threads, locked memory and descriptors.
 * - The first and the second process share their end of one socket. If the second process is
 *   killed, the request that it had taken is lost: the first process reports this, and the request
 *   is made again. Requests are numbered, so that a duplicate answer is recognised.
 * - These processes are root, and a worker that was taken over may ask without end. So sessions cost
 *   time (allowance.h), and only a few live at a time. A commit needs up to five, one after another.
 * - A session may need memory while writers are parked, so it must not wait for I/O on the volume.
 *   It inherits the I/O flusher flag, and prepare locks the program's text, which sessions share.
 */
#include "fs/fsproc.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <linux/capability.h>

#include "base/allowance.h"
#include "base/io.h"
#include "base/passfd.h"
#include "base/sandbox.h"
#include "fs/answer.h"

#define SOCKET_FD 3
#define PROC_FD 4
#define SESSION_MEMORY_BYTES (1024 * MIB) /* address space, including the program's own */
#define SESSION_CPU_S 60
#define SESSIONS_MAX 16
#define SESSION_COST_NS 4000000ull
#define ASK_TRIES 8 /* answers to earlier requests, and deaths, during the wait for one answer */

enum { SESSION = 'S', NO_SESSION = 'E', FORKED_AGAIN = 'R' };

struct message {
	uint8_t what, request;
};

static struct {
	int fd; /* to the processes that fork */
	pid_t pid;
	int proc_dirfd; /* -1: opened by its path */
	bool on, may_fork, keep_root;
	uint8_t request; /* the number of the last request */
} own = { .fd = -1, .proc_dirfd = -1 };

/* ---- the other processes ---- */

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
 * this process instead.
 */
static void end_protection(void)
{
	(void)!io_write_text(PROC_FD, "self/oom_score_adj", "0");
	close(PROC_FD);
}

static __attribute__((noreturn)) void session_main(int fd)
{
	end_protection();
	/* its memory must not wait for a swap file on the volume, whose writers may be parked */
	(void)!mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT);
	if (dup2(fd, SOCKET_FD) < 0 || close_range(SOCKET_FD + 1, ~0u, 0) < 0 ||
	    sandbox_enter(own.keep_root, SESSION_MEMORY_BYTES, SESSION_CPU_S, session_calls, NULL) <
		    0)
		_exit(1);
	answer_serve(SOCKET_FD);
	_exit(0);
}

/* Sends a session's socket, and its pidfd if the kernel has pidfds (5.3). */
static int send_session(uint8_t request, const int fd[2])
{
	const struct message msg = { SESSION, request };

	return passfd_send(SOCKET_FD, &msg, sizeof(msg), fd, fd[1] < 0 ? 1 : 2, 0);
}

static atomic_int sessions; /* that live */

static int fork_session(uint8_t request)
{
	int pair[2], fd[2] = { -1, -1 }, r;
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	pid = fork();
	if (pid == 0)
		session_main(pair[1]);
	r = pid < 0 ? -errno : 0;
	if (pid > 0)
		sessions++;
	close(pair[1]);
	fd[0] = pair[0];
	if (r == 0)
		fd[1] = (int)syscall(SYS_pidfd_open, pid, 0);
	if (r == 0)
		r = send_session(request, fd);
	close(fd[0]);
	if (fd[1] >= 0)
		close(fd[1]);
	return r;
}

static void session_ended(int signal)
{
	int error = errno;

	(void)signal;
	while (waitpid(-1, NULL, WNOHANG) > 0)
		sessions--;
	errno = error;
}

static __attribute__((noreturn)) void forker_main(void)
{
	const struct sigaction reap = { .sa_handler = session_ended, .sa_flags = SA_RESTART };
	struct pollfd gone = { .fd = SOCKET_FD };
	struct allowance allowance = { 0 };
	struct message msg;

	sigaction(SIGCHLD, &reap, NULL);
	while (recv(SOCKET_FD, &msg, sizeof(msg), 0) == sizeof(msg)) {
		uint64_t wait_ns = allowance_use(&allowance, now_ns(), SESSION_COST_NS);
		struct message no = { NO_SESSION, msg.request };

		if (wait_ns)
			(void)!poll(&gone, 1, (int)(wait_ns / 1000000) + 1);
		if ((sessions >= SESSIONS_MAX || fork_session(msg.request) < 0) &&
		    send(SOCKET_FD, &no, sizeof(no), MSG_NOSIGNAL) < 0)
			break;
	}
	_exit(0);
}

/* Keeps what a session needs, and drops everything else. */
static void keep_little(int fd, void (*prepare)(void *ctx), void *ctx)
{
	const struct rlimit all = { RLIM_INFINITY, RLIM_INFINITY };
	int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC),
	    proc_fd = own.proc_dirfd >= 0 ? own.proc_dirfd
					  : open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);

	/* output of a library must not reach the socket */
	for (int i = 0; i < SOCKET_FD; i++)
		if (i != fd && null_fd >= 0)
			dup2(null_fd, i);
	fd = fcntl(fd, F_DUPFD_CLOEXEC, PROC_FD + 1);
	proc_fd = fcntl(proc_fd, F_DUPFD_CLOEXEC, PROC_FD + 1);
	if (proc_fd >= 0)
		dup2(proc_fd, PROC_FD);
	if (dup2(fd, SOCKET_FD) < 0 ||
	    close_range(proc_fd < 0 ? PROC_FD : PROC_FD + 1, ~0u, 0) < 0 ||
	    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		_exit(1);
	prctl(PR_SET_NAME, "cowfs-meta");
	if (prepare)
		prepare(ctx);
	(void)!setrlimit(RLIMIT_MEMLOCK, &all);
	if (sandbox_capabilities(UINT64_C(1) << CAP_SETUID | UINT64_C(1) << CAP_SETGID) < 0)
		_exit(1);
	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
}

static __attribute__((noreturn)) void first_main(int fd, void (*prepare)(void *ctx), void *ctx)
{
	const struct message again = { FORKED_AGAIN, 0 };
	struct pollfd p = { .fd = fd };
	int status;
	pid_t pid;

	keep_little(fd, prepare, ctx);
	p.fd = SOCKET_FD;
	for (;;) {
		pid = fork();
		if (pid == 0)
			forker_main();
		if (pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status))
			_exit(0);
		(void)!send(SOCKET_FD, &again, sizeof(again), MSG_NOSIGNAL | MSG_DONTWAIT);
		if (pid < 0 && poll(&p, 1, 1000) > 0) /* no memory, or the other end is closed */
			_exit(0);
	}
}

/* ---- this process ---- */

static int fork_first(void (*prepare)(void *ctx), void *ctx)
{
	int pair[2], r;
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	pid = fork();
	if (pid == 0)
		first_main(pair[1], prepare, ctx);
	r = pid < 0 ? -errno : 0;
	close(pair[1]);
	if (r < 0) {
		close(pair[0]);
		return r;
	}
	own.fd = pair[0];
	own.pid = pid;
	return 0;
}

int fsproc_start(void (*prepare)(void *ctx), void *ctx, int proc_dirfd, bool keep_root)
{
	int r;

	own.proc_dirfd = proc_dirfd;
	own.keep_root = keep_root;
	r = fork_first(prepare, ctx);
	own.on = r == 0;
	return r;
}

void fsproc_start_when_asked(void)
{
	own.on = own.may_fork = true;
}

bool fsproc_may_fork(void)
{
	return own.may_fork;
}

bool fsproc_on(void)
{
	return own.on;
}

/* Receives one message with its descriptors; -1 for a missing descriptor. */
static int receive(struct message *ret, int ret_fd[2], int timeout_ms)
{
	struct pollfd p = { .fd = own.fd, .events = POLLIN };
	unsigned n;
	int r;

	ret_fd[0] = ret_fd[1] = -1;
	while ((r = poll(&p, 1, timeout_ms)) < 0 && errno == EINTR)
		;
	return r == 1 && passfd_receive(own.fd, ret, sizeof(*ret), ret_fd, 2, &n) == sizeof(*ret)
		       ? 0
		       : -EOWNERDEAD;
}

static void close_both(const int fd[2])
{
	for (int k = 0; k < 2; k++)
		if (fd[k] >= 0)
			close(fd[k]);
}

/*
 * Drops the messages since the last session: that the second process was killed, maybe many times,
 * or a session that is no longer needed.
 */
static void forget_old(void)
{
	struct message old;
	int fd[2];

	while (receive(&old, fd, 0) == 0)
		close_both(fd);
}

int fsproc_session(int *ret_pid_fd)
{
	struct message ask = { SESSION, ++own.request }, answer = { FORKED_AGAIN, 0 };
	int fd[2], r = own.fd < 0 ? fork_first(NULL, NULL) : 0;

	if (r == 0)
		forget_old();
	if (r == 0 && send(own.fd, &ask, sizeof(ask), MSG_NOSIGNAL) < 0)
		r = -EOWNERDEAD;
	for (int i = 0; i < ASK_TRIES && r == 0; i++) {
		r = receive(&answer, fd, (int)(answer_patience_ns / 1000000));
		if (r == 0 && answer.what == FORKED_AGAIN &&
		    send(own.fd, &ask, sizeof(ask), MSG_NOSIGNAL) < 0)
			r = -EOWNERDEAD;
		if (r == 0 && answer.what != FORKED_AGAIN && answer.request == ask.request) {
			*ret_pid_fd = fd[1];
			/* no memory, or no process, for another session */
			return fd[0] < 0 ? -EAGAIN : fd[0];
		}
		if (r == 0)
			close_both(fd);
	}
	return r < 0 ? r : -EOWNERDEAD;
}

void fsproc_leave(void)
{
	own.on = own.may_fork = false;
	own.fd = -1;
}

void fsproc_stop(void)
{
	own.on = false;
	if (own.fd < 0)
		return;
	close(steal_fd(&own.fd));
	kill(own.pid, SIGKILL); /* the second process may be stopped */
	waitpid(own.pid, NULL, 0);
}
