/* SPDX-License-Identifier: MIT */
/*
 * Why an operation failed: a sentence for people, the errno and the exit code. Functions that
 * explain their errors fill a struct failure and print nothing; only a program's main part prints.
 */
#ifndef COWFS_WIRE_FAILURE_H
#define COWFS_WIRE_FAILURE_H

#include <stdarg.h>

#include "wire/proto.h"

/* The program that messages name: cowfs-recover is compiled with its own name (Makefile). */
#ifndef COWCTL
#define COWCTL "cowctl"
#endif

struct failure {
	enum exit_code exit;
	int error;	 /* -errno */
	char why[1024];	 /* one line, cleaned */
	char said[1501]; /* last output of a program that failed, unchanged; "": none */
};

/* Fills all of *f; said is "". Returns error. */
int failure_set(struct failure *f, enum exit_code exit, int error, const char *fmt, ...)
	PRINTF(4, 5);
/* The same with EXIT_FAILED. */
#define failure(f, error, ...) failure_set(f, EXIT_FAILED, error, __VA_ARGS__)
int failure_vset(struct failure *f, enum exit_code exit, int error, const char *fmt, va_list ap)
	PRINTF(4, 0);
/* For people on stderr, as "cowctl: WHY" and what a program said; or in JSON on stdout. Returns
 * exit, which both say instead of f->exit. */
int failure_print(const struct failure *f, enum exit_code exit, bool json);
/* The lines of f->said alone, indented, on stderr. */
void failure_print_said(const struct failure *f);

#endif
