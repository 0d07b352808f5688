/* SPDX-License-Identifier: MIT */
/*
 * Processes that read the content of a card (docs/design/hardening.md, "Who reads metadata").
 * fsproc_start forks a small process that forks one process for each session: without
 * capabilities, files and system calls, except for a socket and memory. Whatever such a process
 * does can end a question, but not the caller. Not for concurrent use.
 */
#ifndef COWFS_FS_FSPROC_H
#define COWFS_FS_FSPROC_H

#include "base/util.h"

/*
 * From now on reader.h asks such a process. Call this before there are threads, and before
 * capabilities are dropped. prepare (may be NULL) is called in the new process while it still has
 * all privileges. proc_dirfd: /proc, or -1 to open it. keep_root: sessions keep user 0, without
 * capabilities, because systemd ends the processes of other users when it leaves an initramfs, '@'
 * or not. Otherwise they get a user that no other process has. -errno of the fork.
 */
int fsproc_start(void (*prepare)(void *ctx), void *ctx, int proc_dirfd, bool keep_root) MUST_CHECK;
/*
 * The same, but forked at the first question. For programs that still have all privileges at that
 * time.
 */
void fsproc_start_when_asked(void);
bool fsproc_on(void);
bool fsproc_may_fork(void); /* fsproc_start_when_asked was called: boxed_run works as well */
/*
 * A stream socket to a new session, and its pidfd (-1: the kernel has no pidfds), for the caller to
 * close; -errno. The process that forks is replaced if it was killed; -EOWNERDEAD: the replacement
 * was killed too, or there was no answer in time.
 */
int fsproc_session(int *ret_pid_fd) MUST_CHECK;
/* For a child without privileges: it answers questions itself from now on. The processes stay those of
 * its parent. */
void fsproc_leave(void);
/* Ends the processes; this process answers questions itself again. For tests. */
void fsproc_stop(void);

#endif
