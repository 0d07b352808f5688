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
	enum exit_code exit;			/* EXIT_OK: the volume is ready */
	int error;				/* -errno */
	char loop[32], name[RUNDIR_NAME_BYTES]; /* for who waits: of facts.h */
	char why[512];
};

/* Best effort: the reader may be gone. */
void ready_send(int fd, const struct ready *r);
/* Waits for the line of the volume `name`. *ret reports a missing line (the daemon died). */
void ready_wait(int fd, const char *name, struct ready *ret);
/* False: this volume has no disk. */
bool ready_found(const char *name, struct ready *ret) MUST_CHECK;
/*
 * Connects to the service manager that started this process, which it does no more afterwards. A
 * descriptor; -ENOENT: there is none. ready_notify reports that the volume is ready.
 */
int ready_notify_open(void) MUST_CHECK;
void ready_notify(int fd, const char *status);

#endif
