/* SPDX-License-Identifier: MIT */
/* Writes text in an HTML page. */
#ifndef COWFS_MEASURE_HTML_H
#define COWFS_MEASURE_HTML_H

#include <stdio.h>

/*
 * Escapes characters with a meaning in HTML, and writes U+FFFD for invisible ones (base/clean.h).
 */
void html_text(FILE *f, const char *text);
/*
 * Writes an external name in the same way, inside <bdi>, so that its direction does not affect its
 * neighbours.
 */
void html_name(FILE *f, const char *name);

#endif
