/* SPDX-License-Identifier: MIT */
/*
 * Executes the installed program as a new spare. Nothing of it may be read from the root later: the
 * root may be the volume that it serves. So the program that was executed copies itself and its
 * libraries into RAM, and executes the copy.
 */
#ifndef COWFS_DAEMON_UPGRADE_H
#define COWFS_DAEMON_UPGRADE_H

#include "base/util.h"

/* Descriptors of a program that was executed */
enum {
	UPGRADE_LINK = 3, /* to the parent */
	UPGRADE_PROC,	  /* /proc */
	UPGRADE_KMSG,
	UPGRADE_SHARED, /* memory that parent and workers share */
	UPGRADE_ROOT,	/* the root directory to return to */
	UPGRADE_END
};
#define UPGRADE_FDS (UPGRADE_ROOT - UPGRADE_LINK)

/* The value of the option --spare: a program that copies itself, and the copy. Each may have
 * UPGRADE_FROM_RAM behind it: the first daemon was started from an initramfs. */
#define UPGRADE_LOAD "load"
#define UPGRADE_RUN "run"
#define UPGRADE_FROM_RAM ",ram"
#define UPGRADE_USER ",user=" /* of the workers: UID:GID */
#define UPGRADE_MS 60000      /* until the copy runs: it is read from the card */

/* Remembers the path of the running program, which is where the next version will be installed. */
int upgrade_remember_program(void) MUST_CHECK;
/* That path. */
const char *upgrade_program(void);
/*
 * Executes the installed program, as it is on the root of process 1. fd: UPGRADE_LINK to UPGRADE_SHARED.
 * Ends the process if it cannot.
 */
void upgrade_exec(const int fd[UPGRADE_FDS], char *const *argv) __attribute__((noreturn));
/* Executes a copy of this program. Returns only on failure: -errno. */
int upgrade_load(char *const *argv) MUST_CHECK;

#endif
