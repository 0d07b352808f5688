/* SPDX-License-Identifier: MIT */
/*
 * What the tables of confine.c refuse and allow. Each try is a process of its own that is confined
 * first. All tests of the daemon run under these tables, and so show that they allow enough.
 */
#include "test.h"

#include <linux/capability.h>
#include <linux/fs.h>
#include <linux/loop.h>
#include <sched.h>
#include <semaphore.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>

#include "daemon/confine.h"

/* Result of a call in a confined child: 0 done, else errno. */
enum { KILLED = 1000, NO_FILTER = 250 };

static int in_child(enum confine_role role, long (*call)(void))
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		if (role == CONFINE_WORKER && confine_calls(CONFINE_START) < 0)
			_exit(NO_FILTER);
		if (confine_calls(role) < 0)
			_exit(NO_FILTER);
		_exit(call() < 0 ? errno : 0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFSIGNALED(status))
		return WTERMSIG(status) == SIGSYS ? KILLED : -WTERMSIG(status);
	return WEXITSTATUS(status);
}

/* ---- calls, most of them of one expression: -1 is a refusal if errno says so ---- */

/* An error that only the kernel returns is its answer, and no refusal. */
static long answered(long r, int error)
{
	return r < 0 && errno == error ? 0 : r;
}

#define SYS(name, ...) syscall(SYS_##name, __VA_ARGS__)
#define SIMPLE_CALLS(X)                                                                              \
	X(vfork, SYS(clone, CLONE_VM | CLONE_VFORK | SIGCHLD, 0, 0, 0, 0) ? -1 : 0)                  \
	X(namespace, unshare(CLONE_NEWNS))                                                           \
	X(inet, socket(AF_INET, SOCK_DGRAM, 0))                                                      \
	X(unix, socket(AF_UNIX, SOCK_STREAM, 0))                                                     \
	X(netlink, socket(AF_NETLINK, SOCK_RAW, 0))                                                  \
	X(ptrace, ptrace(PTRACE_TRACEME, 0, 0, 0))                                                   \
	X(mount, mount("none", "/proc/self/fd/0", "tmpfs", 0, NULL))                                 \
	X(handle, SYS(open_by_handle_at, AT_FDCWD, NULL, 0))                                         \
	X(bpf, SYS(bpf, 0, NULL, 0))                                                                 \
	X(keyctl, SYS(keyctl, 0, 0, 0, 0, 0))                                                        \
	X(userfaultfd, SYS(userfaultfd, 0))                                                          \
	X(io_uring, answered(SYS(io_uring_setup, 1, NULL), EFAULT))                                  \
	X(ring_enter, answered(SYS(io_uring_enter, -1, 0, 0, 0, NULL, 0), EBADF))                    \
	X(memory_of_others, SYS(process_vm_writev, 1, NULL, 0, NULL, 0, 0))                          \
	X(kill, kill(getppid(), SIGURG))                                                             \
	X(kill_hard, kill(INT32_MAX, SIGKILL)) /* the pid of no process */                           \
	X(setuid, setuid(0))                                                                         \
	X(mknod, mknod("/tmp/no", S_IFCHR | 0600, 0))                                                \
	X(slack, prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0))                                            \
	X(tiocsti, ioctl(0, TIOCSTI, "x"))                                                           \
	X(blksecdiscard, ioctl(0, BLKSECDISCARD, NULL))                                              \
	X(reboot_off, SYS(reboot, 0, 0, 0, NULL))                                                    \
	X(async, fcntl(0, F_SETFL, fcntl(0, F_GETFL) | O_ASYNC))                                     \
	X(owner, fcntl(0, F_SETOWN, getppid()))                                                      \
	X(signal_of_fd, fcntl(0, F_SETSIG, SIGKILL))                                                 \
	/* on no descriptor, or without memory for the answer: the kernel answers, not the filter */ \
	X(fchmod, answered(fchmod(-1, 0644), EBADF))                                                 \
	X(fchmod_setuid, answered(fchmod(-1, 04755), EBADF))                                         \
	X(send_urgent, send(-1, "", 1, MSG_OOB | MSG_NOSIGNAL))                                      \
	X(loop_configure, answered(ioctl(-1, LOOP_CONFIGURE, NULL), EBADF))                          \
	X(flush, answered(ioctl(-1, BLKFLSBUF, 0), EBADF))                                           \
	X(syncfs, answered(syncfs(-1), EBADF))                                                       \
	X(aio, answered(SYS(io_setup, 1, NULL), EFAULT))                                             \
	X(fsopen, fsopen(NULL, ~0u) < 0 && errno == EPERM ? -1 : 0)                                  \
	X(openat, open("/proc/self/status", O_RDONLY))

#define AS_FUNCTION(name, result)                                                                  \
	static long call_##name(void)                                                              \
	{                                                                                          \
		return result;                                                                     \
	}
SIMPLE_CALLS(AS_FUNCTION)

static long call_exec_mmap(void)
{
	void *p = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? -1 : 0;
}

static long call_execve(void)
{
	char *argv[] = { (char *)"true", NULL };

	return execv("/bin/true", argv);
}

static long call_fork(void)
{
	pid_t pid = fork();

	if (pid == 0)
		_exit(0);
	return pid;
}

static long call_exec_mprotect(void)
{
	void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return mprotect(p, 4096, PROT_READ | PROT_WRITE | PROT_EXEC);
}

static long call_socketpair(void)
{
	int pair[2];

	return socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
}

static long call_capset(void)
{
	struct __user_cap_header_struct h = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct none[2] = { { 0 } };

	return syscall(SYS_capset, &h, none);
}

static long call_receive_errors(void)
{
	struct msghdr m = { 0 };

	return recvmsg(-1, &m, MSG_ERRQUEUE | MSG_DONTWAIT);
}

/* with descriptors; on no socket: the kernel answers */
static long call_sendmsg(void)
{
	struct msghdr m = { 0 };

	return answered(sendmsg(-1, &m, MSG_NOSIGNAL), EBADF);
}

static long call_peek(void)
{
	char byte;

	return recv(-1, &byte, 1, MSG_PEEK);
}

/* ---- never ---- */

static long (*const never[])(void) = {
	call_execve,	  call_namespace,	 call_inet,	     call_netlink,
	call_unix,	  call_exec_mmap,	 call_exec_mprotect, call_ptrace,
	call_mount,	  call_handle,		 call_bpf,	     call_keyctl,
	call_userfaultfd, call_memory_of_others, call_setuid,	     call_mknod,
	call_slack,	  call_tiocsti,		 call_blksecdiscard, call_async,
	call_owner,	  call_signal_of_fd,	 call_send_urgent,   call_receive_errors,
	call_peek,	  call_fchmod_setuid,
};

/* The broker forks what reads metadata. */
static long (*const not_in_workers[])(void) = { call_fork,	call_vfork,	 call_kill,
						call_kill_hard, call_socketpair, call_capset };

TEST(test_never)
{
	if (in_child(CONFINE_WORKER, call_execve) == NO_FILTER)
		skip();
	for (size_t i = 0; i < ARRAY_SIZE(never); i++)
		for (enum confine_role role = 0; role < CONFINE_ROLES; role++) {
			int r;

#ifdef SYS_socketcall /* glibc makes sockets by it, and its arguments are in memory: no filter sees them */
			if (never[i] == call_inet || never[i] == call_unix ||
			    never[i] == call_netlink || never[i] == call_socketpair ||
			    never[i] == call_send_urgent || never[i] == call_peek ||
			    never[i] == call_receive_errors)
				continue;
#endif
			r = in_child(role, never[i]);
			if (r != EPERM)
				print_error("call %zu of never[], role %d: %d\n", i, role, r);
			assert_int_equal(r, EPERM);
		}
#ifndef SYS_socketcall
	for (size_t i = 0; i < ARRAY_SIZE(not_in_workers); i++)
		for (enum confine_role role = 0; role < CONFINE_BROKER; role++)
			assert_int_equal(in_child(role, not_in_workers[i]), EPERM);
#endif
}

/* ---- only by some ---- */

static void *thread_nothing(void *arg)
{
	return arg;
}

static long call_thread(void)
{
	pthread_t t;

	errno = pthread_create(&t, NULL, thread_nothing, NULL);
	return errno ? -1 : pthread_join(t, NULL);
}

static long call_abort(void)
{
	abort();
}

enum {
	START = 1 << CONFINE_START,
	NEXT = 1 << CONFINE_NEXT,
	WORKERS = START | NEXT | 1 << CONFINE_WORKER,
	PARENT = 1 << CONFINE_PARENT,
	BROKER = 1 << CONFINE_BROKER,
	ALL = WORKERS | PARENT | BROKER,
};

static const struct {
	long (*call)(void);
	unsigned roles;
} some[] = {
	{ call_loop_configure, BROKER },
	{ call_aio, START | NEXT },
	{ call_fsopen, BROKER },
	{ call_flush, BROKER },
	{ call_openat, WORKERS | BROKER },
	{ call_syncfs, BROKER },
	{ call_thread, ALL },
	{ call_fchmod, BROKER },
#ifndef SYS_socketcall
	{ call_sendmsg, PARENT | BROKER },
#endif
	{ call_io_uring, 0 },
	{ call_ring_enter, 0 },
};

TEST(test_some)
{
	if (in_child(CONFINE_WORKER, call_execve) == NO_FILTER)
		skip();
	for (size_t i = 0; i < ARRAY_SIZE(some); i++)
		for (enum confine_role role = 0; role < CONFINE_ROLES; role++) {
			int r = in_child(role, some[i].call);

			if (r != (some[i].roles & 1u << role ? 0 : EPERM))
				print_error("call %zu of some[], role %d: %d\n", i, role, r);
			assert_int_equal(r, some[i].roles & 1u << role ? 0 : EPERM);
		}
	/* with wrong magic numbers: harmless if allowed */
	assert_int_equal(in_child(CONFINE_PARENT, call_reboot_off), EINVAL);
	assert_int_equal(in_child(CONFINE_WORKER, call_reboot_off), EPERM);
	assert_int_equal(in_child(CONFINE_WORKER, call_abort), -SIGABRT);
}

/* A second filter on top of the first; both apply to threads that ran before. */
static sem_t go;

static void *thread_waits(void *arg)
{
	int *ret = arg;

	while (sem_wait(&go) < 0)
		;
	*ret = call_aio() < 0 ? errno : 0;
	return NULL;
}

static long call_stages(void)
{
	pthread_t t;
	int in_thread = -1;

	sem_init(&go, 0, 0);
	if (pthread_create(&t, NULL, thread_waits, &in_thread) || call_aio() < 0)
		return -1;
	if (confine_calls(CONFINE_WORKER) < 0)
		return -1;
	sem_post(&go);
	pthread_join(t, NULL);
	errno = ENOTRECOVERABLE;
	return in_thread == EPERM && call_aio() < 0 && errno == EPERM ? 0 : -1;
}

TEST(test_stages)
{
	int r = in_child(CONFINE_START, call_stages);

	if (r == NO_FILTER)
		skip();
	assert_int_equal(r, 0);
	/* not in the opposite direction */
	assert_int_not_equal(in_child(CONFINE_WORKER, call_stages), 0);
}

TEST(test_kill)
{
	assert_int_equal(setenv("COWFS_SECCOMP", "kill", 1), 0);
	if (in_child(CONFINE_WORKER, call_openat) != NO_FILTER)
		assert_int_equal(in_child(CONFINE_WORKER, call_inet), KILLED);
	unsetenv("COWFS_SECCOMP");
}

/* ---- capabilities ---- */

static uint64_t effective(void)
{
	struct __user_cap_header_struct h = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct d[2] = { 0 };

	if (syscall(SYS_capget, &h, d) < 0)
		return 0;
	return d[0].effective | d[0].permitted | d[0].inheritable |
	       (uint64_t)(d[1].effective | d[1].permitted | d[1].inheritable) << 32;
}

static int child_of_capabilities(enum confine_role role)
{
	uint64_t keep = confine_capability_mask(role), had = effective();

	if (confine_capabilities(role) < 0)
		return 1;
	if (effective() != (had & keep) || prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1)
		return 2;
	for (unsigned long c = 0; c < 64; c++)
		if (prctl(PR_CAPBSET_READ, c, 0, 0, 0) == 1 && !(keep >> c & 1))
			return 3;
	return 0;
}

TEST(test_capabilities)
{
	struct rlimit limit;

	if (geteuid() != 0 || prctl(PR_CAPBSET_READ, CAP_SETPCAP, 0, 0, 0) != 1)
		skip();
	for (enum confine_role role = 0; role < CONFINE_ROLES; role++) {
		pid_t pid = fork();
		int status;

		if (pid == 0)
			_exit(child_of_capabilities(role));
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(status, 0);
	}
	for (enum confine_role role = 0; role < CONFINE_PARENT; role++)
		assert_int_equal(confine_capability_mask(role) & ~(UINT64_C(1) << CAP_IPC_LOCK), 0);
	/* where the limit of locked memory could not be raised */
	assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &limit), 0);
	limit.rlim_cur = 0;
	assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
	assert_int_equal(confine_capability_mask(CONFINE_WORKER), UINT64_C(1) << CAP_IPC_LOCK);
}

int main(void)
{
	unsetenv("COWFS_SECCOMP"); /* the test examines the refused calls here */
	return tests_run(NULL, NULL);
}
