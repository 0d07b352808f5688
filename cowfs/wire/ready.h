/* SPDX-License-Identifier: MIT */
/*
 * The result of starting a daemon: one line of JSON through a pipe, from the worker to the process
 * that started it ({"ok":true,"loop":"/dev/loop3","name":"root"} or an error as in proto.h).
 */
#ifndef COWFS_WIRE_READY_H
#define COWFS_WIRE_READY_H

#include "wire/proto.h"
#include "wire/rundir.h"

struct ready {
	enum exit_code exit; /* EXIT_OK: the volume is ready */
	int error;	     /* -errno */
	char loop[32], name[RUNDIR_NAME_BYTES];
	char why[512];
};

/* Best effort: the reader may be gone. */
void ready_send(int fd, const struct ready *r);
/* Waits for the line. *ret reports a missing line (the daemon died). */
void ready_wait(int fd, struct ready *ret);
/* Notifies the service manager if NOTIFY_SOCKET is set, and removes that from the environment. */
void ready_notify(const char *status);

#endif
