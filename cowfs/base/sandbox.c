// SPDX-License-Identifier: MIT
#include "base/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <linux/capability.h>

#include "base/io.h"
#include "base/thread.h"

#define STACK_BYTES (64 * KIB)

int sandbox_capabilities(uint64_t keep)
{
	struct __user_cap_header_struct h = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct d[_LINUX_CAPABILITY_U32S_3];

	if (syscall(SYS_capget, &h, d) < 0)
		return -errno;
	for (unsigned i = 0; i < ARRAY_SIZE(d); i++) {
		d[i].permitted &= (uint32_t)(keep >> 32 * i);
		d[i].effective = d[i].permitted;
		d[i].inheritable = 0;
	}
	return syscall(SYS_capset, &h, d) < 0 ? -errno : 0;
}

int sandbox_filter(uint32_t others, bool log, int (*rules)(scmp_filter_ctx filter, void *ctx),
		   void *ctx)
{
	scmp_filter_ctx filter = seccomp_init(others);
	int r;

	if (!filter)
		return -ENOMEM;
	r = seccomp_attr_set(filter, SCMP_FLTATR_ACT_BADARCH, others);
	/* older than every kernel that cowfs runs on: without it there are no filters at all */
	if (!r && seccomp_attr_set(filter, SCMP_FLTATR_CTL_TSYNC, 1) < 0)
		r = -ENOSYS;
	(void)seccomp_attr_set(filter, SCMP_FLTATR_API_SYSRAWRC, 1); /* the kernel's own error */
	/*
	 * before 5.16 a filter also enables a mitigation for processes that run foreign code, and
	 * slows them
	 */
	(void)seccomp_attr_set(filter, SCMP_FLTATR_CTL_SSB, 1);
	if (log) /* Linux before 4.14 cannot log */
		(void)seccomp_attr_set(filter, SCMP_FLTATR_CTL_LOG, 1);
	if (!r)
		r = rules(filter, ctx);
	if (!r)
		r = seccomp_load(filter);
	seccomp_release(filter);
	return r;
}

/* ---- Landlock: linux/landlock.h of older kernel headers lacks what newer kernels have ---- */

#define CREATE_RULESET 444
#define ADD_RULE 445
#define RESTRICT_SELF 446
#define RULESET_VERSION 1u
#define RULE_PATH_BENEATH 1
enum {
	FS_WRITE_FILE = 1 << 1,
	FS_READ_FILE = 1 << 2,
	FS_READ_DIR = 1 << 3,
	FS_REMOVE_FILE = 1 << 5,
	FS_MAKE_REG = 1 << 8,
	FS_TRUNCATE = 1 << 14,
	FS_STORE = FS_WRITE_FILE | FS_READ_FILE | FS_READ_DIR | FS_REMOVE_FILE | FS_MAKE_REG |
		   FS_TRUNCATE,
	NET_ALL = 3,  /* bind and connect of TCP */
	SCOPE_ALL = 3 /* abstract sockets, signals */
};

/* By version: all that the kernel knows is handled, so all that is not allowed is refused. */
static uint64_t files_of(int version)
{
	return (UINT64_C(1) << (version < 2 ? 13 : version < 3 ? 14 : version < 5 ? 15 : 16)) - 1;
}

int sandbox_files(const int *dirfd, unsigned n)
{
	struct {
		uint64_t files, net, scope;
	} set = { 0 };
	struct __attribute__((packed)) {
		uint64_t allowed;
		int32_t fd;
	} beneath;
	int version = (int)syscall(CREATE_RULESET, NULL, 0, RULESET_VERSION);
	_cleanup_close_ int fd = -1;

	if (version < 0)
		return -errno;
	set.files = files_of(version);
	set.net = version >= 4 ? NET_ALL : 0;
	set.scope = version >= 6 ? SCOPE_ALL : 0;
	fd = (int)syscall(CREATE_RULESET, &set,
			  version >= 6	 ? sizeof(set)
			  : version >= 4 ? 2 * sizeof(uint64_t)
					 : sizeof(uint64_t),
			  0);
	if (fd < 0)
		return -errno;
	for (unsigned i = 0; i < n; i++) {
		beneath.allowed = FS_STORE & set.files;
		beneath.fd = dirfd[i];
		if (syscall(ADD_RULE, fd, RULE_PATH_BENEATH, &beneath, 0) < 0)
			return -errno;
	}
	return syscall(RESTRICT_SELF, fd, 0) < 0 ? -errno : 0;
}

/* ---- mounts ---- */

/* The namespace of this thread only: what fails has no consequences. setns: its root is that of the namespace now, not that of
 * a chroot. */
static void *leave_mounts(void *result)
{
	_cleanup_close_ int fd = -1;
	int *ret = result;

	if (unshare(CLONE_NEWNS) == 0)
		fd = open("/proc/thread-self/ns/mnt", O_RDONLY | O_CLOEXEC);
	if (fd < 0 || setns(fd, CLONE_NEWNS) < 0 ||
	    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 || umount2("/", MNT_DETACH) < 0)
		*ret = -errno;
	else
		*ret = steal_fd(&fd);
	return NULL;
}

int sandbox_no_mounts(void)
{
	pthread_t thread;
	int fd, r = thread_start(&thread, NULL, STACK_BYTES, leave_mounts, &fd);

	if (r < 0)
		return r;
	pthread_join(thread, NULL);
	return fd;
}

int sandbox_enter_mounts(int fd)
{
	int r = fd < 0 ? fd : setns(fd, CLONE_NEWNS) < 0 ? -errno : 0;

	cleanup_closep(&fd);
	return r;
}

/* ---- */

static int limit(uint64_t memory_bytes, unsigned cpu_s)
{
	const struct {
		int what;
		rlim_t max;
		bool sanitized;
	} all[] = { { RLIMIT_CORE, 0, true },
		    { RLIMIT_FSIZE, 0, true },
		    { RLIMIT_CPU, cpu_s, true },
		    { RLIMIT_NOFILE, 0, false },
		    { RLIMIT_AS, (rlim_t)min_u64(memory_bytes, RLIM_INFINITY - 1), false } };

	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		if ((all[i].sanitized || !SANDBOX_SANITIZED) &&
		    setrlimit(all[i].what, &(struct rlimit){ all[i].max, all[i].max }) < 0)
			return -errno;
	return 0;
}

struct rules {
	int (*more)(scmp_filter_ctx filter, void *ctx);
	void *ctx;
};

/*
 * Any call that is not allowed returns an error and does not kill: a C library also makes calls that
 * it can do without (qsort: how much memory there is). Mappings of files are private.
 */
static int memory_calls(scmp_filter_ctx filter, void *rules)
{
	static const int allowed[] = { SCMP_SYS(munmap),     SCMP_SYS(mremap),
				       SCMP_SYS(brk),	     SCMP_SYS(madvise),
				       SCMP_SYS(futex),	     SCMP_SYS(exit),
				       SCMP_SYS(exit_group), SCMP_SYS(rt_sigreturn),
				       SCMP_SYS(getrandom),  SCMP_SYS(restart_syscall) };
	static const int maps[] = { SCMP_SYS(mmap), SCMP_SYS(mmap2) };
	const struct scmp_arg_cmp private[] = {
		SCMP_CMP64(3, SCMP_CMP_MASKED_EQ, MAP_SHARED, 0),
#if !defined(__s390__) /* its arguments are in memory */
		SCMP_CMP64(2, SCMP_CMP_MASKED_EQ, PROT_EXEC, 0),
#endif
	};
	const struct scmp_arg_cmp data = SCMP_CMP64(2, SCMP_CMP_MASKED_EQ, PROT_EXEC, 0);
	const struct rules *x = rules;
	int r = 0;

	for (size_t i = 0; i < ARRAY_SIZE(allowed) && !r; i++)
		r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, allowed[i], 0);
	for (size_t i = 0; i < ARRAY_SIZE(maps) && !r; i++)
		r = seccomp_rule_add_array(filter, SCMP_ACT_ALLOW, maps[i], ARRAY_SIZE(private),
					   private);
	if (!r)
		r = seccomp_rule_add_array(filter, SCMP_ACT_ALLOW, SCMP_SYS(mprotect), 1, &data);
	return r ? r : x->more(filter, x->ctx);
}

int sandbox_enter(bool keep_root, uint64_t memory_bytes, unsigned cpu_s,
		  int (*rules)(scmp_filter_ctx filter, void *ctx), void *ctx)
{
	const uid_t user = SANDBOX_READER_UID + (uid_t)getpid();
	struct rules all = { rules, ctx };
	int r;

	/*
	 * a user namespace may lack this user, so a failure is ignored: without capabilities and
	 * system calls, a separate user is only an extra
	 */
	if (geteuid() == 0 && !keep_root && setgroups(0, NULL) == 0 &&
	    setresgid(user, user, user) == 0)
		(void)!setresuid(user, user, user);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return -errno;
	r = sandbox_capabilities(0);
	if (r == 0)
		r = limit(memory_bytes, cpu_s);
	if (r == 0 && !SANDBOX_SANITIZED)
		r = sandbox_filter(SCMP_ACT_ERRNO(EPERM), false, memory_calls, &all);
	return r == -ENOSYS || r == -EINVAL ? 0 : r;
}
