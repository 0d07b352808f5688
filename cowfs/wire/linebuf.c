/* SPDX-License-Identifier: MIT */
#include "wire/linebuf.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define FIRST_BYTES 1024u

void linebuf_free(struct linebuf *b)
{
	free(b->p);
	*b = (struct linebuf){ .max_bytes = b->max_bytes };
}

static int reserve(struct linebuf *b, size_t more)
{
	size_t size = b->size_bytes ? b->size_bytes : FIRST_BYTES;
	char *p;

	if (more > b->max_bytes - b->len)
		return -ENOBUFS;
	while (size - b->len < more)
		size *= 2;
	if (size > b->max_bytes)
		size = b->max_bytes;
	if (size == b->size_bytes)
		return 0;
	p = realloc(b->p, size);
	if (!p)
		return -ENOMEM;
	b->p = p;
	b->size_bytes = size;
	return 0;
}

static int reserve_line(struct linebuf *b)
{
	int e = b->len == b->size_bytes ? reserve(b, 1) : 0;

	return e == -ENOBUFS ? -E2BIG : e;
}

/* No request takes a socket. A client that passes its own would never be gone. */
static bool is_socket(int fd)
{
	int type;
	socklen_t len = sizeof(type);

	return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) == 0;
}

/* The first one of the message; further ones are closed. */
static void take_passed(struct msghdr *m, int *passed_fd)
{
	bool kept = false;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		size_t n = c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS
				   ? (c->cmsg_len - CMSG_LEN(0)) / sizeof(int)
				   : 0;

		if (n && *passed_fd >= 0)
			close(steal_fd(passed_fd));
		for (size_t i = 0; i < n; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
			if (kept || is_socket(fd)) {
				close(fd);
				continue;
			}
			*passed_fd = fd;
			kept = true;
		}
	}
}

ssize_t linebuf_fill_passed(struct linebuf *b, int sock, int *passed_fd)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))];
	int e = reserve_line(b);
	struct iovec iov = { b->p + b->len, b->size_bytes - b->len };
	struct msghdr m = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = control,
			    .msg_controllen = sizeof(control) };
	ssize_t n;

	if (e < 0)
		return e;
	do
		n = recvmsg(sock, &m, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	take_passed(&m, passed_fd);
	b->len += (size_t)n;
	return n;
}

ssize_t linebuf_fill(struct linebuf *b, int fd)
{
	int e = reserve_line(b);
	ssize_t n;

	if (e < 0)
		return e;
	do
		n = read(fd, b->p + b->len, b->size_bytes - b->len);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	b->len += (size_t)n;
	return n;
}

const char *linebuf_line(const struct linebuf *b, size_t *ret_len)
{
	const char *end = b->len ? memchr(b->p, '\n', b->len) : NULL;

	if (!end)
		return NULL;
	*ret_len = (size_t)(end - b->p);
	return b->p;
}

void linebuf_drop_line(struct linebuf *b, size_t len_bytes)
{
	b->len -= len_bytes + 1;
	memmove(b->p, b->p + len_bytes + 1, b->len);
}

int linebuf_append(struct linebuf *b, const char *data, size_t len_bytes)
{
	int e = reserve(b, len_bytes);

	if (e < 0)
		return e;
	memcpy(b->p + b->len, data, len_bytes);
	b->len += len_bytes;
	return 0;
}

int linebuf_flush(struct linebuf *b, int sock)
{
	size_t sent = 0;
	int e = 0;

	while (sent < b->len && !e) {
		ssize_t n = send(sock, b->p + sent, b->len - sent, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n >= 0)
			sent += (size_t)n;
		else if (errno != EINTR)
			e = -errno;
	}
	b->len -= sent;
	if (b->len && sent)
		memmove(b->p, b->p + sent, b->len);
	return e == -EWOULDBLOCK ? -EAGAIN : e;
}
