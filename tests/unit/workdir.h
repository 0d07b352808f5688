/* SPDX-License-Identifier: MIT */
/* A folder of a test for image files: in memory if possible (mke2fs syncs a lot), and shell
 * commands that run there. */
#ifndef COWFS_TESTS_WORKDIR_H
#define COWFS_TESTS_WORKDIR_H

#include "test.h"
#include "base/msg.h"

static char dir[64];

/* 0, or -1 without a folder */
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

	snprintf(cmd, sizeof(cmd), "rm -rf '%s'", dir);
	return system(cmd);
}

static inline void workdir_command(char cmd[4096], const char *before, const char *fmt, va_list ap)
	PRINTF(3, 0);
static inline void workdir_command(char cmd[4096], const char *before, const char *fmt, va_list ap)
{
	int n = snprintf(cmd, 4096, "cd %s && %s", dir, before);

	vsnprintf(cmd + n, 4096 - (size_t)n, fmt, ap);
}

/* The status of a command whose output goes to dir/log. before: shell text in front of it. */
static inline int vsh(const char *before, const char *fmt, va_list ap) PRINTF(2, 0);
static inline int vsh(const char *before, const char *fmt, va_list ap)
{
	char cmd[4096], all[256];

	snprintf(all, sizeof(all), "exec >>log 2>&1; %s", before);
	workdir_command(cmd, all, fmt, ap);
	return system(cmd);
}

static inline int sh(const char *fmt, ...) PRINTF(1, 2);
static inline int sh(const char *fmt, ...)
{
	va_list ap;
	int r;

	va_start(ap, fmt);
	r = vsh("", fmt, ap);
	va_end(ap);
	return r;
}

/* The output of a command: for pclose(); its errors go to dir/log. Aborts without memory. */
static inline FILE *sh_read(const char *fmt, ...) PRINTF(1, 2);
static inline FILE *sh_read(const char *fmt, ...)
{
	char cmd[4096];
	va_list ap;
	FILE *f;

	va_start(ap, fmt);
	workdir_command(cmd, "exec 2>>log; ", fmt, ap);
	va_end(ap);
	f = popen(cmd, "r");
	if (!f)
		abort();
	return f;
}

#endif
