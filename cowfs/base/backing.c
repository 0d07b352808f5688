/* SPDX-License-Identifier: MIT */
#include "base/backing.h"

#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "base/io.h"

bool backing_is(int sys_dirfd, dev_t rdev, const char *name)
{
	char path[80], file[256];

	snprintf(path, sizeof(path), "%sdev/block/%u:%u/loop/backing_file",
		 sys_dirfd < 0 ? "/sys/" : "", major(rdev), minor(rdev));
	return io_read_text(sys_dirfd, path, file, sizeof(file)) > 0 && !strcmp(file + 1, name);
}
