/* SPDX-License-Identifier: MIT */
/*
 * Processes that read the content of a card (docs/design/hardening.md, "Who reads metadata"): one for
 * each session, without capabilities, files and system calls, except for a socket and memory.
 * Whatever such a process does can end a question, but not the caller. A worker may not fork: its
 * broker does. Not for concurrent use.
 */
#ifndef COWFS_FS_FSPROC_H
#define COWFS_FS_FSPROC_H

#include <sys/types.h>

#include "base/util.h"

/*
 * From now on reader.h asks such processes. command: this process keeps its privileges, so boxed_run
 * works as well. keep_root: sessions keep user 0, without capabilities, because systemd ends the
 * processes of other users when it leaves an initramfs, '@' or not. Otherwise they get a user that
 * no other process has.
 */
void fsproc_start(bool command, bool keep_root);
bool fsproc_on(void);
bool fsproc_may_fork(void); /* is this a command? */
/* A stream socket to a new session, for the caller to close, and a number for fsproc_end; -EAGAIN:
 * there is no memory or no process for it. */
int fsproc_session(pid_t *ret_pid) MUST_CHECK;
/* Ends a session, which may have been taken over, so that it does not end by itself. */
void fsproc_end(pid_t pid);
/* For a child without privileges: it answers questions itself from now on. */
void fsproc_leave(void);

/* For the broker: the same for its worker. proc_dirfd: /proc, or -1 if this process is not protected
 * from the OOM killer. */
int fsproc_fork(int proc_dirfd, bool keep_root, pid_t *ret_pid) MUST_CHECK;
/* -EPERM: pid is not a session of this process. */
int fsproc_reap(pid_t pid) MUST_CHECK;

#endif
