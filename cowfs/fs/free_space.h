/* SPDX-License-Identifier: MIT */
/*
 * The free space of the file system while it is mounted: its superblock on the device has this only
 * when it is frozen.
 *
 * A thread that lives for one question calls statfs, because the path to the mount point may lead
 * through a file system that does not answer. Call all functions from one thread.
 */
#ifndef COWFS_FS_FREE_SPACE_H
#define COWFS_FS_FREE_SPACE_H

#include <sys/types.h>

#include "base/util.h"

struct free_space;

/* In the thread of the caller: the free bytes. UINT64_MAX: not mounted. */
uint64_t free_space_now(int proc_dirfd, dev_t dev);
/* dev: as in quiesce.h. wake_fd: an eventfd that gets a 1 after each answer; duplicated. */
int free_space_new(struct free_space **ret, int proc_dirfd, dev_t dev, int wake_fd) MUST_CHECK;
void free_space_free(struct free_space *l); /* NULL allowed; does not wait */
void free_space_ask(struct free_space *l);  /* does nothing if a question is open */
bool free_space_asking(const struct free_space *l);
/* newest answer; UINT64_MAX: not mounted, or none yet */
uint64_t free_space_bytes(const struct free_space *l);
/* when its question was asked; 0: never */
uint64_t free_space_asked_ns(const struct free_space *l);

#endif
