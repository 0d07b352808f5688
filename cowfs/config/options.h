/* SPDX-License-Identifier: MIT */
/* Command lines of both programs: long options, before or after the operands, from one table that
 * is also the help. */
#ifndef COWFS_CONFIG_OPTIONS_H
#define COWFS_CONFIG_OPTIONS_H

#include <stdio.h>

#include "base/util.h"

#define OPTIONS_MAX 48 /* ids are below */
#define OPERANDS_MAX 4

struct option_spec {
	unsigned id;
	const char *name; /* without "--"; one letter: it has one dash; NULL ends the table */
	const char *arg;  /* what to call its argument in the help; NULL: it has none */
	const char *help;
};

struct options {
	const char *value[OPTIONS_MAX]; /* NULL not given; "" given, if it has no argument */
	const char *operand[OPERANDS_MAX];
	unsigned operands;
};

/* argv without the program's (and command's) name. -EINVAL with a sentence in why. */
int options_parse(int argc, char *const *argv, const struct option_spec *specs, struct options *ret,
		  char *why, size_t why_bytes) MUST_CHECK;
void options_help(FILE *f, const struct option_spec *specs);

#endif
