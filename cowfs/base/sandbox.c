// SPDX-License-Identifier: MIT
#include "base/sandbox.h"

#include <errno.h>
#include <sys/syscall.h>

#include <linux/capability.h>

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
