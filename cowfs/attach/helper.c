/* SPDX-License-Identifier: MIT */
/* Common part of the mount helpers. */
#include "attach/helper.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clean.h"
#include "base/msg.h"
#include "base/program.h"
#include "wire/client.h"

static const char *program = "cowfs";

bool helper_begin(const char *prog, int argc, char **argv, void (*help)(void))
{
	program_begin();
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
	char text[PATH_MAX + 1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	fprintf(stderr, "%s: %s\n", program, clean_text(text));
	return exit;
}
