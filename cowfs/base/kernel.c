/* SPDX-License-Identifier: MIT */
#include "base/kernel.h"

#include <errno.h>
#include <stdio.h>
#include <sys/utsname.h>

int kernel_check(const char *release, char *why, size_t n)
{
	unsigned major, minor;
	struct utsname u;

	if (!release && uname(&u) < 0)
		return -errno;
	release = release ? release : u.release;
	if (sscanf(release, "%u.%u", &major, &minor) != 2 || major > KERNEL_MIN_MAJOR ||
	    (major == KERNEL_MIN_MAJOR && minor >= KERNEL_MIN_MINOR))
		return 0;
	snprintf(why, n,
		 "Linux %s is too old: cowfs needs %d.%d or newer (close_range, LOOP_CONFIGURE)",
		 release, KERNEL_MIN_MAJOR, KERNEL_MIN_MINOR);
	return -ENOSYS;
}
