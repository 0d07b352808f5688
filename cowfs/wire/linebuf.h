/* SPDX-License-Identifier: MIT */
/*
 * A bounded buffer for one direction of a socket that carries lines. Grows on demand, up to a
 * limit.
 */
#ifndef COWFS_WIRE_LINEBUF_H
#define COWFS_WIRE_LINEBUF_H

#include "base/util.h"

struct linebuf {
	char *p;
	size_t len, size_bytes, max_bytes; /* set max_bytes, the rest 0 */
};

void linebuf_free(struct linebuf *b);
/*
 * Reads once. Returns the count, 0 at end of file, -EAGAIN, -E2BIG full without a line, -ENOMEM,
 * -errno.
 */
ssize_t linebuf_fill(struct linebuf *b, int fd) MUST_CHECK;
/* The same from a socket. A passed descriptor replaces *passed_fd (-1: none); further ones are closed. */
ssize_t linebuf_fill_passed(struct linebuf *b, int sock, int *passed_fd) MUST_CHECK;
/* The first whole line, without its end, or NULL. Valid until the buffer changes. */
const char *linebuf_line(const struct linebuf *b, size_t *ret_len);
/* Removes a line of len_bytes and its end. */
void linebuf_drop_line(struct linebuf *b, size_t len_bytes);
/* All or nothing: -ENOBUFS beyond the limit, -ENOMEM. */
int linebuf_append(struct linebuf *b, const char *data, size_t len_bytes) MUST_CHECK;
/* Sends without blocking: 0 everything is sent, -EAGAIN some is left, -errno. */
int linebuf_flush(struct linebuf *b, int sock) MUST_CHECK;

#endif
