/* SPDX-License-Identifier: MIT */
/* The mount helpers' common part. */
#include "control/helper.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/msg.h"
#include "control/client.h"

static const char *program = "cowfs";

bool helper_begin(const char *prog, int argc, char **argv, void (*help)(void))
{
	program = prog;
	msg_set_prog(prog);
	client_no_seed();
	if (argc != 2)
		return false;
	if (!strcmp(argv[1], "-h") || !strcmp(argv[1], "--help"))
		help();
	else if (!strcmp(argv[1], "-V") || !strcmp(argv[1], "--version"))
		puts("cowfs " COWFS_VERSION);
	else
		return false;
	return true;
}

int helper_fail(int exit, const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "%s: ", program);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	return exit;
}
