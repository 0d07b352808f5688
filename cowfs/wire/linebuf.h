/* SPDX-License-Identifier: MIT */
/* A bounded buffer for one direction of a socket that carries lines. Grows by need, to a limit. */
#ifndef COWFS_WIRE_LINEBUF_H
#define COWFS_WIRE_LINEBUF_H

#include "base/util.h"

struct linebuf {
	char *p;
	size_t len, size_bytes, max_bytes; /* set max_bytes, the rest 0 */
};

void linebuf_free(struct linebuf *b);
/* One read. The count, 0 at end of file, -EAGAIN, -E2BIG full without a line, -ENOMEM, -errno. */
ssize_t linebuf_fill(struct linebuf *b, int fd) MUST_CHECK;
/* The same from a socket. A descriptor that comes along replaces *passed_fd (-1: none). */
ssize_t linebuf_fill_passed(struct linebuf *b, int sock, int *passed_fd) MUST_CHECK;
/* The first whole line, without its end, or NULL. Valid until the buffer is touched. */
const char *linebuf_line(const struct linebuf *b, size_t *ret_len);
/* Takes a line of len_bytes and its end away. */
void linebuf_drop_line(struct linebuf *b, size_t len_bytes);
/* All or nothing: -ENOBUFS beyond the limit, -ENOMEM. */
int linebuf_append(struct linebuf *b, const char *data, size_t len_bytes) MUST_CHECK;
/* Sends without waiting: 0 all is out, -EAGAIN some is left, -errno. */
int linebuf_flush(struct linebuf *b, int sock) MUST_CHECK;

#endif
