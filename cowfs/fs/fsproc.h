/* SPDX-License-Identifier: MIT */
/*
 * Processes that read what a card says (docs/DESIGN.md, "Who reads metadata").
 * fsproc_start forks a small process that forks one for each session: without capabilities, files
 * and system calls, but for a socket and memory. What such a process does can end a question, not
 * the caller. Not for concurrent use.
 */
#ifndef COWFS_FS_FSPROC_H
#define COWFS_FS_FSPROC_H

#include "base/util.h"

/*
 * From now on reader.h asks such a process. Call it before there are threads, and before
 * capabilities are dropped. prepare (may be NULL) is called in it while it still has all
 * privileges. keep_root: sessions keep user 0, without capabilities, because systemd ends the
 * processes of other users when it leaves an initramfs, '@' or not; else they get one that no other
 * process has. -errno of the fork.
 */
int fsproc_start(void (*prepare)(void *ctx), void *ctx, bool keep_root) MUST_CHECK;
/* The same, forked at the first question. For programs that may still do everything then. */
void fsproc_start_when_asked(void);
bool fsproc_on(void);
/* A stream socket to a new session, and its pidfd (-1: the kernel has none), for the caller to
 * close; -errno. The process that forks is replaced if it was killed; -EOWNERDEAD: that one,
 * too. */
int fsproc_session(int *ret_pid_fd) MUST_CHECK;
/* Ends it; questions are answered in this process again. For tests. */
void fsproc_stop(void);

#endif
