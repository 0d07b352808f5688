// SPDX-License-Identifier: MIT
/*
 * Notes on the design
 * - The process that forks never sees a byte of an image. Each session starts from its clean state, and what takes over one
 *   session has nothing of another.
 * - It is forked before the worker has threads, locked memory and descriptors. If somebody kills it, the worker forks again: the
 *   child touches nothing but its own stack, the allocator (which glibc makes usable after a fork) and the socket.
 * - A session may need memory while writers are parked, so it must not wait for I/O on the volume: the I/O flusher flag is
 *   inherited, and prepare locks the program's text, which sessions share.
 */
#include "commit/fsproc.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <seccomp.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <linux/capability.h>

#include "commit/ext4_reader.h"

/* Of no other process: who shares a user may kill. Above what accounts, containers and user namespaces are given. */
#define SESSION_ID 0x7ffffffeu
#define SOCKET_FD 3
#define SESSION_MEMORY_BYTES (1024 * MIB) /* address space, the program's own included */
#define SESSION_CPU_S 60
#define PATIENCE_MS 60000

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED true
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED true
#endif
#endif
#ifndef SANITIZED
#define SANITIZED false
#endif

static struct {
	int fd; /* to the process that forks */
	pid_t pid;
	bool on, keep_root;
	bool large; /* forked again, with all that this process has mapped */
} own = { .fd = -1 };

/* ---- the other processes ---- */

static void drop_capabilities(void)
{
	struct __user_cap_header_struct h = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct none[2] = { { 0 } };

	if (syscall(SYS_capset, &h, none) < 0)
		_exit(1);
}

static void limit_session(void)
{
	struct rlimit no = { 0, 0 }, cpu = { SESSION_CPU_S, SESSION_CPU_S };
	struct rlimit memory = { SESSION_MEMORY_BYTES, SESSION_MEMORY_BYTES };

	if (setrlimit(RLIMIT_CORE, &no) < 0 || setrlimit(RLIMIT_CPU, &cpu) < 0 || setrlimit(RLIMIT_FSIZE, &no) < 0)
		_exit(1);
	if (!SANITIZED && !own.large && setrlimit(RLIMIT_AS, &memory) < 0)
		_exit(1);
}

/*
 * A socket, memory, and the end. Anything else is an error and no death, because a C library asks what it can do without (qsort: how
 * much memory there is). A kernel without filters goes on without one.
 */
static void filter_calls(void)
{
	static const int allowed[] = { SCMP_SYS(recvmsg),  SCMP_SYS(sendmsg), SCMP_SYS(mmap),	   SCMP_SYS(munmap),
				       SCMP_SYS(mremap),   SCMP_SYS(brk),     SCMP_SYS(madvise),   SCMP_SYS(mprotect),
				       SCMP_SYS(futex),	   SCMP_SYS(exit),    SCMP_SYS(exit_group), SCMP_SYS(rt_sigreturn),
				       SCMP_SYS(getrandom), SCMP_SYS(restart_syscall), SCMP_SYS(mmap2) };
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ERRNO(EPERM));
	int r;

	if (!ctx)
		_exit(1);
	(void)seccomp_attr_set(ctx, SCMP_FLTATR_API_SYSRAWRC, 1); /* the kernel's own error */
	for (size_t i = 0; i < ARRAY_SIZE(allowed); i++)
		if (seccomp_rule_add(ctx, SCMP_ACT_ALLOW, allowed[i], 0) < 0)
			_exit(1);
	r = seccomp_load(ctx);
	if (r < 0 && r != -ENOSYS && r != -EINVAL)
		_exit(1);
	seccomp_release(ctx);
}

/* Its memory must not wait for a swap file on the volume, whose writers may be parked. Not when forked again: without the right to
 * lock more, a later allocation would fail. */
static void lock_memory(void)
{
	struct rlimit all = { RLIM_INFINITY, RLIM_INFINITY };

	if (!own.large && setrlimit(RLIMIT_MEMLOCK, &all) == 0)
		(void)!mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT);
}

static __attribute__((noreturn)) void session_main(int fd)
{
	lock_memory();
	if (dup2(fd, SOCKET_FD) < 0 || close_range(SOCKET_FD + 1, ~0u, 0) < 0)
		_exit(1);
	/* a user namespace may have no such user; without capabilities and system calls the other user is no more */
	if (geteuid() == 0 && !own.keep_root && setgroups(0, NULL) == 0 && setresgid(SESSION_ID, SESSION_ID, SESSION_ID) == 0)
		(void)!setresuid(SESSION_ID, SESSION_ID, SESSION_ID);
	drop_capabilities();
	limit_session();
	if (!SANITIZED)
		filter_calls();
	ext4_serve(SOCKET_FD);
	_exit(0);
}

/* A session's socket, and its pidfd if the kernel has that (5.3). */
static int send_fds(int sock_fd, const int fd[2])
{
	union {
		struct cmsghdr align;
		char space[CMSG_SPACE(2 * sizeof(int))];
	} control = { 0 };
	size_t bytes = (fd[1] < 0 ? 1 : 2) * sizeof(int);
	char what = 'S';
	struct iovec iov = { &what, 1 };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.space, .msg_controllen = CMSG_SPACE(bytes) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(bytes);
	memcpy(CMSG_DATA(c), fd, bytes);
	return sendmsg(sock_fd, &m, MSG_NOSIGNAL) == 1 ? 0 : -errno;
}

static int fork_session(void)
{
	int pair[2], fd[2] = { -1, -1 }, r;
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	pid = fork();
	if (pid == 0)
		session_main(pair[1]);
	r = pid < 0 ? -errno : 0;
	close(pair[1]);
	fd[0] = pair[0];
	if (r == 0)
		fd[1] = (int)syscall(SYS_pidfd_open, pid, 0);
	if (r == 0)
		r = send_fds(SOCKET_FD, fd);
	close(fd[0]);
	if (fd[1] >= 0)
		close(fd[1]);
	return r;
}

static __attribute__((noreturn)) void forker_main(int fd, void (*prepare)(void *ctx), void *ctx)
{
	int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	char what;

	/* what a library prints must not reach the socket */
	for (int i = 0; i < SOCKET_FD; i++)
		if (i != fd && null_fd >= 0)
			dup2(null_fd, i);
	if (dup2(fd, SOCKET_FD) < 0 || close_range(SOCKET_FD + 1, ~0u, 0) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		_exit(1);
	prctl(PR_SET_NAME, "cowfs-meta");
	signal(SIGCHLD, SIG_IGN);
	if (prepare)
		prepare(ctx);
	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	while (recv(SOCKET_FD, &what, 1, 0) == 1)
		if (fork_session() < 0 && send(SOCKET_FD, "E", 1, MSG_NOSIGNAL) < 0)
			break;
	_exit(0);
}

/* ---- this one ---- */

static int fork_forker(void (*prepare)(void *ctx), void *ctx)
{
	int pair[2], r;
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	pid = fork();
	if (pid == 0)
		forker_main(pair[1], prepare, ctx);
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

int fsproc_start(void (*prepare)(void *ctx), void *ctx, bool keep_root)
{
	int r;

	own.keep_root = keep_root;
	own.large = false;
	r = fork_forker(prepare, ctx);
	own.on = r == 0;
	return r;
}

void fsproc_start_when_asked(void)
{
	own.on = true;
}

bool fsproc_on(void)
{
	return own.on;
}

static void forget_forker(void)
{
	if (own.fd < 0)
		return;
	close(steal_fd(&own.fd));
	kill(own.pid, SIGKILL); /* it may be stopped */
	waitpid(own.pid, NULL, 0);
}

static int ask_session(int *ret_pid_fd)
{
	union {
		struct cmsghdr align;
		char space[CMSG_SPACE(2 * sizeof(int))];
	} control;
	char what = 'N';
	struct iovec iov = { &what, 1 };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.space, .msg_controllen = sizeof(control.space) };
	struct pollfd p = { .fd = own.fd, .events = POLLIN };
	struct cmsghdr *c;
	int fd[2] = { -1, -1 }, r;

	if (own.fd < 0 || send(own.fd, &what, 1, MSG_NOSIGNAL) != 1)
		return -EOWNERDEAD;
	while ((r = poll(&p, 1, PATIENCE_MS)) < 0 && errno == EINTR)
		;
	if (r != 1 || recvmsg(own.fd, &m, MSG_CMSG_CLOEXEC) != 1)
		return -EOWNERDEAD;
	c = CMSG_FIRSTHDR(&m);
	if (!c || c->cmsg_type != SCM_RIGHTS || c->cmsg_len < CMSG_LEN(sizeof(int)) || c->cmsg_len > CMSG_LEN(sizeof(fd)))
		return -EAGAIN; /* no memory, or no process, for one more */
	memcpy(fd, CMSG_DATA(c), c->cmsg_len - CMSG_LEN(0));
	*ret_pid_fd = fd[1];
	return fd[0];
}

int fsproc_session(int *ret_pid_fd)
{
	int fd = ask_session(ret_pid_fd), r;

	if (fd != -EOWNERDEAD)
		return fd;
	own.large = own.fd >= 0;
	forget_forker();
	r = fork_forker(NULL, NULL);
	return r < 0 ? r : ask_session(ret_pid_fd);
}

void fsproc_stop(void)
{
	own.on = false;
	forget_forker();
}
