/* SPDX-License-Identifier: MIT */
/*
 * Client and server of FUSE in one process: if it is killed in between, or takes 550 s, it waits
 * for itself. The janitor ends that.
 */
#ifndef COWFS_TESTS_FUSE_JANITOR_H
#define COWFS_TESTS_FUSE_JANITOR_H

#include "test.h"
#include <poll.h>

#define JANITOR_MS 550000

static int janitor_fd = -1;
static pid_t janitor;

/* abort_fd: the connection's switch. */
static inline void janitor_start(int abort_fd)
{
	struct pollfd end = { .events = POLLIN };
	int pair[2];
	char c;

	assert_int_equal(pipe(pair), 0);
	janitor = fork();
	if (janitor == 0) {
		setsid();
		pair[0] = fcntl(pair[0], F_DUPFD, 100);
		abort_fd = fcntl(abort_fd, F_DUPFD, 100);
		close_range(3, 99, 0); /* especially /dev/fuse */
		end.fd = pair[0];
		_exit((poll(&end, 1, JANITOR_MS) == 0 || read(pair[0], &c, 1) == 0) &&
		      write(abort_fd, "1", 1) < 0);
	}
	close(pair[0]);
	janitor_fd = pair[1];
}

static inline void janitor_end(void)
{
	assert_int_equal(write(janitor_fd, "q", 1), 1);
	close(janitor_fd);
	janitor_fd = -1;
	waitpid(janitor, NULL, 0);
}

#endif
