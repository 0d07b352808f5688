/* SPDX-License-Identifier: MIT */
/*
 * Text that came from outside (process names, file names, mount points, labels, models, answers of
 * other programs), made fit for one line of a terminal, a log or a list of records. Used where such
 * text is read, and again where it is printed.
 */
#ifndef COWFS_BASE_CLEAN_H
#define COWFS_BASE_CLEAN_H

#include "base/util.h"

/* Length of the UTF-8 sequence at s, 0 if it is none (overlong, surrogate, cut). */
size_t utf8_bytes(const char *s);
/* Has the character at s, utf8_bytes() of it n, a shape of its own? False: control characters (C0,
 * DEL, C1), separators of lines and paragraphs, marks that turn the direction of writing, the byte
 * order mark, bytes that are not UTF-8. */
bool utf8_shows(const char *s, size_t n);
/* Replaces each byte of what does not show by '?', in place: the length stays. Returns text. */
char *clean_text(char *text);
/* The same on a copy, cut to the buffer. Returns buf. */
char *clean_copy(char *buf, size_t size_bytes, const char *text);
#define CLEAN(text) clean_copy((char[512]){ 0 }, 512, (text))
/* How many characters text has. */
size_t clean_columns(const char *text);

#endif
