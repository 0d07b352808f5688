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
