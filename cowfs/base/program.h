/* SPDX-License-Identifier: MIT */
/* Runs other programs. */
#ifndef COWFS_BASE_PROGRAM_H
#define COWFS_BASE_PROGRAM_H

#include "base/util.h"

/*
 * Runs a program and waits for its end. in_fd is its input, out_fd gets its output and its errors; -1: those of this
 * process. Returns the exit status; 127: the program cannot be run; 128
 * + n: signal n ended it.
 */
int program_run(const char *const argv[], int in_fd, int out_fd) MUST_CHECK;

#endif
