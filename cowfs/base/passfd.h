/* SPDX-License-Identifier: MIT */
/* Messages with descriptors on Unix sockets. */
#ifndef COWFS_BASE_PASSFD_H
#define COWFS_BASE_PASSFD_H

#include <sys/types.h>

#include "base/util.h"

#define PASSFD_MAX 32u

/* From now on nobody passes a descriptor to this socket (Linux 6.16): its close, which may wait for whoever passed it, would be
 * this process's. */
void passfd_refuse(int sock_fd);

/* Sends one message; the descriptors stay the caller's. flags: of sendmsg. -EMSGSIZE: only a part was
 * sent (stream sockets). */
int passfd_send(int sock_fd, const void *data, size_t bytes, const int *fd, unsigned n,
		int flags) MUST_CHECK;
/* Receives one message and at most max descriptors, which are the caller's then; more are closed.
 * Returns its length, 0: end of file, or -errno. *ret_n: number of descriptors. */
ssize_t passfd_receive(int sock_fd, void *data, size_t bytes, int *ret_fd, unsigned max,
		       unsigned *ret_n) MUST_CHECK;

#endif
