/* SPDX-License-Identifier: MIT */
#include "base/program.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

/* Unlike a signal that is ignored, a program that is executed does not inherit this. */
static void no_signal(int sig)
{
	(void)sig;
}

void program_begin(void)
{
	int fd;

	do {
		fd = open("/dev/null", O_RDWR);
		/* before /dev is mounted: such a descriptor takes the number, and no data */
		if (fd < 0)
			fd = open("/", O_PATH);
	} while (fd >= 0 && fd <= STDERR_FILENO);
	cleanup_closep(&fd);
	signal(SIGPIPE, no_signal);
}

int program_wait(pid_t pid)
{
	int status = 0;

	while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (pid < 0)
		return 127;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int program_run(const char *const argv[], int in_fd, int out_fd)
{
	pid_t pid = fork();

	if (pid == 0) {
		if (in_fd >= 0 && dup2(in_fd, STDIN_FILENO) < 0)
			_exit(127);
		if (out_fd >= 0 &&
		    (dup2(out_fd, STDOUT_FILENO) < 0 || dup2(out_fd, STDERR_FILENO) < 0))
			_exit(127);
		execvp(argv[0], (char *const *)argv);
		fprintf(stderr, "%s cannot be run: %s\n", argv[0], strerror(errno));
		_exit(127);
	}
	return program_wait(pid);
}

static bool readable_within(int fd, int ms)
{
	const uint64_t until_ns = now_ns() + (uint64_t)ms * 1000000u;
	struct pollfd p = { .fd = fd, .events = POLLIN };
	int n;

	do {
		n = poll(&p, 1, ms);
		ms = now_ns() < until_ns ? (int)((until_ns - now_ns()) / 1000000u) : 0;
	} while (n < 0 && errno == EINTR);
	return n > 0;
}

bool program_apart(int fd, void (*work)(void *ctx), void *ctx, int ms)
{
	_cleanup_close_ int pidfd = -1;
	pid_t pid = fork();

	if (pid < 0)
		return false;
	if (pid == 0) {
		dup2(fd, 0);
		close_range(1, ~0u, 0);
		work(ctx);
		_exit(0);
	}
	pidfd = pidfd_open(pid, 0);
	if (pidfd < 0 || !readable_within(pidfd, ms)) {
		kill(pid, SIGKILL);
		return false;
	}
	waitpid(pid, NULL, 0);
	return true;
}

void program_output(int out_fd, const char *device, const char *known_as, char *ret, size_t n)
{
	_cleanup_free_ char *text = calloc(1, n);
	off_t end = lseek(out_fd, 0, SEEK_END), start = end < (off_t)n ? 0 : end - (off_t)n + 1;
	char *rest = text, *at;
	size_t used = 0;

	*ret = '\0';
	if (!text || pread(out_fd, text, n - 1, start) < 0)
		return;
	for (; (at = strstr(rest, device)) && used < n; rest = at + strlen(device))
		used += (size_t)snprintf(ret + used, n - used, "%.*s%s", (int)(at - rest), rest,
					 known_as);
	if (used < n)
		snprintf(ret + used, n - used, "%s", rest);
}
