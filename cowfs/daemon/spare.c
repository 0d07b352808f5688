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

#define ANSWER_MS 10000
#define LINK_WAIT_S 1

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
	const struct timeval wait = { .tv_sec = LINK_WAIT_S };

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	setsockopt(pair[1], SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
	return 0;
}

/* Returns the link in the new process, and -1 in the spare. */
static int fork_child(int sock_fd, char role)
{
	const struct timespec nap = { .tv_nsec = 100000 };
	int pair[2], status, r;
	pid_t middle;

	if (role == SPARE_WORKER)
		r = spare_link(pair);
	else
		r = socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0 ? -errno : 0;
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
	if (passfd_send(sock_fd, &role, 1, pair, r == 0, 0) < 0)
		_exit(1);
	if (r == 0)
		close(pair[0]);
	return -1;
}

enum spare_role spare_serve(int sock_fd, int *ret_fd)
{
	char role;

	for (;;) {
		ssize_t n = read(sock_fd, &role, 1);

		*ret_fd = n == 1 ? fork_child(sock_fd, role) : -1;
		if (*ret_fd >= 0)
			return (enum spare_role)role;
		if (n == 0 || (n < 0 && errno != EINTR))
			_exit(0);
	}
}

int spare_start(struct spare *ret, const int *keep, unsigned n, void (*prepare)(void *ctx),
		void *ctx, int *ret_fd)
{
	int pair[2], fds[PASSFD_MAX];
	pid_t parent = getpid(), pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
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
		return (int)spare_serve(pair[1], ret_fd);
	}
	close(pair[1]);
	if (pid < 0) {
		close(pair[0]);
		return -errno;
	}
	*ret = (struct spare){ pid, pair[0] };
	return 0;
}

int spare_ask(const struct spare *s, enum spare_role role)
{
	struct pollfd p = { .fd = s->sock_fd, .events = POLLIN };
	uint64_t until_ns = now_ns() + ANSWER_MS * 1000000ull, now;
	char what = (char)role;
	int r = passfd_send(s->sock_fd, &what, 1, NULL, 0, MSG_DONTWAIT), link_fd;
	unsigned n;
	ssize_t got;

	if (r < 0)
		return r;
	while ((now = now_ns()) < until_ns) {
		r = poll(&p, 1, (int)((until_ns - now) / 1000000) + 1);
		if (r < 0 && errno != EINTR)
			return -errno;
		if (r <= 0)
			continue;
		link_fd = -1;
		got = passfd_receive(s->sock_fd, &what, 1, &link_fd, 1, &n);
		if (got <= 0)
			return got < 0 ? (int)got : -EPIPE;
		if (what == (char)role)
			return n ? link_fd : -EAGAIN;
		if (n) /* a late answer to another question */
			close(link_fd);
	}
	return -ETIMEDOUT;
}

bool spare_lives(const struct spare *s)
{
	int link_fd;
	unsigned n = 0;
	char what;
	ssize_t got = passfd_receive(s->sock_fd, &what, 1, &link_fd, 1, &n);

	if (got > 0 && n)
		close(link_fd);
	return got > 0;
}
