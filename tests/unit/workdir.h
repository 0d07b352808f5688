/* SPDX-License-Identifier: MIT */
/* A folder of a test's own for image files: in memory if there is some (mke2fs syncs a lot). */
#ifndef COWFS_TESTS_WORKDIR_H
#define COWFS_TESTS_WORKDIR_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char dir[64];

/* 0, or -1 without one */
static inline int workdir_new(const char *name)
{
	snprintf(dir, sizeof(dir), "%s/cowfs-%s-XXXXXX",
		 access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm", name);
	return mkdtemp(dir) ? 0 : -1;
}

/* a teardown of a group */
static inline int workdir_remove(void **state)
{
	char cmd[128];

	(void)state;
	snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
	return system(cmd);
}

#endif
