/* SPDX-License-Identifier: MIT */
/* Text in a page. */
#ifndef COWFS_WEAR_HTML_H
#define COWFS_WEAR_HTML_H

#include <stdio.h>

/* With escapes for what means something in HTML, and U+FFFD for what does not show (base/clean.h). */
void html_text(FILE *f, const char *text);
/* A name from outside: the same in <bdi>, so that its direction does not reach its neighbours. */
void html_name(FILE *f, const char *name);

#endif
