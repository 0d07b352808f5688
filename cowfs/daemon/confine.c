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
#include <linux/btrfs.h>
#include <linux/capability.h>
#include <linux/fs.h>
#include <linux/loop.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "base/sandbox.h"

enum {
	S = 1 << CONFINE_START,
	N = 1 << CONFINE_NEXT,
	P = 1 << CONFINE_PARENT,
	SN = S | N,
	SW = SN | 1 << CONFINE_WORKER,
	SWP = SW | P,
	RING = 1 << CONFINE_ROLES, /* only after confine_allow_ring */
};

static bool ring_allowed;

void confine_allow_ring(void)
{
	ring_allowed = true;
}

/* ---- capabilities ---- */

static const struct {
	unsigned number, roles;
} capabilities[] = {
	/*
	 * FIFREEZE, FITHAW, BLKROSET around each commit; /proc/PID/stack; fsopen and fsmount at
	 * the start, and for a mount that cannot be opened
	 */
	{ CAP_SYS_ADMIN, SWP },
	/* mappings beyond RLIMIT_MEMLOCK while MCL_FUTURE is in force: stacks, maps of
	 * generations */
	{ CAP_IPC_LOCK, SWP },
	/* stops and continues tasks of any user that block a freeze */
	{ CAP_KILL, SW },
	/* /proc/PID/{syscall,stack,maps,fd,root,ns} of other users, and of root processes with more
	 * capabilities */
	{ CAP_SYS_PTRACE, SW },
	/* mount points in private directories; image files and FUSE connections of other users */
	{ CAP_DAC_OVERRIDE, SW },
	/* priority of the control thread */
	{ CAP_SYS_NICE, SW },
	/* reboots if the worker of the running root dies */
	{ CAP_SYS_BOOT, P },
};

uint64_t confine_capability_mask(enum confine_role role)
{
	uint64_t mask = 0;

	for (size_t i = 0; i < ARRAY_SIZE(capabilities); i++)
		if (capabilities[i].roles & 1u << role)
			mask |= UINT64_C(1) << capabilities[i].number;
	return mask;
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
	{ "read", SWP, HOT },
	{ "writev", SW, HOT },
	{ "pread64", SWP, HOT },
	{ "pwrite64", SW, HOT },
	{ "futex", SWP, HOT },
	{ "futex_time64", SWP, HOT },
	{ "io_submit", SW, HOT },
	{ "io_getevents", SW, HOT },
	{ "io_pgetevents", SW, HOT },
	{ "io_pgetevents_time64", SW, HOT },
	{ "io_uring_enter", SWP | RING, HOT },
	{ "fallocate", SW, HOT },
	{ "write", SWP, HOT - 1 },
	{ "madvise", SWP, HOT - 1 },
	{ "poll", SWP, HOT - 1 },
	{ "ppoll", SWP, HOT - 1 },
	{ "ppoll_time64", SWP, HOT - 1 },
	{ "readv", SW, 0 },
	{ "preadv", SW, 0 },
	{ "preadv2", SW, 0 },
	{ "pwritev", SW, 0 },
	{ "pwritev2", SW, 0 },
	{ "fsync", SW, 0 },
	{ "fdatasync", SW, 0 },
	{ "syncfs", SW, 0 },
	/* each io_uring is restricted to what ring_thread.c and ublk_control.c use */
	{ "io_uring_setup", SN | RING, 0 },
	{ "io_uring_register", SN | RING, 0 },
	/* with ublk the parent makes the calls of quiesce.h */
	{ "fsync", P | RING, 0 },
	{ "syncfs", P | RING, 0 },
	{ "fsconfig", P | RING, 0 },
	/* the ring thread has fewer capabilities */
	{ "capget", SN | RING, 0 },
	{ "capset", SN | RING, 0 },
	{ "io_setup", SN, 0 },
	{ "io_destroy", SW, 0 },
	{ "eventfd2", SW, 0 },
	/* files: below descriptors that are kept open, /proc, and the mount that is frozen */
	{ "open", SW, 0 },
	{ "openat", SW, 0 },
	{ "openat2", SW, 0 },
	{ "close", SWP, 0 },
	{ "close_range", SWP, 0 },
	{ "dup", SWP, 0 },
	{ "dup2", SWP, 0 },
	{ "dup3", SWP, 0 },
	{ "fcntl", SWP, 0 },
	{ "fcntl64", SWP, 0 },
	{ "lseek", SW, 0 },
	{ "_llseek", SW, 0 },
	{ "stat", SW, 0 },
	{ "stat64", SW, 0 },
	{ "lstat", SW, 0 },
	{ "lstat64", SW, 0 },
	{ "fstat", SWP, 0 },
	{ "fstat64", SWP, 0 },
	{ "newfstatat", SWP, 0 },
	{ "fstatat64", SWP, 0 },
	{ "statx", SWP, 0 },
	{ "statfs", SW, 0 },
	{ "statfs64", SW, 0 },
	{ "fstatfs", SW, 0 },
	{ "fstatfs64", SW, 0 },
	{ "access", SW, 0 },
	{ "faccessat", SW, 0 },
	{ "faccessat2", SW, 0 },
	{ "getdents64", SW, 0 },
	{ "readlink", SW, 0 },
	{ "readlinkat", SW, 0 },
	{ "ftruncate", SW, 0 },
	{ "ftruncate64", SW, 0 },
	{ "fchmod", SW, 0 },
	{ "flock", S, 0 },
	{ "mkdir", S, 0 },
	{ "mkdirat", S, 0 },
	{ "rename", SW, 0 },
	{ "renameat", SW, 0 },
	{ "renameat2", SW, 0 },
	{ "unlink", SW, 0 },
	{ "unlinkat", SW, 0 },
	{ "rmdir", SW, 0 },
	/* used by libblkid, on a copy in memory */
	{ "fadvise64", SW, 0 },
	{ "fadvise64_64", SW, 0 },
	{ "arm_fadvise64_64", SW, 0 },
	/*
	 * mounts that are never attached: FUSE, the store, and later that of a volume whose mount
	 * points cannot be opened
	 */
	{ "fsopen", SW, 0 },
	{ "fsconfig", SW, 0 },
	{ "fsmount", SW, 0 },
	{ "fspick", S, 0 },
	/* memory */
	{ "brk", SWP, 0 },
	{ "munmap", SWP, 0 },
	{ "mremap", SW, 0 },
	{ "memfd_create", SW, 0 },
	/* threads and signals */
	{ "set_robust_list", SWP, 0 },
	{ "rseq", SWP, 0 },
	{ "exit", SWP, 0 },
	{ "exit_group", SWP, 0 },
	{ "rt_sigprocmask", SWP, 0 },
	{ "rt_sigaction", SWP, 0 },
	{ "rt_sigreturn", SWP, 0 },
	{ "sigreturn", SWP, 0 },
	{ "sigaltstack", SWP, 0 },
	{ "restart_syscall", SWP, 0 },
	{ "membarrier", SWP, 0 },
	{ "sched_yield", SWP, 0 },
	{ "sched_getaffinity", SWP, 0 },
	{ "gettid", SWP, 0 },
	{ "getpid", SWP, 0 },
	{ "getppid", SWP, 0 },
	{ "getuid", SWP, 0 },
	{ "getuid32", SWP, 0 },
	{ "geteuid", SWP, 0 },
	{ "geteuid32", SWP, 0 },
	{ "getgid", SWP, 0 },
	{ "getgid32", SWP, 0 },
	{ "getegid", SWP, 0 },
	{ "getegid32", SWP, 0 },
	{ "setpriority", SW, 0 },
	/* tasks that block a freeze */
	{ "pidfd_open", SW, 0 },
	/* the parent kills a worker that does not answer */
	{ "pidfd_send_signal", SWP, 0 },
	/* time, randomness, properties of the machine */
	{ "clock_gettime", SWP, 0 },
	{ "clock_gettime64", SWP, 0 },
	{ "clock_getres", SWP, 0 },
	{ "clock_getres_time64", SWP, 0 },
	{ "clock_nanosleep", SWP, 0 },
	{ "clock_nanosleep_time64", SWP, 0 },
	{ "nanosleep", SWP, 0 },
	{ "gettimeofday", SWP, 0 },
	{ "time", SWP, 0 },
	{ "getrandom", SWP, 0 },
	{ "sysinfo", SW, 0 },
	{ "uname", SW, 0 },
	/* arm, riscv: libc needs them to map memory or keep caches coherent */
	{ "cacheflush", SWP, 0 },
	{ "riscv_flush_icache", SWP, 0 },
	{ "riscv_hwprobe", SWP, 0 },
	{ "set_tls", SWP, 0 },
	{ "getrlimit", SW, 0 },
	{ "ugetrlimit", SW, 0 },
	/* clients and parent, on existing sockets */
	/* the starting worker asks the daemon that holds its card for its name */
	{ "connect", S, 0 },
	{ "bind", S, 0 },
	{ "listen", S, 0 },
	{ "accept", SW, 0 },
	{ "accept4", SW, 0 },
	{ "send", SWP, 0 },
	{ "sendto", SWP, 0 },
	{ "sendmsg", SWP, 0 },
	{ "recv", SWP, 0 },
	{ "recvfrom", SWP, 0 },
	{ "recvmsg", SWP, 0 },
	{ "getsockopt", SW, 0 },
	{ "shutdown", SW, 0 },
	/* the parent waits for its worker */
	{ "wait4", P, 0 },
	{ "waitid", P, 0 },
	/* the second filter of the worker */
	{ "seccomp", SN, 0 },
	/* the parent */
	{ "reboot", P, 0 },
};

#define ONLY(arg, value) SCMP_CMP64(arg, SCMP_CMP_MASKED_EQ, 0xffffffffu, (uint32_t)(value))
#define WITH(arg, bits) SCMP_CMP64(arg, SCMP_CMP_MASKED_EQ, (bits), (bits))
#define WITHOUT(arg, bits) SCMP_CMP64(arg, SCMP_CMP_MASKED_EQ, (bits), 0)

#if defined(__s390__)
#define CLONE_FLAGS_ARG 1
#else
#define CLONE_FLAGS_ARG 0
#endif

/* Allowed with one suitable argument. */
static const struct {
	const char *name;
	unsigned roles;
	struct scmp_arg_cmp arg;
} bound_calls[] = {
	/* the volume and its card */
	{ "ioctl", SWP, ONLY(1, FITHAW) },
	{ "ioctl", SW, ONLY(1, FIFREEZE) },
	{ "ioctl", P | RING, ONLY(1, FIFREEZE) },
	{ "ioctl", SW, ONLY(1, BLKROSET) },
	{ "ioctl", SW, ONLY(1, BLKROGET) },
	{ "ioctl", SW, ONLY(1, BLKGETSIZE64) },
	{ "ioctl", SW, ONLY(1, BTRFS_IOC_FS_INFO) },
	{ "ioctl", SW, ONLY(1, BTRFS_IOC_DEV_INFO) },
	{ "ioctl", SW, ONLY(1, LOOP_CLR_FD) },
	{ "ioctl", SW, ONLY(1, LOOP_GET_STATUS64) },
	{ "ioctl", SW, ONLY(1, LOOP_SET_STATUS64) },
	{ "ioctl", S, ONLY(1, LOOP_CTL_GET_FREE) },
	{ "ioctl", S, ONLY(1, LOOP_CONFIGURE) },
	{ "ioctl", S, ONLY(1, BLKRASET) },
	/* tests whether it is a terminal; called on standard error in the foreground */
	{ "ioctl", SW, ONLY(1, TCGETS) },
	/* TCGETS2 of newer libraries; its type needs kernel headers */
	{ "ioctl", SW, ONLY(1, 0x802c542a) },
	/* threads, not processes */
	{ "clone", SWP, WITH(CLONE_FLAGS_ARG, CLONE_THREAD) },
	/* data, not code */
	{ "mprotect", SWP, WITHOUT(2, PROT_EXEC) },
#if defined(__s390__) /* the arguments are in memory */
	{ "mmap", SWP, WITHOUT(5, 0) },
#else
	{ "mmap", SWP, WITHOUT(2, PROT_EXEC) },
#endif
	{ "mmap2", SWP, WITHOUT(2, PROT_EXEC) },
	/* its own limits */
	{ "prlimit64", SW, ONLY(0, 0) },
	{ "prctl", SWP, ONLY(0, PR_SET_NAME) },
	{ "prctl", SWP, ONLY(0, PR_SET_NO_NEW_PRIVS) },
	{ "prctl", SN, ONLY(0, PR_GET_SECCOMP) },
	/* checks whether the daemon that holds the card is alive */
	{ "kill", S, ONLY(1, 0) },
	/* the control socket, the message to the service manager */
	{ "socket", S, ONLY(0, AF_UNIX) },
};

static uint32_t refusal(void)
{
	const char *text = secure_getenv("COWFS_SECCOMP");

	return text && !strcmp(text, "kill") ? SCMP_ACT_KILL_PROCESS : SCMP_ACT_ERRNO(EPERM);
}

/* Not known here, or missing on this architecture: libc does not call it there either. */
static int add_rule(scmp_filter_ctx ctx, uint32_t action, const char *name,
		    const struct scmp_arg_cmp *arg)
{
	int number = seccomp_syscall_resolve_name(name), r;

	if (number == __NR_SCMP_ERROR)
		return 0;
	r = seccomp_rule_add_array(ctx, action, number, arg ? 1 : 0, arg);
	return r == -EDOM || r == -EEXIST ? 0 : r;
}

/* raise() and abort() in our own threads */
static int add_own_signals(scmp_filter_ctx ctx)
{
	struct scmp_arg_cmp own = ONLY(0, getpid());

	return add_rule(ctx, SCMP_ACT_ALLOW, "tgkill", &own);
}

static int add_rules(scmp_filter_ctx ctx, void *roles)
{
	unsigned role = *(unsigned *)roles;
	unsigned off = ring_allowed ? 0 : RING;
	int r = add_rule(ctx, SCMP_ACT_ALLOW, "clone3", NULL); /* see refuse_clone3 */

	for (size_t i = 0; !r && i < ARRAY_SIZE(calls); i++) {
		int number = seccomp_syscall_resolve_name(calls[i].name);

		if (!(calls[i].roles & role) || (calls[i].roles & off))
			continue;
		r = add_rule(ctx, SCMP_ACT_ALLOW, calls[i].name, NULL);
		if (!r && calls[i].priority && number >= 0)
			r = seccomp_syscall_priority(ctx, number, calls[i].priority);
	}
	for (size_t i = 0; !r && i < ARRAY_SIZE(bound_calls); i++)
		if ((bound_calls[i].roles & role) && !(bound_calls[i].roles & off))
			r = add_rule(ctx, SCMP_ACT_ALLOW, bound_calls[i].name, &bound_calls[i].arg);
	return r ? r : add_own_signals(ctx);
}

static int refuse_clone3(scmp_filter_ctx ctx, void *nothing)
{
	(void)nothing;
	return add_rule(ctx, SCMP_ACT_ERRNO(ENOSYS), "clone3", NULL);
}

int confine_calls(enum confine_role role)
{
	/* the worker has this filter since its start */
	int r = role == CONFINE_WORKER ? 0
				       : sandbox_filter(SCMP_ACT_ALLOW, false, refuse_clone3, NULL);
	unsigned bit = 1u << role;

	return r < 0 ? r : sandbox_filter(refusal(), true, add_rules, &bit);
}

#endif
