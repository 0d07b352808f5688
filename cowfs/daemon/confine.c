/* SPDX-License-Identifier: MIT */
/*
 * Capabilities and system calls of the worker and of its parent.
 *
 * Notes on the design
 * - A refused call fails with EPERM. Killing the process instead would turn each call that the
 *   table lacks, and each new call of a later libc, into the loss of a root and of all uncommitted
 *   changes. An attacker gains nothing from the difference: the call is not made. The kernel logs
 *   refused calls (audit: type=1326). Tests run with COWFS_SECCOMP=kill, so that a call that the
 *   table lacks ends the worker there.
 * - Capabilities and the bounding set belong to a thread. The worker gives them up before it has a
 *   second thread. The filter reaches all threads at once (TSYNC).
 * - The worker gets two filters, one on top of the other: the first before it reads anything from
 *   the card, the second once its devices exist. It never starts a program. One that takes over
 *   finds its devices, so its first filter is hardly wider than the second.
 * - clone3 keeps its flags in memory, where no filter can see them. It returns ENOSYS, and libc
 *   then calls clone. That refusal has its own filter, so that the kernel does not log it for each
 *   new thread.
 * - Names that this libseccomp or this architecture does not know are skipped, so the table holds
 *   the names of all of them (32-bit and time64 variants).
 * - The kernel answers calls that are allowed with any arguments from a bitmap (since 5.11). Older
 *   kernels search the filter, so the calls of the data path have the highest priority.
 */
#include "daemon/confine.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/fs.h>
#include <linux/loop.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/mounts.h"
#include "base/sandbox.h"
#include "fs/flush.h"

enum {
	S = 1 << CONFINE_START,
	N = 1 << CONFINE_NEXT,
	P = 1 << CONFINE_PARENT,
	B = 1 << CONFINE_BROKER,
	SN = S | N,
	SW = SN | 1 << CONFINE_WORKER,
	SWP = SW | P,
	SWB = SW | B,
	ALL = SWP | B,
};

/* Does an entry of a table hold for the role? */
static bool holds(unsigned roles, enum confine_role role)
{
	return roles & 1u << role;
}

/* ---- capabilities ---- */

static const struct {
	unsigned number, roles;
} capabilities[] = {
	/*
	 * BLKFLSBUF and BLKROSET around each commit; fsopen and fsmount at the start; the loop device
	 */
	{ CAP_SYS_ADMIN, P | B },
	/* mappings beyond RLIMIT_MEMLOCK while MCL_FUTURE is in force: stacks, maps of
	 * generations */
	{ CAP_IPC_LOCK, P | B },
	/* ends what reads metadata, and a worker that gives no sign of life: they have other users */
	{ CAP_KILL, P | B },
	/* a user of its own for what reads metadata */
	{ CAP_SETUID, B },
	{ CAP_SETGID, B },
	/* /proc/PID/{fd,root,ns} of other users, and of root processes with more capabilities: who
	 * keeps the file system */
	{ CAP_SYS_PTRACE, B },
	/* mount points in private directories; image files of other users */
	{ CAP_DAC_OVERRIDE, B },
	/* reboots if the worker of the running root dies */
	{ CAP_SYS_BOOT, P },
};

uint64_t confine_capability_mask(enum confine_role role)
{
	struct rlimit lock;
	uint64_t mask = 0;

	for (size_t i = 0; i < ARRAY_SIZE(capabilities); i++)
		if (holds(capabilities[i].roles, role))
			mask |= UINT64_C(1) << capabilities[i].number;
	/* a limit that could not be raised: harden.c */
	if (role != CONFINE_PARENT && getrlimit(RLIMIT_MEMLOCK, &lock) == 0 &&
	    lock.rlim_cur != RLIM_INFINITY)
		mask |= UINT64_C(1) << CAP_IPC_LOCK;
	return mask;
}

int confine_user(uid_t uid, gid_t gid)
{
	/* the capabilities stay permitted until confine_capabilities */
	if (prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) < 0 || setgroups(0, NULL) < 0 ||
	    setresgid(gid, gid, gid) < 0 || setresuid(uid, uid, uid) < 0)
		return -errno;
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return -errno;
	return sandbox_capabilities(UINT64_MAX); /* effective again: the bounding set needs it */
}

int confine_files(void)
{
	static const char *const options[][2] = {
		{ "size", "4k" }, { "nr_inodes", "1" }, { "mode", "0555" }, { NULL, NULL }
	};
	_cleanup_close_ int fd = mounts_new("tmpfs", options,
					    MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID |
						    MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);

	if (fd < 0)
		return fd;
	return fchdir(fd) < 0 || chroot(".") < 0 ? -errno : 0;
}

/*
 * Needs CAP_SETPCAP for each capability that is present. EINVAL: past the last capability that the
 * kernel knows.
 */
static int drop_bounding(uint64_t keep)
{
	int r = 0;

	for (unsigned long c = 0; c < 64; c++) {
		int held = prctl(PR_CAPBSET_READ, c, 0, 0, 0);

		if (held < 0)
			break;
		if (held && !(keep >> c & 1) && prctl(PR_CAPBSET_DROP, c, 0, 0, 0) < 0)
			r = -errno;
	}
	return r;
}

int confine_capabilities(enum confine_role role)
{
	uint64_t keep = confine_capability_mask(role);
	int bounding = drop_bounding(keep), r = sandbox_capabilities(keep);

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 && !r)
		r = -errno;
	return r < 0 ? r : bounding;
}

/* ---- system calls ---- */

#ifdef COWFS_NO_SECCOMP

int confine_calls(enum confine_role role)
{
	(void)role;
	return -ENOTSUP;
}

#else

#define HOT 255

/* Allowed with any arguments. */
static const struct {
	const char *name;
	unsigned char roles, priority;
} calls[] = {
	/* data path: FUSE, store, card */
	{ "read", ALL, HOT },
	{ "writev", SW, HOT },
	{ "pread64", ALL, HOT },
	{ "pwrite64", SWB, HOT },
	{ "futex", ALL, HOT },
	{ "futex_time64", ALL, HOT },
	{ "io_submit", SW, HOT },
	{ "io_getevents", SW, HOT },
	{ "io_pgetevents", SW, HOT },
	{ "io_pgetevents_time64", SW, HOT },
	{ "fallocate", SW, HOT },
	{ "write", ALL, HOT - 1 },
	{ "madvise", ALL, HOT - 1 },
	{ "poll", ALL, HOT - 1 },
	{ "ppoll", ALL, HOT - 1 },
	{ "ppoll_time64", ALL, HOT - 1 },
	{ "readv", SWB, 0 },
	{ "preadv", SWB, 0 },
	{ "preadv2", SWB, 0 },
	{ "pwritev", SWB, 0 },
	{ "pwritev2", SWB, 0 },
	{ "fsync", SWB, 0 },
	{ "fdatasync", SWB, 0 },
	{ "syncfs", B, 0 },
	{ "io_setup", SN, 0 },
	{ "io_destroy", SW, 0 },
	{ "eventfd2", SWB, 0 },
	{ "pipe2", SN | B, 0 }, /* libfuse without custom I/O */
	/* files: below descriptors that are kept open, /proc and /sys */
	{ "open", B, 0 },
	{ "openat", SWB, 0 },
	{ "openat2", B, 0 },
	{ "close", ALL, 0 },
	{ "close_range", ALL, 0 },
	{ "dup", ALL, 0 },
	{ "dup2", ALL, 0 },
	{ "dup3", ALL, 0 },
	{ "lseek", SWB, 0 },
	{ "_llseek", SWB, 0 },
	{ "stat", B, 0 },
	{ "stat64", B, 0 },
	{ "lstat", B, 0 },
	{ "lstat64", B, 0 },
	{ "fstat", ALL, 0 },
	{ "fstat64", ALL, 0 },
	{ "newfstatat", ALL, 0 },
	{ "fstatat64", ALL, 0 },
	{ "statx", ALL, 0 },
	{ "statfs", SWB, 0 },
	{ "statfs64", SWB, 0 },
	{ "fstatfs", SWB, 0 },
	{ "fstatfs64", SWB, 0 },
	{ "access", B, 0 },
	{ "faccessat", B, 0 },
	{ "faccessat2", B, 0 },
	{ "getdents64", SWB, 0 },
	{ "readlink", B, 0 },
	{ "readlinkat", B, 0 },
	{ "ftruncate", SWB, 0 },
	{ "ftruncate64", SWB, 0 },
	{ "utimensat", B, 0 },
	{ "utimensat_time64", B, 0 },
	{ "rename", B, 0 },
	{ "renameat", B, 0 },
	{ "renameat2", B, 0 },
	{ "unlink", B, 0 },
	{ "unlinkat", SWB, 0 },
	{ "rmdir", B, 0 },
	/* used by libblkid, on a copy in memory */
	{ "fadvise64", SWB, 0 },
	{ "fadvise64_64", SWB, 0 },
	{ "arm_fadvise64_64", SWB, 0 },
	/*
	 * mounts that are never attached: FUSE, the store
	 */
	{ "fsopen", B, 0 },
	{ "fsconfig", B, 0 },
	{ "fsmount", B, 0 },
	{ "fspick", B, 0 },
	/* memory */
	{ "brk", ALL, 0 },
	{ "munmap", ALL, 0 },
	{ "mremap", SWB, 0 },
	{ "memfd_create", SWB, 0 },
	/* threads and signals */
	{ "set_robust_list", ALL, 0 },
	{ "rseq", ALL, 0 },
	{ "exit", ALL, 0 },
	{ "exit_group", ALL, 0 },
	{ "rt_sigprocmask", ALL, 0 },
	{ "rt_sigaction", ALL, 0 },
	{ "rt_sigreturn", ALL, 0 },
	{ "sigreturn", ALL, 0 },
	{ "sigaltstack", ALL, 0 },
	{ "restart_syscall", ALL, 0 },
	{ "membarrier", ALL, 0 },
	{ "sched_yield", ALL, 0 },
	{ "sched_getaffinity", ALL, 0 },
	{ "gettid", ALL, 0 },
	{ "getpid", ALL, 0 },
	{ "getppid", ALL, 0 },
	{ "getuid", ALL, 0 },
	{ "getuid32", ALL, 0 },
	{ "geteuid", ALL, 0 },
	{ "geteuid32", ALL, 0 },
	{ "getgid", ALL, 0 },
	{ "getgid32", ALL, 0 },
	{ "getegid", ALL, 0 },
	{ "getegid32", ALL, 0 },
	/* the parent kills a worker that does not answer */
	{ "pidfd_send_signal", P, 0 },
	/* time, randomness, properties of the machine */
	{ "clock_gettime", ALL, 0 },
	{ "clock_gettime64", ALL, 0 },
	{ "clock_getres", ALL, 0 },
	{ "clock_getres_time64", ALL, 0 },
	{ "clock_nanosleep", ALL, 0 },
	{ "clock_nanosleep_time64", ALL, 0 },
	{ "nanosleep", ALL, 0 },
	{ "gettimeofday", ALL, 0 },
	{ "time", ALL, 0 },
	{ "getrandom", ALL, 0 },
	{ "sysinfo", SWB, 0 },
	{ "uname", SWB, 0 },
	/* arm, riscv: libc needs them to map memory or keep caches coherent */
	{ "cacheflush", ALL, 0 },
	{ "riscv_flush_icache", ALL, 0 },
	{ "riscv_hwprobe", ALL, 0 },
	{ "set_tls", ALL, 0 },
	{ "getrlimit", SWB, 0 },
	{ "ugetrlimit", SWB, 0 },
	/* clients and parent, on existing sockets */
	{ "accept", SW, 0 },
	{ "accept4", SW, 0 },
	{ "getsockopt", SWB, 0 },
	{ "shutdown", SWB, 0 },
	/* the parent waits for its worker */
	{ "wait4", P | B, 0 },
	{ "waitid", P | B, 0 },
	/* the second filter of the worker */
	{ "seccomp", SN | B, 0 },
	/* the parent */
	{ "reboot", P, 0 },
	/* the processes that read metadata */
	{ "fork", B, 0 },
	{ "socketpair", B, 0 },
	{ "setgroups", B, 0 },
	{ "setgroups32", B, 0 },
	{ "setresgid", B, 0 },
	{ "setresgid32", B, 0 },
	{ "setresuid", B, 0 },
	{ "setresuid32", B, 0 },
	{ "capget", B, 0 },
	{ "capset", B, 0 },
	{ "setrlimit", B, 0 },
	{ "prlimit64", B, 0 },
	{ "mlockall", B, 0 },
	/* fs/flush.c: what is cached of the disk */
	{ "cachestat", B, 0 },
	{ "munlock", B, 0 },
	{ "kill", B, 0 },
};

#define ONLY(arg, value) SCMP_CMP64(arg, SCMP_CMP_MASKED_EQ, 0xffffffffu, (uint32_t)(value))
#define WITH(arg, bits) SCMP_CMP64(arg, SCMP_CMP_MASKED_EQ, (bits), (bits))
#define WITHOUT(arg, bits) SCMP_CMP64(arg, SCMP_CMP_MASKED_EQ, (bits), 0)

#if defined(__s390__)
#define CLONE_FLAGS_ARG 1
#else
#define CLONE_FLAGS_ARG 0
#endif

#define BOTH_FCNTL(roles, what)                                                                    \
	{ "fcntl", roles, ONLY(1, what) },                                                         \
	{                                                                                          \
		"fcntl64", roles, ONLY(1, what)                                                    \
	}

#define NOT_SENT (~(MSG_NOSIGNAL | MSG_DONTWAIT) & 0xffffffffu)
#define NOT_RECEIVED (~(MSG_CMSG_CLOEXEC | MSG_DONTWAIT) & 0xffffffffu)

#define NAMESPACES                                                                                 \
	(CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER |             \
	 CLONE_NEWPID | CLONE_NEWNET)

/* Allowed with one suitable argument. */
static const struct {
	const char *name;
	unsigned roles;
	struct scmp_arg_cmp arg;
} bound_calls[] = {
	/* the volume and its card */
	{ "ioctl", B, ONLY(1, BLKFLSBUF) },
	{ "ioctl", B, ONLY(1, BLKROSET) },
	{ "ioctl", B, ONLY(1, BLKROGET) },
	{ "ioctl", SWB, ONLY(1, BLKGETSIZE64) },
	{ "ioctl", SW, ONLY(1, BLKDISCARD) },
	{ "ioctl", B, ONLY(1, LOOP_CLR_FD) },
	{ "ioctl", B, ONLY(1, LOOP_GET_STATUS64) },
	{ "ioctl", B, ONLY(1, LOOP_SET_STATUS64) },
	{ "ioctl", B, ONLY(1, LOOP_CTL_GET_FREE) },
	{ "ioctl", B, ONLY(1, LOOP_CTL_ADD) },
	{ "ioctl", B, ONLY(1, LOOP_CONFIGURE) },
	{ "ioctl", B, ONLY(1, BLKRASET) },
	/* tests whether it is a terminal; called on standard error in the foreground */
	{ "ioctl", SWB, ONLY(1, TCGETS) },
	/* TCGETS2 of newer libraries; its type needs kernel headers */
	{ "ioctl", SWB, ONLY(1, 0x802c542a) },
	/* threads, not processes */
	{ "clone", SWP, WITH(CLONE_FLAGS_ARG, CLONE_THREAD) },
	{ "clone", B, WITHOUT(CLONE_FLAGS_ARG, NAMESPACES) },
	/* copies and flags of a descriptor, the lock of one broker: nothing that sends a signal to its owner */
	BOTH_FCNTL(ALL, F_DUPFD),
	BOTH_FCNTL(ALL, F_DUPFD_CLOEXEC),
	BOTH_FCNTL(ALL, F_GETFD),
	BOTH_FCNTL(ALL, F_SETFD),
	BOTH_FCNTL(ALL, F_GETFL),
	BOTH_FCNTL(B, F_SETLK),
	BOTH_FCNTL(SN | B, F_SETPIPE_SZ), /* libfuse without custom I/O */
	/* on sockets that exist: no urgent data, no queue of errors */
	{ "send", ALL, WITHOUT(3, NOT_SENT) },
	{ "sendto", ALL, WITHOUT(3, NOT_SENT) },
	/* with descriptors: a worker passes none to anybody */
	{ "sendmsg", P | B, WITHOUT(2, NOT_SENT) },
	{ "recv", ALL, WITHOUT(3, NOT_RECEIVED) },
	{ "recvfrom", ALL, WITHOUT(3, NOT_RECEIVED) },
	{ "recvmsg", ALL, WITHOUT(2, NOT_RECEIVED) },
	/* of files in /run */
	{ "fchmod", B, WITHOUT(1, S_ISUID | S_ISGID | S_ISVTX) },
	/* of one thread, until the devices are there */
	{ "setpriority", SN | B, ONLY(0, PRIO_PROCESS) },
	/* data, not code */
	{ "mprotect", ALL, WITHOUT(2, PROT_EXEC) },
#if defined(__s390__) /* the arguments are in memory */
	{ "mmap", ALL, WITHOUT(5, 0) },
#else
	{ "mmap", ALL, WITHOUT(2, PROT_EXEC) },
#endif
	{ "mmap2", ALL, WITHOUT(2, PROT_EXEC) },
	/* its own limits */
	{ "prlimit64", SW, ONLY(0, 0) },
	{ "prctl", ALL, ONLY(0, PR_SET_NAME) },
	{ "prctl", ALL, ONLY(0, PR_SET_NO_NEW_PRIVS) },
	{ "prctl", SN | B, ONLY(0, PR_GET_SECCOMP) },
	{ "prctl", B, ONLY(0, PR_SET_DUMPABLE) },
	/* libext2fs of Debian 13, before it looks at the environment: in the process that reads metadata */
	{ "prctl", B, ONLY(0, PR_GET_DUMPABLE) },
};

static uint32_t refusal(void)
{
	const char *text = secure_getenv("COWFS_SECCOMP");

	return text && !strcmp(text, "kill") ? SCMP_ACT_KILL_PROCESS : SCMP_ACT_ERRNO(EPERM);
}

/* Not known here, or missing on this architecture: libc does not call it there either. */
static int add_rule(scmp_filter_ctx ctx, uint32_t action, const char *name, unsigned args,
		    const struct scmp_arg_cmp *arg)
{
	int number = seccomp_syscall_resolve_name(name), r;

	if (number == __NR_SCMP_ERROR && !strcmp(name, "cachestat"))
		number = __NR_cachestat; /* libseccomp before 2.5.5 */
	if (number == __NR_SCMP_ERROR)
		return 0;
	r = seccomp_rule_add_array(ctx, action, number, args, arg);
	return r == -EDOM || r == -EEXIST ? 0 : r;
}

/* raise() and abort() in our own threads; a descriptor that sends no signal */
static int add_signals(scmp_filter_ctx ctx)
{
	const struct scmp_arg_cmp own = ONLY(0, getpid());
	const struct scmp_arg_cmp flags[] = { ONLY(1, F_SETFL), WITHOUT(2, O_ASYNC) };
	int r = add_rule(ctx, SCMP_ACT_ALLOW, "tgkill", 1, &own);

	r = r ? r : add_rule(ctx, SCMP_ACT_ALLOW, "fcntl", 2, flags);
	return r ? r : add_rule(ctx, SCMP_ACT_ALLOW, "fcntl64", 2, flags);
}

static int add_rules(scmp_filter_ctx ctx, void *of)
{
	enum confine_role role = *(enum confine_role *)of;
	int r = add_rule(ctx, SCMP_ACT_ALLOW, "clone3", 0, NULL); /* see refuse_clone3 */

	for (size_t i = 0; !r && i < ARRAY_SIZE(calls); i++) {
		int number = seccomp_syscall_resolve_name(calls[i].name);

		if (!holds(calls[i].roles, role))
			continue;
		r = add_rule(ctx, SCMP_ACT_ALLOW, calls[i].name, 0, NULL);
		if (!r && calls[i].priority && number >= 0)
			r = seccomp_syscall_priority(ctx, number, calls[i].priority);
	}
	for (size_t i = 0; !r && i < ARRAY_SIZE(bound_calls); i++)
		if (holds(bound_calls[i].roles, role))
			r = add_rule(ctx, SCMP_ACT_ALLOW, bound_calls[i].name, 1,
				     &bound_calls[i].arg);
	return r ? r : add_signals(ctx);
}

static int refuse_clone3(scmp_filter_ctx ctx, void *nothing)
{
	(void)nothing;
	return add_rule(ctx, SCMP_ACT_ERRNO(ENOSYS), "clone3", 0, NULL);
}

int confine_calls(enum confine_role role)
{
	/* the worker has this filter since its start */
	int r = role == CONFINE_WORKER ? 0
				       : sandbox_filter(SCMP_ACT_ALLOW, false, refuse_clone3, NULL);

	return r < 0 ? r : sandbox_filter(refusal(), true, add_rules, &role);
}

#endif
