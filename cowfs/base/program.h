/* SPDX-License-Identifier: MIT */
/* What every program does first, and how it runs others. */
#ifndef COWFS_BASE_PROGRAM_H
#define COWFS_BASE_PROGRAM_H

#include <sys/types.h>

#include "base/util.h"

/*
 * First in every main, before anything is opened: descriptors 0 to 2 that the caller has closed become /dev/null. Else the
 * next file has such a number, and gets what is printed, or is replaced by /dev/null in a daemon. A reader that has gone
 * does not end the program either: whoever changes something has to finish it, or to undo it.
 */
void program_begin(void);

/* Waits for the end of a child, and returns as program_run; pid negative: there is none. */
int program_wait(pid_t pid);
/*
 * Runs a program and waits for its end. in_fd is its input, out_fd gets its output and its errors; -1: those of this
 * process. Returns the exit status; 127: the program cannot be run; 128
 * + n: signal n ended it.
 */
int program_run(const char *const argv[], int in_fd, int out_fd) MUST_CHECK;

/*
 * Calls work in a child that has fd as descriptor 0, and no other. True: it ended within ms. Else it may be in a call that
 * nobody can end, because a device or a file system does not answer: it is told to end, and left behind. False as well if
 * there is no child.
 */
bool program_apart(int fd, void (*work)(void *ctx), void *ctx, int ms) MUST_CHECK;

/*
 * The last n - 1 bytes that a program has written to this file, with the name of the device that it was given replaced by the
 * one that the user knows.
 */
void program_output(int out_fd, const char *device, const char *known_as, char *ret, size_t n);

#endif
