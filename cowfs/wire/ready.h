/* SPDX-License-Identifier: MIT */
/*
 * How the start of a daemon went: one line of JSON through a pipe, from the worker to whoever
 * started it ({"ok":true,"loop":"/dev/loop3","name":"root"} or an error as in proto.h).
 */
#ifndef COWFS_WIRE_READY_H
#define COWFS_WIRE_READY_H

#include "wire/proto.h"
#include "wire/rundir.h"

struct ready {
	enum exit_code exit; /* EXIT_OK: the volume is there */
	int error;	     /* -errno */
	char loop[32], name[RUNDIR_NAME_BYTES];
	char why[512];
};

/* Best effort: nobody may be there to read it. */
void ready_send(int fd, const struct ready *r);
/* Waits for the line. Without one (the daemon died) *ret says so. */
void ready_wait(int fd, struct ready *ret);
/* Tells the service manager, if NOTIFY_SOCKET is set, and takes that out of the environment. */
void ready_notify(const char *status);

#endif
