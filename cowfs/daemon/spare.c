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

static int new_pair(int pair[2])
{
	return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0 ? -errno : 0;
}

static void close_both(int a, int b)
{
	close(a);
	close(b);
}

int spare_link(int own[2], int root[2])
{
	int r = new_pair(own);

	if (r < 0)
		return r;
	r = new_pair(root);
	if (r < 0)
		close_both(own[0], own[1]);
	else
		passfd_refuse(own[0]);
	return r;
}

/* Is this the new worker? Then it has its ends of the links. */
static bool fork_worker(int sock_fd, int ret_fd[2])
{
	const struct timespec nap = { .tv_nsec = 100000 };
	int own[2], root[2], status, r = spare_link(own, root);
	pid_t middle;

	if (r == 0 && (middle = fork()) == 0) {
		pid_t me = getpid(), worker = fork();

		while (worker == 0 && getppid() == me)
			nanosleep(&nap, NULL);
		if (worker)
			_exit(worker < 0);
		close_both(own[0], root[0]);
		close(sock_fd);
		ret_fd[0] = own[1];
		ret_fd[1] = root[1];
		return true;
	}
	if (r == 0)
		close_both(own[1], root[1]);
	if (r == 0 && (middle < 0 || waitpid(middle, &status, 0) < 0 || status)) {
		close_both(own[0], root[0]);
		r = -EAGAIN;
	}
	if (passfd_send(sock_fd, "", 1, (int[]){ own[0], root[0] }, r == 0 ? 2 : 0, 0) < 0)
		_exit(1);
	if (r == 0)
		close_both(own[0], root[0]);
	return false;
}

/* Returns in new workers only: their ends of the links. */
static void serve(int sock_fd, int ret_fd[2])
{
	for (;;) {
		char byte;
		ssize_t n = read(sock_fd, &byte, 1);

		if (n == 1 && fork_worker(sock_fd, ret_fd))
			return;
		if (n == 0 || (n < 0 && errno != EINTR))
			_exit(0);
	}
}

int spare_start(const int *keep, unsigned n, void (*prepare)(void *ctx), void *ctx, int ret_fd[2])
{
	int pair[2], fds[PASSFD_MAX], r = new_pair(pair);
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
		serve(pair[1], ret_fd);
		return 1;
	}
	close(pair[1]);
	if (pid < 0) {
		close(pair[0]);
		return -errno;
	}
	ret_fd[0] = pair[0];
	return 0;
}

int spare_ask(int spare_fd, int ret_fd[2])
{
	int r;
	ssize_t got;
	unsigned n;
	char byte;

	for (;;) {
		r = passfd_send(spare_fd, "", 1, NULL, 0, 0);
		if (r < 0)
			return r;
		do
			got = passfd_receive(spare_fd, &byte, 1, ret_fd, 2, &n);
		while (got == -EINTR);
		if (got <= 0)
			return got < 0 ? (int)got : -EPIPE;
		if (n == 2)
			return 0;
		poll(NULL, 0, AGAIN_MS);
	}
}
