/* SPDX-License-Identifier: MIT */
/* Other programs. */
#ifndef COWFS_BASE_PROGRAM_H
#define COWFS_BASE_PROGRAM_H

#include "base/util.h"

/*
 * Runs a program and waits. out_fd gets its output and its errors; -1: they go to where ours go.
 * Its exit status; 127: it cannot be run; 128 + n: ended by signal n.
 */
int program_run(const char *const argv[], int out_fd) MUST_CHECK;

#endif
