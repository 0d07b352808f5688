/* SPDX-License-Identifier: MIT */
#include "wire/failure.h"

#include <stdio.h>
#include <string.h>

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

void failure_print_said(const struct failure *f)
{
	char text[sizeof(f->said)], *save = NULL;

	strcpy(text, f->said);
	for (char *line = strtok_r(text, "\r\n", &save); line; line = strtok_r(NULL, "\r\n", &save))
		fprintf(stderr, "    %s\n", clean_text(line));
}

int failure_print(const struct failure *f, enum exit_code exit, bool json)
{
	char text[4096];
	struct jsonw w;

	if (!json) {
		fprintf(stderr, COWCTL ": %s\n", f->why);
		failure_print_said(f);
		return exit;
	}
	jsonw_init(&w, text, sizeof(text));
	answer_error(&w, f->error, exit, f->why);
	if (jsonw_finish(&w))
		fputs(text, stdout);
	return exit;
}
