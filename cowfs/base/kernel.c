/* SPDX-License-Identifier: MIT */
#include "base/kernel.h"

#include <errno.h>
#include <stdio.h>
#include <sys/utsname.h>

static bool is_at_least(const char *release, unsigned want_major, unsigned want_minor)
{
	unsigned major, minor;

	return sscanf(release, "%u.%u", &major, &minor) != 2 || major > want_major ||
	       (major == want_major && minor >= want_minor);
}

bool kernel_is(unsigned major, unsigned minor)
{
	struct utsname u;

	return uname(&u) < 0 || is_at_least(u.release, major, minor);
}

int kernel_check(const char *release, char *why, size_t n)
{
	struct utsname u;

	if (!release && uname(&u) < 0)
		return -errno;
	release = release ? release : u.release;
	if (is_at_least(release, KERNEL_MIN_MAJOR, KERNEL_MIN_MINOR))
		return 0;
	snprintf(why, n,
		 "Linux %s is too old: cowfs needs %d.%d or newer (close_range, LOOP_CONFIGURE)",
		 release, KERNEL_MIN_MAJOR, KERNEL_MIN_MINOR);
	return -ENOSYS;
}
