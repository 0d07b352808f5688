/* SPDX-License-Identifier: MIT */
/* musl has no such header. */
#ifndef COWFS_MUSL_SYS_PIDFD_H
#define COWFS_MUSL_SYS_PIDFD_H

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

static inline int pidfd_open(pid_t pid, unsigned flags)
{
	return (int)syscall(SYS_pidfd_open, pid, flags);
}

static inline int pidfd_send_signal(int fd, int signal, siginfo_t *info, unsigned flags)
{
	return (int)syscall(SYS_pidfd_send_signal, fd, signal, info, flags);
}

#endif
