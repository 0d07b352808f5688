/* SPDX-License-Identifier: MIT */
#include "base/msg.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clean.h"

static const char *prog = "cowfs";
static _Atomic int kmsg_fd = -1;

void msg_set_prog(const char *name)
{
	prog = name;
}

void msg_to_kmsg(int fd)
{
	kmsg_fd = fd;
}

void msg(enum msg_level level, const char *fmt, ...)
{
	char line[512];
	int n, fd = kmsg_fd;
	va_list ap;

	if (fd >= 0)
		n = snprintf(line, sizeof(line), "<%d>%s: ", (int)level, prog);
	else
		n = snprintf(line, sizeof(line), "%s: ", prog);
	va_start(ap, fmt);
	n += vsnprintf(line + n, sizeof(line) - (size_t)n - 1, fmt, ap);
	va_end(ap);
	if (n > (int)sizeof(line) - 2)
		n = (int)sizeof(line) - 2;
	clean_text(line);
	line[n++] = '\n';
	if (write(fd >= 0 ? fd : STDERR_FILENO, line, (size_t)n) < 0)
		return; /* no other way to report it */
}

int msg_why(char *why, size_t n, int error, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, n, fmt, ap);
	va_end(ap);
	return error;
}
