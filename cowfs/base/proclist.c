/* SPDX-License-Identifier: MIT */
#include "base/proclist.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>

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

bool proclist_is_dying(int status_fd)
{
	char text[4096];
	const char *state, *pending;
	ssize_t n = pread(status_fd, text, sizeof(text) - 1, 0);

	if (n < 0)
		return false;
	text[n] = '\0';
	state = strstr(text, "\nState:\t");
	pending = strstr(text, "\nSigPnd:\t");
	return (state && (state[8] == 'Z' || state[8] == 'X')) ||
	       (pending && strtoull(pending + 9, NULL, 16) & 1u << (SIGKILL - 1));
}

bool proclist_is_stopped(int status_fd)
{
	char text[4096];
	const char *state;
	ssize_t n = pread(status_fd, text, sizeof(text) - 1, 0);

	text[n < 0 ? 0 : n] = '\0';
	state = strstr(text, "\nState:\t");
	return state && (state[8] == 'T' || state[8] == 't');
}
