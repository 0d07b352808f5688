/* SPDX-License-Identifier: MIT */
/*
 * How much is free in the file system as it is mounted now: its superblock on the device tells that only when it is frozen.
 *
 * statfs by a thread that lives for one question, because the way to the mount point may lead over a file system that does
 * not answer. All functions from one thread.
 */
#ifndef COWFS_FS_FREE_SPACE_H
#define COWFS_FS_FREE_SPACE_H

#include <sys/types.h>

#include "base/util.h"

struct livefree;

/* dev: as in quiesce.h. wake_fd: an eventfd that gets a 1 after each answer; duplicated. */
int livefree_new(struct livefree **ret, int proc_dirfd, dev_t dev, int wake_fd) MUST_CHECK;
void livefree_free(struct livefree *l); /* NULL allowed; does not wait */
void livefree_ask(struct livefree *l);	/* nothing if a question is open */
bool livefree_asking(const struct livefree *l);
uint64_t livefree_bytes(const struct livefree *l); /* newest answer; UINT64_MAX: not mounted, or none yet */
uint64_t livefree_asked_ns(const struct livefree *l); /* when its question was asked; 0: never */

#endif
