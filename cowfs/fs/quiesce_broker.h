/* SPDX-License-Identifier: MIT */
/*
 * quiesce_run for a worker without privileges. The broker runs it; it asks the worker back when the
 * file system is frozen (the seal), and for what only the worker knows.
 */
#ifndef COWFS_FS_QUIESCE_BROKER_H
#define COWFS_FS_QUIESCE_BROKER_H

#include "base/broker.h"
#include "fs/quiesce.h"

/* In the broker: carries out a BROKER_QUIESCE and makes *m the answer. where: proc_dirfd, dev, loop_fd.
 * The worker has at most seal_ns for a seal: then the file system is thawed. */
void quiesce_serve(int sock_fd, struct broker_message *m, const struct quiesce_target *where,
		   uint64_t seal_ns);

#endif
