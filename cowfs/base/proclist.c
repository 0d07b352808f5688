/* SPDX-License-Identifier: MIT */
#include "base/proclist.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/clean.h"
#include "base/io.h"

DIR *proclist_open(int dirfd, const char *name)
{
	int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);

	if (!dir && fd >= 0)
		close(fd);
	return dir;
}

int proclist_next(DIR *dir)
{
	struct dirent *e;

	while ((e = readdir(dir))) {
		char *end;
		long n = strtol(e->d_name, &end, 10);

		if (!*end && end != e->d_name && n >= 0)
			return (int)n;
	}
	return -1;
}

bool proclist_any_file(int proc_dirfd, int pid,
		       bool (*test)(void *ctx, int dirfd, const char *name), void *ctx)
{
	static const char *const places[] = { "cwd", "root", "exe" };
	char name[48];
	bool any = false;
	DIR *fds;
	int fd;

	for (size_t i = 0; i < ARRAY_SIZE(places) && !any; i++) {
		snprintf(name, sizeof(name), "%d/%s", pid, places[i]);
		any = test(ctx, proc_dirfd, name);
	}
	snprintf(name, sizeof(name), "%d/fd", pid);
	fds = any ? NULL : proclist_open(proc_dirfd, name);
	while (fds && !any && (fd = proclist_next(fds)) >= 0) {
		snprintf(name, sizeof(name), "%d", fd);
		any = test(ctx, dirfd(fds), name);
	}
	if (fds)
		closedir(fds);
	return any;
}

bool proclist_name(int proc_dirfd, int pid, char *ret, size_t size_bytes)
{
	char name[32], comm[32];

	snprintf(name, sizeof(name), "%d/comm", pid);
	if (io_read_text(proc_dirfd, name, comm, sizeof(comm)) < 0)
		return false;
	snprintf(ret, size_bytes, "%s[%d]", clean_text(comm), pid);
	return true;
}

#define STATUS_BYTES 4096

/* Reads /proc/PID/status. Returns the letter of the state, '\0' if there is none. */
static char read_state(int status_fd, char text[STATUS_BYTES])
{
	ssize_t n = pread(status_fd, text, STATUS_BYTES - 1, 0);
	const char *state;

	text[n < 0 ? 0 : n] = '\0';
	state = strstr(text, "\nState:\t");
	return state ? state[8] : '\0';
}

bool proclist_is_dying(int status_fd)
{
	char text[STATUS_BYTES], state = read_state(status_fd, text);
	const char *pending = strstr(text, "\nSigPnd:\t");

	/* one that ends gives its memory back first, and then closes its files */
	return state == 'Z' || state == 'X' || (state && !strstr(text, "\nVmSize:")) ||
	       (pending && strtoull(pending + 9, NULL, 16) & 1u << (SIGKILL - 1));
}

bool proclist_is_stopped(int status_fd)
{
	char text[STATUS_BYTES], state = read_state(status_fd, text);

	return state == 'T' || state == 't';
}
