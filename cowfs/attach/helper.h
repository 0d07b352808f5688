/* SPDX-License-Identifier: MIT */
/*
 * Shared by mount.cowfs and umount.cowfs: program name, standard options, error messages and exit.
 */
#ifndef COWFS_ATTACH_HELPER_H
#define COWFS_ATTACH_HELPER_H

#include "base/util.h"

#define EXIT_MOUNT 32 /* of mount(8) and umount(8): failure */
#define HELPER_PATIENCE_MS 5000

/*
 * Call it first; prog is not copied. True: the command line asked only for -h, --help, -V or
 * --version, and the answer is printed. help prints the help.
 */
bool helper_begin(const char *prog, int argc, char **argv, void (*help)(void));

/* Prints a line on stderr after the program's name. Returns exit. */
int helper_fail(int exit, const char *fmt, ...) PRINTF(2, 3);

#endif
