/* SPDX-License-Identifier: MIT */
#include "base/kernel.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <linux/openat2.h>

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

/* A filter of system calls, which says that the kernel does not have it, or permit it. */
static bool refuses_openat2(void)
{
	const struct open_how how = { .flags = O_PATH | O_CLOEXEC };
	_cleanup_close_ int fd = (int)syscall(SYS_openat2, AT_FDCWD, "/", &how, sizeof(how));

	return fd < 0 && (errno == ENOSYS || errno == EPERM);
}

int kernel_check(const char *release, char *why, size_t n)
{
	struct utsname u;
	bool runs = !release;

	if (runs && uname(&u) < 0)
		return -errno;
	release = runs ? u.release : release;
	if (!is_at_least(release, KERNEL_MIN_MAJOR, KERNEL_MIN_MINOR)) {
		snprintf(why, n,
			 "Linux %s is too old: cowfs needs %d.%d or newer (close_range, "
			 "LOOP_CONFIGURE)",
			 release, KERNEL_MIN_MAJOR, KERNEL_MIN_MINOR);
		return -ENOSYS;
	}
	if (runs && refuses_openat2()) {
		snprintf(why, n,
			 "openat2, with which mounts are found, is refused here: by a unit with "
			 "RestrictSUIDSGID=, or by a container");
		return -ENOSYS;
	}
	return 0;
}
