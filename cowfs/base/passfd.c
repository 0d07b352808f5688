/* SPDX-License-Identifier: MIT */
#include "base/passfd.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif

union control {
	struct cmsghdr align;
	char space[CMSG_SPACE(PASSFD_MAX * sizeof(int))];
};

void passfd_refuse(int sock_fd)
{
	const int no = 0;

	(void)!setsockopt(sock_fd, SOL_SOCKET, SO_PASSRIGHTS, &no, sizeof(no));
}

int passfd_send(int sock_fd, const void *data, size_t bytes, const int *fd, unsigned n, int flags)
{
	union control control = { 0 };
	struct iovec iov = { .iov_base = (void *)data, .iov_len = bytes };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t sent;

	if (n > PASSFD_MAX)
		return -EINVAL;
	if (n) {
		struct cmsghdr *c;

		m.msg_control = control.space;
		m.msg_controllen = CMSG_SPACE(n * sizeof(int));
		c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(n * sizeof(int));
		memcpy(CMSG_DATA(c), fd, n * sizeof(int));
		sent = sendmsg(sock_fd, &m, flags | MSG_NOSIGNAL);
	} else { /* the filter of a worker has no sendmsg */
		sent = send(sock_fd, data, bytes, flags | MSG_NOSIGNAL);
	}
	if (sent < 0)
		return -errno;
	return (size_t)sent == bytes ? 0 : -EMSGSIZE;
}

ssize_t passfd_receive(int sock_fd, void *data, size_t bytes, int *ret_fd, unsigned max,
		       unsigned *ret_n)
{
	union control control;
	struct iovec iov = { .iov_base = data, .iov_len = bytes };
	struct msghdr m = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = control.space,
			    .msg_controllen = sizeof(control.space) };
	ssize_t got = recvmsg(sock_fd, &m, MSG_CMSG_CLOEXEC);
	struct cmsghdr *c = got < 0 ? NULL : CMSG_FIRSTHDR(&m);
	unsigned n = 0;

	*ret_n = 0;
	if (got < 0)
		return -errno;
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
		n = (unsigned)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
	for (unsigned i = 0; i < n; i++) {
		int fd;

		memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
		if (*ret_n < max)
			ret_fd[(*ret_n)++] = fd;
		else
			close(fd);
	}
	return got;
}
