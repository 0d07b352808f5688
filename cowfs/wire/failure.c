/* SPDX-License-Identifier: MIT */
#include "wire/failure.h"

#include <stdio.h>

#include "base/clean.h"

int failure_vset(struct failure *f, enum exit_code exit, int error, const char *fmt, va_list ap)
{
	f->exit = exit;
	f->error = error;
	f->said[0] = '\0';
	vsnprintf(f->why, sizeof(f->why), fmt, ap);
	clean_text(f->why);
	return error;
}

int failure_set(struct failure *f, enum exit_code exit, int error, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	failure_vset(f, exit, error, fmt, ap);
	va_end(ap);
	return error;
}
