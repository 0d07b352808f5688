/* SPDX-License-Identifier: MIT */
/*
 * quiesce_run for a worker without privileges. The broker runs it; it asks the worker back when the
 * file system is frozen (the seal), and for what only the worker knows.
 */
#ifndef COWFS_FS_QUIESCE_BROKER_H
#define COWFS_FS_QUIESCE_BROKER_H

#include "base/broker.h"
#include "fs/quiesce.h"

/* In the worker: as quiesce_run. Of *t the broker has its own: descriptors, dev and the times.
 * *ret_sealed: the seal was tried. */
int quiesce_ask(const struct quiesce_target *t, int (*seal)(void *ctx), void *seal_ctx,
		struct quiesce_report *ret, bool *ret_sealed) MUST_CHECK;

/* In the broker: carries out a BROKER_QUIESCE and makes *m the answer. where: proc_dirfd, dev, loop_fd.
 * The worker has at most seal_ns for a seal: then the file system is thawed. */
void quiesce_serve(int sock_fd, struct broker_message *m, const struct quiesce_target *where,
		   uint64_t seal_ns);

#endif
