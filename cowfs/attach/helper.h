/* SPDX-License-Identifier: MIT */
/* What mount.cowfs and umount.cowfs have in common: who speaks, and how they end. */
#ifndef COWFS_ATTACH_HELPER_H
#define COWFS_ATTACH_HELPER_H

#include "base/util.h"

#define EXIT_MOUNT 32 /* of mount(8) and umount(8): it failed */
#define HELPER_PATIENCE_MS 5000

/* First of all; prog is not copied. True: -h, --help, -V or --version was all that was asked for,
 * and has been answered; help prints. */
bool helper_begin(const char *prog, int argc, char **argv, void (*help)(void));

/* A line on stderr, behind the program's name. Returns exit. */
int helper_fail(int exit, const char *fmt, ...) PRINTF(2, 3);

#endif
