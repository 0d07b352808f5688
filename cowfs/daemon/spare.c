/* SPDX-License-Identifier: MIT */
/*
 * Notes on the design
 * - The spare forks twice, and the process in the middle ends. So the worker is a child of the parent,
 *   which learns how it ended.
 * - A worker waits until the process in the middle is no longer its parent. Otherwise it could seem
 *   to the parent to be no child of it yet.
 * - The spare reads nothing that the worker wrote. The new worker does, once it is confined.
 */
#include "daemon/spare.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

#include "base/io.h"
#include "base/passfd.h"

#define AGAIN_MS 250

static bool is_kept(int fd, const int *keep, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (keep[i] == fd)
			return true;
	return false;
}

static void keep_only(const int *keep, unsigned n)
{
	int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);

	for (int fd = 0; fd < 3 && null_fd >= 0; fd++)
		if (!is_kept(fd, keep, n))
			dup2(null_fd, fd);
	io_keep_only(keep, n);
}

int spare_link(int pair[2])
{
	return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0 ? -errno : 0;
}

/* Returns the link in the new worker, and -1 in the spare. */
static int fork_worker(int sock_fd)
{
	const struct timespec nap = { .tv_nsec = 100000 };
	int pair[2], status, r = spare_link(pair);
	pid_t middle;

	if (r == 0 && (middle = fork()) == 0) {
		pid_t me = getpid(), worker = fork();

		while (worker == 0 && getppid() == me)
			nanosleep(&nap, NULL);
		if (worker)
			_exit(worker < 0);
		close(pair[0]);
		close(sock_fd);
		return pair[1];
	}
	if (r == 0)
		close(pair[1]);
	if (r == 0 && (middle < 0 || waitpid(middle, &status, 0) < 0 || status)) {
		close(pair[0]);
		r = -EAGAIN;
	}
	if (passfd_send(sock_fd, "", 1, pair, r == 0, 0) < 0)
		_exit(1);
	if (r == 0)
		close(pair[0]);
	return -1;
}

/* Returns in new workers only: the link to the parent. */
static int serve(int sock_fd)
{
	for (;;) {
		char byte;
		ssize_t n = read(sock_fd, &byte, 1);
		int link_fd = n == 1 ? fork_worker(sock_fd) : -1;

		if (link_fd >= 0)
			return link_fd;
		if (n == 0 || (n < 0 && errno != EINTR))
			_exit(0);
	}
}

int spare_start(const int *keep, unsigned n, void (*prepare)(void *ctx), void *ctx, int *ret_fd)
{
	int pair[2], fds[PASSFD_MAX], r = spare_link(pair);
	pid_t parent = getpid(), pid;

	if (r < 0)
		return r;
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(0);
		prctl(PR_SET_NAME, "cowfs-spare");
		for (unsigned i = 0; i < n; i++)
			fds[i] = keep[i];
		fds[n] = pair[1];
		keep_only(fds, n + 1);
		prepare(ctx);
		*ret_fd = serve(pair[1]);
		return 1;
	}
	close(pair[1]);
	if (pid < 0) {
		close(pair[0]);
		return -errno;
	}
	*ret_fd = pair[0];
	return 0;
}

int spare_ask(int spare_fd)
{
	int r, link_fd;
	ssize_t got;
	unsigned n;
	char byte;

	for (;;) {
		r = passfd_send(spare_fd, "", 1, NULL, 0, 0);
		if (r < 0)
			return r;
		do
			got = passfd_receive(spare_fd, &byte, 1, &link_fd, 1, &n);
		while (got == -EINTR);
		if (got <= 0)
			return got < 0 ? (int)got : -EPIPE;
		if (n)
			return link_fd;
		poll(NULL, 0, AGAIN_MS);
	}
}
