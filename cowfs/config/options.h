/* SPDX-License-Identifier: MIT */
/*
 * Command lines of both programs: long options, before or after the operands, from one table that
 * also provides the help.
 */
#ifndef COWFS_CONFIG_OPTIONS_H
#define COWFS_CONFIG_OPTIONS_H

#include <stdio.h>

#include "base/util.h"

#define OPTIONS_MAX 100	  /* ids are smaller */
#define OPERANDS_MAX 1024 /* paths */

struct option_spec {
	unsigned id;
	const char *name; /* without "--"; a single letter takes one dash; NULL ends the table */
	const char *arg;  /* name of its argument in the help; NULL: takes none */
	const char *help; /* NULL: not for users, the help does not show it */
};

struct options {
	const struct option_spec *specs; /* of options_parse */
	const char *value[OPTIONS_MAX];	 /* NULL: not given; "": given, and takes no argument */
	const char *operand[OPERANDS_MAX + 1]; /* ends with NULL */
	unsigned operands;
};

/* argv without the name of the program (and of the command). -EINVAL with a sentence in why. */
int options_parse(int argc, char *const *argv, const struct option_spec *specs, struct options *ret,
		  char *why, size_t why_bytes) MUST_CHECK;
/* Of an option in that table: by its long name, if it has one. NULL: it is not there. */
const struct option_spec *options_spec(const struct options *o, unsigned id);
/* Is --NAME among the words? For an error before the options are known: it counts anywhere. */
bool options_name_given(int argc, char *const *argv, const char *name);
void options_help(FILE *f, const struct option_spec *specs);

#endif
